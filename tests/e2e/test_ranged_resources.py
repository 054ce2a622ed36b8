"""playhead reads what `ranged_resource` offers, in each form: on a server of the SDK, and on FastMCP."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
import trio
from mcp.server import MCPServer

import playhead
from playhead.limits import MIB
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_server import serve
from playhead.servers.file_downloads import FileDownloads
from playhead.servers.http import base_url
from playhead.servers.ranged_resource import ranged_resource
from playhead.stream.options import StreamOptions
from tests.conformance.gateways import PYTHON, needs_gateways
from tests.servers.loopback import app_server, started

REPOSITORY = Path(__file__).parents[2]
SONG = bytes(range(256)) * 3000 + b"end"
MUSIC = REPOSITORY / "python/playhead/servers/audio/music/first-light.mp3"
URI = "music://song.mp3"
FORMS = ("uri-template", "arguments", "query", "meta", "file", "whole")


async def assert_each_form_reads_it(url: str) -> None:
    async with playhead.connect(url) as session:
        for form in FORMS:
            options = StreamOptions(strategy=form, meta_key="playhead/range" if form == "meta" else None)
            async with session.open(URI, options=options) as stream:
                assert await stream.read_all(max_bytes=2 * len(SONG)) == SONG, form
                assert stream.statistics().strategy == form


@asynccontextmanager
async def sdk_server(song: Path) -> AsyncIterator[str]:
    """The URL of the program of docs/ranged-resources.md, in this process."""
    server, files = MCPServer("music"), FileDownloads()
    ranged_resource(server, URI, song, mime_type="audio/mpeg", files=files)
    app = server.streamable_http_app()
    app.mount(files.path, files)
    async with app_server(app) as sock:
        yield f"{base_url(sock)}/mcp"


async def test_each_form_reads_a_server_of_the_sdk_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "song.mp3").write_bytes(SONG)
    async with sdk_server(tmp_path / "song.mp3") as url:
        await assert_each_form_reads_it(url)


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_the_music_of_the_audio_server_is_read_as_a_file(transport: Literal["http", "ws"]) -> None:
    served = AudioServerOptions(transport=transport, port=0, mixer="memory")
    async with started(serve, served) as url, playhead.connect(url) as session:
        link = (await session.call_tool("musicPlayer", {"query": "first light"})).links[0]
        async with session.open(link, options=StreamOptions(strategy="file")) as stream:
            assert await stream.read_all(max_bytes=MIB) == MUSIC.read_bytes()
            assert stream.statistics().strategy == "file"


SERVE = """
import socket
import sys

import uvicorn

sock = socket.socket()
sock.bind(("127.0.0.1", 0))
sock.listen()
print(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run([sock])
"""
"""Follows a program of the page that has an `app`."""


def fastmcp_programs() -> list[str]:
    page = (REPOSITORY / "docs" / "ranged-resources.md").read_text("utf-8")
    return re.findall(r'^```python title="FastMCP"\n(.*?)^```', page, re.M | re.S)


@needs_gateways
@pytest.mark.slow("starts a FastMCP server for each program of the page")
async def test_the_programs_for_fastmcp_run_and_each_form_reads_their_resource(tmp_path: Path) -> None:
    plain, growing, with_files = fastmcp_programs()
    path = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "python")}
    start = partial(trio.run_process, cwd=tmp_path, env=path, check=True)
    await start([PYTHON, "-c", plain])
    await start([PYTHON, "-c", growing])
    (tmp_path / "song.mp3").write_bytes(SONG)
    content = with_files.replace("bytes(100_000)", "Path('song.mp3').read_bytes()")
    program = [PYTHON, "-c", f"from pathlib import Path\n{content}{SERVE}"]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(start, program, stdout=subprocess.PIPE))
        await assert_each_form_reads_it((await process.stdout.receive_some()).decode().strip())
        nursery.cancel_scope.cancel()
