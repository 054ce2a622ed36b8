"""A hostile server, a full disk, a killed process: nothing outside the output folder, nothing half in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import unicodedata
from itertools import combinations
from pathlib import Path

import pytest

from playhead.config.outputs import Listing, OutputStore
from playhead.errors import DiskFullError, SavingError
from tests.process_limits import largest_file

NAMES = [
    "..",
    ".",
    "",
    "/",
    "../../escape",
    "/etc/passwd",
    "a/../../b",
    "..%2f..%2fescape",
    "%2e%2e/escape",
    "..\\..\\escape",
    "C:\\windows\\system32",
    "a\0b",
    "a\nb",
    "-rf",
    "~root",
    ".hidden",
    "$HOME",
    "con",
    "CON",
    "nul",
    "lpt1",
    "com0",
    "con.txt",
    "trailing.",
    "trailing ",
    "server__tool",
    "server__Tool",
    "SERVER__TOOL",
    "server__tool/",
    "server__tool~",
    "x" * 79,
    "x" * 300,
    "x" * 301,
    "日本語",
    "日本語 2",
    "\ud800",
    "\udc00",
    "ﬁle",
    "file",
    unicodedata.normalize("NFC", "é__play"),
    unicodedata.normalize("NFD", "é__play"),
    "\u202egnp.exe",
    "\N{PILE OF POO}" * 200,
]


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path / "data" / "outputs")


def everything_under(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.requirement("OUT-08")
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_no_name_leaves_the_output_folder(name: str, store: OutputStore, tmp_path: Path) -> None:
    saved = store.save(name, {name: name}, b"x", mime_type=name, title=name, tags=[name])
    assert saved.path.parent.parent == store.folder
    assert saved.path.parent.resolve().parent == store.folder.resolve()
    assert {path.parent for path in everything_under(tmp_path)} == {saved.path.parent}
    assert saved.path.parent.name.isascii()
    assert len(saved.path.parent.name) <= 80
    assert store.find(tool_id=name, tag=name).outputs == (saved,)
    store.remove(saved)
    assert everything_under(tmp_path) == []


def test_two_names_never_share_a_folder_where_case_and_forms_do_not_count(store: OutputStore) -> None:
    folders = {name: store.save(name, {}, b"x").path.parent.name for name in NAMES}
    copies = [
        folders["server__Tool"],
        f"{folders['server__Tool']}x",
    ]  # a tool named like another one's folder
    folders |= {name: store.save(name, {}, b"x").path.parent.name for name in copies}
    for (one, folder), (other, other_folder) in combinations(folders.items(), 2):
        alike = {unicodedata.normalize("NFKC", name).casefold() for name in (folder, other_folder)}
        assert len(alike) == 2, f"{one!r} and {other!r} share {folder}"


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_no_folder_has_a_name_that_a_file_system_reserves(name: str, store: OutputStore) -> None:
    folder = store.save(name, {}, b"x").path.parent.name
    assert folder.casefold() not in {"con", "nul", "lpt1", "com0", "prn", "aux"}
    assert not folder.startswith((".", "-", "~"))
    assert not folder.endswith((".", " "))


# --- links --------------------------------------------------------------------------------------------


def test_a_link_in_a_files_place_is_replaced_and_what_it_leads_to_is_untouched(
    store: OutputStore, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    saved = store.save("home__play", {}, b"x")
    saved.path.unlink()
    saved.path.symlink_to(precious)
    assert store.list().outputs == ()  # not what was saved
    again = store.save("home__play", {}, b"x")
    assert again.path == saved.path
    assert not again.path.is_symlink()
    assert again.path.read_bytes() == b"x"
    assert precious.read_text() == "precious"


def test_a_link_or_a_pipe_in_a_records_place_is_told_and_hangs_nothing(
    store: OutputStore, tmp_path: Path
) -> None:
    linked, piped = (store.save("home__play", {}, b"x") for _ in range(2))
    (tmp_path / "record").write_bytes(linked.sidecar_path.read_bytes())
    linked.sidecar_path.unlink()
    linked.sidecar_path.symlink_to(tmp_path / "record")
    piped.sidecar_path.unlink()
    os.mkfifo(piped.sidecar_path)
    listing = store.list()
    assert listing.outputs == ()
    assert {problem.path for problem in listing.problems} == {linked.sidecar_path, piped.sidecar_path}


def test_a_folder_in_a_files_place_is_an_error_and_nothing_is_left(store: OutputStore) -> None:
    saved = store.save("home__play", {}, b"x")
    store.remove(saved)
    saved.path.mkdir()
    with pytest.raises(SavingError):
        store.save("home__play", {}, b"x")
    assert everything_under(store.folder) == []


# --- a full disk --------------------------------------------------------------------------------------


@pytest.mark.requirement("OUT-03")
def test_a_full_disk_is_an_error_of_its_own_and_leaves_nothing_half(store: OutputStore) -> None:
    kept = store.save("home__play", {}, b"kept")
    before = everything_under(store.folder)
    with largest_file(10_000), pytest.raises(DiskFullError, match="make room") as caught:
        store.save("home__play", {}, bytes(20_000))
    assert caught.value.path == str(kept.path.parent)
    assert everything_under(store.folder) == before
    assert store.list().outputs == (kept,)


def test_a_disk_that_is_full_when_the_record_is_written_leaves_no_file_either(store: OutputStore) -> None:
    with largest_file(1000), pytest.raises(DiskFullError):
        store.save("home__play", {"text": "x" * 2000}, b"small")
    assert everything_under(store.folder) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(store: OutputStore) -> None:
    store.folder.mkdir(parents=True, mode=0o500)
    with pytest.raises(SavingError, match=r"Permission denied"):
        store.save("home__play", {}, b"x")


# --- killed in the middle -----------------------------------------------------------------------------

WRITER = """
import sys
from playhead.config.outputs import OutputStore
writer = OutputStore(sys.argv[1]).open_writer("home__play", {})
writer.write_at(0, b"half of it")
print("written", flush=True)
sys.stdin.readline()
"""


@pytest.mark.requirement("OUT-03")
def test_a_killed_writer_leaves_a_hidden_file_and_keeps_nobody_from_saving(store: OutputStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    (left,) = everything_under(store.folder)
    assert (left.name[0], left.suffix, left.read_bytes()) == (".", ".part", b"half of it")
    saved = store.save("home__play", {}, b"half of it")
    assert store.list() == Listing(outputs=(saved,))
