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
"""The ring of the profile `play`. Three quarters are ahead of the reader: 79 s at 320 kbit/s, or 18 s of CD
audio. One quarter behind it makes a short seek back free."""
SAVE_RING_BYTES = 8 * MIB
"""The ring of the profile `save`, all ahead of the reader: eight pages of 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWaiting:
    """The reader has waited for three seconds without a new byte."""

    seconds: float
    offset: int
    """The first missing byte."""
    last_error: PlayheadError | None
    """The error of the newest failed read, if any."""
    patience_seconds: float
    """The stream breaks once the reader has waited this long without a new byte. More than
    `StreamOptions.patience_seconds` if a part of an answer has arrived, for which `timeout` decides."""
    ended_by: Literal["patience", "timeout"] = "patience"
    """The option that sets this limit: `patience_seconds` or `timeout`. Neither if `patience_seconds` is
    infinite: a radio counts its reconnects instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResumed:
    """Bytes arrive again."""

    seconds: float
    """The time for which the reader waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTitle:
    """A live stream names what it plays from here on."""

    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSkipped:
    """The server no longer has the next bytes of a live source, so the stream continues at the earliest part
    that exists."""

    offset: int
    """The first byte that is missing."""
    skipped_bytes: int
    """0 if only the duration of the missing audio is known."""
    skipped_seconds: float | None = None
    """The duration of the missing audio, if it is known."""


StreamEvent = StreamWaiting | StreamResumed | StreamSkipped | StreamTitle


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a stream. The defaults suit a music player on an unknown network.

    Raises `UsageError` if a value is out of range.
    """

    strategy: str | None = None
    """The form in which ranges are requested, one of `stream.strategies.STRATEGY_NAMES`. None: the forms that
    the server offers are tried until one delivers."""

    page_bytes: int = 100 * KIB
    """The size to which pages double. Servers with ranged reads expect 100 KiB; smaller pages arrive
    sooner."""

    page_bytes_max: int = MIB
    """The size to which pages grow from there while that is faster, at most a quarter of the ring. At 1 MiB
    the cost per page no longer matters."""

    in_flight: int | None = None
    """The most reads at once, 1 to 256. None: as many as the link can use, from 3 to 16, and up to 64 if the
    server's pages are small."""

    profile: Literal["play", "save"] = "play"
    """`play`: a ring of 4 MiB of which a quarter stays behind the reader, filled in bursts. `save`: a ring of
    8 MiB, all ahead of the reader, never idle."""

    capacity_bytes: int | None = None
    """Capacity of the ring, rounded up to a power of two. None: the profile's, or twice the largest
    page."""

    size_bytes: int | None = None
    """The resource's size, in place of the link's. A hint, which one read confirms."""

    live: bool | None = None
    """True if the resource still grows: its present end is not its end. None: as the link, the server or a
    page declares it."""

    timeout: float = 30.0
    """A read is cancelled, and retried, after this many seconds without a byte of its answer."""

    patience_seconds: float = 60.0
    """The stream breaks when its reader has waited this long without a new byte. Time in which there are
    bytes to read or audio to play does not count. A minute outlasts a router's restart."""

    max_bytes: int | None = None
    """The most bytes of the stream; more raise `LimitError`. None: `Limits.stream_bytes`."""

    extra_arguments: Mapping[str, object] | None = None
    """Additional `arguments` of every read."""

    meta_key: str | None = None
    """The `_meta` key for the range, for servers that read it there."""

    range_tool: str | None = None
    """The tool that reads ranges, for the strategy `tool`. None: its schemas identify it."""

    poll_tool: str | None = None
    """The tool that hands out chunks, for the strategy `poll`. None: its outputSchema identifies it."""

    only_repeatable: bool = False
    """True to use only forms whose reads have no effects: no queue, and only tools that declare that their
    calls can be repeated. For a look at the beginning of a resource that is not played."""

    on_event: Callable[[StreamEvent], None] | None = None
    """Called in the trio thread when the reader has waited for three seconds, when bytes arrive again, and
    when a live source skips some; must not block or raise."""

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
        # `object`, because a caller without a type checker may pass anything.
        sizes: dict[str, object] = {"size_bytes": self.size_bytes, "max_bytes": self.max_bytes}
        for name, size in sizes.items():
            if size is not None and not (isinstance(size, int) and size >= 0):
                raise UsageError(f"{name}: expected 0 or more, got {size!r}")
        times: dict[str, object] = {"timeout": self.timeout, "patience_seconds": self.patience_seconds}
        for name, value in times.items():
            if not (isinstance(value, int | float) and value > 0):
                raise UsageError(f"{name}: expected more than 0 seconds, got {value!r}")

    def ring_bytes(self) -> int:
        """Return the capacity of the ring, a power of two."""
        wanted = self.capacity_bytes
        if wanted is None:
            wanted = max(PLAY_RING_BYTES if self.profile == "play" else SAVE_RING_BYTES, 2 * self.page_bytes)
        return 1 << (min(wanted, MAX_CAPACITY_BYTES) - 1).bit_length()


def _between(name: str, value: object, low: int, high: int) -> None:
    if not (isinstance(value, int) and low <= value <= high):
        raise UsageError(f"{name}: expected {low} to {high}, got {value!r}")


DEFAULT_OPTIONS = StreamOptions()


@dataclass(slots=True)
class ReadCounts:
    """The reads of one stream that the server and the page cache answered."""

    server_reads: int = 0
    """`resources/read` requests that were sent. Requests of other forms (tools, HTTP ranges) are not
    counted."""
    cache_hits: int = 0
    """Reads of any form that the page cache answered."""
    cache_bytes: int = 0
    """The bytes of these reads."""
    server_bytes: int = 0
    """The bytes of the pages that the server sent, unused ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatistics:
    """A snapshot of one stream. Sizes are bytes, times seconds."""

    bytes: int
    """The bytes delivered to the reader."""
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
    """True if bytes arrived past the announced size, or the resource ended below it."""
    ranges_ignored_from: int | None
    """First offset that was answered with the whole resource; None if none was, or all were."""
    strategy: str
    strategy_reason: str
    """The reason why this strategy is used, and the strategies that were refused before it."""
    mime_type: str | None
    cache_scope: Literal["public", "private"] | None
    """The server's declaration of who may share the bytes (since revision 2026-07-28)."""
    capacity_bytes: int
    reconnects: int = 0
    """Connections of a radio after its first."""
    is_live: bool = False
    """True if the resource was still growing when it was read."""
    notifications: int = 0
    """The server's notifications that the resource has grown."""
    skipped_bytes: int = 0
    """The bytes of a live source that its server dropped before they were read."""
    reads: ReadCounts = field(default_factory=ReadCounts)
