"""The first major version of the Python SDK, which still had WebSocket, in an environment of its own.

    python -m tests.conformance.old_sdk        (make extra NAME=old-sdk)

Its server and its client are independent WebSocket peers. They can't be installed with the SDK that
playhead uses, so they run as programs of `PYTHON`. Tests that need them carry `needs_old_sdk` and are skipped
where it was not installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "old-sdk"
PYTHON = BUILD / "venv" / "bin" / "python"
"""The interpreter that has it: `mcp` 1.x with `websockets`, and the ASGI server it is documented with."""

WANTED = ("mcp[ws]==1.30.0", "uvicorn==0.54.0")

needs_old_sdk = pytest.mark.skipif(
    not (BUILD / "installed.txt").is_file(), reason="needs `make extra NAME=old-sdk`"
)
"""For tests whose peer is a program of `PYTHON`."""


def install() -> None:
    """Put `WANTED` below `BUILD`, once. An installation that was broken off is made anew."""
    stamp = BUILD / "installed.txt"
    versions = "\n".join(WANTED)
    if stamp.is_file() and stamp.read_text() == versions:
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    venv.create(BUILD / "venv", with_pip=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *WANTED], check=True)
    stamp.write_text(versions)


@asynccontextmanager
async def old_server() -> AsyncIterator[str]:
    """The endpoint of the WebSocket server."""
    program = ROOT / "tests" / "servers" / "old_sdk_server.py"
    process = await trio.lowlevel.open_process(
        [str(PYTHON), str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        with trio.fail_after(60):
            port = (await process.stdout.receive_some()).decode().strip()
        yield f"ws://127.0.0.1:{port}/mcp"
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


def main() -> int:
    install()
    print(f"{', '.join(WANTED)} for {PYTHON}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
