"""Servers whose links do not say how ranges are read: exact all the same, or every refusal in the error.

The servers are those of `tests.servers.dialects`, in this process.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio.testing
from mcp_types import JSONRPCRequest

from playhead.client import Session, connect
from playhead.errors import PlayheadError, ProtocolError, RangeNotHonouredError, UsageError
from playhead.stream.options import StreamOptions, StreamStatistics
from tests.servers.dialects import (
    DIALECTS,
    PAGE_BYTES,
    URI,
    Dialect,
    Refused,
    by_uri,
    dialect_of,
)
from tests.unit.raw_server import RawServer, Refusal

DATA = random.Random(17).randbytes(500_000)
"""As little as has a page of the largest size, and several of every other."""


class DialectServer(RawServer):
    """A dialect behind memory streams, so that a simulated clock runs the whole session."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__({}, capabilities={})
        self.dialect = dialect

    async def _answer(self, request: JSONRPCRequest, write_stream: Any) -> None:
        try:
            answer: Any = self.dialect.answer(request.method, request.params or {})
        except Refused as refused:
            answer = Refusal(-32602, str(refused))
        self._answers[request.method] = answer
        await super()._answer(request, write_stream)


async def read_one(session: Session, options: StreamOptions | None = None) -> tuple[bytes, StreamStatistics]:
    (link,) = (await session.call_tool("song")).links
    async with session.open(link, options=options) as stream:
        data = await stream.read_all()
        return data, stream.statistics()


STRATEGIES = {
    name: "uri-template" if "path" in name or "pages" in name or "address" in name else name
    for name in DIALECTS
    if name != "nothing"
} | {"next-offset": "cursor"}


@pytest.mark.parametrize("announces_size", [True, False], ids=["size", "no-size"])
@pytest.mark.parametrize("name", STRATEGIES)
async def test_the_bytes_are_exact_without_a_strategy_and_what_worked_is_remembered(
    autojump_clock: trio.testing.MockClock, name: str, announces_size: bool
) -> None:
    dialect = dialect_of(name, DATA, announces_size=announces_size)
    async with connect(DialectServer(dialect)) as session:
        data, statistics = await read_one(session)
        assert data == DATA
        assert statistics.strategy == STRATEGIES[name], statistics.strategy_reason
        data, statistics = await read_one(session)
    assert data == DATA
    assert statistics.strategy == STRATEGIES[name]
    assert "refused" not in statistics.strategy_reason


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("size", [1, 3, 6, 500, 8_192, PAGE_BYTES])
async def test_files_of_every_length_are_exact(
    autojump_clock: trio.testing.MockClock, name: str, size: int
) -> None:
    dialect = dialect_of(name, DATA[:size])
    try:
        async with connect(DialectServer(dialect)) as session:
            data, statistics = await read_one(session)
    except PlayheadError:
        assert name.startswith(("path-guess", "sized-pages")), "so few bytes tell nothing only there"
        assert size <= 6
    else:
        assert data == DATA[:size]
        assert not statistics.size_was_wrong


async def test_an_answer_longer_than_its_range_is_the_whole_and_is_read_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dialect = dialect_of("whole", DATA)
    dialect.read = by_uri(".*", lambda data, _: data)
    async with connect(DialectServer(dialect)) as session:
        data, statistics = await read_one(session)
    assert data == DATA
    assert (statistics.strategy, dialect.reads[URI]) == ("whole", 1)
    assert "a small read with arguments was answered with the whole" in statistics.strategy_reason


async def test_a_server_with_its_own_page_size_is_not_taken_for_the_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def own_page(dialect: Dialect, _uri: str, params: dict[str, Any]) -> bytes:
        start: int = (params.get("arguments") or {}).get("start", 0)
        return dialect.data[start : start + 100_001]

    dialect = dialect_of("whole", DATA)
    dialect.read = own_page
    async with connect(DialectServer(dialect)) as session:
        data, statistics = await read_one(session)
    assert (data, statistics.strategy) == (DATA, "arguments")


async def test_a_form_is_tried_with_a_single_small_read(autojump_clock: trio.testing.MockClock) -> None:
    dialect = dialect_of("query", DATA)
    async with connect(DialectServer(dialect)) as session:
        await read_one(session)
    assert dialect.reads[URI] == 1, "arguments; query is next"
    assert dialect.reads[f"{URI}?start=0&end=8192"] == 1


async def test_a_seek_reads_from_the_page_that_holds_the_offset(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dialect = dialect_of("pages-from-1", DATA)
    async with connect(DialectServer(dialect)) as session:
        (link,) = (await session.call_tool("song")).links
        options = StreamOptions(capacity_bytes=128 << 10, page_bytes=8 << 10)
        async with session.open(link, options=options) as stream:
            assert await stream.receive_some(10) == DATA[:10]
            await stream.seek(400_123)
            assert await stream.read_all() == DATA[400_123:]


@pytest.mark.parametrize(
    "pages",
    [
        lambda index: DATA[index * 900 : index * 900 + 900 - index],
        lambda index: DATA[:900] if index < 5 else b"",
        lambda index: bytes(900) if index < 5 else b"",
        lambda index: DATA[index * 900 : index * 900 + 900 - (index == 4) * 7],
    ],
    ids=["shrinking", "the same", "silence", "one short in the middle"],
)
async def test_numbered_pages_of_something_else_are_never_joined(
    autojump_clock: trio.testing.MockClock, pages: Callable[[int], bytes]
) -> None:
    dialect = dialect_of("pages-from-0", DATA, announces_size=False)
    dialect.read = by_uri(rf"{URI}/(?P<a>\d+)", lambda _, match: pages(int(match["a"])))
    async with connect(DialectServer(dialect)) as session:
        with pytest.raises(PlayheadError) as caught:
            await read_one(session)
    assert "uri-template (" in str(caught.value) or isinstance(caught.value, RangeNotHonouredError)


@pytest.mark.parametrize(
    "part",
    [
        lambda data, a, b: data[b : b + 4096],
        lambda data, a, b: data[a * b :][:b],
        lambda data, a, b: data[a * 1024 :][: b * 1024],
        lambda data, a, b: data[:b],
    ],
    ids=["other order", "page and size", "kilobytes", "no start"],
)
async def test_variables_that_mean_something_else_refuse_the_form(
    autojump_clock: trio.testing.MockClock, part: Callable[[bytes, int, int], bytes]
) -> None:
    dialect = dialect_of("path-guess-end", DATA)
    dialect.read = by_uri(
        rf"{URI}/(?P<a>\d+)/(?P<b>\d+)", lambda data, match: part(data, int(match["a"]), int(match["b"]))
    )
    async with connect(DialectServer(dialect)) as session:
        with pytest.raises(PlayheadError, match=r"uri-template \("):
            await read_one(session)


async def test_the_error_names_every_refusal_and_what_was_listed_and_does_not_fit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(DialectServer(dialect_of("nothing", DATA))) as session:
        with pytest.raises(PlayheadError) as caught:
            await read_one(session)
    message = str(caught.value)
    for form in ("arguments", "query", "params", "whole"):
        assert f"{form} (-32602: unknown resource" in message
    assert "the templates song://{id}/{quality}, album://{id}" in message
    assert "the tools fetch_song (expected offset" in message


async def test_a_link_that_its_server_forgot_says_so(autojump_clock: trio.testing.MockClock) -> None:
    async with connect(DialectServer(dialect_of("nothing", DATA))) as session:
        with pytest.raises(PlayheadError, match=r"tool song returned this link, and .* a gateway that"):
            await read_one(session)
        with pytest.raises(PlayheadError) as caught:
            async with session.open(URI) as stream:
                await stream.read_all()
    assert "returned this link" not in str(caught.value), "no tool returned it"


async def test_a_cursor_stream_does_not_seek_and_a_repeated_cursor_is_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dialect = dialect_of("cursor", DATA)
    async with connect(DialectServer(dialect)) as session, session.open(URI) as stream:
        await stream.receive_some(10)
        assert not stream.seekable
        with pytest.raises(UsageError, match="cursor"):
            await stream.seek(0)
    dialect.call = lambda *_: {"data": "AAAA", "next_cursor": "again"}
    async with connect(DialectServer(dialect)) as session:
        with pytest.raises(ProtocolError, match="expected a new cursor"):
            await read_one(session)
