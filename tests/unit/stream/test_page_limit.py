"""A gateway that limits its messages: pages that fail by their size are read in halves, and the rest too."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
import trio.testing

from playhead.errors import (
    ConnectionLostError,
    DeadlineError,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    RemoteError,
    ServerError,
    TransportError,
    WebSocketClosedError,
)
from playhead.limits import KIB, MIB
from playhead.stream.answer import Page
from playhead.stream.options import StreamOptions, StreamStatistics
from playhead.stream.page_limit import SMALLEST_PAGE_BYTES, PageLimit, names_size
from playhead.stream.reader import open_stream
from playhead.testing.pages import ScriptedPages

DATA = random.Random(21).randbytes(9 * MIB + 77)
LARGE = StreamOptions(page_bytes=2 * MIB, page_bytes_max=2 * MIB, profile="save")


def said(message: str, code: int = -32603) -> ServerError:
    return ServerError(
        f"gw answered resources/read with error {code}: {message}", code=code, server_message=message
    )


NAMED: list[PlayheadError] = [
    # agentgateway, in both of its versions; the others are quoted from reports about them.
    said("failed to send message: http request failed: body exceeded buffer limit"),
    said("failed to send message: http request failed: length limit exceeded"),
    said("event exceeded max line length of 1048576"),
    said("bufio.Scanner: token too long"),
    said("Response payload size exceeded maximum allowed payload size (6291556 bytes)."),
    said("rpc error: code = ResourceExhausted desc = received message larger than max (4623689 vs. 4194304)"),
    HttpRefusedError("http://h/ answered HTTP 413 Content Too Large: is it an MCP endpoint?", status=413),
    HttpStatusError("http://h/ answered HTTP 502 Bad Gateway: upstream response too large", status=502),
    WebSocketClosedError("the server closed the WebSocket", code=1009, reason=""),
]
UNNAMED: list[PlayheadError] = [
    said("Internal error"),
    said("Rate limit exceeded: too many requests, try again", -32000),
    said("exceeded the limit of requests per minute", -32000),
    said("upstream took too long to respond"),
    said("offset 917504 exceeds the size 917000", -32602),
    said("Requested range exceeds content length", -32602),
    HttpStatusError("http://h/ answered HTTP 502 Bad Gateway", status=502),
    ConnectionLostError("the connection was lost"),
    WebSocketClosedError("the server closed the WebSocket", code=1006, reason=""),
]


class Gateway:
    """Passes on messages of up to `limit_bytes`, and answers others with `error`; with None it is silent."""

    def __init__(self, limit_bytes: int, error: Callable[[], PlayheadError] | None) -> None:
        self.server = ScriptedPages(DATA, end="done")
        self.limit_bytes = limit_bytes
        self.error = error
        self.refused: list[tuple[int, int]] = []

    async def __call__(self, start: int, end: int) -> Page:
        if min(end, len(DATA)) - start > self.limit_bytes:
            self.refused.append((start, end))
            if self.error is None:
                await trio.sleep_forever()
            else:
                raise self.error()
        return await self.server(start, end)


async def read(gateway: Gateway, options: StreamOptions = LARGE) -> StreamStatistics:
    async with open_stream(gateway, options=options) as stream:
        assert await stream.read_all() == DATA
        return stream.statistics()


@pytest.mark.parametrize("error", NAMED, ids=str)
async def test_a_page_that_was_too_large_is_halved_until_it_gets_through(
    error: PlayheadError, autojump_clock: trio.testing.MockClock
) -> None:
    gateway = Gateway(300_000, lambda: error)
    statistics = await read(gateway)
    most = max(record.end - record.start for record in gateway.server.reads if record.start < len(DATA) // 2)
    assert 128 * KIB <= most <= 300_000
    assert 0 < len(gateway.refused) <= 3 * 16, "the pages in flight, and no other"
    assert statistics.retries == 0, "none of them waits for the planner's patience"
    assert statistics.requests == len(gateway.server.reads) + len(gateway.refused)


@pytest.mark.parametrize("error", [*UNNAMED, None], ids=str)
async def test_a_page_that_fails_without_a_reason_is_tried_again_in_half(
    error: PlayheadError | None, autojump_clock: trio.testing.MockClock
) -> None:
    gateway = Gateway(300_000, None if error is None else lambda: error)
    options = StreamOptions(page_bytes=MIB, profile="save", timeout=5)
    statistics = await read(gateway, options)
    assert statistics.bytes == len(DATA)
    assert gateway.refused


async def test_a_failure_of_a_page_no_larger_than_others_is_not_its_size(
    autojump_clock: trio.testing.MockClock,
) -> None:
    faults = {5 * MIB: [said("Internal error"), said("Internal error")]}
    server = ScriptedPages(DATA, end="done", faults=faults)
    async with open_stream(server, options=StreamOptions(page_bytes=256 * KIB)) as stream:
        assert await stream.read_all() == DATA
    late = [record.end - record.start for record in server.reads if 6 * MIB < record.start < 8 * MIB]
    assert min(late) >= 256 * KIB


async def test_a_limit_that_nobody_named_is_doubted_after_a_while() -> None:
    limit = PageLimit()
    asked: list[int] = []

    async def page(start: int, end: int) -> Page:
        asked.append(end - start)
        if len(asked) == 2:
            raise TransportError("something happened")
        return Page(blobs=(bytes(end - start),))

    await limit.read(page, 0, 4096)
    with pytest.raises(TransportError):
        await limit.read(page, 0, 8192)
    assert limit.bytes == 4096
    for _ in range(200):
        await limit.read(page, 0, 65536)
    assert max(asked) == 16384
    assert limit.bytes is not None


@pytest.mark.parametrize("own", [{"own_page_bytes": 3278}, {"cap_bytes": 3278}], ids=str)
async def test_a_server_with_a_page_size_of_its_own_is_not_taken_for_a_limit(
    own: dict[str, int], autojump_clock: trio.testing.MockClock
) -> None:
    data = bytes(30_000)  # no fingerprint tells a page of it from another
    server = ScriptedPages(
        data,
        stalls={0: 40.0, 1: 40.0},
        cap_bytes=own.get("cap_bytes"),
        own_page_bytes=own.get("own_page_bytes"),
    )
    async with open_stream(server, options=StreamOptions(page_bytes=20_000, timeout=10)) as stream:
        assert await stream.read_all() == data


async def test_reads_that_time_out_together_halve_the_page_once() -> None:
    limit = PageLimit()
    late = DeadlineError("no byte for 5 s")

    async def page(start: int, end: int) -> Page:
        return Page(blobs=(bytes(end - start),))

    await limit.read(page, 0, 4096)
    for _ in range(3):
        limit.timed_out(64 * KIB, late, sent_at=0.0, now=5.0)
    assert limit.bytes == 32 * KIB
    limit.timed_out(64 * KIB, late, sent_at=5.5, now=10.5)
    assert limit.bytes == 16 * KIB


async def test_an_error_that_no_smaller_page_avoids_is_raised_and_limits_nothing() -> None:
    limit = PageLimit()
    asked: list[int] = []

    async def page(start: int, end: int) -> Page:
        asked.append(end - start)
        raise said("the song is too long")

    with pytest.raises(ServerError, match="too long"):
        await limit.read(page, 0, 64 * KIB)
    assert asked[-1] == SMALLEST_PAGE_BYTES
    assert limit.bytes is None


async def test_the_rest_of_a_page_is_left_to_the_planner() -> None:
    """Two answers of a server that ignores ranges, joined, would pass for one page."""
    limit = PageLimit()
    whole = random.Random(3).randbytes(2000)
    asked: list[tuple[int, int]] = []

    async def page(start: int, end: int) -> Page:
        asked.append((start, end))
        if end - start > 2000:
            raise said("message too large")
        return Page(blobs=(whole,))

    assert (await limit.read(page, 2000, 10_000)).blobs == (whole,)
    assert asked == [(2000, 10_000), (2000, 6000), (2000, 4000)]


@pytest.mark.parametrize("error", NAMED, ids=str)
def test_an_error_names_the_size(error: PlayheadError) -> None:
    assert names_size(error)


@pytest.mark.parametrize("error", [*UNNAMED, RemoteError("too large")], ids=str)
def test_an_error_about_something_else_does_not(error: PlayheadError) -> None:
    assert not names_size(error)
