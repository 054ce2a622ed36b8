"""The Rust core: strict base64, volume, a bounded positional byte pipe, and the prefetch planner."""

from typing import Final, Self, final

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
    """The bytes of strict base64 (RFC 4648, section 4, padded, no white space).

    Text of 64 KiB or more in an object that cannot change (`str`, `bytes`) is decoded with the GIL released.

    Raises:
        Base64Error: The text's first fault, by kind and index (the sender's fault).
        BufferError, TypeError: No contiguous bytes can be had from `text` (yours).
    """

def scale_pcm16(pcm: Buffer, start_gain: float, end_gain: float, /) -> None:
    """Scales native-endian 16-bit samples in place by a gain going evenly from `start_gain` to `end_gain`.

    Gains are 0.0 to 1.0, others are clamped; 1.0 changes no sample. For an audio callback.

    Raises:
        BufferError, TypeError: `pcm` has no writable, contiguous bytes (yours).
    """

@final
class Pipe:
    """Bytes on their way from one writer to one reader, in bounded memory.

    The byte at absolute offset `o` has its place in a ring of `capacity_bytes`, so pages may be written in
    any order and none is moved; the reader sees the bytes up to the first gap. Every method may be called
    from any thread. A negative int raises OverflowError everywhere (yours).
    """

    def __new__(cls, capacity_bytes: int, *, start: int = 0) -> Self:
        """
        Args:
            capacity_bytes: The most it holds, 1 byte to 1 TiB, rounded up to a power of two. Memory is used
                as far as it is written to: an idle pipe costs a few KiB, whatever its capacity.
            start: Absolute offset of the first byte.

        Raises:
            UsageError: A capacity or start that is not possible (yours).
            MemoryError, OSError: The system has no memory, or no file descriptor (the wake takes one).
        """

    @property
    def capacity_bytes(self) -> int:
        """The most it holds: a power of two."""

    @property
    def head(self) -> int:
        """Absolute offset of the next byte to be read."""

    @property
    def tail(self) -> int:
        """Absolute end of the bytes that can be read now."""

    @property
    def closed(self) -> bool:
        """`close` or `abort` was called. A `seek` that empties a closed pipe opens it again."""

    def write_base64(self, offset: int, text: str | Buffer) -> int:
        """Decodes a page straight to its place, and returns its decoded length in bytes.

        Bytes that were read already (below `head`) are skipped; bytes still held are compared, never
        overwritten; missing ones are stored. All of that or, on an error, nothing. Text of 64 KiB or more in
        an object that cannot change (`str`, `bytes`) is decoded with the GIL released.

        Raises:
            Base64Error: The text's first fault; `offset` says which page (the sender's fault).
            ContradictionError: A byte that is held came with another value (the sender's fault); `offset` is
                the first such byte.
            WindowError: The page reaches past `head + capacity_bytes` (yours: ask for it later).
            ClosedError: After `close` or `abort` (yours).
            BufferError, TypeError: No contiguous bytes can be had from `text` (yours).
        """

    def write(self, offset: int, data: Buffer) -> int:
        """As `write_base64`, for bytes as they are (PCM); no Base64Error."""

    def wait_room(self, room_bytes: int, timeout: float | None = None) -> bool:
        """For a thread that writes: blocks, with the GIL released, until `room_bytes` fit behind `tail`.

        It sleeps on the wake of `fileno`, so a pipe's writer waits either here or there, not in both.
        `timeout` is in seconds, by default without limit; 0 only looks. Returns whether there is room.

        Raises:
            UsageError: More than `capacity_bytes`, or a negative timeout (yours).
            ClosedError: The pipe was closed or aborted, also while waiting (yours).
        """

    def arm(self, low_bytes: int) -> bool:
        """For a trio task that writes: asks for one wake once `tail - head <= low_bytes`, or at the end.

        Returns True if that is so already; then no wake is asked for. A wake can be one too many, never one
        too few, so look again after it:

            pipe.clear_wake()
            while not pipe.arm(low_bytes):
                await trio.lowlevel.wait_readable(pipe.fileno())
                pipe.clear_wake()
        """

    def fileno(self) -> int:
        """The file descriptor that is readable after a wake: an eventfd, or a socket's. The pipe owns it."""

    def clear_wake(self) -> None:
        """Takes the wakes that have come, so that `fileno` is not readable."""

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Fills `buffer` with what is there, up to its length, and returns how many bytes that is.

        Blocks while nothing is there, with the GIL released; a write, `close` and `abort` wake it, Ctrl-C
        does not, so call it from a thread of its own. Never waits to fill the buffer. 0 is the end, or an
        empty buffer. `timeout` is in seconds, by default without limit; 0 only looks.

        Raises:
            TimeoutError: No byte came in time; nothing is lost, ask again.
            BusyError: Another thread is reading (yours).
            UsageError: A negative timeout (yours).
            BaseException: The very one given to `abort`, once the bytes before it were read.
            BufferError, TypeError: `buffer` has no writable, contiguous bytes (yours).
        """

    def readinto_nowait(self, buffer: Buffer) -> int | None:
        """As `readinto`, at once: None where nothing is there yet. For an audio callback.

        Takes no lock, allocates nothing but its result and never blocks. Wakes a writer that waits for room.
        None also while a `seek` is moving the window.

        Raises:
            BusyError, BaseException, BufferError, TypeError: As `readinto`.
        """

    def seek(self, offset: int) -> None:
        """Moves the reader to an absolute offset.

        Inside `head` to `tail` the bytes before it are dropped. Elsewhere everything is dropped, the pipe
        begins anew at `offset`, and one that was closed is open again, because its end is no longer in hand.
        A blocked reader stays blocked and gets the bytes from `offset`. A copy that is running is waited for.

        Raises:
            ClosedError: After `abort` (yours).
            UsageError: An offset above 2**62 (yours).
        """

    def close(self) -> None:
        """The stream ends at `tail`: the reader gets what is there, and then 0.

        Bytes beyond a gap are forgotten. Wakes a blocked reader and a waiting writer. Idempotent;
        does nothing after `abort`.
        """

    def abort(self, error: BaseException) -> None:
        """The stream breaks off at `tail`: the reader gets what is there, and then this very exception.

        Wakes a blocked reader and a waiting writer. The first of `close` and `abort` wins.
        """

    def statistics(self) -> PipeStatistics:
        """A snapshot; may be taken at any time, from any thread."""

@final
class PipeStatistics:
    """What a pipe has counted up to one instant."""

    @property
    def bytes_written(self) -> int:
        """Bytes stored, each once."""

    @property
    def bytes_repeated(self) -> int:
        """Bytes that came again: read already, or held and compared."""

    @property
    def writes(self) -> int:
        """Writes accepted."""

    @property
    def bytes_read(self) -> int:
        """Bytes handed to the reader."""

    @property
    def reads(self) -> int:
        """Reads that gave bytes."""

    @property
    def reader_waits(self) -> int:
        """Blocking reads that found nothing and had to wait."""

    @property
    def writer_wakes(self) -> int:
        """Wakes sent to a writer that had asked for one."""

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at once, those beyond a gap included."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Request:
    """One range to read now: bytes `start` to `end` (half-open), answered by `on_page` or `on_error` with its
    `id`.
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
    def deadline(self) -> float:
        """When to give up on it, in seconds on the caller's clock."""

    @property
    def attempt(self) -> int:
        """Tries before this one."""

    @property
    def is_hedge(self) -> bool:
        """The same range is in flight already and is late; the first answer counts."""

    @property
    def is_confirm(self) -> bool:
        """It starts at or past the announced size: most likely empty, and nobody waits for it."""

@final
class PlannerStatistics:
    """What a planner has done and measured up to one instant."""

    @property
    def requests(self) -> int:
        """Requests handed out, retries and hedges included."""

    @property
    def pages(self) -> int:
        """Answers with bytes that were kept."""

    @property
    def bytes(self) -> int:
        """Kept bytes."""

    @property
    def retries(self) -> int:
        """Requests that asked again for a page that had failed."""

    @property
    def hedges(self) -> int:
        """Requests that asked again for a page that was late."""

    @property
    def short_pages(self) -> int:
        """Answers with fewer bytes than asked for, but some."""

    @property
    def empty_pages(self) -> int:
        """Answers without bytes."""

    @property
    def in_flight(self) -> int:
        """Requests out now, those no longer wanted included until `expired` has named them."""

    @property
    def in_flight_max(self) -> int:
        """Most requests out at once."""

    @property
    def page_bytes(self) -> int:
        """Size of the next new page."""

    @property
    def bandwidth_bytes_per_second(self) -> float | None:
        """Payload bytes a second, the maximum over ten seconds. None before the first page."""

    @property
    def rtt_seconds(self) -> float | None:
        """The least latency of a page over thirty seconds. None before the first page."""

    @property
    def size_was_wrong(self) -> bool:
        """Bytes came past the announced size, or the end came before it."""

    @property
    def ended_by_size(self) -> bool:
        """The end is the announced size: the read past it was refused rather than answered empty."""

@final
class Planner:
    """Which range to read next: a state machine without clock, I/O or threads. Safe to share between threads.

    Times are seconds as float on any clock that does not run back (`trio.current_time()`); one that does, or
    is not finite, is held at the latest time seen. Offsets and sizes are bytes; ranges are half-open. Ids
    that are unknown, because they were answered, cancelled or made stale by `seek`, are ignored everywhere.
    Every int argument raises OverflowError (the caller's fault) if it is negative or above 2**64 - 1.

    After every event call `next` until it gives None, then wait for an answer, the reader to move, or
    `timer`.
    """

    def __new__(
        cls,
        *,
        capacity_bytes: int,
        page_min_bytes: int = 8192,
        page_bytes: int = 102_400,
        in_flight: int = 8,
        in_flight_start: int = 3,
        max_tries: int = 6,
        deadline_seconds: float = 30.0,
        nominal_rate_bytes: float = 40_000.0,
        hedge: bool = True,
        seed: int = 0,
        start: int = 0,
    ) -> Planner:
        """
        Args:
            capacity_bytes: The ring's size. No range ends past reader + capacity, and no page is larger than
                a quarter of it, so that pages overlap.
            page_min_bytes: First page; small, because the first sound waits for it. Above `page_bytes`, that
                counts.
            page_bytes: Largest page. 100 KiB is what servers expect; 1 MiB pays off where latency is high.
            in_flight: Most requests at once, 1 to 256.
            in_flight_start: Requests at once before the first answer; three do not delay the first page.
            max_tries: Tries a page gets, the first included, before `failed`.
            deadline_seconds: Most that one request may take, whatever the estimates say.
            nominal_rate_bytes: The listener's bytes a second until it has been seen; the default is 320
                kbit/s.
            hedge: Ask once more for a late page that two later ones have overtaken.
            seed: Of the retry jitter.
            start: Offset of the first byte wanted.

        Raises:
            UsageError: A setting is out of its range (yours); the message names it and the range.
        """

    def next(self, now: float, head: int) -> Request | None:
        """The next request to send; `head` is the reader's offset. None: wait for an event."""

    def on_page(self, id: int, now: float, n_bytes: int) -> bool:
        """An answer came with `n_bytes` bytes from the request's start; 0 proves an end there.

        Returns True if the bytes are wanted. They are not if a copy came first, the id is unknown, or they
        lie past a proven end (then `contradiction` is set). Fewer bytes than asked for are a short page; more
        count as all.
        """

    def on_error(self, id: int, now: float, retryable: bool) -> None:
        """A request failed. `retryable` for a deadline or a lost connection, False for the peer's own
        refusal.
        """

    def expired(self, now: float) -> list[int]:
        """Ids to cancel: past their deadline, to be followed by `on_error(id, now, True)`; and, named once,
        those whose answer is no longer wanted (a hedge that lost, a read past the end), for which `on_error`
        does nothing.
        """

    def timer(self) -> float | None:
        """When to call `expired` and `next` again if nothing else happens; may be in the past."""

    def seek(self, offset: int) -> list[int]:
        """The reader jumps: nothing from `offset` on counts as received. Returns the stale ids, to be
        cancelled.

        Estimates, a proven end and an announced size stay; pages start small again.
        """

    def set_total(self, total_bytes: int) -> None:
        """An announced size: plan to it, and confirm it by one small read past it. The bytes decide."""

    def set_page_bytes(self, page_bytes: int) -> None:
        """The server has its own page size: ask for exactly that much from now on, within the ring."""

    def set_in_flight(self, limit: int) -> None:
        """Another limit of requests at once, held to 1 to 256; those out stay out."""

    @property
    def end(self) -> int | None:
        """The proven end: the lowest offset with an empty answer."""

    @property
    def finished(self) -> bool:
        """Every byte up to the proven end has come."""

    @property
    def failed(self) -> tuple[int, int] | None:
        """(offset, tries) of the page that broke the stream, once all bytes before it have come."""

    @property
    def contradiction(self) -> int | None:
        """The end the server claimed although it gave bytes past it. Terminal: no end can be believed."""

    def can_play(self, now: float, buffered_bytes: int, needed_bytes: int, left_bytes: int | None) -> bool:
        """Whether the listener may start or resume without a stall that can be foreseen.

        Args:
            now: Seconds.
            buffered_bytes: Contiguous bytes in hand.
            needed_bytes: The least the decoder needs. A ring that can hold no more, or a stream that is over,
                is enough.
            left_bytes: Bytes from the reader to the end, if known.
        """

    def statistics(self) -> PlannerStatistics:
        """A snapshot."""
