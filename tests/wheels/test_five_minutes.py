"""A stranger's first five minutes work, whatever they take on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels.environments import TOOLS, Environments, NoNetworkError
from tests.wheels.five_minutes import STEPS, Minutes, run


@pytest.mark.slow("installs the wheel and runs the README")
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not all((TOOLS / tool).exists() for tool in ("uv", "maturin")), reason="needs uv and maturin: make"
)
def test_every_step_of_the_first_five_minutes_works(run_directory: Path, tmp_path: Path) -> None:
    shared = run_directory / "wheels"
    shared.mkdir(exist_ok=True)
    try:
        minutes = run(Environments(shared), tmp_path / "home")
    except NoNetworkError:
        pytest.skip("needs the package index, or a uv cache that has all packages")
    assert not minutes.failures, minutes.table()
    assert len(minutes.rows) == 1 + len(STEPS)


def test_a_step_that_fails_is_a_row_and_is_said_below_the_table() -> None:
    minutes = Minutes()
    with minutes.step("hear it"):
        raise AssertionError("silence")
    row, failure = minutes.table().splitlines()[2], minutes.table().splitlines()[-1]
    assert row.split(" | ")[0].strip("| ") == "hear it"
    assert "failed" in row
    assert failure == "hear it: AssertionError('silence')"
