"""Every command that takes a server, with a WebSocket one: by its URL, and by its name in a servers file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from playhead.cli.app import run
from tests.e2e.chat_kit import calls, chat, model_words, says
from tests.e2e.command import serving
from tests.servers.scripted_http import scripted_http

MUSIC = Path(__file__).parents[2] / "python" / "playhead" / "servers" / "audio" / "music"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The audio server over WebSocket."""
    with serving("audio", "--mixer", "memory", "--transport", "ws") as (address, _):
        yield address


def test_tools_and_call_answer(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert url.startswith("ws://127.0.0.1:")
    assert run(["tools", url, "--json"]) == 0
    listed = json.loads(capfd.readouterr().out)
    assert [tool["name"] for tool in listed["tools"]] == ["musicPlayer", "set_volume"]
    assert run(["call", url, "set_volume", "volume=40"]) == 0
    assert "Volume set to 40" in capfd.readouterr().out


def test_read_streams_a_whole_file_in_ranges(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "song.mp3"
    arguments = ["read", url, "musicPlayer", "query=first light", "-o", str(target), "--json"]
    assert run([*arguments, "--page-size", "16K"]) == 0
    report = json.loads(capfd.readouterr().out)
    whole = (MUSIC / "first-light.mp3").read_bytes()
    assert target.read_bytes() == whole
    assert report["sha256"] == hashlib.sha256(whole).hexdigest()
    assert report["pages"] > 8
    assert report["in_flight_max"] > 1


def test_play_plays_to_the_end(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["play", url, "musicPlayer", "query=lift", "--sink", "null", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["error"] is None
    assert report["underruns"] == 0


def test_a_name_in_a_servers_file_leads_there(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"music": {"url": url, "transport": "websocket"}}}))
    assert run(["tools", "music", "--config", str(path), "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["tools"]) == 2


def test_a_server_that_is_not_there_is_exit_code_3(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["tools", "ws://127.0.0.1:1/mcp"]) == 3
    assert "ws://127.0.0.1:1/mcp" in capfd.readouterr().err


async def test_chat_calls_its_tools(url: str, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"music": {"url": url}}}))
    async with scripted_http(calls(("music__set_volume", {"volume": 30})), says("Quiet.")) as (model, _asked):
        done = await chat(*model_words(model), "--json", "quieter", cwd=tmp_path)
    assert done.json["servers"] == {"music": "connected"}
    (call,) = done.json["calls"]
    assert call["status"] == "done"
    assert call["result"].startswith("Volume set to 30")
