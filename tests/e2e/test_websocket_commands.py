"""Every command that takes a server, with a WebSocket one: by its URL, and by its name in a servers file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from playhead.cli.app import run
from tests.e2e.command import serving
from tests.servers.audio_tools import AUDIO_TOOLS

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
    assert [tool["name"] for tool in listed["tools"]] == AUDIO_TOOLS
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
