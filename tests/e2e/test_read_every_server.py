"""One resource read from servers that each differ from the plain one: byte-exact, or a typed error.

The servers are processes of their own (`tests/servers/pages.py`). `--full-size` reads 32 MiB from all.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from playhead import errors
from playhead.client import connect
from playhead.limits import MIB, Limits
from playhead.stream.options import StreamOptions, StreamStatistics
from tests.servers.launch import http_process, pages_command
from tests.servers.payload import Payload

ODD_BYTES = 4321
"""Beyond a whole number of pages of any size, so that the last page is short."""

FULL_BYTES = 32 * MIB + ODD_BYTES
DAILY_BYTES = 4 * MIB + ODD_BYTES

BOTH = ("stdio", "http")
ALWAYS_FULL = {"plain"}
RIGHT_ON_BOTH = (
    "plain",
    "arguments-only",
    "template-only",
    "cap64k",
    "split",
    "ignore-range",
    "own-page-small",
    "own-page-big",
    "size-too-small",
    "size-too-big",
    "end-empty-list",
    "end-done",
    "end-416",
    "stall-once",
    "die-once",
    "serial",
    "shuffle",
    "overlap-disagree",  # what a page has beyond its range is nobody's
    "error-once",
)
ONLY_HTTP = ("fail-once", "drop-connection")
RIGHT = [(name, transport) for name in RIGHT_ON_BOTH for transport in BOTH]
RIGHT += [(name, "http") for name in ONLY_HTTP]

WRONG: list[tuple[str, type[errors.RemoteError]]] = [
    ("bad-base64", errors.Base64Error),
    ("text-for-bytes", errors.TextContentError),
]


@asynccontextmanager
async def serving(
    behaviour: str, transport: str, size: int, tmp_path: Path
) -> AsyncIterator[str | list[str]]:
    options = ["--behaviour", behaviour, "--size", size, "--once", tmp_path / "happened"]
    command = pages_command(transport, *options)
    if transport == "stdio":
        yield command
    else:
        async with http_process(command, restart=behaviour == "die-once") as url:
            yield url


async def save(
    target: str | list[str], path: Path, *, options: StreamOptions | None = None, limits: Limits | None = None
) -> StreamStatistics:
    async with connect(target, limits=limits or Limits()) as session:
        (link,) = (await session.call_tool("link")).links
        async with session.open(link, options=options or StreamOptions()) as stream:
            return await stream.save(path)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


SLOW = pytest.mark.slow("a server process for each of 46 rows")
"""For all but the plain server."""


@pytest.mark.parametrize(
    ("behaviour", "transport"),
    [pytest.param(*row, marks=[] if row[0] == "plain" else SLOW) for row in RIGHT],
    ids=lambda value: str(value),
)
async def test_the_bytes_are_exact(
    behaviour: str, transport: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    full = pytestconfig.getoption("--full-size") or behaviour in ALWAYS_FULL
    size = FULL_BYTES if full else DAILY_BYTES
    path = tmp_path / "saved"
    with trio.fail_after(120):
        async with serving(behaviour, transport, size, tmp_path) as target:
            statistics = await save(target, path)
    assert path.stat().st_size == size
    assert hashlib.sha256(path.read_bytes()).hexdigest() == Payload(size_bytes=size).sha256()
    assert statistics.bytes == size
    if behaviour in {"size-too-small", "size-too-big"}:
        assert statistics.size_was_wrong
    if behaviour in {"stall-once", "die-once"}:
        assert (tmp_path / "happened").exists(), "the server never came to its fault: the test shows nothing"


@SLOW
@pytest.mark.parametrize("transport", BOTH)
@pytest.mark.parametrize(("behaviour", "error"), WRONG, ids=lambda value: str(value))
async def test_what_cannot_be_right_is_a_typed_error_and_leaves_no_file(
    behaviour: str, error: type[errors.RemoteError], transport: str, tmp_path: Path
) -> None:
    path = tmp_path / "saved"
    with trio.fail_after(60):
        async with serving(behaviour, transport, DAILY_BYTES, tmp_path) as target:
            with pytest.raises(error) as caught:
                await save(target, path)
    assert files(tmp_path) <= {"happened"}
    if isinstance(caught.value, errors.Base64Error):
        assert 0 < caught.value.offset < DAILY_BYTES
        assert str(caught.value.offset) in str(caught.value)


@SLOW
@pytest.mark.parametrize("transport", BOTH)
async def test_an_endless_stream_ends_at_the_cap_with_an_error(transport: str, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    with trio.fail_after(60):
        async with serving("endless", transport, DAILY_BYTES, tmp_path) as target:
            with pytest.raises(errors.LimitError) as caught:
                await save(target, path, options=StreamOptions(max_bytes=6 * MIB))
    assert caught.value.allowed == 6 * MIB
    assert not files(tmp_path)
