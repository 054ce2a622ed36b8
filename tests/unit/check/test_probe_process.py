"""The process of a server under repeated calls: what grows is found, what only moves is not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from playhead.check.probes.process import ProcessUsage, leak_bytes, leaked_descriptors, slower_seconds
from playhead.check.run import check_server
from playhead.config.servers import ServerConfig
from tests.unit.check.check_kit import FULL, defects, failures

SERVER = str(Path(__file__).with_name("leaking_server.py"))
OPTIONS = replace(FULL, examples=0, calls_at_once=1)
MIB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("defect", "row"),
    [
        ("memory", "process.memory"),
        pytest.param("time", "process.time", marks=pytest.mark.slow("ten seconds of ever slower calls")),
        ("descriptors", "process.descriptors"),
        ("files", "process.files"),
        ("jobs", None),
        ("garbage", None),
        ("logs", None),
        ("nothing", None),
    ],
)
async def test_what_grows_with_each_call_is_found(defect: str, row: str | None, tmp_path: Path) -> None:
    command = (sys.executable, "-S", SERVER, defect, str(tmp_path))
    report = await check_server(ServerConfig(name="leaking", command=command, cwd=str(tmp_path)), OPTIONS)
    found = failures(report.tests)
    assert defects(report.tests) == ({row} if row is not None else set()), [it.message for it in found]


def test_a_leak_is_steady_growth() -> None:
    assert leak_bytes(ProcessUsage(memory_bytes=[n * 2 * MIB for n in range(50)])) == pytest.approx(
        2 * MIB, rel=0.1
    )
    warm = [min(n, 10) * 20 * MIB for n in range(50)]
    saw = [(n % 10) * 20 * MIB for n in range(50)]
    for values in (warm, saw, [7] * 50, [n * 2 * MIB for n in range(10)]):
        assert leak_bytes(ProcessUsage(memory_bytes=values)) == 0


def test_calls_that_get_slower_are_told_from_noise() -> None:
    assert slower_seconds(ProcessUsage(seconds=[0.01 + 0.004 * n for n in range(50)])) == pytest.approx(
        0.004, rel=0.1
    )
    assert slower_seconds(ProcessUsage(seconds=[0.5 + 0.001 * n for n in range(50)])) == 0
    assert slower_seconds(ProcessUsage(seconds=[0.01 if n % 7 else 0.3 for n in range(50)])) == 0


def test_descriptors_that_are_closed_late_are_no_leak() -> None:
    assert leaked_descriptors(ProcessUsage(descriptors=list(range(4, 54)))) == pytest.approx(1, rel=0.1)
    assert leaked_descriptors(ProcessUsage(descriptors=[4 + n % 5 for n in range(50)])) == 0
