"""Laws of a stream: every byte once, whatever the server's pages, order and losses; never a wrong end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.errors import ConnectionLostError, PlayheadError, RangeNotHonouredError
from playhead.stream.options import StreamOptions
from playhead.stream.reader import open_stream
from playhead.testing.pages import EndStyle, ScriptedPages

SIZES = st.one_of(
    st.integers(0, 300_000), st.sampled_from([8191, 8192, 8193, 24_576, 57_344, 57_345, 65_536, 131_072])
)
PATTERNS = st.sampled_from(["random", "zeros", "periodic"])


def content(kind: str, size: int, seed: int) -> bytes:
    if kind == "zeros":
        return bytes(size)
    if kind == "periodic":
        return (bytes(range(256)) * (size // 256 + 1))[:size]
    return random.Random(seed).randbytes(size)


@st.composite
def servers(draw: st.DrawFn) -> ScriptedPages:
    seed = draw(st.integers(0, 2**32))
    data = content(draw(PATTERNS), draw(SIZES), seed)
    dice = random.Random(seed)
    slowest = draw(st.sampled_from([0.0, 0.1, 2.0]))
    mode = draw(st.sampled_from(["honest", "capped", "ignores", "until end", "own size", "inclusive"]))
    losses = draw(st.lists(st.integers(0, len(data) + 10_000), max_size=4))
    stalls = draw(st.lists(st.integers(0, len(data) + 10_000), max_size=2))
    ends: list[EndStyle] = ["empty_blob", "empty_list", "done", "416"]
    return ScriptedPages(
        data,
        cap_bytes=draw(st.integers(500, 100_000)) if mode == "capped" else None,
        blobs_a_page=draw(st.integers(1, 5)),
        ignore_range=mode == "ignores",
        ignore_range_until_end=mode == "until end",
        own_page_bytes=draw(st.integers(500, 200_000)) if mode == "own size" else None,
        overlap_bytes=int(mode == "inclusive"),
        end=draw(st.sampled_from(ends)),
        done_with_data=mode == "honest" and draw(st.booleans()),
        delay=lambda *_: dice.random() * slowest,
        serial=draw(st.booleans()),
        faults={at: [ConnectionLostError("gone")] * draw(st.integers(1, 2)) for at in losses},
        stalls=dict.fromkeys(stalls, 40.0),
        plain=draw(st.booleans()),
    )


@st.composite
def choices(draw: st.DrawFn) -> StreamOptions:
    return StreamOptions(
        page_bytes=draw(st.sampled_from([2000, 20_000, 102_400])),
        in_flight=draw(st.one_of(st.none(), st.integers(1, 12))),
        capacity_bytes=draw(st.sampled_from([None, 4096, 65_536])),
        size_bytes=draw(st.one_of(st.none(), st.integers(0, 400_000))),
        timeout=10.0,
        profile=draw(st.sampled_from(["play", "save"])),
    )


def play(scene: Callable[[], Awaitable[None]]) -> None:
    trio.run(scene, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=100, deadline=None)
@given(servers(), choices(), st.integers(700, 100_000))
def test_every_byte_comes_once_and_the_end_is_the_end(
    pages: ScriptedPages, options: StreamOptions, chunk_bytes: int
) -> None:
    async def scene() -> None:
        digest, count = hashlib.sha256(), 0
        with trio.fail_after(100_000):
            async with open_stream(pages, options=options) as stream:
                while chunk := await stream.receive_some(chunk_bytes):
                    digest.update(chunk)
                    count += len(chunk)
            assert count == len(pages.data)
            assert digest.digest() == hashlib.sha256(pages.data).digest()
        statistics = stream.statistics()
        assert statistics.end_bytes == len(pages.data)
        assert statistics.ended_by is not None
        assert pages.in_flight == 0

    play(scene)


@settings(max_examples=60, deadline=None)
@given(servers(), choices(), st.lists(st.tuples(st.integers(0, 320_000), st.integers(1, 50_000)), max_size=5))
def test_after_any_seeks_the_bytes_are_those_of_the_place(
    pages: ScriptedPages, options: StreamOptions, seeks: list[tuple[int, int]]
) -> None:
    async def scene() -> None:
        with trio.fail_after(100_000):
            async with open_stream(pages, options=options) as stream:
                try:
                    for offset, count in seeks:
                        await stream.seek(offset)
                        got = b""
                        while len(got) < count and (chunk := await stream.receive_some(count - len(got))):
                            got += chunk
                        assert got == pages.data[offset : offset + count]
                    await stream.seek(0)
                    assert await stream.read_all() == pages.data
                except RangeNotHonouredError:
                    # Its answers have no beginning to be known by where the stream does not start at 0.
                    assert pages.ignore_range_until_end

    play(scene)


@settings(max_examples=60, deadline=None)
@given(servers(), choices(), st.integers(0, 300_000))
def test_a_break_comes_after_good_bytes_only(pages: ScriptedPages, options: StreamOptions, at: int) -> None:
    pages.faults = {at: [ConnectionLostError("gone")] * 1000}

    async def scene() -> None:
        got = b""
        with trio.fail_after(100_000):
            async with open_stream(pages, options=options) as stream:
                try:
                    while chunk := await stream.receive_some():
                        got += chunk
                    assert got == pages.data
                except PlayheadError:
                    assert pages.data.startswith(got)
                    assert stream.statistics().ended_by is None

    play(scene)
