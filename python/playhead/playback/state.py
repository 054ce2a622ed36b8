"""State and events of the player."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

import trio

from playhead.errors import PlayheadError
from playhead.playback.formats import PcmFormat

ITEM_ERRORS = (PlayheadError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Errors that make an item fail. Anything else that a playable or a sink raises is a bug and ends the player.
(`TimeoutError` is an `OSError`.)"""


class Status(StrEnum):
    """Status of the player. `playing` and `buffering` alternate without a call."""

    IDLE = "idle"
    """Nothing was played yet, or the queue is over and its last item ended normally."""
    BUFFERING = "buffering"
    """The player waits until enough is in hand, before the first audio or after running dry."""
    PLAYING = "playing"
    PAUSED = "paused"
    STOPPED = "stopped"
    """The last item was stopped by a call."""
    ERROR = "error"
    """The queue is over and its last item failed with `last_error`."""


class Repeat(StrEnum):
    """The rule for the item that follows when one ends by itself. A call of `next` goes to the next item even
    with `ONE`."""

    OFF = "off"
    ONE = "one"
    """The same item again."""
    ALL = "all"
    """The first item again after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerState:
    """A snapshot of a player. The numbers describe the current item, and stay after it ends."""

    status: Status = Status.IDLE
    title: str | None = None
    format: PcmFormat | None = None
    """None until the stream is identified."""
    frames: int = 0
    """Frames that the sink has taken. A seek does not change their number."""
    position_seconds: float = 0.0
    """The playhead, in seconds from the start of the item: the next frame that the sink takes."""
    position_is_exact: bool = True
    """False after a seek in a stream whose position in time is only estimated."""
    heard_seconds: float = 0.0
    """Seconds of audio of the item that were heard: `frames`, less the seconds in the device's own buffer and
    `output_latency_seconds`. Never decreases."""
    holds: frozenset[str] = frozenset()
    """Reasons for which the player is held; it plays while there are none."""
    duration_seconds: float | None = None
    """None if the stream's header does not contain it, and for a live item."""
    is_live: bool = False
    """True while the source of the item still grows."""
    stream_title: str | None = None
    """The piece that a live item plays now, by its source, such as the music on a radio."""
    truncated: bool = False
    """True if the stream ended early: its container announces more, or lacks the mark of its end. See
    `finding`."""
    buffered_seconds: float = 0.0
    """Decoded and not yet taken, without the undecoded bytes of the reader."""
    underruns: int = 0
    """Stalls: times that the audio ran dry and continued, of any length. A wait before the start, or just
    before the end, does not count. A sink that is not paced by a device has none."""
    device_underruns: int = 0
    """Drop-outs of the sound device: times that it had played all that it held before it was given more."""
    first_audio_seconds: float | None = None
    """Time from the item's start (the first item's: `play()`) to its first frame at the sink, None before."""
    stream_bytes_per_second: float | None = None
    """The rate of the encoded audio: the header's, or the highest mean over ten seconds if that is higher.
    None until it is known."""
    volume: int = 100
    last_error: Exception | None = None
    """The newest error since the queue started."""
    index: int | None = None
    """Index of the current item in the queue, from 0; None if the queue is empty."""
    repeat: Repeat = Repeat.OFF
    queue_length: int = 0
    """Items in the queue, including played ones."""

    @property
    def finding(self) -> str | None:
        """The report of a truncated item after its end, such as "ended at 5.2 of 12.0 s"; else None."""
        if not self.truncated:
            return None
        if self.duration_seconds is None:
            return f"ended at {self.position_seconds:.1f} s, without the end of its container"
        return f"ended at {self.position_seconds:.1f} of {self.duration_seconds:.1f} s"


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
    """The status or the volume has changed."""

    state: PlayerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd:
    """An item is over without an error. `stopped`: a call ended it before its last frame. `finding`: see
    `PlayerState.finding`."""

    index: int
    title: str
    frames: int
    stopped: bool
    finding: str | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSkipped:
    """The server no longer has the next part of a live item, which continues at the earliest part that
    exists.

    A pause that was too long is the usual cause.
    """

    index: int
    title: str
    skipped_bytes: int
    seconds: float | None
    """The audio that is missing, by the rate of the stream; None while that is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTitle:
    """A live item names what it plays from here on: a radio's piece of music, a segment's title."""

    index: int
    title: str
    """The item's own title: the station's."""
    stream_title: str


PlayerEvent = (
    ItemStart | StateChange | ItemWaiting | ItemResumed | ItemSkipped | ItemTitle | ItemEnd | ItemError
)


# --- the machine ------------------------------------------------------------------------------------------


class ItemPhase(Enum):
    """The phase of an item, from its opening to its end. The current item's determines the player's
    `Status`."""

    UPCOMING = "opened before its turn; neither heard nor reported"
    LOADED = "upcoming, and its format is known"
    OPENING = "it is the current item, and its format is not known yet"
    PLAYING = "the sink has it, whether it is heard or held"
    CLOSING = "the sink has played it, and its playable is closed"
    FADING = "a call ends it: its last audio fades out"
    STOPPING = "silent, though its network reads may still hang"
    WITHDRAWING = "stopped before its turn, though its network reads may still hang"
    ENDED = "over, without an error"
    FAILED = "over, with an error"
    STOPPED = "over, ended by a call"
    WITHDRAWN = "over before its turn: nothing is reported"


class ItemEvent(Enum):
    """An act of the player, or a report of the item's decoder, its sink or its task."""

    BEGIN = "it becomes the current item"
    IDENTIFY = "its decoder knows the format"
    LEAVE_SINK = "the sink has played it, or failed"
    FADE = "a call ends it, with a fade"
    STOP = "a call ends it now"
    END = "its playable is closed"
    FAIL = "its playable is closed after an error"


_P, _E = ItemPhase, ItemEvent
TRANSITIONS: dict[ItemPhase, dict[ItemEvent, ItemPhase]] = {
    _P.UPCOMING: {_E.BEGIN: _P.OPENING, _E.IDENTIFY: _P.LOADED, _E.STOP: _P.WITHDRAWING},
    _P.LOADED: {_E.BEGIN: _P.PLAYING, _E.STOP: _P.WITHDRAWING},
    _P.OPENING: {_E.IDENTIFY: _P.PLAYING, _E.FADE: _P.FADING, _E.STOP: _P.STOPPING, _E.FAIL: _P.FAILED},
    _P.PLAYING: {_E.LEAVE_SINK: _P.CLOSING, _E.FADE: _P.FADING, _E.STOP: _P.STOPPING, _E.FAIL: _P.FAILED},
    _P.CLOSING: {_E.FADE: _P.FADING, _E.STOP: _P.STOPPING, _E.END: _P.ENDED, _E.FAIL: _P.FAILED},
    _P.FADING: {_E.STOP: _P.STOPPING, _E.END: _P.STOPPED, _E.FAIL: _P.STOPPED},
    _P.STOPPING: {_E.END: _P.STOPPED, _E.FAIL: _P.STOPPED},
    _P.WITHDRAWING: {_E.END: _P.WITHDRAWN, _E.FAIL: _P.WITHDRAWN},
}
"""The phase after each event. An event that is neither here nor in `UNCHANGED` cannot happen."""

UNCHANGED: dict[ItemPhase, set[ItemEvent]] = {
    # A second call, and reports of a thread or a sink that has not noticed the first one.
    _P.FADING: {_E.IDENTIFY, _E.LEAVE_SINK, _E.FADE},
    _P.STOPPING: {_E.IDENTIFY, _E.LEAVE_SINK, _E.FADE, _E.STOP},
    _P.WITHDRAWING: {_E.IDENTIFY, _E.STOP},
    # The same after the item is over. A playable that breaks may end an item that the sink still plays.
    _P.ENDED: {_E.FADE, _E.STOP},
    _P.FAILED: {_E.IDENTIFY, _E.LEAVE_SINK, _E.FADE, _E.STOP},
    _P.STOPPED: {_E.IDENTIFY, _E.LEAVE_SINK, _E.FADE, _E.STOP},
    _P.WITHDRAWN: {_E.IDENTIFY, _E.STOP},
}
"""The events that change nothing."""

ACTIVE_PHASES = frozenset({_P.OPENING, _P.PLAYING, _P.CLOSING})
"""The item is the current one, and no call ends it."""
SILENCED_PHASES = frozenset({_P.STOPPING, _P.STOPPED, _P.WITHDRAWING, _P.WITHDRAWN})
OVER_PHASES = frozenset(ItemPhase) - TRANSITIONS.keys()
SILENT_STATUSES = {
    **dict.fromkeys(SILENCED_PHASES, Status.STOPPED),
    _P.ENDED: Status.IDLE,
    _P.FAILED: Status.ERROR,
}
"""The status of a player whose current item is silent for good."""


def phase_after(phase: ItemPhase, event: ItemEvent) -> ItemPhase:
    """Return the phase after `event`. Raises `RuntimeError` for an event that cannot happen: a bug."""
    if event in UNCHANGED.get(phase, ()):
        return phase
    if event in (row := TRANSITIONS.get(phase, {})):
        return row[event]
    raise RuntimeError(
        f"the player cannot handle {event.name} when its item is {phase.name}: please report this bug"
    )
