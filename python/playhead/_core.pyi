"""The Rust core: a bounded positional byte pipe and the prefetch planner."""

from typing import Final, final

from typing_extensions import Buffer

__all__ = [
    "Pipe",
    "PipeStatistics",
    "Planner",
    "PlannerStatistics",
    "Request",
    "__version__",
    "decode_base64",
]

__version__: Final[str]

def decode_base64(text: str | Buffer, /) -> bytes: ...

@final
class Pipe: ...

@final
class PipeStatistics: ...

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
            ValueError: A setting is out of its range (the caller's fault); the message names it and the
                range.
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
