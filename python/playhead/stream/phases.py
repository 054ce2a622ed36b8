"""The phases of a stream, and the events that lead from one to the next."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """The phase of a stream."""

    PROBING = "probing"
    """No byte has arrived, and the form of the reads may still change."""
    PLANNED = "planned"
    """The planner's pages are read, several at once."""
    SEQUENTIAL = "sequential"
    """The server's own pages are read one after another (`Sequential`)."""
    ENDED = "ended"
    BROKEN = "broken"
    CLOSED = "closed"


class PhaseEvent(Enum):
    """An event that may change the phase."""

    BYTES = "bytes"
    """The first byte arrived, so the form stays."""
    NO_RANGES = "no ranges"
    """The server cannot serve the planner's pages."""
    REFUSED = "refused"
    """The form was refused before it delivered a byte."""
    END = "end"
    BREAK = "break"
    CLOSE = "close"


_P, _E = Phase, PhaseEvent
_OVER = {_E.BREAK: _P.BROKEN, _E.CLOSE: _P.CLOSED}
AFTER: dict[Phase, dict[PhaseEvent, Phase]] = {
    _P.PROBING: {_E.BYTES: _P.PLANNED, _E.NO_RANGES: _P.SEQUENTIAL, _E.END: _P.ENDED, **_OVER},
    _P.PLANNED: {_E.NO_RANGES: _P.SEQUENTIAL, _E.END: _P.ENDED, **_OVER},
    _P.SEQUENTIAL: {_E.REFUSED: _P.PROBING, _E.END: _P.ENDED, **_OVER},
    _P.ENDED: {_E.BYTES: _P.PLANNED, _E.NO_RANGES: _P.SEQUENTIAL, **_OVER},  # by a seek
    _P.BROKEN: {_E.CLOSE: _P.CLOSED},
    _P.CLOSED: {},
}
"""The phase after each event. An event that is neither here nor in `UNCHANGED` cannot happen."""

UNCHANGED: dict[Phase, set[PhaseEvent]] = {
    # After a seek, the event that led to the phase is repeated.
    _P.PLANNED: {_E.BYTES},
    _P.SEQUENTIAL: {_E.NO_RANGES},
    # Tasks that were about to run when the stream broke or was closed still report these events.
    _P.BROKEN: {_E.END},
    _P.CLOSED: {_E.NO_RANGES, _E.REFUSED, _E.END, _E.BREAK, _E.CLOSE},
}
"""The events that change nothing."""


def phase_after(phase: Phase, event: PhaseEvent) -> Phase:
    """Return the phase after `event`. Raises `RuntimeError` for an event that cannot happen: a bug."""
    if event in UNCHANGED.get(phase, ()):
        return phase
    if event in (row := AFTER[phase]):
        return row[event]
    raise RuntimeError(
        f"the stream cannot handle {event.name} when it is {phase.name}: please report this bug"
    )
