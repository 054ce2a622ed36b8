"""The pipe through Python: order, blocking and waking, refusals, and what was counted."""

from __future__ import annotations

import base64
import gc
import random
import threading
import weakref
from collections.abc import Callable

import outcome
import pytest
import trio
import trio.testing

from playhead._core import Pipe
from playhead.errors import (
    Base64Error,
    BusyError,
    ClosedError,
    ContradictionError,
    UsageError,
    WindowError,
)

PATIENCE_SECONDS = 20.0
"""Time for a thread to wake up before a test fails."""


class InThread:
    """A call in a thread of its own, with its result or its error."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._outcomes: list[outcome.Outcome[object]] = []
        self.thread = threading.Thread(
            target=lambda: self._outcomes.append(outcome.capture(call)), daemon=True
        )
        self.thread.start()

    def result(self) -> object:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive(), "the thread was not woken"
        return self._outcomes[0].unwrap()


def blocked_reader(pipe: Pipe, buffer: bytearray) -> InThread:
    """A reader that has found nothing and holds the reader's place. That it gets there while this thread
    runs Python shows that it waits with the GIL released."""
    waits = pipe.statistics().reader_waits
    reader = InThread(lambda: pipe.readinto(buffer))
    while pipe.statistics().reader_waits == waits:
        assert reader.thread.is_alive()
    return reader


def drain(pipe: Pipe, sizes: list[int]) -> bytes:
    """Reads a closed pipe to its end, with buffers of these sizes in turn."""
    got = bytearray()
    at = 0
    while True:
        buffer = bytearray(sizes[at % len(sizes)])
        at += 1
        count = pipe.readinto(buffer)
        if count == 0:
            return bytes(got)
        got += buffer[:count]


# --- the chunking law --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_whole_bytewise_and_random_reads_give_the_same_bytes_whatever_the_order_of_pages(seed: int) -> None:
    chance = random.Random(seed)
    expected = chance.randbytes(3000)
    cuts = sorted(chance.sample(range(1, 3000), 9))
    pages = list(zip([0, *cuts], [*cuts, 3000], strict=True))
    for sizes in ([4096], [1], [chance.randint(1, 400) for _ in range(20)]):
        pipe = Pipe(4096, start=1 << 33)
        chance.shuffle(pages)
        for start, end in pages:
            page = expected[start:end]
            assert pipe.write_base64((1 << 33) + start, base64.b64encode(page).decode()) == len(page)
        pipe.close()
        assert drain(pipe, sizes) == expected


def test_pages_large_enough_to_release_the_gil_land_whole() -> None:
    expected = random.Random(2).randbytes(300_000)
    text = base64.b64encode(expected)
    for given in (text, text.decode(), bytearray(text)):
        pipe = Pipe(1 << 19)
        assert pipe.write_base64(0, given) == len(expected)
        pipe.close()
        assert drain(pipe, [1 << 19]) == expected


def test_a_read_only_view_of_memory_that_changes_is_read_in_one_instant() -> None:
    size = 8 << 20
    changing = bytearray(size)
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            changing[:] = b"\xff" * size
            changing[:] = bytes(size)

    changer = InThread(change)
    try:
        view, got = memoryview(changing).toreadonly(), bytearray(size)
        for _ in range(100):
            pipe = Pipe(size)
            pipe.write(0, view)
            pipe.readinto(got)
            assert got.count(0) in (0, size), "half of it is from before a change, half from after"
    finally:
        done.set()
        changer.result()


# --- blocking and waking -----------------------------------------------------------------------------


def seek_away(pipe: Pipe) -> None:
    pipe.seek(5000)
    pipe.write(5000, b"there")


@pytest.mark.parametrize(
    ("event", "heard"),
    [
        (lambda pipe: pipe.write(4, b"good"), b"good"),
        (Pipe.close, b""),
        (seek_away, b"there"),
        (lambda pipe: pipe.seek(1), b"bcd"),
    ],
    ids=["a write", "close", "a seek, and a write there", "a seek back to what is kept"],
)
def test_a_blocked_reader_is_woken_by(event: Callable[[Pipe], object], heard: bytes) -> None:
    pipe = Pipe(1024, behind_bytes=4)
    pipe.write(0, b"abcd")
    pipe.readinto(bytearray(4))
    buffer = bytearray(100)
    reader = blocked_reader(pipe, buffer)
    event(pipe)
    assert reader.result() == len(heard)
    assert buffer[: len(heard)] == heard


def test_a_blocked_reader_is_woken_by_abort_with_that_very_exception() -> None:
    pipe = Pipe(1024)
    reader = blocked_reader(pipe, bytearray(100))
    broken = OSError("the far end is gone")
    pipe.abort(broken)
    with pytest.raises(OSError, match="far end") as caught:
        reader.result()
    assert caught.value is broken


def test_a_read_that_times_out_says_where_and_loses_nothing() -> None:
    pipe = Pipe(1024, start=70)
    with pytest.raises(TimeoutError, match="offset 70"):
        pipe.readinto(bytearray(4), timeout=0)
    pipe.write(70, b"next")
    assert pipe.readinto(bytearray(4), timeout=0) == 4


def test_a_second_reader_is_refused_each_time_and_the_first_goes_on() -> None:
    pipe = Pipe(1024)
    reader = blocked_reader(pipe, bytearray(100))
    for _ in range(2):
        with pytest.raises(BusyError, match="one reader"):
            pipe.readinto(bytearray(4), timeout=0)
        with pytest.raises(BusyError):
            pipe.readinto_nowait(bytearray(4))
    pipe.write(0, b"good")
    assert reader.result() == 4


def test_not_yet_is_a_value_and_the_end_is_nought() -> None:
    pipe = Pipe(1024)
    buffer = bytearray(4)
    assert pipe.readinto_nowait(buffer) is None
    pipe.write(0, b"ab")
    assert pipe.readinto_nowait(buffer) == 2
    pipe.close()
    assert pipe.readinto_nowait(buffer) == 0
    assert pipe.readinto(buffer) == 0


def test_an_empty_buffer_asks_for_nothing_and_does_not_block() -> None:
    assert Pipe(16).readinto(bytearray()) == 0


# --- the end and the break -----------------------------------------------------------------------------


def test_the_good_bytes_come_before_the_error() -> None:
    pipe = Pipe(1024)
    pipe.write(0, b"good")
    broken = RuntimeError("broken")
    pipe.abort(broken)
    assert pipe.closed
    assert pipe.readinto(bytearray(2)) == 2
    assert pipe.readinto_nowait(bytearray(9)) == 2
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            pipe.readinto(bytearray(9))
        assert caught.value is broken
        with pytest.raises(RuntimeError):
            pipe.readinto_nowait(bytearray(9))


def test_the_first_of_close_and_abort_wins() -> None:
    closed = Pipe(16)
    closed.close()
    closed.abort(RuntimeError("too late"))
    assert closed.readinto(bytearray(1)) == 0
    aborted = Pipe(16)
    aborted.abort(KeyError("first"))
    aborted.abort(RuntimeError("second"))
    aborted.close()
    with pytest.raises(KeyError, match="first"):
        aborted.readinto(bytearray(1))


def test_nothing_is_written_after_the_end() -> None:
    pipe = Pipe(16)
    pipe.close()
    pipe.close()
    with pytest.raises(ClosedError):
        pipe.write(0, b"x")
    with pytest.raises(ClosedError):
        pipe.write_base64(0, "AAAA")
    with pytest.raises(ClosedError):
        pipe.wait_room(1)


def test_only_an_exception_can_break_a_pipe() -> None:
    with pytest.raises(TypeError):
        Pipe(16).abort("no exception")  # type: ignore[arg-type]  # the mistake under test


def test_an_error_whose_traceback_leads_back_to_the_pipe_is_collected() -> None:
    class MarkedError(Exception):
        pass

    def fail() -> None:
        raise MarkedError

    def broken() -> weakref.ref[MarkedError] | None:
        pipe = Pipe(16)
        try:
            fail()
        except MarkedError as error:
            pipe.abort(error)
            return weakref.ref(error)
        return None

    gone = broken()
    gc.collect()
    assert gone is not None
    assert gone() is None


# --- what is refused ---------------------------------------------------------------------------------


def test_a_page_past_the_window_is_refused_with_the_window() -> None:
    pipe = Pipe(16, start=100)
    with pytest.raises(WindowError) as caught:
        pipe.write(110, bytes(7))
    error = caught.value
    assert (error.start, error.end, error.low, error.high) == (110, 117, 100, 116)
    assert pipe.write(110, bytes(6)) == 6


def test_bad_text_leaves_nothing_behind_and_names_the_page() -> None:
    pipe = Pipe(1024, start=30)
    with pytest.raises(Base64Error) as caught:
        pipe.write_base64(30, "QUJDREVG" + "QU*D")
    assert (caught.value.kind, caught.value.index, caught.value.offset) == ("byte", 10, 30)
    assert pipe.tail == 30
    assert pipe.write_base64(30, "QUJDREVG") == 6


def test_bytes_that_were_read_are_skipped_and_those_held_are_compared() -> None:
    pipe = Pipe(16)
    pipe.write(0, b"abcd")
    pipe.readinto(bytearray(2))
    assert pipe.write(0, b"??cdef") == 6
    assert pipe.tail == 6
    with pytest.raises(ContradictionError) as caught:
        pipe.write_base64(2, base64.b64encode(b"cdeX" + b"gh"))
    assert caught.value.offset == 5
    assert pipe.tail == 6, "a page that contradicts is not stored in part"
    pipe.close()
    assert drain(pipe, [16]) == b"cdef"


@pytest.mark.parametrize("capacity", [0, 1 << 41])
def test_an_impossible_capacity_is_refused(capacity: int) -> None:
    with pytest.raises(UsageError, match=str(capacity)):
        Pipe(capacity)


def test_a_pipe_that_would_keep_all_of_its_capacity_behind_the_reader_is_refused() -> None:
    with pytest.raises(UsageError, match=r"below the capacity of 16, got 16"):
        Pipe(10, behind_bytes=16)
    assert Pipe(10, behind_bytes=15).ahead_bytes == 1


def test_a_capacity_is_rounded_up_to_a_power_of_two() -> None:
    assert [Pipe(asked).capacity_bytes for asked in (1, 3, 1000, 1024)] == [1, 4, 1024, 1024]


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_timeout_that_cannot_be_meant_is_refused(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        Pipe(16).readinto(bytearray(1), timeout=timeout)
    with pytest.raises(UsageError, match="timeout"):
        Pipe(16).wait_room(1, timeout)


def test_a_buffer_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(BufferError):
        Pipe(16).readinto(b"constant", timeout=0)


# --- room --------------------------------------------------------------------------------------------


def test_a_thread_that_waits_for_room_is_woken_by_a_read_that_takes_no_lock() -> None:
    pipe = Pipe(16)
    pipe.write(0, bytes(16))
    assert pipe.wait_room(1, timeout=0) is False
    writer = InThread(lambda: pipe.wait_room(8))
    buffer = bytearray(4)
    assert pipe.readinto_nowait(buffer) == 4
    assert pipe.readinto_nowait(buffer) == 4
    assert writer.result() is True
    assert pipe.wait_room(8, timeout=0) is True


@pytest.mark.parametrize("end", [Pipe.close, lambda pipe: pipe.abort(RuntimeError())])
def test_a_thread_that_waits_for_room_is_woken_by_the_end(end: Callable[[Pipe], None]) -> None:
    pipe = Pipe(16)
    pipe.write(0, bytes(16))
    writer = InThread(lambda: pipe.wait_room(1))
    end(pipe)
    with pytest.raises(ClosedError):
        writer.result()


def test_more_room_than_there_can_be_is_refused_rather_than_waited_for() -> None:
    with pytest.raises(UsageError, match="17"):
        Pipe(16).wait_room(17)
    with pytest.raises(UsageError, match="13"):
        Pipe(16, behind_bytes=4).wait_room(13)


def test_room_is_room_ahead_of_the_reader() -> None:
    pipe = Pipe(16, behind_bytes=4)
    assert pipe.ahead_bytes == 12
    assert pipe.wait_room(12, timeout=0)
    pipe.write(0, bytes(12))
    assert not pipe.wait_room(1, timeout=0)
    pipe.readinto(bytearray(6))
    assert pipe.wait_room(6, timeout=0)
    assert pipe.write(12, bytes(6)) == 6
    assert not pipe.wait_room(1, timeout=0)


async def test_a_trio_task_is_woken_when_the_reader_is_at_the_watermark() -> None:
    pipe = Pipe(16)
    pipe.write(0, bytes(16))
    assert not pipe.arm(4)
    woken = trio.Event()

    async def wait() -> None:
        await trio.lowlevel.wait_readable(pipe.fileno())
        woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        pipe.readinto_nowait(bytearray(11))
        await trio.testing.wait_all_tasks_blocked()
        assert not woken.is_set(), "five bytes are left, and the watermark is four"
        pipe.readinto_nowait(bytearray(1))
        with trio.fail_after(PATIENCE_SECONDS):
            await woken.wait()
    pipe.clear_wake()
    with trio.move_on_after(0) as nothing:
        await trio.lowlevel.wait_readable(pipe.fileno())
    assert nothing.cancelled_caught, "one wake a request"
    assert pipe.arm(4), "it is so already"


@pytest.mark.parametrize(
    "event", [Pipe.close, lambda pipe: pipe.abort(RuntimeError()), lambda pipe: pipe.seek(900)]
)
async def test_a_trio_task_that_waits_for_room_is_woken_by(event: Callable[[Pipe], None]) -> None:
    pipe = Pipe(16)
    pipe.write(0, bytes(16))
    assert not pipe.arm(0)
    event(pipe)
    with trio.fail_after(PATIENCE_SECONDS):
        await trio.lowlevel.wait_readable(pipe.fileno())


# --- seek --------------------------------------------------------------------------------------------


def test_a_seek_back_inside_what_is_kept_drops_nothing_and_keeps_an_end() -> None:
    pipe = Pipe(16, behind_bytes=4)
    pipe.write(0, b"abcdefgh")
    pipe.close()
    assert pipe.readinto(bytearray(8)) == 8
    assert (pipe.kept_from, pipe.head) == (4, 8)
    pipe.seek(4)
    assert (pipe.kept_from, pipe.head, pipe.tail, pipe.closed) == (4, 4, 8, True)
    assert drain(pipe, [3]) == b"efgh"


def test_an_interrupt_ends_the_wait_of_a_blocked_reader_and_nothing_else() -> None:
    pipe = Pipe(1024)
    buffer = bytearray(100)
    reader = blocked_reader(pipe, buffer)
    pipe.interrupt()
    with pytest.raises(TimeoutError):
        reader.result()
    pipe.write(0, b"good")
    assert pipe.readinto(buffer) == 4


def test_an_interrupt_before_the_wait_counts_until_a_seek() -> None:
    pipe = Pipe(1024)
    pipe.interrupt()
    with pytest.raises(TimeoutError):
        pipe.readinto(bytearray(1))
    pipe.interrupt()
    pipe.seek(0)
    assert blocked_reader(pipe, bytearray(1)).thread.is_alive()
    pipe.close()


def test_a_broken_pipe_cannot_be_sought_in() -> None:
    pipe = Pipe(16)
    pipe.abort(RuntimeError())
    with pytest.raises(ClosedError):
        pipe.seek(0)


# --- statistics --------------------------------------------------------------------------------------


def test_statistics_are_a_frozen_moment() -> None:
    pipe = Pipe(16)
    before = pipe.statistics()
    pipe.write(0, b"abcd")
    pipe.write(2, b"cdef")
    assert pipe.readinto(bytearray(3)) == 3
    after = pipe.statistics()
    assert (before.bytes_read, before.reader_waits) == (0, 0)
    assert (after.bytes_read, after.reader_waits) == (3, 0)
    assert after == pipe.statistics() != before
    with pytest.raises(AttributeError):
        after.bytes_read = 9  # type: ignore[misc]  # the mistake under test
