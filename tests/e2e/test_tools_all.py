"""`playhead tools --all`: every server of the file, with its state and its reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.command import PLAYHEAD, playhead
from tests.servers.audio_tools import AUDIO_TOOLS

AUDIO = {"command": PLAYHEAD[0], "args": [*PLAYHEAD[1:], "serve", "audio", "--mixer", "memory"]}
NO_MCP = {"command": sys.executable, "args": ["-c", "print('hello')"]}
DEAD = {"command": "/nowhere/\u001b[31mserver"}


def write(folder: Path, servers: dict[str, object]) -> Path:
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


def test_servers_are_listed_with_their_states_in_80_columns(tmp_path: Path) -> None:
    path = write(tmp_path, {"music": AUDIO, "down": DEAD, "no-mcp": NO_MCP})
    done = playhead("tools", "--all", "-v", "--config", path)
    assert done.code == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0].split(maxsplit=1)[1] == f"connected, {len(AUDIO_TOOLS)} tools"
    assert lines[1].startswith("down    failed: cannot start the server")
    assert any(line.startswith("no-mcp  failed: ") for line in lines)
    assert any(line.startswith("music__set_volume") for line in lines)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []
    assert b"\x1b" not in done.stdout


def test_no_server_at_all_is_exit_code_3(tmp_path: Path) -> None:
    done = playhead("tools", "--all", "--json", "--config", write(tmp_path, {"down": DEAD}))
    assert done.code == 3
    (server,) = done.json["servers"]
    assert (server["name"], server["status"], server["tools"]) == ("down", "failed", None)
    assert "no such command" in server["reason"]
    assert done.json["tools"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "got neither"), (("x", "--all"), "got both"), (("--all",), "no servers file")],
)
def test_what_is_to_be_listed_must_be_said(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = playhead("tools", *arguments, cwd=tmp_path)
    assert (done.code, said in done.stderr) == (2, True), done.stderr
