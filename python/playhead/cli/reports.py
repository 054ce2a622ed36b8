"""The keys of `--json` for everything that streams: the same names in every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playhead.playback import PlayerState
    from playhead.stream.reader import RangeStream


def milliseconds(seconds: float | None) -> float | None:
    """A time for the report: milliseconds with a tenth, or None where there was none."""
    return None if seconds is None else round(seconds * 1000, 1)


def stream_report(stream: RangeStream) -> dict[str, object]:
    """What a stream did: bytes, requests, how it ended."""
    seen = stream.statistics()
    return {
        "bytes": seen.bytes,
        "requests": seen.requests,
        "pages": seen.pages,
        "retries": seen.retries,
        "hedges": seen.hedges,
        "in_flight_max": seen.in_flight_max,
        "first_byte_ms": milliseconds(seen.first_byte_seconds),
        "strategy": seen.strategy,
        "ended_by": seen.ended_by,
    }


def player_report(state: PlayerState) -> dict[str, object]:
    """What was heard: when the first sound came, how much of it, and every underrun."""
    return {
        "first_audio_ms": milliseconds(state.first_audio_seconds),
        "underruns": state.underruns,
        "position_seconds": round(state.position_seconds, 3),
    }
