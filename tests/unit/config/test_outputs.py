"""Saved results: what is kept under which name, found again, removed, and never half."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from mcp_types import TextContent

from playhead.config.outputs import OutputStore, SavedOutput, content_of, default_output_folder
from playhead.config.outputs.store import JSON_CHARS
from playhead.content import parse_block
from playhead.errors import Base64Error, ClosedError, LimitError, SavingError, UsageError
from playhead.limits import Limits

WHEN = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> OutputStore:
    return OutputStore(tmp_path / "outputs")


def files_of(store: OutputStore) -> list[str]:
    return sorted(path.name for path in store.folder.rglob("*") if not path.is_dir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- where ------------------------------------------------------------------------------------------


@pytest.mark.requirement("OUT-01")
def test_the_default_folder_is_in_the_users_data_folder() -> None:
    assert default_output_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/playhead/outputs")
    at_home = Path("~/.local/share/playhead/outputs").expanduser()
    assert default_output_folder({}) == at_home
    assert default_output_folder({"XDG_DATA_HOME": ""}) == at_home
    assert default_output_folder({"XDG_DATA_HOME": "relative"}) == at_home


def test_nothing_is_made_before_something_is_saved(store: OutputStore) -> None:
    assert store.list().outputs == ()
    assert not store.folder.exists()


# --- saving -----------------------------------------------------------------------------------------


@pytest.mark.requirement("OUT-02")
@pytest.mark.requirement("OUT-04")
def test_a_result_is_saved_by_its_content_with_a_record_of_the_call(store: OutputStore) -> None:
    saved = store.save(
        "home__play",
        {"query": "first light"},
        b"\x89PNG",
        mime_type="IMAGE/PNG; x=y",
        tags=["cover", "cover", "blue"],
        title="A cover",
        metadata={"room": 7},
        time=WHEN,
    )
    digest = hashlib.sha256(b"\x89PNG").hexdigest()
    assert saved.path == store.folder / "home__play" / f"{digest}.png"
    assert saved.path.read_bytes() == b"\x89PNG"
    record = json.loads(saved.sidecar_path.read_text())
    assert record == {
        "tool_id": "home__play",
        "arguments": {"query": "first light"},
        "time": "2026-03-04T05:06:07.000089+00:00",
        "mime": "image/png",
        "sha256": digest,
        "size_bytes": 4,
        "file": f"{digest}.png",
        "tags": ["cover", "blue"],
        "title": "A cover",
        "metadata": {"room": 7},
    }
    assert store.list().outputs == (saved,)


def test_the_same_content_twice_is_one_file_and_two_records(store: OutputStore) -> None:
    first = store.save("home__play", {"n": 1}, "same", time=WHEN)
    second = store.save("home__play", {"n": 2}, "same", time=WHEN)
    assert first.path == second.path
    assert first.sidecar_path != second.sidecar_path
    assert len(files_of(store)) == 3
    assert {output.arguments["n"] for output in store.list().outputs if output.arguments} == {1, 2}


def test_arguments_may_be_private_so_only_the_user_can_read_and_repr_hides_them(store: OutputStore) -> None:
    saved = store.save("home__play", {"token": "secret"}, "x")
    assert [mode_of(path) for path in (saved.path, saved.sidecar_path)] == [0o600, 0o600]
    assert [mode_of(path) for path in (store.folder, saved.path.parent)] == [0o700, 0o700]
    assert "secret" not in repr(saved)


@pytest.mark.requirement("OUT-05")
@pytest.mark.parametrize(
    ("mime", "data", "suffix"),
    [
        (None, "plain", "txt"),
        ("text/markdown", "# x", "md"),
        ("application/json", "{}", "json"),
        ("application/vnd.api+json", "{}", "json"),
        ("text/x-python", "import os", "txt"),
        ("audio/mpeg", b"whatever", "mp3"),
        ("image/svg+xml", "<svg/>", "svg"),
        ("application/octet-stream", b"fLaC" + bytes(60), "flac"),
        (None, b"\xff\xd8\xff", "jpg"),
        ("application/x-msdownload", b"MZ", "bin"),
        ("application/x-sh", "#!/bin/sh", "bin"),
        ("../../etc/passwd", b"x", "bin"),
    ],
)
def test_the_suffix_is_that_of_the_type_and_none_that_would_run(
    store: OutputStore, mime: str | None, data: bytes | str, suffix: str
) -> None:
    assert store.save("a__b", {}, data, mime_type=mime).path.suffix == f".{suffix}"


def test_text_is_utf8_and_a_lone_surrogate_stays_visible(store: OutputStore) -> None:
    saved = store.save("a__b", {"q": "\ud800"}, "é\ud800", title="\udfff")
    assert saved.path.read_bytes() == "é".encode() + b"\\ud800"
    assert store.list().outputs == (saved,)


def test_arguments_too_long_for_a_record_are_left_out_of_it(tmp_path: Path) -> None:
    store = OutputStore(tmp_path, limits=Limits(record_bytes=1000))
    saved = store.save("a__b", {"text": "x" * 1000}, "kept")
    assert saved.arguments is None
    assert saved.path.read_text() == "kept"
    assert json.loads(saved.sidecar_path.read_text())["arguments_left_out_bytes"] > 1000
    with pytest.raises(UsageError, match="record_bytes"):
        store.save("a__b", {}, "kept", metadata={"text": "x" * 1000})


@pytest.mark.parametrize(
    "wrong",
    [
        {"arguments": {"n": float("nan")}},
        {"arguments": {"n": object()}},
        {"tags": "one"},
        {"time": datetime(2026, 1, 1)},
        {"time": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_is_written(
    store: OutputStore, wrong: dict[str, object]
) -> None:
    call: dict[str, object] = {"arguments": {}} | wrong
    with pytest.raises(UsageError):
        store.save("a__b", call.pop("arguments"), "x", **call)  # type: ignore[arg-type]
    assert files_of(store) == []


@pytest.mark.requirement("OUT-05")
def test_base64_is_saved_decoded_and_its_size_is_checked_first(tmp_path: Path) -> None:
    store = OutputStore(tmp_path, limits=Limits(block_bytes=4))
    assert store.save_base64("a__b", {}, "AAECAw==").path.read_bytes() == b"\0\1\2\3"
    with pytest.raises(LimitError) as caught:
        store.save_base64("a__b", {}, "!" * 8)  # never decoded: the limit is said, not the fault
    assert caught.value.limit == "block_bytes"
    with pytest.raises(Base64Error):
        store.save_base64("a__b", {}, "!!!!")


@pytest.mark.parametrize(
    ("raw", "data", "mime"),
    [
        ({"type": "text", "text": "hello"}, "hello", "text/plain"),
        ({"type": "text", "text": ' {"a": 1}'}, ' {"a": 1}', "application/json"),
        ({"type": "text", "text": "{not json"}, "{not json", "text/plain"),
        ({"type": "image", "data": "AAE=", "mimeType": "image/png"}, b"\0\1", "image/png"),
        ({"type": "audio", "data": "AAE=", "mimeType": "audio/wav"}, b"\0\1", "audio/wav"),
        ({"type": "resource", "resource": {"uri": "r:/a", "text": "# x", "mimeType": "text/markdown"}}, "# x",
         "text/markdown"),
        ({"type": "resource", "resource": {"uri": "r:/a", "blob": "AAE="}}, b"\0\1", ""),
    ],
)  # fmt: skip
def test_what_is_saved_of_a_block_are_its_bytes(raw: dict[str, object], data: bytes | str, mime: str) -> None:
    content = content_of(parse_block(raw).content)
    assert content is not None
    assert (content.data, content.mime_type) == (data, mime)


def test_a_link_and_an_unknown_block_have_no_bytes_to_save() -> None:
    link = parse_block({"type": "resource_link", "uri": "r:/a", "name": "a"})
    assert content_of(link.content) is None
    assert content_of(parse_block({"type": "hologram"}).content) is None


# --- a writer ---------------------------------------------------------------------------------------


def test_bytes_may_come_in_any_order_and_twice(store: OutputStore) -> None:
    data = os.urandom(10_000)
    with store.open_writer("a__b", {}) as writer:
        for start in (6000, 0, 4000, 2000, 8000, 0):
            writer.write_at(start, data[start : start + 2500])
        assert writer.missing(12_000) == ((10_000, 12_000),)
        saved = writer.commit(size_bytes=10_000)
    assert saved.path.read_bytes() == data
    assert saved.sha256 == hashlib.sha256(data).hexdigest() == saved.path.stem


def test_a_file_with_a_gap_gets_no_name(store: OutputStore) -> None:
    with store.open_writer("a__b", {}) as writer:
        writer.write_at(0, b"01")
        writer.write_at(4, b"45")
        with pytest.raises(UsageError, match=r"missing \[\(2, 4\)\]"):
            writer.commit()
        with pytest.raises(ClosedError):
            writer.write_at(2, b"23")
    assert files_of(store) == []


def test_bytes_past_the_proved_end_are_no_whole(store: OutputStore) -> None:
    with store.open_writer("a__b", {}) as writer:
        writer.write_at(0, b"01234")
        with pytest.raises(UsageError, match="up to 5"):
            writer.commit(size_bytes=4)
    assert files_of(store) == []


def test_an_empty_result_is_saved_too(store: OutputStore) -> None:
    assert store.save("a__b", {}, b"").path.read_bytes() == b""


def test_nothing_appears_under_a_name_before_the_commit(store: OutputStore) -> None:
    with store.open_writer("a__b", {}) as writer:
        writer.write_at(0, b"half")
        assert [name for name in files_of(store) if not name.startswith(".")] == []
        assert store.list().outputs == ()
    assert files_of(store) == []


def test_an_output_longer_than_allowed_ends_before_the_disk_is_full(tmp_path: Path) -> None:
    store = OutputStore(tmp_path, limits=Limits(saved_bytes=10))
    with pytest.raises(LimitError) as caught:
        store.save("a__b", {}, bytes(11))
    assert (caught.value.limit, caught.value.allowed, caught.value.got) == ("saved_bytes", 10, 11)
    assert files_of(store) == []


# --- finding ----------------------------------------------------------------------------------------


@pytest.fixture
def filled(store: OutputStore) -> dict[str, SavedOutput]:
    def save(name: str, tool: str, minutes: int, *tags: str, title: str | None = None) -> SavedOutput:
        time = WHEN + timedelta(minutes=minutes)
        return store.save(tool, {"query": name}, name, tags=tags, title=title, time=time)

    return {
        "old": save("old", "home__play", 0, "music"),
        "new": save("new", "home__play", 2, "music", "loud", title="Große Fuge"),
        "other": save("other", "away__Play", 1),
    }


def test_outputs_are_listed_newest_first(store: OutputStore, filled: dict[str, SavedOutput]) -> None:
    assert store.list().outputs == (filled["new"], filled["other"], filled["old"])


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"tag": "music"}, ["new", "old"]),
        ({"tag": "mus"}, []),
        ({"tool_id": "away__Play"}, ["other"]),
        ({"tool_id": "away__play"}, []),
        ({"text": "GROSSE"}, ["new"]),
        ({"text": "OLD"}, ["old"]),
        ({"tag": "music", "tool_id": "home__play", "text": "new"}, ["new"]),
    ],
)
def test_outputs_are_found_by_tag_tool_and_text(
    store: OutputStore, filled: dict[str, SavedOutput], wanted: dict[str, str], names: list[str]
) -> None:
    assert list(store.find(**wanted).outputs) == [filled[name] for name in names]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 5000, "not JSON"),
        ("[]", "expected a JSON object"),
        ({"file": "../../../etc/passwd"}, "'file' is not the name"),
        ({"sha256": "0" * 64}, "'file' is not the name"),
        ({"tags": ["a", 1]}, "'tags'"),
        ({"size_bytes": True}, "'size_bytes'"),
        ({"size_bytes": 99}, "bytes long"),
        ({"time": "yesterday"}, "'time'"),
        ({"time": "2026-01-01T00:00:00"}, "'time'"),
        ({"time": "0001-01-01T00:00:00+14:00"}, "'time'"),
        ({"tool_id": "away__play"}, "another tool"),
        ({"title": "x" * 300_000}, "record_bytes"),
    ],
)
def test_a_broken_record_is_told_and_skipped(
    store: OutputStore, filled: dict[str, SavedOutput], change: str | dict[str, object], reason: str
) -> None:
    path = filled["old"].sidecar_path
    text = change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change)
    path.write_text(text)
    listing = store.list()
    assert listing.outputs == (filled["new"], filled["other"])
    (problem,) = listing.problems
    assert problem.path == path
    assert reason in problem.reason


def test_a_record_whose_file_is_gone_is_told(store: OutputStore, filled: dict[str, SavedOutput]) -> None:
    filled["new"].path.unlink()
    listing = store.list()
    assert filled["new"] not in listing.outputs
    assert [problem.reason.rpartition(" is ")[2] for problem in listing.problems] == ["missing"]


# --- removing ---------------------------------------------------------------------------------------


def test_a_file_goes_with_its_last_record(store: OutputStore) -> None:
    first, second = (store.save("a__b", {"n": n}, "same") for n in (1, 2))
    store.remove(first)
    assert store.list().outputs == (second,)
    assert second.path.read_text() == "same"
    store.remove(first)  # removed already
    store.remove(second)
    assert files_of(store) == []


def test_a_file_that_a_broken_record_may_speak_of_stays(store: OutputStore) -> None:
    first, second = (store.save("a__b", {"n": n}, "same") for n in (1, 2))
    second.sidecar_path.write_text("{")
    store.remove(first)
    assert first.path.exists()


def test_a_removal_puts_the_file_back_if_it_was_saved_again_meanwhile(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.save("a__b", {"n": 1}, "same")
    saved: list[SavedOutput] = []
    rename = Path.rename

    def saved_before(path: Path, target: Path) -> Path:
        if not saved:
            saved.append(store.save("a__b", {"n": 2}, "same"))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", saved_before)
    store.remove(first)
    assert store.list().outputs == tuple(saved)
    assert len(files_of(store)) == 2


def test_a_save_puts_its_file_back_if_it_was_removed_meanwhile(
    store: OutputStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.save("a__b", {"n": 1}, "same")
    replace = Path.replace

    def removed_before(path: Path, target: Path) -> Path:
        if target.name.endswith(".record.json"):
            store.remove(first)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", removed_before)
    second = store.save("a__b", {"n": 2}, "same")
    assert store.list().outputs == (second,)
    assert second.path.read_text() == "same"
    assert len(files_of(store)) == 2


# --- many at once -----------------------------------------------------------------------------------


def folder_of(store: OutputStore, tool_id: str) -> Path:
    return store.save(tool_id, {}, "x").path.parent


@pytest.mark.requirement("OUT-01")
def test_each_tool_of_each_server_has_a_folder_of_its_own(store: OutputStore) -> None:
    assert folder_of(store, "home__play") == folder_of(store, "home__play")
    assert len({folder_of(store, name) for name in ("home__play", "away__play", "home__stop")}) == 3


def save_many(folder: Path, worker: int) -> None:
    store = OutputStore(folder)
    for number in range(20):
        mine = store.save("a__b", {"worker": worker}, b"same" * 1000)
        store.save("a__b", {"worker": worker}, f"{worker} {number}")
        if number % 2:
            store.remove(mine)


def test_processes_that_save_and_remove_the_same_content_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=save_many, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    listing = OutputStore(tmp_path).list()
    assert listing.problems == ()
    assert len(listing.outputs) == 3 * (20 + 10)
    assert not list((tmp_path / "a__b").glob(".*"))


@pytest.mark.parametrize(("more", "mime_type"), [(0, "application/json"), (1, "text/plain")])
def test_a_text_too_long_to_be_looked_at_for_json_is_kept_as_text(more: int, mime_type: str) -> None:
    content = content_of(TextContent(type="text", text="[" + " " * (JSON_CHARS - 2 + more) + "]"))
    assert content is not None
    assert content.mime_type == mime_type


def test_a_tag_that_is_no_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    tags: Any = ["a", 1]
    with pytest.raises(UsageError, match="tags: expected strings, got a int"):
        OutputStore(tmp_path).save("a__b", {}, "x", tags=tags)
    with pytest.raises(TypeError, match="tag"):
        OutputStore(tmp_path).save("a__b", {}, "x", tag="a")  # type: ignore[call-arg] # misspelt
    assert not list(tmp_path.iterdir())


# --- links --------------------------------------------------------------------------------------------


def test_a_link_in_a_folders_place_is_not_followed(store: OutputStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    store.folder.mkdir(parents=True)
    (store.folder / "home__play").symlink_to(outside)
    with pytest.raises(SavingError, match="got a link"):
        store.save("home__play", {}, b"x")
    assert list(outside.iterdir()) == []


def test_a_link_in_a_folders_place_is_neither_listed_nor_removed_through(
    store: OutputStore, tmp_path: Path
) -> None:
    elsewhere = OutputStore(tmp_path / "elsewhere")
    saved = elsewhere.save("home__play", {}, b"x")
    store.folder.mkdir(parents=True)
    (store.folder / "home__play").symlink_to(saved.path.parent)
    listing = store.list()
    assert listing.outputs == ()
    assert [problem.reason for problem in listing.problems] == ["a link, not followed"]
    with pytest.raises(SavingError):
        store.remove(saved)
    assert elsewhere.list().outputs == (saved,)
