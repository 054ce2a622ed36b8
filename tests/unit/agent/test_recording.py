"""Recordings: whole lines whatever happens, only for their user, and told again as they were."""

from __future__ import annotations

import io
import json
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from playhead.agent.events import (
    CallResponse,
    Event,
    ReplyCreated,
    TextDelta,
    ToolCallBegin,
    ToolCallResponse,
    ToolComplete,
    ToolRef,
    from_json,
    to_json,
)
from playhead.agent.recording import Recorded, Recorder, Recording, read_recording, replay
from playhead.errors import ClosedError, RecordingError, SavingError, UsageError
from tests.process_limits import largest_file

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EVENTS: tuple[Event, ...] = (
    ReplyCreated(round=1, provider="openai", model="m"),
    TextDelta(round=1, text="Für"),
    TextDelta(round=1, text=" Elise"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turn.jsonl"


async def record(path: Path, *events: Event, overwrite: bool = False, line_bytes: int = 1 << 20) -> None:
    async with Recorder(path, overwrite=overwrite, line_bytes=line_bytes) as recorder:
        for event in events:
            await recorder.write(event)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


# --- writing -----------------------------------------------------------------------------------------


async def test_what_was_recorded_is_read_in_its_order_with_its_times(
    path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with Recorder(path) as recorder:
        for event in EVENTS:
            await recorder.write(event)
            mock_clock.jump(0.5)
    recording = read_recording(path)
    assert tuple(recording) == EVENTS
    assert [one.at_seconds for one in recording.events] == [0.0, 0.5, 1.0]
    assert (recording.unknown, recording.broken_end) == (0, None)


async def test_a_recording_is_its_users_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        await record(path)
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600


async def test_a_line_is_in_the_file_as_soon_as_it_is_written(path: Path) -> None:
    async with Recorder(path) as recorder:
        await recorder.write(EVENTS[0])
        assert bytes_of(path).endswith(b"\n")
        assert tuple(read_recording(path)) == EVENTS[:1]


async def test_a_file_that_is_there_is_kept_unless_overwriting_is_allowed(path: Path) -> None:
    await record(path, *EVENTS)
    kept = bytes_of(path)
    with pytest.raises(UsageError, match="already exists"):
        await record(path)
    assert bytes_of(path) == kept
    os.chmod(path, 0o644)  # noqa: PTH101 - at once, in an async test
    await record(path, EVENTS[2], overwrite=True)
    assert tuple(read_recording(path)) == EVENTS[2:]
    assert mode_of(path) == 0o600


async def test_a_device_is_not_recorded_to() -> None:
    with pytest.raises(UsageError, match="expected a regular file"):
        await record(Path("/dev/null"), overwrite=True)


async def test_a_pipe_is_not_recorded_to_and_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises((SavingError, UsageError)):
        await record(path, overwrite=True)


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SavingError, match="cannot write the recording") as caught:
        await record(tmp_path / "none" / "turn.jsonl")
    assert caught.value.path == str(tmp_path / "none" / "turn.jsonl")


async def test_a_recorder_that_is_not_open_refuses(path: Path) -> None:
    recorder = Recorder(path)
    with pytest.raises(ClosedError):
        await recorder.write(EVENTS[0])
    async with recorder:
        pass
    with pytest.raises(ClosedError):
        await recorder.write(EVENTS[0])


async def test_lines_of_parallel_tasks_stay_whole(path: Path) -> None:
    texts = [str(number) * 5000 for number in range(40)]
    async with Recorder(path) as recorder, trio.open_nursery() as nursery:
        for text in texts:
            nursery.start_soon(recorder.write, TextDelta(round=1, text=text))
    told = [event.text for event in read_recording(path) if isinstance(event, TextDelta)]
    assert sorted(told) == sorted(texts)


async def test_a_cancelled_write_leaves_a_whole_line_or_none(path: Path) -> None:
    async with Recorder(path) as recorder:
        for checkpoints in range(6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(recorder.write, TextDelta(round=1, text="x" * 5000))
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        await recorder.write(EVENTS[1])
    recording = read_recording(path)
    assert recording.broken_end is None
    assert recording.events[-1].event == EVENTS[1]


async def test_leaving_while_cancelled_closes_the_file(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of names
    with trio.CancelScope() as scope:
        async with Recorder(path):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_a_full_disk_is_told_and_leaves_whole_lines(path: Path) -> None:
    # Python ignores SIGXFSZ, so that a write past the limit fails with EFBIG, after a short one.
    async with Recorder(path) as recorder:
        await recorder.write(EVENTS[0])
        with largest_file(1000), pytest.raises(SavingError, match="no space left"):
            await recorder.write(TextDelta(round=1, text="x" * 5000))
        await recorder.write(EVENTS[1])
    assert tuple(read_recording(path)) == EVENTS[:2]


async def test_a_stream_gets_the_same_lines_and_stays_open() -> None:
    stream = io.BytesIO()
    async with Recorder(stream) as recorder:
        await recorder.write(EVENTS[1])
    assert not stream.closed
    assert from_json(stream.getvalue()) == EVENTS[1]


async def test_a_line_waits_for_the_one_before_it() -> None:
    release = threading.Event()

    class Slow(io.BytesIO):
        def write(self, line: ReadableBuffer) -> int:
            if b"first" in bytes(line):
                assert release.wait(30)
            return super().write(line)

    stream = Slow()
    async with Recorder(stream) as recorder, trio.open_nursery() as nursery:
        nursery.start_soon(recorder.write, TextDelta(round=1, text="first"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(recorder.write, TextDelta(round=1, text="second"))
        await trio.testing.wait_all_tasks_blocked()
        assert stream.getvalue() == b""
        release.set()
    assert [json.loads(line)["text"] for line in stream.getvalue().splitlines()] == ["first", "second"]


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(round=1, text="ü" * 100_000),
        ToolCallResponse(
            round=1,
            tool=ToolRef(id="😀" * 9999, name="😀" * 9999, arguments=None, status="cancelled"),
            result=CallResponse(
                id="😀" * 9999, name="😀" * 9999, text="😀" * 9999, status="over_budget", media=("😀",) * 9999
            ),
        ),
        ToolCallBegin(
            round=1,
            tool=ToolRef(
                id="a", name="n", arguments={f"k{n}": "v" * 50 for n in range(5000)}, status="invoking"
            ),
        ),
        ToolComplete(
            round=1,
            responses=tuple(
                CallResponse(id=str(n), name="n", text="t" * 500, status="done") for n in range(5000)
            ),
        ),
        ToolComplete(
            round=1,
            responses=tuple(
                CallResponse(id=str(n), name="n", text="t" * 5000, status="done") for n in range(20)
            ),
        ),
    ],
    ids=["text", "wide_texts", "arguments", "many_responses", "long_responses"],
)
async def test_no_line_is_longer_than_its_bound(path: Path, event: Event) -> None:
    await record(path, event, line_bytes=8192)
    assert len(bytes_of(path)) <= 8193
    assert [type(one) for one in read_recording(path)] == [type(event)]


def test_a_bound_below_what_one_event_needs_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="at least 8192"):
        Recorder(path, line_bytes=100)


async def test_long_responses_are_cut_and_none_is_left_out(path: Path) -> None:
    responses = tuple(CallResponse(id=str(n), name="n", text="t" * 5000, status="done") for n in range(20))
    await record(path, ToolComplete(round=1, responses=responses), line_bytes=8192)
    (event,) = read_recording(path)
    assert isinstance(event, ToolComplete)
    assert [one.id for one in event.responses] == [one.id for one in responses]


# --- reading -----------------------------------------------------------------------------------------


def lines(*events: Event) -> bytes:
    return b"".join(to_json(event).encode() + b"\n" for event in events)


@pytest.mark.parametrize("cut", range(1, len(lines(EVENTS[2]))))
def test_a_last_line_that_was_cut_anywhere_is_tolerated_and_told(path: Path, cut: int) -> None:
    whole = lines(*EVENTS)
    path.write_bytes(whole[: len(whole) - cut])
    recording = read_recording(path)
    if cut == 1:
        assert (tuple(recording), recording.broken_end) == (EVENTS, None)
    else:
        assert tuple(recording) == EVENTS[:2]
        assert recording.broken_end is not None
        assert f"{path}: line 3: " in recording.broken_end


def test_any_other_broken_line_is_an_error_with_its_number_and_key(path: Path) -> None:
    path.write_bytes(lines(EVENTS[0]) + b'\n{"type":"text_delta","round":1,"text":2}\n' + lines(EVENTS[1]))
    with pytest.raises(RecordingError, match="line 3: text: expected a string, got a number") as caught:
        read_recording(path)
    assert (caught.value.line, caught.value.key) == (3, "text")
    assert str(path) in str(caught.value)


def test_a_last_line_that_is_whole_and_wrong_is_an_error(path: Path) -> None:
    path.write_bytes(lines(EVENTS[0]) + b"{}\n")
    with pytest.raises(RecordingError, match="line 2"):
        read_recording(path)


def test_events_of_newer_versions_are_counted_and_passed_over(path: Path) -> None:
    path.write_bytes(b'{"at":0.1,"type":"hologram","round":1}\n' + lines(EVENTS[1]))
    recording = read_recording(path)
    assert (tuple(recording), recording.unknown) == (EVENTS[1:2], 1)


@pytest.mark.parametrize("at", ['"1"', "null", "true", "[]"])
def test_a_time_that_is_not_a_number_is_an_error(path: Path, at: str) -> None:
    path.write_text(f'{{"at":{at},"type":"text_delta","round":1,"text":""}}\n')
    with pytest.raises(RecordingError, match="line 1: at: expected seconds"):
        read_recording(path)


def test_a_line_without_an_end_is_not_read_for_ever(path: Path) -> None:
    path.write_bytes(b" " * 5000)
    with pytest.raises(RecordingError, match="line 1: expected at most 1000 bytes"):
        read_recording(path, line_bytes=1000)


def test_a_file_that_is_missing_is_named(path: Path) -> None:
    with pytest.raises(UsageError, match=r"turn\.jsonl: cannot read"):
        read_recording(path)


def test_an_empty_file_is_an_empty_recording(path: Path) -> None:
    path.touch()
    assert read_recording(path) == Recording(events=())


# --- replaying ---------------------------------------------------------------------------------------

RECORDING = Recording(
    events=tuple(Recorded(at_seconds=at, event=event) for at, event in zip((1, 2, 4), EVENTS, strict=True))
)


@pytest.mark.parametrize(
    ("pace", "times"), [(None, [0, 0, 0]), (1.0, [1, 2, 4]), (2.0, [0.5, 1, 2]), (0.5, [2, 4, 8])]
)
async def test_events_are_told_again_at_the_pace_asked_for(
    autojump_clock: trio.testing.MockClock, pace: float | None, times: list[float]
) -> None:
    told: list[tuple[float, Event]] = []
    start = trio.current_time()

    async def on_event(event: Event) -> None:
        told.append((trio.current_time() - start, event))
        await trio.lowlevel.checkpoint()

    await replay(RECORDING, on_event, pace=pace)
    assert [event for _, event in told] == list(EVENTS)
    assert [at for at, _ in told] == pytest.approx(times)


async def test_a_slow_listener_does_not_shift_the_times_of_what_follows(
    autojump_clock: trio.testing.MockClock,
) -> None:
    times: list[float] = []
    start = trio.current_time()

    async def on_event(event: Event) -> None:
        times.append(trio.current_time() - start)
        await trio.sleep(1.5)

    await replay(RECORDING, on_event, pace=1.0)
    assert times == pytest.approx([1, 2.5, 4])


async def test_a_replay_of_a_recording_is_the_same_recording(path: Path, tmp_path: Path) -> None:
    await record(path, *EVENTS)
    again = tmp_path / "again.jsonl"
    async with Recorder(again) as recorder:
        await replay(read_recording(path), recorder.write)
    assert tuple(read_recording(again)) == EVENTS


async def test_a_listener_need_not_be_async() -> None:
    told: list[Event] = []
    await replay(RECORDING, told.append)
    assert told == list(EVENTS)


async def test_a_fast_replay_can_be_cancelled_between_two_events() -> None:
    told = 0

    async def on_event(event: Event) -> None:
        nonlocal told
        told += 1
        scope.cancel()

    with trio.CancelScope() as scope:
        await replay(RECORDING, on_event)
    assert (told, scope.cancelled_caught) == (1, True)


@pytest.mark.parametrize("pace", [0, -1, float("nan"), float("inf")])
async def test_a_pace_that_leads_nowhere_is_refused(pace: float) -> None:
    async def on_event(event: Event) -> None:
        raise AssertionError

    with pytest.raises(UsageError, match="pace"):
        await replay(RECORDING, on_event, pace=pace)


def test_what_is_in_a_line_is_plain_json(path: Path) -> None:
    trio.run(record, path, *EVENTS)
    assert [sorted(json.loads(line))[0] for line in path.read_text().splitlines()] == ["at"] * 3
