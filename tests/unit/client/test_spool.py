"""Bytes on their way to the disk: a bounded queue, and what is kept in the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from playhead.client.call_results import spool as spool_module
from playhead.client.call_results.spool import SPOOL_BYTES, NotSaved
from playhead.config.outputs import OutputStore, OutputWriter


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path)


def writers(store: OutputStore) -> Callable[[], OutputWriter]:
    return lambda: store.open_writer("home__play", {})


async def test_a_stream_that_contradicts_itself_about_its_end_is_not_saved(store: OutputStore) -> None:
    pipe = spool_module.Spool(writers(store), size_bytes=None)
    pipe.start()
    pipe.put(0, bytes(20))
    pipe.end(10)
    outcome = await pipe.wait_outcome()
    assert isinstance(outcome, NotSaved)
    assert "ended at byte 10" in outcome.reason


async def test_what_waits_for_the_disk_is_bounded(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "HOLD_BYTES_PER_SECOND", 1 << 40)  # let go at once
    gate = threading.Event()

    def stuck() -> OutputWriter:
        assert gate.wait(60)
        return writers(store)()

    pipe = spool_module.Spool(stuck, size_bytes=None)
    pipe.start()
    piece = bytes(64 * 1024)
    pieces = 3 * SPOOL_BYTES // len(piece)
    for number in range(pieces):
        pipe.put(number * len(piece), piece)
    assert pipe.missing(pieces * len(piece)) == ((SPOOL_BYTES, pieces * len(piece)),)
    pipe.end(pieces * len(piece))
    gate.set()
    outcome = await pipe.wait_outcome()
    assert isinstance(outcome, NotSaved)
    assert outcome.received_bytes == SPOOL_BYTES
    assert not [path for path in store.folder.rglob("*") if path.is_file()]
