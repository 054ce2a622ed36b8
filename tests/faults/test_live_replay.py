"""Live streams in simulated time: speech is heard while it is made, and a radio survives its cuts."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from benches.live import LATE_SECONDS, TOOL_ENDS, hear_radio, replay, speech


async def test_speech_is_heard_from_its_first_segment_on_while_the_rest_is_made(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The timed replay of a public server: it has audio after 3.7 s, and is finished after 10.3."""
    segments, expected = speech(tmp_path)
    heard = await replay(segments, expected, mock_clock)
    assert heard.after_first_segment <= LATE_SECONDS
    assert heard.first_sound < 4.3 < TOOL_ENDS
    assert heard.is_exact  # every sample once
    assert heard.underruns == 0
    assert heard.requests < 25


async def test_a_radio_that_is_cut_is_heard_on_with_its_titles(mock_clock: MockClock) -> None:
    assert await hear_radio(0.1, 100, mock_clock, prints=False) == 0


@pytest.mark.slow("an hour of a simulated clock")
async def test_a_radio_survives_a_hundred_cuts_in_an_hour(mock_clock: MockClock) -> None:
    assert await hear_radio(1.0, 100, mock_clock, prints=False) == 0
