"""A ranged resource whose answers follow its mood: false ends, ignored ranges, faults, stalls, slow pages.

`Mood` is the script and `MoodyResource` plays it (`await resource.answer(start, end)`) in trio's time, so
that a `MockClock` plays it too. It knows no transport. `moody_server.py` serves it as a process, and
`MoodyPages` hands it to `open_stream` without any server. Each read is logged with what it was answered.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Literal

import trio

from playhead.errors import (
    ConnectionLostError,
    HttpStatusError,
    PlayheadError,
    RangePastEndError,
    ServerError,
)
from playhead.stream.answer import Page
from tests.servers.wave import HEADER_BYTES, wave_header

DONE = b"[DONE]"
TRICKLE_SECONDS = 1.0
READS_MAX = 20_000
"""The end of a simulation, far beyond any that succeeds."""

Content = Literal["random", "zeros", "period-256", "period-4096", "silence", "done-tail"]
EndForm = Literal["empty-list", "empty-blob", "done", "416", "-32602", "-32603"]
FaultKind = Literal["-32603", "-32602", "503", "429"]
OutageKind = Literal["silent", "hang-up", "503", "429", "-32603", "-32602"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseEnd:
    """Reads that reach `at` are told that nothing is at their start, at most `times` times.

    With `hole_bytes` the bytes `[at, at + hole_bytes)` are missing instead: a read that begins in them is
    told that nothing is there, and one that begins before them gets nothing past `at`.
    """

    at: int
    form: EndForm = "empty-blob"
    times: int | None = 1
    """None: for ever."""
    hole_bytes: int | None = None
    since_seconds: float = 0.0
    until_seconds: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Every `every`-th read that reaches `at` gets the whole file, at most `times` times."""

    at: int = 0
    every: int = 1
    counted: int = 0
    """Reads that have reached `at` before the first one, such as those that find the form of the ranges."""
    times: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From the given read or moment on, the resource ends elsewhere; the bytes before that stay."""

    size_bytes: int
    after_reads: float = inf
    after_seconds: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One read in `every` is answered with an error."""

    kind: FaultKind
    every: int = 20
    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """No read that arrives in `[at_seconds, at_seconds + seconds)` is answered before its end."""

    at_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """From a moment, or an offset, on nothing is served, for ever or until another moment."""

    after_seconds: float = inf
    until_seconds: float = inf
    from_offset: float = inf
    how: OutageKind = "hang-up"
    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mood:
    """The script of one resource. Every default is the behaviour of a good server.

    Times are seconds since the resource was first read.
    """

    size_bytes: int = 1 << 20
    content: Content = "random"
    seed: int = 0
    file: str | None = None
    """A file to serve instead of made-up content."""
    mime_type: str = "application/octet-stream"
    announced_bytes: int | None = None
    """The size that the link gives; None: the link gives none."""
    end: EndForm = "empty-blob"
    """The true end."""
    false_ends: tuple[FalseEnd, ...] = ()
    whole: Whole | None = None
    change: Change | None = None
    cap_bytes: int | None = None
    own_page_bytes: int | None = None
    extra_bytes: int = 0
    """1: the server takes the end of a range as inclusive."""
    fault: Fault | None = None
    stall: Stall | None = None
    outage: Outage | None = None
    cut_share: float | None = None
    """This share of every page is sent, then the connection drops."""
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    """More delay, drawn evenly from 0 to this."""
    serial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Blobs:
    blobs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcError:
    code: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpStatus:
    status: int
    retry_after_seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A page of which only `share` is sent."""

    blobs: tuple[bytes, ...]
    share: float


@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection drops without an answer."""


Answer = Blobs | RpcError | HttpStatus | Cut | HangUp
Kind = Literal["bytes", "end", "false end", "whole", "error", "cut", "nothing"]


@dataclass(slots=True, kw_only=True)
class Entry:
    """One read: when it arrived and was answered, the range, and the answer."""

    arrived_at: float
    start: int
    end: int
    answered_at: float | None = None
    kind: Kind | None = None
    """None: never answered."""
    n_bytes: int = 0
    detail: str = ""


@lru_cache(maxsize=64)
def content(kind: Content, size_bytes: int, seed: int = 0) -> bytes:
    """The bytes of a resource. `silence` is a WAV file that starts and pauses with silence."""
    if kind == "zeros":
        return bytes(size_bytes)
    if kind.startswith("period-"):
        period = int(kind.removeprefix("period-"))
        block = bytes(range(256)) if period == 256 else random.Random(seed).randbytes(period)
        return (block * (size_bytes // period + 1))[:size_bytes]
    noise = random.Random(seed).randbytes(size_bytes)
    if kind == "silence":
        third = size_bytes // 3
        audio = wave_header(max(size_bytes, HEADER_BYTES)) + bytes(third) + noise[:third] + bytes(size_bytes)
        return audio[:size_bytes]
    if kind == "done-tail":
        return (noise[: max(0, size_bytes - len(DONE))] + DONE)[-size_bytes:] if size_bytes else b""
    return noise


def truth(mood: Mood) -> bytes:
    """The bytes that a resource has before any change of it."""
    if mood.file is not None:
        return Path(mood.file).read_bytes()
    return content(mood.content, mood.size_bytes, mood.seed)


def truth_after(mood: Mood, change: Change) -> bytes:
    """The bytes that a resource has after a change."""
    before = truth(mood)
    if change.size_bytes <= len(before):
        return before[: change.size_bytes]
    return before + content("random", change.size_bytes - len(before), mood.seed + 1)


@dataclass(slots=True)
class MoodyResource:
    """Plays a mood. `log` holds every read; `on_answered` is called with each when it is over."""

    mood: Mood
    now: Callable[[], float] = trio.current_time
    on_answered: Callable[[Entry], None] = lambda _: None
    log: list[Entry] = field(default_factory=list)
    data: bytes = b""
    _started_at: float | None = None
    _told: dict[int, int] = field(default_factory=dict)
    _wholes: int = 0
    _whole_candidates: int = 0
    _turn: trio.Lock = field(default_factory=trio.Lock)
    _dice: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.data = truth(self.mood)
        self._dice.seed(self.mood.seed)

    @property
    def lies(self) -> int:
        """False ends told and whole files sent."""
        return sum(self._told.values()) + self._wholes

    async def answer(self, start: int, end: int) -> Answer:
        """Answer the read of `[start, end)` after the time that the mood takes. Silence never returns."""
        entry = Entry(arrived_at=self.elapsed(), start=start, end=end)
        self.log.append(entry)
        mood, number = self.mood, len(self.log)
        try:
            if mood.serial:
                async with self._turn:
                    await self._wait()
            else:
                await self._wait()
            answer, kind = await self._decide(start, end, number)
        except BaseException:  # cancelled: the read stays in the log
            entry.detail = "abandoned by the client"
            self.on_answered(entry)
            raise
        entry.answered_at, entry.kind = self.elapsed(), kind
        if isinstance(answer, Blobs | Cut):
            entry.n_bytes = sum(len(blob) for blob in answer.blobs if blob != DONE or kind == "bytes")
        entry.detail = "" if isinstance(answer, Blobs) else repr(answer)[:120]
        self.on_answered(entry)
        return answer

    def elapsed(self) -> float:
        """Seconds since the first read."""
        if self._started_at is None:
            self._started_at = self.now()
        return self.now() - self._started_at

    async def _wait(self) -> None:
        mood = self.mood
        await trio.sleep(mood.delay_seconds + self._dice.random() * mood.jitter_seconds)
        if mood.stall is not None:
            over = mood.stall.at_seconds + mood.stall.seconds
            if mood.stall.at_seconds <= self.elapsed() < over:
                await trio.sleep(over - self.elapsed())

    async def _decide(self, start: int, end: int, number: int) -> tuple[Answer, Kind]:
        mood = self.mood
        if mood.outage is not None and self._is_out(mood.outage, end):
            match mood.outage.how:
                case "silent":
                    await trio.sleep_forever()
                case "hang-up":
                    return HangUp(), "nothing"
                case kind:
                    return _failed(kind, mood.outage.retry_after_seconds), "error"
        if mood.fault is not None and number % mood.fault.every == 0:
            return _failed(mood.fault.kind, mood.fault.retry_after_seconds), "error"
        self._change(number)
        if (lie := self._false_end(start, end)) is not None:
            return _end(lie.form, start), "false end"
        if self._is_whole(end):
            return Blobs(blobs=(self.data,)), "whole"
        blob = self._page(start, end)
        if not blob:
            return _end(mood.end, start), "end"
        if mood.cut_share is not None:
            return Cut(blobs=(blob,), share=mood.cut_share), "cut"
        return Blobs(blobs=(blob,)), "bytes"

    def _is_out(self, outage: Outage, end: int) -> bool:
        begun = self.elapsed() >= outage.after_seconds or end > outage.from_offset
        return begun and self.elapsed() < outage.until_seconds

    def _change(self, number: int) -> None:
        change = self.mood.change
        if change is not None and (number > change.after_reads or self.elapsed() >= change.after_seconds):
            self.data = truth_after(self.mood, change)

    def _holds(self, index: int, lie: FalseEnd) -> bool:
        left = lie.times is None or self._told.get(index, 0) < lie.times
        return left and lie.since_seconds <= self.elapsed() < lie.until_seconds

    def _false_end(self, start: int, end: int) -> FalseEnd | None:
        for index, lie in enumerate(self.mood.false_ends):
            hit = end > lie.at if lie.hole_bytes is None else lie.at <= start < lie.at + lie.hole_bytes
            if hit and start < len(self.data) and self._holds(index, lie):
                self._told[index] = self._told.get(index, 0) + 1
                return lie
        return None

    def _is_whole(self, end: int) -> bool:
        whole = self.mood.whole
        if whole is None or end <= whole.at:
            return False
        self._whole_candidates += 1
        due = (whole.counted + self._whole_candidates) % whole.every == 0
        if not due or (whole.times is not None and self._wholes >= whole.times):
            return False
        self._wholes += 1
        return True

    def _page(self, start: int, end: int) -> bytes:
        mood = self.mood
        end += mood.extra_bytes
        if mood.own_page_bytes is not None:
            end = start + mood.own_page_bytes
        if mood.cap_bytes is not None:
            end = min(end, start + mood.cap_bytes)
        for index, lie in enumerate(mood.false_ends):
            if lie.hole_bytes is not None and start < lie.at < end and self._holds(index, lie):
                end = lie.at
        return self.data[start:end]


def _failed(kind: FaultKind, retry_after_seconds: int | None) -> Answer:
    if kind in {"503", "429"}:
        return HttpStatus(status=int(kind), retry_after_seconds=retry_after_seconds)
    return RpcError(code=int(kind), message="the disk is busy")


def _end(form: EndForm, start: int) -> Answer:
    match form:
        case "empty-list":
            return Blobs(blobs=())
        case "empty-blob":
            return Blobs(blobs=(b"",))
        case "done":
            return Blobs(blobs=(DONE,))
        case "416":
            return RpcError(code=-32000, message=f"416 Range Not Satisfiable: nothing at byte {start}")
        case "-32602" | "-32603":
            return RpcError(code=int(form), message="the range is out of bounds")


@dataclass(slots=True)
class MoodyPages:
    """A moody resource as a `stream.page.ReadRange`, with the errors that a session would raise."""

    resource: MoodyResource
    trickles: bool = False
    """Bytes of an answer arrive for as long as it takes."""
    last_received_at: float = 0.0
    """When the last byte of any answer arrived, on trio's clock."""

    async def __call__(self, start: int, end: int) -> Page:
        assert len(self.resource.log) < READS_MAX, "reads without end"
        async with trio.open_nursery() as nursery:
            if self.trickles:
                nursery.start_soon(self._trickle)
            answer = await self.resource.answer(start, end)
            nursery.cancel_scope.cancel()
        if not isinstance(answer, HangUp):
            self.last_received_at = trio.current_time()
        if isinstance(answer, Blobs):
            return Page(blobs=answer.blobs, mime_type=self.resource.mood.mime_type)
        raise error_of(answer)

    async def _trickle(self) -> None:
        while True:
            await trio.sleep(TRICKLE_SECONDS)
            self.last_received_at = trio.current_time()

    def last_received(self) -> float:
        return self.last_received_at


def error_of(answer: RpcError | HttpStatus | Cut | HangUp) -> PlayheadError:
    """The error that a session raises for an answer that is not a page."""
    match answer:
        case RpcError(code=code, message=message):
            kind = RangePastEndError if message.startswith("416") else ServerError
            return kind(f"moods answered resources/read with error {code}: {message}", code=code)
        case HttpStatus(status=status, retry_after_seconds=wait):
            return HttpStatusError(
                f"moods answered with HTTP {status}", status=status, retry_after_seconds=wait
            )
        case Cut() | HangUp():
            return ConnectionLostError("the connection to moods ended before it answered")
