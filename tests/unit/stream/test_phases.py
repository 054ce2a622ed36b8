"""The phases of a stream: every pair of a phase and an event is in the table, or cannot happen."""

from __future__ import annotations

import pytest

from playhead.stream.phases import AFTER, UNCHANGED, Phase, PhaseEvent, phase_after

PAIRS = [(phase, event) for phase in Phase for event in PhaseEvent]

IMPOSSIBLE = {
    # Only a sequential form is refused: the others are negotiated before they begin.
    (Phase.PROBING, PhaseEvent.REFUSED),
    (Phase.PLANNED, PhaseEvent.REFUSED),
    # Its bytes are the answers to probes.
    (Phase.SEQUENTIAL, PhaseEvent.BYTES),
    # There are no reads after the end, or after the break.
    (Phase.ENDED, PhaseEvent.REFUSED),
    (Phase.ENDED, PhaseEvent.END),
    (Phase.BROKEN, PhaseEvent.BYTES),
    (Phase.BROKEN, PhaseEvent.NO_RANGES),
    (Phase.BROKEN, PhaseEvent.REFUSED),
    (Phase.BROKEN, PhaseEvent.BREAK),
    # A closed stream cannot seek.
    (Phase.CLOSED, PhaseEvent.BYTES),
}


@pytest.mark.parametrize(("phase", "event"), PAIRS, ids=lambda it: it.name)
def test_each_event_leads_on_changes_nothing_or_cannot_happen(phase: Phase, event: PhaseEvent) -> None:
    leads_on, changes_nothing = event in AFTER[phase], event in UNCHANGED.get(phase, set())
    assert leads_on + changes_nothing + ((phase, event) in IMPOSSIBLE) == 1
    if leads_on:
        assert phase_after(phase, event) is AFTER[phase][event] is not phase
    elif changes_nothing:
        assert phase_after(phase, event) is phase
    else:
        with pytest.raises(RuntimeError, match=f"cannot handle {event.name} when it is {phase.name}"):
            phase_after(phase, event)


def test_every_phase_can_be_reached_and_every_stream_can_be_closed() -> None:
    reached, before = {Phase.PROBING}, set[Phase]()
    while reached != before:
        before = set(reached)
        reached |= {after for phase in before for after in AFTER[phase].values()}
    assert reached == set(Phase)
    for phase in Phase:
        assert phase_after(phase, PhaseEvent.CLOSE) is Phase.CLOSED
