"""Options, events and statistics of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from playhead.errors import PlayheadError, UsageError
from playhead.limits import KIB, MIB
from playhead.stream.answer import EndedBy
from playhead.stream.strategies import STRATEGY_NAMES

MAX_PAGE_BYTES = 32 * MIB
MAX_CAPACITY_BYTES = 1024 * MIB

PLAY_RING_BYTES = 4 * MIB
"""Three quarters ahead of the reader are 79 s at 320 kbit/s and 18 s of CD audio; one quarter behind makes a
short seek back free."""
SAVE_RING_BYTES = 8 * MIB
"""All ahead: eight pages of 1 MiB, or 2.4 MB/s at 300 ms of latency without a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWaiting:
    """The reader has waited for three seconds without a new byte."""

    seconds: float
    offset: int
    """The first missing byte."""
    last_error: PlayheadError | None
    """The error of the newest failed read, if any."""
    patience_seconds: float
    """The stream breaks once the reader has waited this long, if nothing more arrives: its patience, or more
    if an answer has begun to arrive, which has its own timeout."""
    ended_by: Literal["patience", "timeout"] = "patience"
    """The option that decides about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResumed:
    """Bytes arrive again."""

    seconds: float
    """The time that the reader has waited."""


StreamEvent = StreamWaiting | StreamResumed


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a stream. The defaults suit a music player on an unknown network.

    Raises `UsageError` if a value is out of range.
    """

    strategy: str | None = None
    """The form in which ranges are requested, one of `stream.strategies.STRATEGY_NAMES`. None: each form that
    the server offers, until one delivers."""

    page_bytes: int = 100 * KIB
    """Pages double up to this. Servers of this kind expect 100 KiB; smaller pages arrive sooner."""

    page_bytes_max: int = MIB
    """Pages grow on to this while that is faster, and to a quarter of the ring at most. At 1 MiB the cost per
    page no longer matters."""

    in_flight: int | None = None
    """Most reads at once, 1 to 256. None: as many as the link can use, from 3 to 16, and up to 64 if the
    server's pages are small."""

    profile: Literal["play", "save"] = "play"
    """`play`: a ring of 4 MiB of which a quarter stays behind the reader, filled in bursts. `save`: a ring of
    8 MiB, all ahead of the reader, never idle."""

    capacity_bytes: int | None = None
    """Capacity of the ring, rounded up to a power of two. None: the profile's, or twice the largest
    page."""

    size_bytes: int | None = None
    """The resource's size, if you know better than the link. A hint: it is confirmed by one read."""

    timeout: float = 30.0
    """A read is cancelled, and retried, after this many seconds without a byte of its answer."""

    patience_seconds: float = 60.0
    """The stream breaks when its reader has waited this long without a new byte. Time with something to read,
    or to hear, does not count. A minute outlasts a router's restart."""

    max_bytes: int | None = None
    """Most bytes of the stream; more raise `LimitError`. None: `Limits.stream_bytes`."""

    extra_arguments: Mapping[str, object] | None = None
    """Additional `arguments` of every read."""

    meta_key: str | None = None
    """The `_meta` key for the range, for servers that read it there."""

    range_tool: str | None = None
    """The tool that reads ranges, for the strategy `tool`. None: its schemas identify it."""

    poll_tool: str | None = None
    """The tool that hands out chunks, for the strategy `poll`. None: its outputSchema identifies it."""

    only_repeatable: bool = False
    """Use no form whose reads have effects: no queue, and no tool that does not declare that its calls can be
    repeated. A look at the beginning of a resource that nobody plays needs this."""

    on_event: Callable[[StreamEvent], None] | None = None
    """Called in the trio thread when the reader has waited for three seconds, and when bytes arrive again;
    must not block or raise."""

    def __post_init__(self) -> None:
        if self.strategy is not None and self.strategy not in STRATEGY_NAMES:
            raise UsageError(f"strategy: expected one of {', '.join(STRATEGY_NAMES)}, got {self.strategy!r}")
        if self.profile not in {"play", "save"}:
            raise UsageError(f"profile: expected 'play' or 'save', got {self.profile!r}")
        _between("page_bytes", self.page_bytes, 1, MAX_PAGE_BYTES)
        _between("page_bytes_max", self.page_bytes_max, 1, MAX_PAGE_BYTES)
        if self.in_flight is not None:
            _between("in_flight", self.in_flight, 1, 256)
        if self.capacity_bytes is not None:
            _between("capacity_bytes", self.capacity_bytes, 1, MAX_CAPACITY_BYTES)
        if self.size_bytes is not None and self.size_bytes < 0:
            raise UsageError(f"size_bytes: expected 0 or more, got {self.size_bytes}")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise UsageError(f"max_bytes: expected 0 or more, got {self.max_bytes}")
        for name, value in (("timeout", self.timeout), ("patience_seconds", self.patience_seconds)):
            if not value > 0:
                raise UsageError(f"{name}: expected more than 0 seconds, got {value}")

    def ring_bytes(self) -> int:
        """Return the capacity of the ring, a power of two."""
        wanted = self.capacity_bytes
        if wanted is None:
            wanted = max(PLAY_RING_BYTES if self.profile == "play" else SAVE_RING_BYTES, 2 * self.page_bytes)
        return 1 << (min(wanted, MAX_CAPACITY_BYTES) - 1).bit_length()


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name}: expected {low} to {high}, got {value}")


DEFAULT_OPTIONS = StreamOptions()


@dataclass(slots=True)
class ReadCounts:
    """The reads of one stream by who answered them: the server or the page cache."""

    server_reads: int = 0
    """`resources/read` that were sent. Those of other forms (tools, HTTP ranges) are not counted."""
    cache_hits: int = 0
    """Reads of any form that the page cache answered."""
    cache_bytes: int = 0
    """Their bytes."""
    server_bytes: int = 0
    """The bytes of the pages that the server sent, superseded ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatistics:
    """A snapshot of one stream. Sizes are bytes, times seconds."""

    bytes: int
    """Delivered to the reader."""
    requests: int
    """Reads of byte ranges, including retries, hedges, and probes of the ranges and of the end. Several
    reads of a web resource share one GET."""
    pages: int
    """Answers whose bytes were used."""
    retries: int
    hedges: int
    """Second reads of a late page."""
    in_flight: int
    in_flight_max: int
    bandwidth_bytes_per_second: float | None
    rtt_seconds: float | None
    first_byte_seconds: float | None
    """Time from opening to the first readable byte."""
    ended_by: EndedBy | None
    """None until the end is reached."""
    end_bytes: int | None
    """The accepted end: the resource's true size."""
    size_bytes: int | None
    """The announced size."""
    size_was_wrong: bool
    """Bytes arrived past the announced size, or the resource ended below it."""
    ranges_ignored_from: int | None
    """First offset that was answered with the whole resource; None if none was, or all were."""
    strategy: str
    strategy_reason: str
    """Why this strategy is used, and which were refused before it."""
    mime_type: str | None
    capacity_bytes: int
    reads: ReadCounts = field(default_factory=ReadCounts)
