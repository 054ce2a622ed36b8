"""What the player tells: one snapshot, and events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from playhead.playback.formats import PcmFormat


class Status(StrEnum):
    """Where the player is. `playing` and `buffering` change into each other without a call."""

    IDLE = "idle"
    """Nothing was played yet, or the queue is over and its last item ended by itself."""
    BUFFERING = "buffering"
    """Waiting for enough bytes: before the first sound, or where the sound ran dry."""
    PLAYING = "playing"
    PAUSED = "paused"
    STOPPED = "stopped"
    """The last item was stopped by a call."""
    ERROR = "error"
    """The queue is over and its last item failed: `last_error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerState:
    """One moment of a player. The numbers are the current item's, and stay after it ends."""

    status: Status = Status.IDLE
    title: str | None = None
    format: PcmFormat | None = None
    """None until the stream's first bytes were understood."""
    frames: int = 0
    """Frames that the sink has taken: the playhead."""
    position_seconds: float = 0.0
    """The same in seconds of music."""
    duration_seconds: float | None = None
    """None where the stream's header does not say it."""
    buffered_seconds: float = 0.0
    """Decoded and not yet taken; what the reader holds undecoded comes on top."""
    underruns: int = 0
    """Callbacks of a device that wanted more frames than there were and were followed by more: periods with a
    gap in the music. A wait before the end is none."""
    first_audio_seconds: float | None = None
    """From the item's turn (for the first, from `play()`) to its first frame at the sink; None before it."""
    volume: int = 100
    last_error: Exception | None = None
    """The newest failure since the queue began to play."""
    index: int | None = None
    """Of the current item in the queue, from 0; None where the queue is empty."""
    queue_length: int = 0
    """Items in the queue, those that were played among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemStart:
    """The stream is understood and its sound is about to begin: always before the first frame."""

    index: int
    title: str
    uri: str | None
    format: PcmFormat
    duration_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """The status changed, or the volume did."""

    state: PlayerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd:
    """An item is over and did not fail. `stopped`: a call ended it before its last frame."""

    index: int
    title: str
    frames: int
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """An item failed; what was decoded before was played, and the queue goes on unless told otherwise."""

    index: int
    title: str
    frames: int
    error: Exception


PlayerEvent = ItemStart | StateChange | ItemEnd | ItemError
