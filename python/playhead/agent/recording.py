"""Recordings of a turn's events as lines of JSON: write one, read it back, and replay it at any pace.

    {"at":0.213,"type":"text_delta","round":1,"text":"One moment"}

`at` is monotonic seconds since the recorder was opened. The recorder appends a line with one write if the
system allows, so a crash leaves at most one broken line, the last.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import trio

from playhead.agent.events import (
    AudioStart,
    Event,
    ImageComplete,
    ToolCallBegin,
    ToolCallError,
    ToolCallResponse,
    ToolComplete,
    ToolInProgress,
    ToolPending,
    ToolProgress,
    parse_line,
    read_event,
    to_json,
)
from playhead.content.findings import kind_of
from playhead.errors import ClosedError, DiskFullError, RecordingError, SavingError, UsageError
from playhead.limits import MIB

LINE_BYTES: Final = MIB
"""Limits a line of a recording; longer strings are shortened. It fits ten results of the greatest length that
a model gets."""
LEAST_LINE_BYTES: Final = 8192
"""The smallest limit of a line. It fits an event with every string cut to `_MIN_TEXT_CHARS`, if each
character takes 12 bytes in ASCII."""
_MIN_TEXT_CHARS: Final = 64
"""Strings are never cut below this length. No call id and no model name of a tool is longer, so a reader can
still match the lines of a call."""
_EVENTS_WITH_TOOL: Final = (
    ToolInProgress,
    ToolPending,
    ToolCallBegin,
    ToolProgress,
    ToolCallResponse,
    ToolCallError,
    AudioStart,
    ImageComplete,
)
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Recorder:
    """Writes events to a file, or to a binary stream, which it does not close.

        async with Recorder(Path("turn.jsonl")) as recorder:
            await run_turn(model, hub, messages, on_event=recorder.write)

    A new file is readable by its owner alone (mode 0600). Entering raises `UsageError` if the file exists
    (unless `overwrite` is true) or is not a regular file, `SavingError` if it can't be created, and
    `DiskFullError` if the disk is full.
    """

    def __init__(
        self, to: Path | IO[bytes], *, overwrite: bool = False, line_bytes: int = LINE_BYTES
    ) -> None:
        if line_bytes < LEAST_LINE_BYTES:
            raise UsageError(f"line_bytes: expected at least {LEAST_LINE_BYTES}, got {line_bytes}")
        self._to = to
        self._overwrite = overwrite
        self._line_bytes = line_bytes
        self._lock = trio.Lock()
        self._sink: _FileSink | _StreamSink | None = None
        self._start = 0.0

    async def __aenter__(self) -> Self:
        self._sink = (
            await trio.to_thread.run_sync(_FileSink, self._to, self._overwrite)
            if isinstance(self._to, Path)
            else _StreamSink(self._to)
        )
        self._start = trio.current_time()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            # A pending line is finished first, and the file is closed even after cancellation.
            with trio.CancelScope(shield=True):
                async with self._lock:
                    await trio.to_thread.run_sync(sink.close)

    async def write(self, event: Event) -> None:
        """Append an event. Several tasks may write; lines are in call order.

        A thread writes, so that only this task waits for the disk. After cancellation the line is written
        whole or not at all. Raises `ClosedError` outside the context, and `SavingError` or `DiskFullError` if
        the line could not be written; no part of it stays in the file.
        """
        if self._sink is None:
            raise ClosedError("the recorder is not open: write inside its `async with`")
        line = _line(event, trio.current_time() - self._start, self._line_bytes)
        async with self._lock:
            if self._sink is None:
                raise ClosedError("the recorder was closed while this event waited")
            await trio.to_thread.run_sync(self._sink.write, line)


def _line(event: Event, at_seconds: float, limit_bytes: int) -> bytes:
    head = f'{{"at":{at_seconds:.6f},'
    room = limit_bytes - len(head)
    text = to_json(event)
    chars = limit_bytes // 4
    while len(text) > room and chars > _MIN_TEXT_CHARS:
        chars = max(chars // 4, _MIN_TEXT_CHARS)
        text = to_json(event, text_chars=chars)
    if len(text) > room:
        text = to_json(_without_unbounded_parts(event), text_chars=_MIN_TEXT_CHARS)
    return (head + text[1:] + "\n").encode("ascii")


def _without_unbounded_parts(event: Event) -> Event:
    """Drop the unbounded parts of an event, such as arguments with a thousand keys."""
    if isinstance(event, ToolComplete):
        return replace(event, responses=())
    if isinstance(event, ToolCallResponse):
        event = replace(event, result=replace(event.result, media=()))
    if isinstance(event, _EVENTS_WITH_TOOL):
        return replace(event, tool=replace(event.tool, arguments=None))
    return event


class _FileSink:
    def __init__(self, path: Path, overwrite: bool) -> None:
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._fd = os.open(path, flags | (0 if overwrite else os.O_EXCL), 0o600)
        except FileExistsError:
            raise UsageError(f"{path} already exists; choose another file, or allow overwriting") from None
        except OSError as error:
            raise _saving_error(error, path) from error
        try:
            self._prepare()
        except OSError as error:
            os.close(self._fd)
            raise _saving_error(error, path) from error
        except UsageError:
            os.close(self._fd)
            raise
        self._size = 0

    def _prepare(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise UsageError(
                f"{self._path}: expected a regular file to record to, got a device, pipe or socket"
            )
        os.fchmod(self._fd, 0o600)
        os.ftruncate(self._fd, 0)

    def write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            raise _saving_error(error, self._path) from error
        self._size += len(line)

    def close(self) -> None:
        os.close(self._fd)


class _StreamSink:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, line: bytes) -> None:
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError as error:
            raise _saving_error(error, Path(str(getattr(self._stream, "name", "stream")))) from error

    def close(self) -> None:
        """Leave the stream open: it belongs to the caller."""


def _saving_error(error: OSError, path: Path) -> SavingError:
    if error.errno in _DISK_FULL:
        return DiskFullError(f"{path}: no space left for the recording ({error.strerror})", path=str(path))
    return SavingError(f"{path}: cannot write the recording ({error.strerror})", path=str(path))


# --- reading -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    at_seconds: float
    """The time since the recorder was opened."""
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The contents of a recording file. Iterating gives the events."""

    events: tuple[Recorded, ...]
    unknown: int = 0
    """The number of skipped events, of types that this version doesn't know."""
    broken_end: str | None = None
    """The error in the last line, if that line was not written completely."""

    def __iter__(self) -> Iterator[Event]:
        return (one.event for one in self.events)


def read_recording(path: Path, *, line_bytes: int = 4 * LINE_BYTES) -> Recording:
    """Read the recording in the file at `path`. Blocks while it reads.

    `broken_end` reports an unreadable last line without a line break. Raises `RecordingError`, which names
    the file, line and key, for any other line that is not a valid event or is longer than `line_bytes`, and
    `UsageError` if the file can't be read.
    """
    events: list[Recorded] = []
    unknown, broken_end, at = 0, None, 0.0
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(line_bytes + 1):
                number += 1
                if len(line) > line_bytes:
                    raise RecordingError(
                        f"{path}: line {number}: expected at most {line_bytes} bytes, got more", line=number
                    )
                if not line.strip():
                    continue
                try:
                    raw = parse_line(line)
                    at = _check_time(raw.get("at", at), at)
                    event = read_event(line, raw)
                except RecordingError as error:
                    message = f"{path}: line {number}: {error}"
                    if not line.endswith(b"\n"):
                        broken_end = message
                        break
                    raise RecordingError(message, line=number, key=error.key) from None
                if event is None:
                    unknown += 1
                else:
                    events.append(Recorded(at_seconds=at, event=event))
    except OSError as error:
        raise UsageError(f"{path}: cannot read the recording ({error.strerror})") from error
    return Recording(events=tuple(events), unknown=unknown, broken_end=broken_end)


def _check_time(value: object, before: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RecordingError(f"at: expected seconds, got {kind_of(value)}", key="at")
    # In an edited recording, time may go backwards. `replay` then does not wait.
    return max(float(value), before)


async def replay(
    recording: Iterable[Recorded] | Recording,
    on_event: Callable[[Event], Awaitable[None] | None],
    *,
    pace: float | None = None,
) -> None:
    """Emit the events again, in order, to a function that may be async.

    With a `pace` of 1.0 the events have the recorded times, 2.0 takes half the time, and None waits only for
    `on_event`. Times count from the start, so delays by a slow `on_event` don't add up. Raises `UsageError`
    for a pace that is not positive and finite, and what `on_event` raises. It can be cancelled between two
    events.
    """
    if pace is not None and not (math.isfinite(pace) and pace > 0):
        raise UsageError(f"pace: expected a number above 0, or None, got {pace!r}")
    start = trio.current_time()
    for one in recording.events if isinstance(recording, Recording) else recording:
        if pace is None:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep_until(start + one.at_seconds / pace)
        awaitable = on_event(one.event)
        if awaitable is not None:
            await awaitable
