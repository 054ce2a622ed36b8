"""The rows of the report of `playhead fleet`."""

from __future__ import annotations

import pytest

from playhead.check.commands import fleet


@pytest.mark.parametrize(("processes", "words"), [(1, "1 process, "), (2, "2 processes, ")])
def test_processes_are_counted_in_words(processes: int, words: str) -> None:
    counts = ("server_bytes", "cache_bytes", "cpu_ms_per_stream", "memory_mib_per_stream", "seconds")
    others = ("failed", "plays", "players", "reads", "underruns", "different", "first_failure")
    times = ("first_audio_p50_ms", "first_audio_p95_ms")
    report = {**dict.fromkeys((*counts, *others, *times), 0), "processes": processes}
    assert words in dict(fleet._rows(report))["players"]
