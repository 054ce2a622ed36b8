"""Scenarios of both sides from the official suite, if installed; `make extra NAME=conformance` runs all."""

from __future__ import annotations

import pytest

from tests.conformance.run_suite import Scenario, SuiteMissingError, environment, run_all

SCENARIOS = [
    Scenario(role="client", revision="2026-07-28", name="tools_call", scored=True),
    Scenario(role="client", revision="2025-11-25", name="initialize", scored=True),
    Scenario(role="server", revision="2025-11-25", name="tools-list", scored=True, server="audio"),
    Scenario(role="server", revision="2025-11-25", name="tools-list", scored=True, server="template"),
]


@pytest.fixture
def env() -> dict[str, str]:
    # Not in the test: what an asynchronous one says when it is skipped is not shown.
    try:
        return environment()
    except SuiteMissingError as missing:
        pytest.skip(f"{missing}")


@pytest.mark.slow("programs of the official suite, in Node")
@pytest.mark.requirement("MCP-01", "MCP-20")
async def test_the_suites_first_scenarios_pass(env: dict[str, str]) -> None:
    outcomes = await run_all(SCENARIOS, env)
    assert [(outcome.scenario.name, outcome.reasons) for outcome in outcomes] == [
        ("initialize", ()),
        ("tools_call", ()),
        ("tools-list", ()),
        ("tools-list", ()),
    ]
    assert all(outcome.total for outcome in outcomes)
