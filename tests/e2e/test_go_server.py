"""Against a server in another language on another SDK (mcp-go): both range forms, stdio and HTTP."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from playhead import errors
from playhead.client import connect
from playhead.stream.options import StreamOptions
from tests.servers.launch import http_process

pytestmark = [pytest.mark.needs_go, pytest.mark.slow("builds a server with the Go toolchain")]

SIZE_BYTES = 32 * 1024 * 1024


@asynccontextmanager
async def target(transport: str, binary: str, *options: str) -> AsyncIterator[str | list[str]]:
    if transport == "stdio":
        yield [binary, *options]
    else:
        async with http_process([binary, "-transport", "http", *options]) as url:
            yield url


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("strategy", ["uri-template", "arguments"])
async def test_32_mib_are_byte_exact(transport: str, strategy: str, go_pages: str, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    with trio.fail_after(120):
        async with target(transport, go_pages) as where, connect(where) as session:
            result = await session.call_tool("link")
            (link,) = result.links
            async with session.open(link, options=StreamOptions(strategy=strategy)) as stream:
                statistics = await stream.save(path)
    assert path.stat().st_size == SIZE_BYTES
    assert hashlib.sha256(path.read_bytes()).hexdigest() == result.text.strip()
    assert statistics.strategy == strategy


async def test_log_lines_between_the_answers_do_no_harm(go_pages: str, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    with trio.fail_after(60):
        async with connect([go_pages, "-chatty", "-size", "2000003"]) as session:
            result = await session.call_tool("link")
            (link,) = result.links
            async with session.open(link) as stream:
                await stream.save(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == result.text.strip()


async def test_a_tool_that_never_answers_ends_at_its_deadline_and_the_session_goes_on(go_pages: str) -> None:
    with trio.fail_after(60):
        async with connect([go_pages]) as session:
            with pytest.raises(errors.DeadlineError):
                await session.call_tool("never", timeout=0.2)
            assert (await session.call_tool("link")).links
