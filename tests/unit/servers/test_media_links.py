"""The user's key, and the links that it signs."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from playhead.servers.audio.library import Library
from playhead.servers.audio.media_links import KEY_BYTES, KEY_FILE, MediaLinks, load_key, path_of


@pytest.fixture
def library(tmp_path: Path) -> Library:
    (tmp_path / "music").mkdir()
    for name in ("a.mp3", "b.mp3"):
        (tmp_path / "music" / name).write_bytes(b"x")
    return Library.scan(tmp_path / "music")


def test_a_link_is_the_same_under_the_same_key_and_worthless_under_another(library: Library) -> None:
    links, again = (MediaLinks(library, key=bytes(32)) for _ in range(2))
    path, _ = links.sign(library.tracks[0])
    assert again.sign(library.tracks[0])[0] == path
    found = again.open(path)
    assert found is not None
    assert found.track is library.tracks[0]
    assert MediaLinks(library, key=bytes(31) + b"x").open(path) is None


def test_no_part_of_a_link_can_be_replaced(library: Library) -> None:
    links = MediaLinks(library, key=bytes(32))
    path, other = (links.sign(track)[0] for track in library.tracks)
    parts, others = path.split("/"), other.split("/")
    for place in (2, 3, 4):
        forged = [*parts[:place], others[place], *parts[place + 1 :]]
        assert forged != parts
        assert links.open("/".join(forged)) is None
    assert links.open(path.replace("/media/", "/media/é")) is None


def test_a_link_to_a_track_that_another_library_has_opens_nothing(library: Library, tmp_path: Path) -> None:
    path, _ = MediaLinks(library, key=bytes(32)).sign(library.tracks[0])
    (tmp_path / "other.mp3").touch()
    assert MediaLinks(Library.scan(tmp_path), key=bytes(32)).open(path) is None


def test_the_port_of_a_link_is_left_out() -> None:
    assert path_of("http://127.0.0.1:1/media/x") == path_of("http://127.0.0.1:65535/media/x") == "/media/x"
    assert path_of("http://music.example:1/media/x") is None


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    state = tmp_path / "local" / "state"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_key(state), range(8)))
    (key,) = keys
    assert len(key) == KEY_BYTES
    assert load_key(state) == key
    assert stat.S_IMODE((state / KEY_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert [path.name for path in state.iterdir()] == [KEY_FILE]


def test_a_key_that_others_can_read_or_that_is_damaged_is_not_used(tmp_path: Path) -> None:
    load_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(PermissionError, match="only its owner can read, got the mode -rw-r-----"):
        load_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o600)
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(OSError, match="expected 32 bytes, got 5"):
        load_key(tmp_path)
    (tmp_path / KEY_FILE).unlink()
    os.mkfifo(tmp_path / KEY_FILE, 0o600)
    with pytest.raises(OSError, match="got the mode p"):
        load_key(tmp_path)
    (tmp_path / KEY_FILE).unlink()
    (tmp_path / "elsewhere").write_bytes(bytes(KEY_BYTES))
    (tmp_path / KEY_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        load_key(tmp_path)
