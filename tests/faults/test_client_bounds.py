"""What no peer may do to a client: leak a group, hang a call, pile up tasks or connections."""

from __future__ import annotations

import pytest

from playhead.client.deadline import run_until_silent


async def test_what_work_raises_under_a_deadline_comes_out_as_it_is() -> None:
    async def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run_until_silent(work, silent_seconds=1, total_seconds=1, last_received=lambda: 0.0)
