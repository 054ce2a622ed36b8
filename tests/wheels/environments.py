"""Environments with the wheel of this checkout, one per set of requirements, made when first asked for.

uv links the packages from its cache, so each takes a second. Several processes may share the directory.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

REPOSITORY = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
PINNED = (REPOSITORY / "requirements-dev.lock", Path(__file__).with_name("constraints.txt"))
HANG_SECONDS = 60


class NoNetworkError(Exception):
    """The package index can't be reached, and uv's cache lacks something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """`directory` is its own; `home` is the empty one in which programs run."""

    directory: Path
    home: Path

    @property
    def python(self) -> str:
        return str(self.directory / "bin" / "python")

    @property
    def variables(self) -> dict[str, str]:
        """Nothing leads to the checkout or to the user's own settings."""
        path = os.pathsep.join([str(self.directory / "bin"), "/usr/local/bin", "/usr/bin", "/bin"])
        return {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"}

    def finish(self, *command: str) -> str:
        """Run a command to its end, which must be a success, and return what it printed."""
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def serving(self, command: str) -> Iterator[str]:
        """Run a server until the context is left; yields its URL, which it prints on stderr."""
        with subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self.home,
            env=self.variables,
            stderr=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stderr is not None
            try:
                line = server.stderr.readline()
                assert "://" in line, f"{command}\n{line}{server.stderr.read()}"
                yield line.split()[-1]
                server.send_signal(signal.SIGTERM)
                code = server.wait(HANG_SECONDS)
                assert code == 0, f"{command}\nexit code {code} after SIGTERM"
            finally:
                server.kill()

    def at(self, home: Path) -> Environment:
        """The same environment with another empty directory."""
        home.mkdir(parents=True)
        return replace(self, home=home)


@dataclass(frozen=True, slots=True)
class Environments:
    """`profile` is cargo's: `release` is what the checkout is built with, so nothing is compiled anew."""

    directory: Path
    profile: str = "release"

    def wheel(self) -> Path:
        """The wheel, built by the first that asks."""
        out = self.directory / "wheel"
        with FileLock(self.directory / "wheel.lock"):
            if not out.is_dir():
                build = [str(TOOLS / "maturin"), "build", "--profile", self.profile, "--out", str(out)]
                run([*build, "--interpreter", sys.executable])
        (wheel,) = out.glob("*.whl")
        return wheel

    def environment(self, installs: frozenset[str]) -> Environment:
        """The environment for the arguments of a `pip install`, in which playhead is the wheel."""
        wheel = self.wheel()
        wanted = [f"{wheel}{name[8:]}" if name.startswith("playhead") else name for name in sorted(installs)]
        directory = self.directory / hashlib.sha256(shlex.join(wanted).encode()).hexdigest()[:12]
        with FileLock(f"{directory}.lock"):
            stamp = directory / "installed"
            if not stamp.exists():
                uv = str(TOOLS / "uv")
                run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)])
                pip = [uv, "pip", "install", "--quiet", "--python", str(directory / "bin" / "python")]
                run([*pip, *(f"--constraint={path}" for path in PINNED), *wanted])
                stamp.touch()
        return Environment(directory=directory, home=self.directory)


def run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode and ("error sending request" in done.stderr or "dns error" in done.stderr):
        raise NoNetworkError(done.stderr)
    assert done.returncode == 0, f"{shlex.join(command)}:\n{done.stderr[-2000:]}"
