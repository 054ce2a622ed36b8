"""State and events of the player."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from playhead.errors import PlayheadError
from playhead.playback.formats import PcmFormat


class Status(StrEnum):
    """Status of the player. `playing` and `buffering` alternate without a call."""

    IDLE = "idle"
    """Nothing was played yet, or the queue is over and its last item ended normally."""
    BUFFERING = "buffering"
    """Waiting until enough is in hand, before the first audio or after running dry."""
    PLAYING = "playing"
    PAUSED = "paused"
    STOPPED = "stopped"
    """The last item was stopped by a call."""
    ERROR = "error"
    """The queue is over and its last item failed with `last_error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerState:
    """A snapshot of a player. The numbers are those of the current item, and stay after it ends."""

    status: Status = Status.IDLE
    title: str | None = None
    format: PcmFormat | None = None
    """None until the stream is identified."""
    frames: int = 0
    """Frames that the sink has taken: the playhead."""
    position_seconds: float = 0.0
    """The playhead in seconds of audio."""
    duration_seconds: float | None = None
    """None if the stream's header does not contain it."""
    buffered_seconds: float = 0.0
    """Decoded and not yet taken, without the undecoded bytes of the reader."""
    underruns: int = 0
    """Stalls: times that the audio ran dry and continued, of any length. A wait before the start, or just
    before the end, does not count. A sink that is not paced by a device has none."""
    first_audio_seconds: float | None = None
    """From the item's start (for the first one, from `play()`) to its first frame at the sink; None before
    it."""
    volume: int = 100
    last_error: Exception | None = None
    """The newest error since the queue started."""
    index: int | None = None
    """Index of the current item in the queue, from 0; None if the queue is empty."""
    queue_length: int = 0
    """Items in the queue, including played ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemStart:
    """The stream is identified and its audio is about to start: always before the first frame."""

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
    """An item is over without an error. `stopped`: a call ended it before its last frame."""

    index: int
    title: str
    frames: int
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """An item failed. The audio before the error was played, and the queue continues unless
    `stop_on_error`."""

    index: int
    title: str
    frames: int
    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemWaiting:
    """The current item's stream has waited for three seconds without a new byte."""

    index: int
    title: str
    seconds: float
    last_error: PlayheadError | None
    """The error of the newest failed read, if any."""
    patience_seconds: float
    """The item fails once its stream has waited this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResumed:
    """Bytes arrive again after an `ItemWaiting`."""

    index: int
    title: str
    seconds: float
    """The time that the stream has waited."""


PlayerEvent = ItemStart | StateChange | ItemWaiting | ItemResumed | ItemEnd | ItemError
