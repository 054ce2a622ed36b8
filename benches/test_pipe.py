"""The calls of the pipe: decoding into place, compared with a copy and with other decoders, and a wake-up.

Each round measures both sides in turns; a batch of calls is one sample.
"""

from __future__ import annotations

import base64
import os
import statistics
import threading
import time
from collections.abc import Callable

import pybase64
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benches.board import Board, Comparison
from playhead import _core

PAGE_BYTES = 100 * 1024
RING_BYTES = 2 * 1024 * 1024
DATA = os.urandom(PAGE_BYTES)
TEXT = base64.b64encode(DATA).decode("ascii")

Call = Callable[[], object]


def interleaved(ours: Call, baseline: Call, *, rounds: int, calls: int) -> tuple[list[float], list[float]]:
    """Microseconds a call, one median-of-`calls` sample of each side a round."""

    def sample(call: Call) -> float:
        spent = []
        for _ in range(calls):
            started = time.perf_counter_ns()
            call()
            spent.append(time.perf_counter_ns() - started)
        return statistics.median(spent) / 1000

    for call in (ours, baseline):
        sample(call)  # the first touch of a ring is the system's work, not the pipe's
    pairs = [(sample(ours), sample(baseline)) for _ in range(rounds)]
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]


def page_through(pipe: _core.Pipe) -> Call:
    """Write a page as base64 at the end of what is there, and read it."""
    buffer = bytearray(PAGE_BYTES)

    def call() -> None:
        pipe.write_base64(pipe.tail, TEXT)
        pipe.readinto(buffer)

    return call


def write_and_drop(pipe: _core.Pipe) -> Call:
    """Write a page as base64; dropping it is a seek, which copies nothing."""

    def call() -> None:
        end = pipe.tail + pipe.write_base64(pipe.tail, TEXT)
        pipe.seek(end)

    return call


def copied() -> Call:
    target = bytearray(PAGE_BYTES)

    def call() -> None:
        target[:] = DATA

    return call


def decoded_into(decode: Callable[[str], bytes]) -> Call:
    """The cost of a page without a pipe: decode, then copy to where it is used."""
    target = bytearray(PAGE_BYTES)

    def call() -> None:
        target[:] = decode(TEXT)

    return call


@pytest.mark.parametrize(
    ("name", "baseline", "at_most"),
    [
        ("memcpy", copied(), None),
        ("stdlib base64 + copy", decoded_into(base64.b64decode), 0.2),
        ("pybase64 + copy", decoded_into(lambda text: pybase64.b64decode(text, validate=True)), None),
    ],
    ids=["memcpy", "stdlib", "pybase64"],
)
def test_a_page_through_the_pipe(
    name: str, baseline: Call, at_most: float | None, board: Board, smoke: bool
) -> None:
    ours = page_through(_core.Pipe(RING_BYTES))
    mine, theirs = interleaved(ours, baseline, rounds=board.rounds(9), calls=20 if smoke else 500)
    board.add(
        Comparison(
            name="100 KiB through the pipe",
            unit="us",
            baseline_name=name,
            ours=mine,
            baseline=theirs,
            at_most=at_most,
        )
    )


def test_write_base64_is_as_fast_as_the_bare_decoder(board: Board, smoke: bool) -> None:
    """`decode_base64` allocates its result; the criterion bench compares with a bare slice."""
    ours = write_and_drop(_core.Pipe(RING_BYTES))
    mine, theirs = interleaved(
        ours, lambda: _core.decode_base64(TEXT), rounds=board.rounds(9), calls=20 if smoke else 500
    )
    board.add(
        Comparison(
            name="write_base64 of 100 KiB",
            unit="us",
            baseline_name="_core.decode_base64",
            ours=mine,
            baseline=theirs,
            at_most=1 / 0.9,
        )
    )


def wake_seconds(write: Callable[[], object], read: Callable[[], object], times: int) -> float:
    """Median time from a write to the return of a read that was blocked in another thread."""
    returned: list[int] = []
    ready = threading.Semaphore(0)

    def reader() -> None:
        for _ in range(times):
            ready.release()
            read()
            returned.append(time.perf_counter_ns())

    written = []
    thread = threading.Thread(target=reader)
    thread.start()
    for _ in range(times):
        ready.acquire()
        time.sleep(0.0005)  # until the reader sleeps: that is what is measured
        written.append(time.perf_counter_ns())
        write()
    thread.join()
    return statistics.median(back - gone for gone, back in zip(written, returned, strict=True)) / 1e9


def test_a_blocked_reader_wakes_as_fast_as_from_a_pipe_of_the_system(board: Board, smoke: bool) -> None:
    rounds, times = board.rounds(9), 20 if smoke else 300
    pipe = _core.Pipe(RING_BYTES)
    buffer = bytearray(64)
    low, high = os.pipe()
    ours, theirs = [], []
    try:
        for _ in range(rounds):
            ours.append(
                wake_seconds(lambda: pipe.write(pipe.tail, b"x"), lambda: pipe.readinto(buffer), times) * 1e6
            )
            theirs.append(wake_seconds(lambda: os.write(high, b"x"), lambda: os.read(low, 64), times) * 1e6)
    finally:
        os.close(low)
        os.close(high)
    board.add(
        Comparison(name="wake-up of a reader", unit="us", baseline_name="os.pipe", ours=ours, baseline=theirs)
    )


def test_a_call_that_finds_nothing(benchmark: BenchmarkFixture) -> None:
    pipe = _core.Pipe(RING_BYTES)
    buffer = bytearray(1764)
    assert benchmark(pipe.readinto_nowait, buffer) is None
