"""`playhead outputs` as a person and a script see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from playhead.config.outputs import OutputStore
from tests.e2e.command import playhead, playhead_process

WHEN = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
HOSTILE = "\x1b]0;owned\x07 a title that is far too long for one line of a terminal \u202e and goes on and on"


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    store = OutputStore(tmp_path / "outputs")
    store.save("home__play", {"query": "light"}, b"a", title="First", tags=["music"], time=WHEN)
    store.save("away__Speak", {}, "b", title=HOSTILE, time=WHEN + timedelta(hours=1))
    store.save("home__play", {"query": "again"}, b"a", title="Again", time=WHEN + timedelta(hours=2))
    return store


def test_outputs_are_listed_newest_first_in_80_columns_and_escaped(store: OutputStore) -> None:
    done = playhead_process("outputs", "--folder", store.folder)
    text = done.stdout.decode()
    assert done.code == 0
    assert text.index("Again") < text.index("owned") < text.index("First")
    assert max(map(len, text.splitlines())) <= 80
    assert "\\x1b]0;owned\\x07" in text
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "#music" in text
    assert f"3 outputs in {store.folder}" in done.stderr


@pytest.mark.requirement("OUT-07")
def test_outputs_are_filtered_and_reported_as_json(store: OutputStore) -> None:
    report = playhead("outputs", "--folder", store.folder, "--tag", "music", "--json").json
    (output,) = report["outputs"]
    assert (output["tool_id"], output["arguments"]) == ("home__play", {"query": "light"})
    assert Path(output["path"]).read_bytes() == b"a"
    assert (report["problems"], report["error"], report["folder"]) == ([], None, str(store.folder))
    tool = playhead("outputs", "--folder", store.folder, "--tool", "away__Speak", "--json").json
    text = playhead("outputs", "--folder", store.folder, "--text", "AGAIN", "--json").json
    assert [len(found["outputs"]) for found in (tool, text)] == [1, 1]


def test_path_prints_each_file_once_and_nothing_else(store: OutputStore) -> None:
    done = playhead("outputs", "--folder", store.folder, "--path")
    lines = done.stdout.decode().splitlines()
    assert sorted(Path(line).read_text() for line in lines) == ["a", "b"]
    assert done.stderr == ""


def test_the_folder_is_that_of_the_users_data(store: OutputStore, tmp_path: Path) -> None:
    (tmp_path / "playhead").mkdir()
    store.folder.rename(tmp_path / "playhead" / "outputs")
    done = playhead("outputs", "--path", XDG_DATA_HOME=str(tmp_path))
    assert len(done.stdout.splitlines()) == 2


def test_an_empty_folder_and_a_filter_without_a_match_are_said(store: OutputStore, tmp_path: Path) -> None:
    empty = playhead("outputs", "--folder", tmp_path / "none")
    assert (empty.code, empty.stdout) == (0, b"")
    assert "no outputs yet" in empty.stderr
    filtered = playhead("outputs", "--folder", store.folder, "--tag", "none")
    assert (filtered.code, filtered.stdout) == (0, b"")
    assert "no output matches" in filtered.stderr


def test_a_broken_record_is_said_and_the_others_are_listed(store: OutputStore) -> None:
    broken = store.find(tag="music").outputs[0].sidecar_path
    broken.write_text("\x1b[2J")
    done = playhead("outputs", "--folder", store.folder)
    assert done.code == 0
    assert "skipped" in done.stderr
    assert len(playhead("outputs", "--folder", store.folder, "--json").json["problems"]) == 1
    assert "Again" in done.stdout.decode()


def test_remove_takes_the_id_that_the_list_shows(store: OutputStore) -> None:
    again, _, first = store.list().outputs
    done = playhead("outputs", "--folder", store.folder, "--remove", again.id[-8:])
    assert done.code == 0
    assert first.path.exists()
    report = playhead("outputs", "--folder", store.folder, "--remove", first.id, "--json").json
    assert report["removed"]["id"] == first.id
    assert not first.path.exists()
    unknown = playhead("outputs", "--folder", store.folder, "--remove", first.id)
    assert unknown.code == 2
    assert "matches none" in unknown.stderr


def test_a_file_in_place_of_the_output_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = playhead("outputs", "--folder", tmp_path / "file")
    assert done.code == 1
    assert "expected a directory, got a link or a file" in done.stderr
