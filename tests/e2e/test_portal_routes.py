"""The streaming routes of docs/asyncio.md under load: complete bodies are exact, and nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import psutil
import pytest

from playhead.limits import MIB
from tests.servers.loopback import free_port
from tests.snippets import DOCS, blocks

pytest.importorskip("fastapi", reason="needs fastapi")
pytest.importorskip("aiohttp", reason="needs aiohttp")

pytestmark = pytest.mark.slow("200 requests to a web server in a process of its own")

SONG = Path(__file__).parents[2] / "python/playhead/servers/audio/music/first-light.mp3"
REQUESTS, AT_ONCE = 200, 20
COMMANDS = {
    "fastapi": ("uvicorn", "route:app", "--host", "127.0.0.1", "--no-access-log", "--port"),
    "aiohttp": ("aiohttp.web", "route:application", "-H", "127.0.0.1", "-P"),
}


@asynccontextmanager
async def serving(framework: str, folder: Path) -> AsyncIterator[tuple[int, psutil.Process]]:
    """The program of the page, run as the page says; its port and process."""
    (code,) = (
        block.code for block in blocks(DOCS / "asyncio.md") if f"from {framework} import" in block.code
    )
    (folder / "route.py").write_text(code)
    port = free_port()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", *COMMANDS[framework], str(port)),
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        while b"running on" not in (line := await process.stdout.readline()).lower():
            assert line, "the server ended"
        drain = asyncio.create_task(process.stdout.read())  # aiohttp prints a line for each answer
        yield port, psutil.Process(process.pid)
        process.terminate()
        await drain
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def fetch(port: int, *, cancel_after: int | None) -> bytes | None:
    """The body of one answer; None if it was left after some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /music HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        assert b"transfer-encoding: chunked" in head.lower()
        if cancel_after is not None:
            await reader.readexactly(cancel_after)
            return None
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        return body
    finally:
        writer.close()


@pytest.mark.parametrize("framework", ["fastapi", "aiohttp"])
def test_a_route_of_the_page_streams_each_body_whole_though_clients_leave(
    framework: str, tmp_path: Path
) -> None:
    async def main() -> tuple[list[bytes | None], int]:
        async with serving(framework, tmp_path) as (port, process):
            places = asyncio.Semaphore(AT_ONCE)
            bodies: list[bytes | None] = []
            after_20 = 0

            async def ask(number: int) -> None:
                nonlocal after_20
                async with places:
                    cancel_after = 1 + 997 * number % 60_000 if number % 3 == 2 else None
                    bodies.append(await fetch(port, cancel_after=cancel_after))
                if len(bodies) == AT_ONCE:
                    after_20 = process.memory_info().rss

            await asyncio.gather(*(ask(number) for number in range(REQUESTS)))
            return bodies, process.memory_info().rss - after_20

    bodies, growth = asyncio.run(main())
    whole = [body for body in bodies if body is not None]
    assert len(whole) == sum(number % 3 != 2 for number in range(REQUESTS))
    expected = sha256(SONG.read_bytes()).hexdigest()
    assert {sha256(body).hexdigest() for body in whole} == {expected}
    print(f"{framework}: RSS grew by {growth / MIB:.1f} MiB after the 20th answer")
    assert growth <= 15_000_000
