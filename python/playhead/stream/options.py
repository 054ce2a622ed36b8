"""What a caller may choose about one stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from playhead.errors import UsageError
from playhead.limits import KIB, MIB
from playhead.stream.ranges import STRATEGY_NAMES

MAX_PAGE_BYTES = 32 * MIB
MAX_CAPACITY_BYTES = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Choices for one stream; every default suits a music player on an unknown network.

    Raises `UsageError` when a value is out of its range.
    """

    strategy: str | None = None
    """How ranges are asked for: `uri-template`, `arguments`, `meta` or `whole`. None: as offered."""

    page_bytes: int = 100 * KIB
    """The largest page asked for. Bigger pages cost fewer requests, smaller ones arrive sooner. 100 KiB is
    what servers of this kind are used to; 1 MiB pays on fast links with a high cost a request."""

    in_flight: int = 8
    """Most reads at once. 8 fills 100 Mbit/s at 60 ms; 16 helps at 300 ms."""

    capacity_bytes: int | None = None
    """Bytes the ring holds, rounded up to a power of two. None: max(1 MiB, 2 x in_flight x page_bytes), so
    that a full set of pages is in flight while as much is being read."""

    size_bytes: int | None = None
    """The resource's size if you know better than the link. A hint: it is confirmed by one read past it."""

    timeout: float = 30.0
    """Longest wait for one page, in seconds. The planner's deadlines are shorter once it knows the link."""

    max_bytes: int | None = None
    """Most bytes of the stream; more is a `LimitError`. None: `Limits.stream_bytes`."""

    max_tries: int = 6
    """Tries of one page before the stream is broken."""

    compat: str | None = None
    """`"reference"`: a page shorter than asked ends the stream, for servers that depend on it."""

    extra_arguments: Mapping[str, object] | None = None
    """More `arguments` for every read."""

    meta_key: str | None = None
    """The `_meta` key that holds the range, for servers that read it there."""

    def __post_init__(self) -> None:
        if self.strategy is not None and self.strategy not in STRATEGY_NAMES:
            raise UsageError(f"strategy: expected one of {', '.join(STRATEGY_NAMES)}, got {self.strategy!r}")
        if self.compat not in {None, "reference"}:
            raise UsageError(f"compat: expected 'reference' or nothing, got {self.compat!r}")
        _between("page_bytes", self.page_bytes, 1, MAX_PAGE_BYTES)
        _between("in_flight", self.in_flight, 1, 256)
        _between("max_tries", self.max_tries, 1, 100)
        if self.capacity_bytes is not None:
            _between("capacity_bytes", self.capacity_bytes, 1, MAX_CAPACITY_BYTES)
        if self.size_bytes is not None and self.size_bytes < 0:
            raise UsageError(f"size_bytes: expected 0 or more, got {self.size_bytes}")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise UsageError(f"max_bytes: expected 0 or more, got {self.max_bytes}")
        if not self.timeout > 0:
            raise UsageError(f"timeout: expected more than 0 seconds, got {self.timeout}")

    def ring_bytes(self) -> int:
        """Bytes that the ring is made with."""
        wanted = self.capacity_bytes
        if wanted is None:
            wanted = max(MIB, 2 * self.in_flight * self.page_bytes)
        return 1 << (min(wanted, MAX_CAPACITY_BYTES) - 1).bit_length()


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name}: expected {low} to {high}, got {value}")


DEFAULT_OPTIONS = StreamOptions()
