"""Time to save a file from its origin, compared with `curl` and eight ranges at once.

The origin delays each answer, and so does the MCP server that authorises the download. `curl` writes eight
parts and does not join them; playhead writes one file, and compares its digest.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from benches.board import Board, Comparison
from playhead.client import ResourceMedia, Session, connect
from playhead.config.servers import ServerConfig
from playhead.content.types import FileValue
from playhead.limits import MIB
from playhead.stream.options import StreamOptions
from tests.servers.payload import Payload
from tests.servers.raw_http import Exchange, raw_http

ROUNDS = 9
RANGES = 8
DELAY_SECONDS = 0.1
AT_MOST = 1.2
HANDLE = "mcp-file://bench"
BASELINE = f"curl, {RANGES} ranges"
AUTHORIZE = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "files/authorizeDownload", "params": {"uri": HANDLE}}
)


@asynccontextmanager
async def origin(size_bytes: int) -> AsyncIterator[str]:
    command = [sys.executable, "-m", "benches.file_origin", str(size_bytes), str(DELAY_SECONDS)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.receive_some())}"
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            await process.stdout.aclose()


async def with_curl(url: str, size_bytes: int, folder: Path, *, authorizes_at: str | None) -> float:
    started = time.perf_counter()
    if authorizes_at is not None:
        command = ["curl", "-sS", "-H", "content-type: application/json", "-d", AUTHORIZE, authorizes_at]
        process = await trio.run_process(command, capture_stdout=True)
        url = json.loads(process.stdout)["result"]["download"]["url"]
    step = -(-size_bytes // RANGES)
    command = [
        "curl",
        "-sS",
        "--no-progress-meter",
        "-Z",
        "--parallel-immediate",
        "--parallel-max",
        str(RANGES),
    ]
    for part in range(RANGES):
        last = min((part + 1) * step, size_bytes) - 1
        command += ["-r", f"{part * step}-{last}", "-o", str(folder / f"part{part}"), url]
        command += ["--next", "-sS"] if part < RANGES - 1 else []
    await trio.run_process(command)
    spent = time.perf_counter() - started
    assert sum((folder / f"part{part}").stat().st_size for part in range(RANGES)) == size_bytes
    return spent


async def with_ours(session: Session, media: ResourceMedia, folder: Path) -> float:
    started = time.perf_counter()
    async with session.open(media, options=StreamOptions(profile="save")) as stream:
        saving = await stream.save(folder / "file")
    spent = time.perf_counter() - started
    assert saving.bytes == media.size_bytes
    return spent


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("form", ["file", "http-range"])
async def test_file_download(form: str, board: Board, smoke: bool, tmp_path: Path) -> None:
    size_bytes = (1 if smoke else 32) * MIB
    url = ""

    async def answer(exchange: Exchange) -> None:
        if exchange.method != "files/authorizeDownload":
            await exchange.error(-32601, "Method not found")
            return
        await trio.sleep(DELAY_SECONDS)
        download = {"transport": "https", "method": "GET", "url": url}
        await exchange.result({"file": {"uri": HANDLE}, "download": download})

    spent: dict[str, list[float]] = {"ours": [], BASELINE: []}
    async with origin(size_bytes) as base, raw_http(answer) as server:
        url = f"{base}/file"
        config = ServerConfig(url=server.url, allow_origins=(base,))
        async with connect(config) as session:
            digest = {"sha-256": Payload(size_bytes=size_bytes).sha256()}
            media = ResourceMedia(
                uri=HANDLE if form == "file" else url,
                title="file",
                size_bytes=size_bytes,
                file=FileValue(uri=HANDLE, digest=digest) if form == "file" else None,
                streams=session,
            )
            for _ in range(board.rounds(ROUNDS)):
                authorizes_at = server.url if form == "file" else None
                spent[BASELINE].append(
                    await with_curl(url, size_bytes, tmp_path, authorizes_at=authorizes_at)
                )
                spent["ours"].append(await with_ours(session, media, tmp_path))
    board.add(
        Comparison(
            name=f"file download, {form}, {DELAY_SECONDS * 1000:.0f} ms a request",
            unit="s",
            baseline_name=BASELINE,
            ours=spent["ours"],
            baseline=spent[BASELINE],
            at_most=AT_MOST,
            notes={"size_bytes": size_bytes},
        )
    )
