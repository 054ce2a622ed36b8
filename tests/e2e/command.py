"""The `playhead` command as a process, the way a person runs it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PLAYHEAD = (sys.executable, "-m", "playhead")
AUDIO_SERVER = shlex.join([*PLAYHEAD, "serve", "audio", "--mixer", "memory"])
HANG_SECONDS = 60
"""No command here takes long; one that does hangs, and the test says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    stdout: bytes
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value


def environment() -> dict[str, str]:
    """A plain terminal of 80 columns, and no servers file of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ}
    plain = {"COLUMNS": "80", "TERM": "dumb", "XDG_CONFIG_HOME": "/nonexistent"}
    return kept | plain | {"PYTHONPATH": str(REPOSITORY)}


def playhead(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Outcome:
    """Run one command to its end. Whatever it says, it never shows a traceback."""
    command = [*PLAYHEAD, *(str(argument) for argument in arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        cwd=cwd,
        env=environment() | variables,
        timeout=HANG_SECONDS,
        check=False,
    )
    stderr = done.stderr.decode("utf-8")
    assert "Traceback" not in stderr, stderr
    assert "internal error" not in stderr, stderr
    return Outcome(code=done.returncode, stdout=done.stdout, stderr=stderr)


def start(arguments: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """Start one command, to be interrupted."""
    return subprocess.Popen(
        [*PLAYHEAD, *(str(argument) for argument in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


def shell(line: str, cwd: Path | None = None) -> Outcome:
    """Run a line of shell in which `playhead` is the command, for what only a shell can do to it."""
    line = f'playhead() {{ {shlex.join(PLAYHEAD)} "$@"; }}; {line}'
    done = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        cwd=cwd,
        env=environment(),
        timeout=HANG_SECONDS,
        check=False,
    )
    stderr = done.stderr.decode("utf-8")
    assert "Traceback" not in stderr, stderr
    assert "internal error" not in stderr, stderr
    return Outcome(code=done.returncode, stdout=done.stdout, stderr=stderr)
