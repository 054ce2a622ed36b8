"""`playhead call`: every kind of block where it belongs, and nothing that a server wrote sent as it came."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import wave
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.command import HANG_SECONDS, Outcome, at_terminal, playhead, start
from tests.servers.mixed import FORECAST, MIXED_SERVER, png
from tests.servers.shared import SharedServers

Call = Callable[..., Outcome]


@pytest.fixture
def call(shared: SharedServers, tmp_path: Path) -> Call:
    """`playhead call` of a tool of the mixed server, in a directory of the test's own."""
    return partial(playhead, "call", shared.mixed, cwd=tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- every block ----------------------------------------------------------------------------------


def test_a_mixed_result_is_shown_saved_and_played_in_order(tmp_path: Path, call: Call) -> None:
    done = call("mixed", "--sink", f"wave:{tmp_path / 'heard.wav'}")
    assert done.code == 0, done.stderr
    assert done.stdout.decode().splitlines() == [
        "two pieces and a picture",
        "audio: audio/wav, 62.5 KiB",
        "audio: audio/mpeg, 23.9 KiB",
        f"image: image/png, {len(png())} B, saved as mixed-1.png",
        "link: ../../notes\\x1b[31m <resource://notes> (text/plain, 12 B)",
        "be brief",
    ]
    assert "for the model:" in done.stderr
    assert done.stderr.index("(1 of 2)") < done.stderr.index("(2 of 2)")
    assert names(tmp_path) == ["heard-2.wav", "heard.wav", "mixed-1.png"]
    assert f"written to {tmp_path / 'heard.wav'}, {tmp_path / 'heard-2.wav'}" in done.stderr
    assert (tmp_path / "mixed-1.png").read_bytes() == png()
    for name, frames in (("heard.wav", 32_000), ("heard-2.wav", 132_300)):
        with wave.open(str(tmp_path / name)) as heard:
            assert heard.getnframes() == frames


def test_what_is_kept_says_what_it_is_and_why_and_alone_it_is_a_failure(tmp_path: Path, call: Call) -> None:
    done = call("damaged")
    assert done.code == 1
    assert "expected a usable result from tool damaged, got only block 0" in done.stderr
    assert done.stdout.decode().splitlines() == [
        "audio: audio/wav, 1 B, not used: invalid base64 at character 0",
        "image: image/png, 0 B, not used: it holds no bytes",
    ]


def test_json_gives_everything_at_once(tmp_path: Path, call: Call) -> None:
    done = call("mixed", "--sink", "null", "--json")
    report = done.json
    assert done.code == 0, done.stderr
    assert [item["does"] for item in report["plan"]] == [
        *("SendText", "PlayAudio", "PlayAudio", "ShowImage", "KeepReference", "SendText"),
    ]
    assert report["turn"]["decision"] == "stop"
    assert len(report["result"]["content"]) == 6
    assert [media["mime_type"] for media in report["media"]] == ["audio/wav", "audio/mpeg"]
    assert [image["path"] for image in report["images"]] == ["mixed-1.png"]
    heard = report["player"]["items"]
    assert [item["position_seconds"] for item in heard] == [2.0, 3.0]
    assert [item["error"] for item in heard] == [None, None]
    assert report["player"]["files"] == []
    assert b64encode(png()).decode() not in report["text_for_model"]
    assert "two pieces" in report["text_for_model"]
    assert (report["findings"], report["error"]) == ([], None)
    assert done.stderr == ""


def test_with_json_nothing_is_played_unless_it_is_said_into_what(tmp_path: Path, call: Call) -> None:
    done = call("mixed", "--json", "--no-save")
    assert done.code == 0, done.stderr
    assert done.json["player"] is None
    assert done.json["images"][0]["path"] is None
    assert names(tmp_path) == []


def test_images_are_named_by_us_and_replace_nobodys(tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "etc-passwd-1.png").write_bytes(b"somebody's")
    done = call("../../etc/passwd", "--save-images", str(folder))
    assert done.code == 0, done.stderr
    assert names(folder) == ["etc-passwd-1-2.png", "etc-passwd-1.png", "etc-passwd-2.png", "etc-passwd-3.txt"]
    assert names(tmp_path) == ["images"]
    assert (folder / "etc-passwd-1.png").read_bytes() == b"somebody's"
    assert str(folder / "etc-passwd-1-2.png") in done.stdout.decode()


def test_a_folder_for_images_that_is_none_is_said_before_the_tool_is_called(
    tmp_path: Path, call: Call
) -> None:
    done = call("mixed", "--save-images", "nowhere")
    assert "is not a directory" in done.stderr
    assert done.code == 2


@pytest.mark.parametrize("repeat", ["true", "false"])
def test_structured_content_is_shown_once_and_pretty(repeat: str, tmp_path: Path, call: Call) -> None:
    shown = call("forecast", f"repeat={repeat}").stdout.decode()
    assert '  "city": "Oslo",\n' in shown
    assert shown.count("Oslo") == 1
    assert ("cold" in shown) == (repeat == "false")
    assert FORECAST["city"] == "Oslo"


def test_verbose_says_why_each_block_goes_where_it_goes(tmp_path: Path, call: Call) -> None:
    done = call("mixed", "-v", "--no-play", "--no-save")
    assert "block 1: audio" in done.stderr
    assert "turn: stop (" in done.stderr
    assert "playing" not in done.stderr
    assert names(tmp_path) == []


# --- what fails -----------------------------------------------------------------------------------


def test_an_error_is_told_on_stderr_escaped_and_nothing_of_it_plays(tmp_path: Path, call: Call) -> None:
    done = call("broken", "--sink", f"wave:{tmp_path / 'heard.wav'}")
    assert done.code == 1
    assert "it failed because \\x1b]0;owned\\x07\\x1b[2Jtext \\u{202E}gnp.exe" in done.stderr
    assert b"failed" not in done.stdout
    assert names(tmp_path) == []


def test_a_piece_that_fails_does_not_keep_the_next_one_from_playing(tmp_path: Path, call: Call) -> None:
    done = call("half", "--sink", f"wave:{tmp_path / 'heard.wav'}", "--json")
    items = done.json["player"]["items"]
    assert done.code == 1
    assert items[0]["error"]["type"] == "UnsupportedFormatError"
    assert (items[1]["error"], items[1]["position_seconds"]) == (None, 2.0)
    assert done.json["error"]["type"] == "UnsupportedFormatError"
    assert names(tmp_path) == ["heard.wav"]


def test_interrupted_while_it_plays_it_exits_with_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "reached")
    process = start(["call", MIXED_SERVER, "endless", "--sink", "wave:heard.wav"], cwd=tmp_path)
    (tmp_path / "reached").read_text()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr
    assert names(tmp_path) == ["reached"]


# --- terminals ------------------------------------------------------------------------------------


def test_markdown_is_rendered_on_a_terminal_alone_and_shows_where_links_lead(
    tmp_path: Path, call: Call, shared: SharedServers
) -> None:
    plain = call("markdown", "--no-save").stdout.decode()
    assert "# Weather" in plain
    seen, _ = at_terminal("call", shared.mixed, "markdown", "--no-save", cwd=tmp_path)
    assert "# Weather" not in seen
    assert "Weather" in seen
    assert "https://evil.example/x" in seen
    assert "\x1b]8;" not in seen, "a hyperlink hides its address"
    for text in (plain, seen):
        assert "\\x1b]0;owned\\x07\\x1b[2Jtext \\u{202E}gnp.exe" in text
        assert "\x1b]0;" not in text
        assert "\x1b[2J" not in text
    assert "\u202e" not in seen, "nor by way of an entity"


# --- what is configured ---------------------------------------------------------------------------


def configured_call(url: str, tool: str, settings: str, *arguments: str, cwd: Path) -> Outcome:
    """A call of a server that is in a servers file, with a tool configuration beside it."""
    servers = {"mcpServers": {"mixed": {"url": url}}}
    (cwd / "mcp.json").write_text(json.dumps(servers))
    (cwd / "handlers.py").write_text(
        "from playhead.config.tools import ToolResponse\n\n"
        "def said(content):\n    return ToolResponse(f'{len(content.blocks)} blocks for you')\n\n"
        "def broken(content):\n    raise ValueError('no paper')\n"
    )
    (cwd / "playhead-tools.toml").write_text(f"[tools.mixed__{tool}]\n{settings}")
    data = str(cwd / "data")
    return playhead("call", "mixed", tool, "--trust", *arguments, cwd=cwd, XDG_DATA_HOME=data)


def test_a_handlers_message_stands_for_the_texts_and_media_still_play(
    tmp_path: Path, shared: SharedServers
) -> None:
    settings = 'response_handler = "handlers.py:said"\nsave_output = false\n'
    done = configured_call(shared.mixed, "mixed", settings, "--sink", "null", "--no-save", cwd=tmp_path)
    assert done.code == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "6 blocks for you"
    assert "two pieces and a picture" not in lines
    assert "(2 of 2)" in done.stderr


def test_a_handler_that_raises_is_told_after_the_result(tmp_path: Path, shared: SharedServers) -> None:
    settings = 'response_handler = "handlers.py:broken"\nsave_output = false\n'
    done = configured_call(shared.mixed, "mixed", settings, "--no-play", "--no-save", "--json", cwd=tmp_path)
    assert done.code == 2  # the handler is the user's own
    assert done.json["result"]["content"][0]["text"] == "two pieces and a picture"
    assert done.json["error"]["type"] == "HandlerError"
    assert "no paper" in done.json["error"]["message"]


def test_what_is_configured_to_be_saved_is_saved_unless_the_call_says_no(
    tmp_path: Path, shared: SharedServers
) -> None:
    settings = 'save_output = true\nmetadata = {tags = ["mix"]}\n'
    done = configured_call(
        shared.mixed, "mixed", settings, "--sink", "null", "--no-save", "--json", cwd=tmp_path
    )
    assert (done.code, done.json["saved"]) == (0, [])
    assert not (tmp_path / "data").exists()
    done = configured_call(shared.mixed, "mixed", settings, "--sink", "null", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    for saved in done.json["saved"]:
        assert hashlib.sha256(Path(saved["path"]).read_bytes()).hexdigest() == saved["sha256"]
    kinds = [saved["mime_type"] for saved in done.json["saved"]]
    assert kinds == ["text/plain", "audio/wav", "audio/mpeg", "image/png", "text/plain"]
    assert done.json["text_for_model"] == "delivered to the user"


def test_the_turn_that_is_told_is_the_one_that_the_configuration_leaves(
    tmp_path: Path, shared: SharedServers
) -> None:
    settings = "send_result_to_ai = false\nsave_output = false\n"
    done = configured_call(shared.mixed, "forecast", settings, "--json", cwd=tmp_path)
    assert done.json["turn"]["decision"] == "stop", done.stderr
    assert "delivered to the user" in done.json["turn"]["reason"]
    done = configured_call(shared.mixed, "forecast", settings, "-v", cwd=tmp_path)
    assert "turn: stop (the result was delivered" in done.stderr
