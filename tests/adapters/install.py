"""The packages that the adapters are for, in an environment of its own, and their tests in it.

    python -m tests.adapters.install        (make extra NAME=adapters)

playhead itself is taken from this checkout, as `make` has built it. The LiveKit server is built if a Go
toolchain is installed; without it the tests in a room are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "adapters"
PYTHON = BUILD / "venv" / "bin" / "python"
STACKS = ("pipecat-ai==1.14.0", "livekit-agents==1.8.9", "wyoming==1.10.2")
TOOLS = ("pytest>=9", "pytest-timeout>=2.4")
LIVEKIT_SERVER = BUILD / "livekit-1.13.5" / "server"
LIVEKIT_MODULE = "github.com/livekit/livekit-server/cmd/server@v1.13.5"
"""The newest version without `replace` directives, which `go install` refuses."""


def wanted() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*STACKS, *TOOLS, *project["dependencies"], *project["optional-dependencies"]["formats"]]


def install() -> None:
    """Put `wanted()` below `BUILD`, once. An installation that was broken off is made anew."""
    stamp, versions = BUILD / "installed.txt", "\n".join(wanted())
    if stamp.is_file() and stamp.read_text() == versions:
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    venv.create(BUILD / "venv", with_pip=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *wanted()], check=True)
    stamp.write_text(versions)


def install_livekit_server() -> None:
    """Build `LIVEKIT_SERVER`, once."""
    if LIVEKIT_SERVER.is_file():
        return
    if shutil.which("go") is None:
        print("no Go toolchain: the tests in a room of a LiveKit server are skipped", file=sys.stderr)
        return
    environment = os.environ | {"GOBIN": str(LIVEKIT_SERVER.parent)}
    subprocess.run(["go", "install", LIVEKIT_MODULE], env=environment, check=True)


def main() -> int:
    install()
    install_livekit_server()
    path = os.pathsep.join([str(ROOT), str(ROOT / "python")])
    environment = os.environ | {"PYTHONPATH": path, "PLAYHEAD_PYTHON": sys.executable}  # which has the server
    tests = Path(__file__).parent
    command = [str(PYTHON), "-m", "pytest", "-q", "-c", str(tests / "pytest.ini")]
    command += [f"--confcutdir={tests}", *sys.argv[1:], str(tests)]  # the suite's own fixtures need its tools
    done = subprocess.run(command, env=environment, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
