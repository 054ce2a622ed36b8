"""Laws of a stream: every byte once, whatever the server's pages, order and losses; never a wrong end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal, get_args

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.errors import ConnectionLostError, PlayheadError, RangeNotHonouredError, ResourceChangedError
from playhead.limits import KIB
from playhead.stream.answer import Page, blob_bytes
from playhead.stream.options import StreamOptions
from playhead.stream.range_support import repeats_within
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


@settings(max_examples=100, deadline=None)
@given(PATTERNS, SIZES.filter(bool), choices(), st.integers(0, 40), st.booleans(), st.integers(0, 2**32))
def test_a_server_that_stops_honouring_ranges_costs_no_byte_if_the_size_is_announced(
    kind: str, size: int, options: StreamOptions, honoured: int, plain: bool, seed: int
) -> None:
    data = content(kind, size, seed)
    dice = random.Random(seed)
    pages = ScriptedPages(data, delay=lambda *_: dice.random(), plain=plain)

    async def read_range(start: int, end: int) -> Page:
        pages.ignore_range = len(pages.reads) >= honoured
        return await pages(start, end)

    async def scene() -> None:
        with trio.fail_after(100_000):
            async with open_stream(read_range, options=replace(options, size_bytes=size)) as stream:
                assert await stream.read_all() == data
                for offset in (size // 2, 0, size):  # as a player does
                    await stream.seek(offset)
                    assert await stream.read_all() == data[offset:]
        assert stream.statistics().end_bytes == size

    play(scene)


Slip = Literal["shifted", "swapped", "the end", "older"]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["random", "zeros", "periodic", "counted"]),
    SIZES.filter(lambda size: size > 10_000),
    choices(),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(get_args(Slip))), max_size=12),
    st.booleans(),
)
def test_bytes_of_another_place_or_version_than_a_page_declares_are_never_used(
    kind: str, size: int, options: StreamOptions, slips: list[tuple[int, Slip]], again: bool
) -> None:
    """A cache or a gateway mixes pages up. With `again` it does so at every later read of that page, too."""
    data = b"".join(n.to_bytes(4) for n in range(size // 4)) if kind == "counted" else content(kind, size, 7)
    places: dict[int, Slip] = {}
    n_reads = n_slips = 0

    async def read_range(start: int, end: int) -> Page:
        nonlocal n_reads, n_slips
        await trio.sleep(0.1)
        slip = places.get(start) or dict(slips).get(n_reads)
        n_reads += 1
        at, version = start, data
        if slip is not None:
            n_slips += 1
            if again:
                places[start] = slip
        match slip:
            case "shifted":
                at = start + 1
            case "swapped":
                at = max(0, start - 5000) if start != 0 else 5000
            case "the end":
                at = len(data) + 5
            case "older":
                version = data[: size // 2]
            case None:
                pass
        part = version[at : at + end - start]
        return Page(blobs=(part,) if part else (), offset=at, size_bytes=len(version))

    async def scene() -> None:
        got = b""
        with trio.fail_after(100_000):
            async with open_stream(read_range, options=replace(options, size_bytes=None)) as stream:
                try:
                    while chunk := await stream.receive_some():
                        got += chunk
                    assert got == data
                except RangeNotHonouredError:
                    assert n_slips > 2
                except ResourceChangedError:
                    assert n_slips > 1
                assert data.startswith(got)

    play(scene)


@st.composite
def mosaics(draw: st.DrawFn) -> bytes:
    """A resource that repeats parts of its beginning: headers, loops, silence."""
    noise = random.Random(draw(st.integers(0, 99))).randbytes(20_000)
    quiet = draw(st.integers(0, 3000))
    beginning = bytes(quiet) + noise[: 6000 - quiet]
    pieces = draw(
        st.lists(st.tuples(st.sampled_from([64, 100, 1500, 4096, 6000]), st.integers(0, 9000)), max_size=12)
    )
    return beginning + b"".join(beginning[:n] + noise[-rest:] for n, rest in pieces)


CAPS = st.sampled_from([None, 64, 65, 100, 1500, 4095, 4096, 9000])


@settings(max_examples=150, deadline=None)
@given(mosaics(), CAPS, choices())
def test_a_resource_that_repeats_its_beginning_is_read_like_any_other(
    data: bytes, cap: int | None, options: StreamOptions
) -> None:
    async def scene() -> None:
        with trio.fail_after(100_000):
            async with open_stream(ScriptedPages(data, cap_bytes=cap), options=options) as stream:
                assert await stream.read_all() == data

    play(scene)


@settings(max_examples=150, deadline=None)
@given(mosaics(), CAPS, choices(), st.integers(64, 8000), st.integers(1, 4), st.integers(1, 70_000))
def test_the_beginning_in_place_of_another_page_is_never_taken_for_it(
    data: bytes, cap: int | None, options: StreamOptions, length: int, times: int, since: int
) -> None:
    options = replace(options, size_bytes=None)  # one that is too small makes the first page too small
    again = data[:length]
    told = 0

    def repeat(start: int, page: Page) -> Page:
        nonlocal told
        n_bytes = sum(map(blob_bytes, page.blobs))
        if start < since or n_bytes < len(again) or told >= times or repeats_within(again[:4096], KIB):
            return page
        told += 1
        return replace(page, blobs=(again,))

    async def scene() -> None:
        got = b""
        with trio.fail_after(100_000):
            async with open_stream(
                ScriptedPages(data, cap_bytes=cap, rewrite=repeat), options=options
            ) as stream:
                try:
                    while chunk := await stream.receive_some():
                        got += chunk
                    assert got == data, times
                except PlayheadError:
                    assert times > 1
                    assert data.startswith(got)

    play(scene)
