"""The times at which a silent connection is asked for a sign of life, and its reads are repeated."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from playhead.client.session.liveness import GRACE_SECONDS, QUIET_SECONDS, Liveness, LivenessStep


def steps(
    liveness: Liveness, *, oldest: float, heard: float, until: float
) -> list[tuple[float, LivenessStep]]:
    """Jump from one due time to the next."""
    taken = []
    while (now := liveness.due(oldest=oldest, heard=heard)) <= until:
        step = liveness.step(now, oldest=oldest, heard=heard)
        assert step is not None
        taken.append((now, step))
    return taken


def test_a_silent_connection_is_asked_after_10_s_and_reads_repeated_5_s_later_then_more_rarely() -> None:
    assert steps(Liveness(), oldest=100, heard=90, until=220) == [
        (110, LivenessStep.ASK),
        (115, LivenessStep.REPEAT),
        (135, LivenessStep.ASK),
        (140, LivenessStep.REPEAT),
        (180, LivenessStep.ASK),
        (185, LivenessStep.REPEAT),
    ]


def test_nothing_is_due_while_no_read_waits() -> None:
    assert Liveness().due(oldest=math.inf, heard=0) == math.inf


def test_a_byte_starts_the_wait_over_and_resets_its_length() -> None:
    liveness = Liveness()
    steps(liveness, oldest=0, heard=0, until=40)
    assert steps(liveness, oldest=0, heard=42, until=60) == [
        (52, LivenessStep.ASK),
        (57, LivenessStep.REPEAT),
    ]


def test_a_sign_of_life_prevents_the_repetition() -> None:
    liveness = Liveness()
    assert liveness.step(10, oldest=0, heard=0) is LivenessStep.ASK
    assert liveness.step(15, oldest=0, heard=11) is None
    assert liveness.due(oldest=0, heard=11) == 11 + QUIET_SECONDS


def test_a_read_that_is_sent_again_does_not_shorten_the_waits() -> None:
    liveness = Liveness()
    steps(liveness, oldest=0, heard=0, until=15)
    assert steps(liveness, oldest=30, heard=0, until=56) == [
        (50, LivenessStep.ASK),
        (55, LivenessStep.REPEAT),
    ]


@given(st.lists(st.tuples(st.integers(1, 480), st.booleans()), max_size=30))
def test_whatever_arrives_a_repetition_follows_15_s_of_silence_and_no_two_are_closer(
    happenings: list[tuple[int, bool]],
) -> None:
    """Each happening: eighths of a second until it, and whether it is a byte (else only time passes)."""
    liveness, now, heard = Liveness(), 0.0, 0.0
    repetitions: list[float] = []
    for eighths, is_byte in happenings:
        until = now + eighths / 8
        for at, step in steps(liveness, oldest=0, heard=heard, until=until):
            if step is LivenessStep.REPEAT:
                assert at - heard >= QUIET_SECONDS + GRACE_SECONDS
                assert not repetitions or at - repetitions[-1] >= QUIET_SECONDS + GRACE_SECONDS
                repetitions.append(at)
        now = until
        if is_byte:
            heard = now
        else:
            assert now - heard < QUIET_SECONDS + GRACE_SECONDS or (repetitions and repetitions[-1] > heard)
