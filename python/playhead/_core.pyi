"""The Rust core: strict base64, volume, a bounded positional byte pipe, and the prefetch planner."""

from typing import Final, Literal, Self, TypeAlias, final

from typing_extensions import Buffer

__all__ = [
    "Pipe",
    "PipeStatistics",
    "Planner",
    "PlannerStatistics",
    "Request",
    "__version__",
    "decode_base64",
    "scale_pcm16",
]

__version__: Final[str]

def decode_base64(text: str | Buffer, /) -> bytes:
    """Decode strict base64 (RFC 4648, section 4, padded, no white space).

    Text of 64 KiB or more in an object that cannot change (`str`, `bytes`) is decoded with the GIL released.

    Raises:
        Base64Error: The text's first fault, by kind and index (the sender's fault).
        BufferError, TypeError: `text` has no contiguous bytes (yours).
    """

def scale_pcm16(pcm: Buffer, start_gain: float, end_gain: float, /) -> None:
    """Scale native-endian 16-bit samples in place by a gain that goes evenly from `start_gain` to `end_gain`.

    Gains are 0.0 to 1.0, others are clamped; 1.0 changes no sample. For an audio callback.

    Raises:
        BufferError, TypeError: `pcm` has no writable, contiguous bytes (yours).
    """

@final
class Pipe:
    """A byte pipe from one writer to one reader, in bounded memory.

    Each absolute offset has its place in a ring of `capacity_bytes`, so pages may be written in any order and
    none is moved; the reader sees the bytes up to the first gap. Every method may be called
    from any thread. A negative int raises OverflowError everywhere (yours).
    """

    def __new__(cls, capacity_bytes: int, *, start: int = 0, behind_bytes: int = 0) -> Self:
        """
        Args:
            capacity_bytes: Capacity, 1 byte to 1 TiB, rounded up to a power of two. Memory is used when it is
                first written: an idle pipe costs a few KiB, whatever its capacity.
            start: Absolute offset of the first byte. behind_bytes: Bytes kept behind the reader, so that a
            short seek back reads nothing again. They are part of the capacity and leave that much less room
            ahead. By default none.

        Raises:
            UsageError: A capacity or start out of range, or a `behind_bytes` that is not below the capacity
                (yours).
            MemoryError, OSError: The system has no memory, or no file descriptor (the wake takes one).
        """

    @property
    def capacity_bytes(self) -> int:
        """The capacity: a power of two."""

    @property
    def ahead_bytes(self) -> int:
        """Bytes that fit ahead of the reader: `capacity_bytes` less `behind_bytes`.

        A page fits if it ends at or below `head + ahead_bytes`, and from then on until a `seek` empties the
        pipe.
        """

    @property
    def kept_from(self) -> int:
        """Absolute offset of the oldest byte kept: a `seek` from here to `tail` drops nothing."""

    @property
    def head(self) -> int:
        """Absolute offset of the next byte to be read."""

    @property
    def tail(self) -> int:
        """Absolute end of the readable bytes."""

    @property
    def closed(self) -> bool:
        """`close` or `abort` was called. A `seek` that empties a closed pipe opens it again."""

    def write_base64(self, offset: int, text: str | Buffer) -> int:
        """Decode a page straight to its place, and return its decoded length in bytes.

        Bytes that are no longer kept (below `kept_from`) are skipped; bytes still held are compared, never
        overwritten; missing ones are stored. All of that or, on an error, nothing. Text of 64 KiB or more in
        an object that cannot change (`str`, `bytes`) is decoded with the GIL released.

        Raises:
            Base64Error: The text's first fault; `offset` says which page (the sender's fault).
            ContradictionError: A byte that is held arrived with another value (the sender's fault); `offset`
                is the first such byte.
            WindowError: The page reaches past `kept_from + capacity_bytes` (yours: request it later).
            ClosedError: After `close` or `abort` (yours).
            BufferError, TypeError: `text` has no contiguous bytes (yours).
        """

    def write(self, offset: int, data: Buffer) -> int:
        """As `write_base64`, for plain bytes (PCM); no Base64Error."""

    def wait_room(self, room_bytes: int, timeout: float | None = None) -> bool:
        """Block a writing thread, with the GIL released, until `room_bytes` fit past `tail`.

        It takes the wakes of `fileno`, so a writer waits either here or there, not in both. `timeout` is in
        seconds, by default without limit; 0 does not wait. Returns whether there is room.

        Raises:
            UsageError: More than `ahead_bytes`, or a negative timeout (yours).
            ClosedError: The pipe was closed or aborted, also while waiting (yours).
        """

    def arm(self, low_bytes: int) -> bool:
        """Request one wake for a writing trio task once `tail - head <= low_bytes`, or at the end.

        Returns True if that is already the case; then no wake is requested. There may be a wake too many,
        never one too few, so check again after it:

            pipe.clear_wake()
            while not pipe.arm(low_bytes):
                await trio.lowlevel.wait_readable(pipe.fileno())
                pipe.clear_wake()
        """

    def fileno(self) -> int:
        """The file descriptor that is readable after a wake: an eventfd, or a socket's. The pipe owns it."""

    def clear_wake(self) -> None:
        """Take the pending wakes, so that `fileno` is not readable."""

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Read what is available into `buffer`, and return the number of bytes.

        Blocks until there is at least one byte, with the GIL released; a write, `close` and `abort` wake it,
        Ctrl-C does not, so call it from a thread of its own. Never waits to fill the buffer. 0 is the end, or
        an empty buffer. `timeout` is in seconds, by default without limit; 0 does not wait.

        Raises:
            TimeoutError: No byte arrived in time; nothing is lost, read again.
            BusyError: Another thread is reading (yours).
            UsageError: A negative timeout (yours).
            BaseException: The exception passed to `abort`, after the bytes before it.
            BufferError, TypeError: `buffer` has no writable, contiguous bytes (yours).
        """

    def readinto_nowait(self, buffer: Buffer) -> int | None:
        """As `readinto`, without waiting: None if nothing is available yet. For an audio callback.

        Takes no lock, allocates nothing but its result and never blocks. Wakes a writer that waits for room.
        None also while a `seek` is moving the reader.

        Raises:
            BusyError, BaseException, BufferError, TypeError: As `readinto`.
        """

    def seek(self, offset: int) -> None:
        """Move the reader to an absolute offset.

        From `kept_from` to `tail` nothing is dropped. Elsewhere everything is dropped, the pipe starts again
        at `offset`, and a closed one is open again. A blocked reader gets the bytes from `offset`: at once if
        they are kept, otherwise when they are written. Waits for a running copy.

        Raises:
            ClosedError: After `abort` (yours).
            UsageError: An offset above 2**62 (yours).
        """

    def close(self) -> None:
        """End the stream at `tail`: the reader gets the bytes up to there, and then 0.

        Bytes beyond a gap are dropped. Wakes a blocked reader and a waiting writer. Idempotent;
        does nothing after `abort`.
        """

    def abort(self, error: BaseException) -> None:
        """Break the stream at `tail`: the reader gets the bytes up to there, and then this exception.

        Wakes a blocked reader and a waiting writer. The first of `close` and `abort` wins.
        """

    def statistics(self) -> PipeStatistics:
        """Take a snapshot. From any thread, at any time."""

@final
class PipeStatistics:
    """A snapshot of the counters of a pipe."""

    @property
    def bytes_read(self) -> int:
        """Bytes handed to the reader."""

    @property
    def reader_waits(self) -> int:
        """Blocking reads that found nothing and had to wait."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Request:
    """A range to read now: bytes `start` to `end` (half-open), answered by `on_answer` or `on_error` with
    its `id`.
    """

    @property
    def id(self) -> int:
        """Never used twice by one planner."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int:
        """One past the last byte; above `start`."""

    @property
    def is_retry(self) -> bool:
        """A read of this range failed before."""

    @property
    def is_hedge(self) -> bool:
        """The same range is in flight already and is late; the first answer counts."""

    @property
    def is_probe(self) -> bool:
        """Requested by `Planner.probe`: the caller judges the answer."""

@final
class PlannerStatistics:
    """A snapshot of the counters and estimates of a planner."""

    @property
    def requests(self) -> int:
        """Requests made: retries, hedges, probes and corroborating reads included."""

    @property
    def pages(self) -> int:
        """Answers with new bytes."""

    @property
    def bytes(self) -> int:
        """New bytes."""

    @property
    def retries(self) -> int:
        """Requests for a page that had failed."""

    @property
    def hedges(self) -> int:
        """Second requests for a late page."""

    @property
    def in_flight(self) -> int:
        """Requests in flight, including unwanted ones until `expired` has named them."""

    @property
    def in_flight_max(self) -> int:
        """Most requests in flight at once."""

    @property
    def page_bytes(self) -> int:
        """Size of the next new page."""

    @property
    def bandwidth_bytes_per_second(self) -> float | None:
        """Payload bytes per second, the maximum over ten seconds. None before the first page."""

    @property
    def rtt_seconds(self) -> float | None:
        """The least latency of a page over thirty seconds. None before the first page."""

    @property
    def size_was_wrong(self) -> bool:
        """Bytes arrived past the announced size, or the end was accepted below it."""

_EndedBy: TypeAlias = Literal["empty", "done", "416", "size", "error", "whole"]

@final
class Planner:
    """The prefetch planner: a state machine without clock, I/O or threads. Safe to share between threads.

    Times are seconds as float on any clock that does not run back (`trio.current_time()`); one that does, or
    is not finite, is held at the latest time seen. Offsets and sizes are bytes; ranges are half-open. Ids
    that are unknown, because they were answered, cancelled or made stale by `seek`, are ignored.
    Every int argument raises OverflowError (the caller's fault) if it is negative or above 2**64 - 1.

    After every event call `next` until it returns None, then wait for an answer, for the reader to move, or
    for `timer`.
    """

    START_SECONDS: Final[float]
    """Audio in hand before playing starts."""
    REFILL_SECONDS: Final[float]
    """Audio in hand before playing goes on after it ran dry."""

    def __new__(
        cls,
        *,
        capacity_bytes: int,
        page_min_bytes: int | None = None,
        page_bytes: int | None = None,
        page_bytes_max: int | None = None,
        in_flight: int | None = None,
        timeout_seconds: float | None = None,
        patience_seconds: float | None = None,
        sleeps_when_full: bool = False,
        stagnant_answers: int | None = None,
        seed: int = 0,
        start: int = 0,
    ) -> Planner:
        """None means the core's own default.

        Args:
            capacity_bytes: Room ahead of the reader. No page ends past reader + room, and none is larger than
                a quarter of it, so that pages overlap.
            page_min_bytes: First page (8 KiB): small, because the first audio waits for it.
            page_bytes: Pages double up to this (100 KiB, what servers expect).
            page_bytes_max: Pages grow on to this (1 MiB) while that makes them faster.
            in_flight: Most requests at once, 1 to 256. None: as many as the link can use.
            timeout_seconds: A request is cancelled after this long without a byte of any answer (30).
            patience_seconds: The stream breaks when the reader has waited this long without progress (60).
            sleeps_when_full: Once the room is full, request nothing until a quarter of it is free.
            stagnant_answers: Successful answers in a row without a new byte (8); one more breaks the stream.
            seed: Of the retry jitter.
            start: Offset of the first byte wanted.

        Raises:
            UsageError: A setting is out of range (yours); the message names it and the range.
        """

    def next(self, now: float, head: int) -> Request | None:
        """The next request to send; `head` is the reader's offset. None: wait for an event."""

    def on_answer(self, id: int, now: float, n_bytes: int, end: _EndedBy | None = None) -> bool:
        """Handle an answer with `n_bytes` bytes from the request's start and, with `end`, the claim that
        nothing follows.

        Returns True if the bytes are new. Fewer bytes than requested are a short page; more count as all.
        """

    def on_error(
        self,
        id: int,
        now: float,
        kind: Literal["lost", "refused", "damaged", "final"],
        *,
        code: int | None = None,
        retry_after_seconds: float | None = None,
        broke_off: bool = False,
    ) -> None:
        """Handle a failed request.

        Args:
            kind: `lost`: not all of the answer arrived; retried while the reader has patience. `refused`:
            retried after 1, 5 and 15 s. `damaged`: retried once. `final`: the stream breaks there. code: The
            server's error code, if it answered with one. The same code repeatedly may be the end.
            retry_after_seconds: The wait that the server asked for before anything is sent. broke_off: Part
            of the answer had arrived; the next try requests half.
        """

    def on_fed(self, now: float, n_bytes: int) -> None:
        """Record progress: the caller stored bytes that it read by probes."""

    def seen_to(self, offset: int) -> None:
        """Record that a probe showed bytes up to `offset`."""

    @property
    def served_to(self) -> int:
        """One past the highest byte that was ever served."""

    def hold(self, id: int) -> None:
        """Hold an answer while the caller judges it: meanwhile it is neither read again nor late."""

    def probe(self, start: int, end: int) -> None:
        """Read `[start, end)` next, retried as pages are; the caller judges the answer."""

    def hold_pages(self, hold: bool) -> None:
        """With True, send nothing but probes until called with False."""

    def heard(self, at: float) -> None:
        """Record that bytes of an answer arrived at `at`."""

    def set_demand(self, now: float, demand: Literal["supplied", "waiting", "paused"]) -> None:
        """Set how urgently bytes are needed. Patience runs while `waiting`; while `paused`, retries are
        rare."""

    def expired(self, now: float) -> list[int]:
        """Return the ids to cancel: those silent for too long, to be followed by `on_error`; and, once each,
        those whose answer is no longer wanted (a lost hedge, a read past the end), for which `on_error` does
        nothing.
        """

    def timer(self) -> float | None:
        """Return when to call `expired` and `next` again if nothing else happens; it may be in the past."""

    def seek(self, offset: int) -> list[int]:
        """Move the reader: nothing from `offset` on counts as received. Returns the stale ids, to be
        cancelled.

        Estimates, an accepted end and an announced size stay; pages start small again.
        """

    def set_total(self, total_bytes: int, *, exact: bool = False) -> None:
        """Record an announced size, 0 for none. It is confirmed by one small read unless it is `exact`, and
        bytes may refute it.
        """

    def set_end(self, at: int, by: _EndedBy) -> None:
        """Set a known end: one answer held the whole resource."""

    def set_page_bytes(self, page_bytes: int) -> None:
        """Adopt the server's own page size, within the ring."""

    @property
    def end(self) -> tuple[int, _EndedBy] | None:
        """The accepted end, and what ended the stream."""

    @property
    def total(self) -> int | None:
        """The announced size, unless something refutes it."""

    @property
    def finished(self) -> bool:
        """True once every byte up to the accepted end has arrived."""

    @property
    def broken(
        self,
    ) -> tuple[int, Literal["patience", "retry-after", "refused", "stagnant", "contradiction"], float] | None:
        """The first missing byte, why the stream breaks there, and an amount: the seconds that the server
        asks to wait, or the number of answers without a new byte; 0 otherwise.
        """

    def waited_seconds(self, now: float) -> float:
        """Return how long the reader has waited since the last progress."""

    def can_play(
        self, now: float, in_hand_bytes: int, bytes_per_second: float, left_bytes: int | None
    ) -> bool:
        """Return whether audio may start or resume without a foreseeable stall.

        Args:
            in_hand_bytes: Audio in the ring, and decoded but not heard, in bytes of the stream.
            bytes_per_second: The rate at which the listener uses them.
            left_bytes: Bytes left to be heard, including those in hand. None: not known.
        """

    def statistics(self) -> PlannerStatistics:
        """Take a snapshot."""
