"""Each planted defect is found by the check that is for it, and by no other; a server without one passes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from playhead.check import check_server
from playhead.check.options import CheckOptions
from playhead.check.results import Report
from playhead.config.servers import ServerConfig
from tests.servers.planted.defects import DEFECTS

pytestmark = [
    pytest.mark.slow("a full check of 70 servers, each a process"),
    pytest.mark.xdist_group("many_processes"),  # side by side within, but not with the hostile servers
    pytest.mark.timeout(300),  # above WHOLE_SECONDS: the first test waits for all of them
]

ROOT = Path(__file__).parents[2]
FAULTLESS = "no-defect"
AT_ONCE = 12
"""Most of a check's time is spent on waiting: for a slow tool, for what must not come."""

OPTIONS = CheckOptions(depth="full", examples=1, calls_at_once=3, timeout_seconds=3.0)
"""The one tool that hangs is waited for in several tests."""

WHOLE_SECONDS = 240.0
"""Spent only where a check hangs."""


async def _check(defect: str) -> Report:
    arguments = () if defect == FAULTLESS else (defect,)
    # -S: the server needs nothing but the standard library, and starts in a third of the time.
    command = (sys.executable, "-S", "-m", "tests.servers.planted", *arguments)
    config = ServerConfig(name=defect, command=command, cwd=str(ROOT))
    return await check_server(config, OPTIONS)


def _planted(defect: str) -> set[str]:
    return {DEFECTS[defect].finds} if defect in DEFECTS else set()


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """The report on every planted server, made side by side.

    A check that found something else than was planted runs again by itself: latency and timeouts are part of
    what is checked, and a dozen checks on two cores can slow a server down. A real false alarm or miss is one
    again.
    """
    found: dict[str, Report] = {}

    async def one(defect: str, places: trio.CapacityLimiter) -> None:
        async with places:
            found[defect] = await _check(defect)

    async def all_of_them() -> None:
        places = trio.CapacityLimiter(AT_ONCE)
        with trio.move_on_after(WHOLE_SECONDS):
            async with trio.open_nursery() as nursery:
                for defect in (FAULTLESS, *DEFECTS):
                    nursery.start_soon(one, defect, places)
            for defect, report in found.items():
                if set(failures(report)) != _planted(defect):
                    found[defect] = await _check(defect)

    trio.run(all_of_them)
    return found


def failures(report: Report) -> dict[str, str]:
    """The checks that failed, each with the first of its messages."""
    found: dict[str, str] = {}
    for test in report.tests:
        for check in test.checks:
            if check.verdict == "failed":
                found.setdefault(check.kind.name, f"{test.subject}, {test.title}: {check.message}")
    return found


def test_nothing_is_found_where_nothing_is_wrong(reports: dict[str, Report]) -> None:
    report = reports[FAULTLESS]
    assert failures(report) == {}
    assert report.passed
    assert not [test for test in report.tests if test.status == "error"], "something could not be decided"


@pytest.mark.parametrize("defect", sorted(DEFECTS))
def test_a_planted_defect_is_found_and_nothing_else(reports: dict[str, Report], defect: str) -> None:
    assert defect in reports, "the check did not end"
    report = reports[defect]
    found = failures(report)
    assert set(found) == _planted(defect), found
    assert not report.passed
