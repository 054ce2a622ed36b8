"""The servers that all tests of one run share, over HTTP: `python -m tests.servers.shared`.

They are for tests that change nothing in them. The first test that needs them starts their process, under a
file lock. It ends with its standard input: a FIFO that the pytest process (with xdist, the controller) holds
open and never writes to. So it outlives no run, however the run ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import trio
from filelock import FileLock

REPOSITORY = Path(__file__).parents[2]
LIFELINE = "lifeline"
"""The FIFO's name in the directory of a run (`tests/conftest.py` makes and holds it)."""

_started: list[subprocess.Popen[bytes]] = []
"""Kept, because a `Popen` that is dropped while its process runs warns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedServers:
    """The URLs. `audio` is the example server, `mixed` and `home` are those of their modules."""

    audio: str
    mixed: str
    home: str


def shared_servers(run_directory: Path) -> SharedServers:
    """The servers of this run, started unless another worker has done so."""
    urls = run_directory / "servers.json"
    with FileLock(run_directory / "servers.lock"):
        if not urls.exists():
            urls.write_bytes(_start(run_directory))
    return SharedServers(**json.loads(urls.read_bytes()))


def _start(run_directory: Path) -> bytes:
    with (run_directory / LIFELINE).open("rb") as lifeline, (run_directory / "servers.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.shared"],
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=REPOSITORY,
            start_new_session=True,  # Ctrl-C is for the run, whose end is the servers' end
        )
    _started.append(process)
    assert process.stdout is not None
    with process.stdout as stdout:
        line = stdout.readline()
    assert line, f"the shared servers did not start:\n{(run_directory / 'servers.log').read_text('utf-8')}"
    return line


async def main() -> None:
    # Not above: every pytest process imports this module, and one process runs the servers.
    from starlette.applications import Starlette

    from playhead.servers.audio import AudioServerOptions
    from playhead.servers.audio.audio_server import serve
    from playhead.servers.http import bind, serve_app
    from tests.servers.household import household_server
    from tests.servers.mixed import mixed_server

    async with trio.open_nursery() as nursery:

        async def open_app(app: Starlette) -> str:
            sock = bind("127.0.0.1", 0)
            await nursery.start(serve_app, app, sock)
            return f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"

        audio = AudioServerOptions(mixer="memory", transport="http", port=0)
        servers = SharedServers(
            audio=await nursery.start(serve, audio),
            mixed=await open_app(mixed_server().streamable_http_app()),
            home=await open_app(household_server().streamable_http_app()),
        )
        os.write(1, json.dumps(asdict(servers)).encode() + b"\n")
        await trio.lowlevel.wait_readable(0)  # readable at its end: nobody writes to it
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
