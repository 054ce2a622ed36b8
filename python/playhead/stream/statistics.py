"""What happened in a stream, as one frozen snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EndedBy = Literal["empty", "done", "416", "size", "whole", "reference"]
"""What proved the end: empty contents or an empty blob; a `[DONE]` blob; an answer that the range is past
the end; the announced size, past which the server refused to read; a server's one answer that holds the
whole; a short page, under `compat="reference"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatistics:
    """A snapshot of one stream. Sizes are bytes, times seconds."""

    bytes: int
    """Delivered to the reader."""
    received_bytes: int
    """Payload that arrived, with what came twice or was thrown away."""
    requests: int
    """Reads sent to the server, retries and hedges included."""
    pages: int
    """Answers whose bytes were used."""
    short_pages: int
    """Answers with fewer bytes than asked for, but some."""
    oversized_pages: int
    """Answers with more bytes than asked for."""
    retries: int
    hedges: int
    """Second reads of a late page, sent before its deadline."""
    in_flight: int
    in_flight_max: int
    bandwidth_bytes_per_second: float | None
    rtt_seconds: float | None
    first_byte_seconds: float | None
    """From opening to the first byte that a reader could have had."""
    ended_by: EndedBy | None
    """None while the end is not proved."""
    end_bytes: int | None
    """The proved end: the resource's true size."""
    size_bytes: int | None
    """The size that was announced."""
    size_was_wrong: bool
    strategy: str
    mime_type: str | None
    capacity_bytes: int


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counters behind the snapshot, kept by whoever sends the reads."""

    requests: int = 0
    pages: int = 0
    short_pages: int = 0
    oversized_pages: int = 0
    retries: int = 0
    hedges: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    received_bytes: int = 0
    data_end: int = 0
    """One past the highest byte received: where `[DONE]` can begin to mean the end."""
    mime_type: str | None = None

    def sent(self) -> None:
        self.requests += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
