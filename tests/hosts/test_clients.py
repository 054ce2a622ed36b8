"""Four third-party clients list, call, read and subscribe through the proxy, over stdio and HTTP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CLIENTS = HERE.parents[1] / "build" / "hosts" / "clients"
PYTHON = sys.executable
PROXY = [PYTHON, "-m", "playhead", "serve", "proxy", f"{PYTHON} {HERE / 'song_server.py'}", "--sink", "null"]
SONG = ["here", "[audio, audio/wav, 44.1 kB: playing]"]

pytestmark = pytest.mark.slow("third-party clients")


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The command of the proxy, or the URL at which it serves."""
    if request.param == "stdio":
        yield PROXY
        return
    command = [*PROXY, "--transport", "http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield [process.stderr.readline().split()[-1]]
        process.terminate()


def run(*command: str, cwd: Path = CLIENTS) -> dict[str, Any]:
    """Run a client, and return the JSON that it prints."""
    path = os.pathsep.join([str(CLIENTS / "node_modules" / ".bin"), os.environ["PATH"]])
    env = os.environ | {"PATH": path}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    got = json.loads(done.stdout)
    assert isinstance(got, dict)
    return got


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The commands of the clients that are installed."""
    made = {"python": [PYTHON, str(HERE / "clients" / "python_client.py")]}
    if CLIENTS.is_dir() and (node := shutil.which("node")):
        made["typescript"] = [node, str(HERE / "clients" / "typescript_client.mjs")]
    if go := shutil.which("go"):
        made["go"] = [str(tmp_path_factory.mktemp("go") / "client")]
        subprocess.run([go, "build", "-o", *made["go"]], cwd=HERE / "clients" / "go", check=True)
    return made


@pytest.mark.parametrize("name", ["python", "typescript", "go"])
def test_a_client_of_an_sdk(name: str, target: list[str], programs: dict[str, list[str]]) -> None:
    if name not in programs:
        pytest.skip(f"the {name} client is not installed: run `make extra NAME=hosts`")
    got = run(*programs[name], *target, cwd=CLIENTS if name == "typescript" else HERE.parents[1])
    assert got.pop("tools")[:4] == ["echo", "song", "touch", "player__pause"]
    assert got == {
        "echo": ["hello"],
        "song": SONG,
        "resources": ["song://1"],
        "read": "la la",
        "updated": ["song://1"],
    }


def test_the_inspector(target: list[str]) -> None:
    if not CLIENTS.is_dir():
        pytest.skip("the Inspector is not installed: run `make extra NAME=hosts`")
    start = [*target, *([] if len(target) > 1 else ["--transport", "http"])]

    def ask(*arguments: str) -> dict[str, Any]:
        return run("mcp-inspector", "--cli", *start, "--method", *arguments)

    tools = [tool["name"] for tool in ask("tools/list")["tools"]]
    assert tools[:4] == ["echo", "song", "touch", "player__pause"]
    called = ask("tools/call", "--tool-name", "song", "--tool-arg", "text=here")
    assert [block["text"] for block in called["content"]] == SONG
    assert ask("resources/read", "--uri", "song://1")["contents"][0]["text"] == "la la"
