"""Servers as processes: started, found, restarted when they die, and never left behind."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from playhead.testing.links import Link, slow_command, slow_tcp

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 30.0


def server_command(module: str, *options: object) -> list[str]:
    """The command line of a module of this package; it is found whatever the working directory."""
    path = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})"
    start = f"{path}; from tests.servers.{module} import main; main()"
    return [sys.executable, "-c", start, *(str(option) for option in options)]


def pages_command(transport: str, *options: object) -> list[str]:
    return server_command("pages", "--transport", transport, *options)


@asynccontextmanager
async def behind_link(link: Link, transport: str, command: Sequence[str]) -> AsyncIterator[str | list[str]]:
    """Return the target of a server (`stdio` or `http`) that is reached through `link`."""
    if transport == "stdio":
        yield slow_command(link, command)
        return
    async with http_process(command) as url:
        place = re.search(r"//([^/:]+):(\d+)/", url)
        assert place is not None
        async with slow_tcp(link, host=place.group(1), port=int(place.group(2))) as port:
            yield f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def http_process(command: Sequence[str], *, restart: bool = False) -> AsyncIterator[str]:
    """Run a server that prints its URL as the first line of stdout; yields the URL.

    With `restart`, a server that dies is followed by one on the same port (`--port N`), which stood by from
    the beginning (`--standby`): what is tested is a server that comes back, not how long Python takes.
    The process is killed on the way out, cancelled or not.
    """
    async with trio.open_nursery() as nursery:
        process, url = await _start(command)
        if restart:
            port = re.search(r":(\d+)/", url)
            assert port is not None, f"no port in {url}"
            await nursery.start(_supervise, process, [*command, "--port", port.group(1)])
        else:
            nursery.start_soon(_hold, process)
        try:
            yield url
        finally:
            nursery.cancel_scope.cancel()


async def _start(command: Sequence[str]) -> tuple[trio.Process, str]:
    process = await _open(command)
    try:
        return process, await _first_line(process)
    except BaseException:  # cancelled, or without a line: nobody else would end the process
        process.kill()
        raise


async def _open(command: Sequence[str]) -> trio.Process:
    return await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def _first_line(process: trio.Process) -> str:
    assert process.stdout is not None
    line = b""
    with trio.fail_after(START_SECONDS):
        while not line.endswith(b"\n"):
            chunk = await process.stdout.receive_some(1024)
            assert chunk, f"the server ended before it said anything: {process.args!r}"
            line += chunk
    return line.decode("ascii").split()[0]


@asynccontextmanager
async def _killed_at_the_end(process: trio.Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


async def _hold(process: trio.Process) -> None:
    async with _killed_at_the_end(process):
        await trio.sleep_forever()


async def _supervise(
    process: trio.Process, command: Sequence[str], *, task_status: trio.TaskStatus[None]
) -> None:
    async with _killed_at_the_end(process):
        spare = await _open([*command, "--standby"])
        async with _killed_at_the_end(spare):
            assert await _first_line(spare) == "ready"
            task_status.started()
            await process.wait()
            assert spare.stdin is not None
            await spare.stdin.send_all(b"\n")
            await trio.sleep_forever()
