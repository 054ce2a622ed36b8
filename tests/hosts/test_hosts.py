"""Five real hosts play, pause and resume through the proxy, and their models see no base64."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hosts.scripted_model import scripted_model
from tests.servers.wave import write_wave

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / "build" / "hosts"
RATE_HZ = 16_000
SECONDS = 4
FADE_FRAMES = RATE_HZ // 100
"""The fade before and after a pause."""
SLACK_FRAMES = 8
"""Samples at the ends of a fade may be equal by rounding."""


@dataclass(frozen=True, slots=True)
class HostProgram:
    """A program, and its environment in `build/hosts`."""

    environment: str
    program: str

    def command(self) -> list[str]:
        if self.program.endswith(".mjs"):
            return [shutil.which("node") or "node", str(HERE / self.program)]
        return [str(INSTALLED / self.environment / "bin" / "python"), str(HERE / self.program)]


HOSTS = [
    HostProgram("langchain", "langgraph_host.py"),
    HostProgram("openai-agents", "openai_agents_host.py"),
    HostProgram("pydantic-ai", "pydantic_ai_host.py"),
    HostProgram("ai-sdk", "ai_sdk_host.mjs"),
    HostProgram("fastmcp", "fastmcp_host.py"),
]


@pytest.mark.slow("third-party hosts, in real time")
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.environment)
def test_a_host_plays_pauses_and_resumes_at_the_sample(host: HostProgram, tmp_path: Path) -> None:
    if not (INSTALLED / host.environment).is_dir():
        pytest.skip(f"build/hosts/{host.environment} is not installed: run `make extra NAME=hosts`")
    library = tmp_path / "library"
    library.mkdir()
    piece = array("h", (index * 7919 % 65536 - 32768 for index in range(RATE_HZ * SECONDS))).tobytes()
    write_wave(library / "piece.wav", piece, rate_hz=RATE_HZ)
    recording = tmp_path / "recording"
    audio = f"{sys.executable} -m playhead serve audio --mixer memory --library {library}"
    proxy = [sys.executable, "-m", "playhead", "serve", "proxy", audio]
    proxy += ["--sink", f"frames:{recording}", "--on-call", "none"]
    with scripted_model() as (url, bodies):
        done = subprocess.run(
            [*host.command(), url, *proxy],
            cwd=INSTALLED / host.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    messages = json.loads(bodies[-1])["messages"] if bodies else [*map(json.loads, done.stdout.splitlines())]
    results = [str(each["content"]) for each in messages if each["role"] == "tool"]
    assert len(results) == 4, results
    assert "piece" in results[0]
    assert "playing" in results[0]
    heard = re.search(r"\[(\d+\.\d) s heard\]", results[1])
    assert heard is not None, results[1]
    assert 0 < float(heard[1]) < SECONDS
    assert f"stopped after {heard[1]} s heard" in results[2]
    assert not re.search(r"[A-Za-z0-9+/]{200}", "".join(bodies) + done.stdout)
    check_pause(frames(recording.read_bytes()), array("h", piece))


def check_pause(heard: array[int], piece: array[int]) -> None:
    """Check that the piece was heard whole, with one pause: it fades out, and fades in at the next sample."""
    pause = next(index for index, sample in enumerate(piece) if heard[index] != sample)
    after = pause + 2 * FADE_FRAMES + SLACK_FRAMES
    rest = piece[after:].tobytes()
    found = heard.tobytes().find(rest)
    assert found >= 0, f"the piece does not continue after the pause at {pause}"
    silent = found // 2 - after
    assert silent >= 0
    between = heard[pause + FADE_FRAMES + SLACK_FRAMES : pause + FADE_FRAMES + silent - SLACK_FRAMES]
    assert not any(between)


def frames(data: bytes) -> array[int]:
    """Return the samples of a file of frames, each after its length."""
    pcm, at = bytearray(), 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        pcm += data[at + 4 : at + 4 + length]
        at += 4 + length
    return array("h", bytes(pcm))


def test_the_plug_in_starts_the_proxy() -> None:
    folder = HERE.parents[1] / "integrations" / "playhead"
    assert json.loads((folder / ".claude-plugin" / "plugin.json").read_text())["name"] == "playhead"
    (entry,) = json.loads((folder / ".mcp.json").read_text())["mcpServers"].values()
    assert [entry["command"], *entry["args"]] == ["playhead", "serve", "proxy", "home"]
