"""`playhead play` and `read` through gateways: exact, or an error with their words and what was tried.

The gateways on the SDK are in this process, behind HTTP. FastMCP's is the real package
(`make extra NAME=gateways`).
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server import Server

from playhead.client import connect
from playhead.limits import MIB
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_server import open_audio_server
from playhead.servers.http import base_url
from tests.conformance.gateways import PYTHON, needs_gateways
from tests.e2e.command import AUDIO_SERVER, Outcome, playhead
from tests.servers.launch import http_process
from tests.servers.loopback import app_server
from tests.servers.pages import PagesServer, parser
from tests.servers.sdk_proxy import TOO_LARGE, sdk_proxy

MUSIC = Path(__file__).parents[2] / "python/playhead/servers/audio/music"
SONG = MUSIC / "first-light.mp3"
FASTMCP = Path(__file__).parents[1] / "servers" / "fastmcp_gateway.py"


@asynccontextmanager
async def served(server: Server[Any]) -> AsyncIterator[str]:
    """The URL of `server` over HTTP, in this process."""
    async with app_server(server.streamable_http_app(json_response=True)) as sock:
        yield f"{base_url(sock)}/mcp"


async def command(*arguments: str | Path) -> Outcome:
    return await trio.to_thread.run_sync(partial(playhead, *arguments))


def pages(*options: str) -> PagesServer:
    given: argparse.Namespace = parser().parse_args(options)
    return PagesServer(given)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_through_a_proxy_that_drops_arguments(tmp_path: Path) -> None:
    async with (
        open_audio_server(AudioServerOptions(mixer="memory")) as audio,
        sdk_proxy(audio) as (proxy, _),
        served(proxy) as url,
    ):
        played = await command("play", url, "musicPlayer", "query=first", "--sink", "null", "--json")
        read = await command("read", url, "musicPlayer", "query=first", "-o", tmp_path / "song", "--json")
        way = ("--json", "--strategy", "arguments")
        forced = await command("read", url, "musicPlayer", "query=first", "-o", tmp_path / "x", *way)
    assert played.code == 0, played.stderr
    assert played.json["bytes"] == SONG.stat().st_size
    assert played.json["strategy"] == "uri-template"
    assert "'resource://read_from_http{" in played.json["strategy_reason"]
    assert read.json["sha256"] == sha256(SONG)
    assert forced.code == 1
    assert "arguments (" in forced.json["error"]["message"]
    assert not (tmp_path / "x").exists()


async def test_a_proxy_that_drops_what_its_server_needs_is_an_error_with_the_servers_words() -> None:
    async with sdk_proxy(pages("--behaviour", "arguments-only").server) as (proxy, _), served(proxy) as url:
        outcome = await command("play", url, "link", "--sink", "null", "--json")
    said = outcome.json["error"]["message"]
    assert outcome.code == 1
    assert "arguments (-32602: a range is needed: start and end" in said
    assert "whole (-32602: a range is needed" in said


async def test_through_a_gateway_that_limits_its_messages(tmp_path: Path) -> None:
    inner = pages("--size", str(12 * MIB), "--wave", "--mime", "audio/wav")
    async with sdk_proxy(inner.server, message_bytes=2 * MIB) as (proxy, counts), served(proxy) as url:
        large = ("--page-size", "4MiB", "--capacity", "64MiB", "--json")
        played = await command("play", url, "link", "--sink", "null", *large)
        refused = len(counts.refused)
        read = await command("read", url, "link", "-o", tmp_path / "piece", *large)
    assert played.code == 0, played.stderr
    assert played.json["bytes"] == read.json["bytes"] == inner.script.payload.size_bytes
    assert read.json["sha256"] == inner.script.payload.sha256()
    assert refused < 16, "the pages in flight, and no other: how far they grow depends on the machine"


async def test_a_server_without_ranges_behind_a_limit_is_an_error_with_the_gateways_words() -> None:
    inner = pages("--behaviour", "ignore-range", "--size", str(2 * MIB))
    async with sdk_proxy(inner.server, message_bytes=2 * MIB) as (proxy, counts), served(proxy) as url:
        outcome = await command("play", url, "link", "--sink", "null", "--json")
    said = outcome.json["error"]["message"]
    assert outcome.code == 1
    assert f"uri-template (-32603: {TOO_LARGE})" in said
    assert "arguments (-32602" in said
    assert "whole (-32602" in said
    assert len(counts.refused) < 100


# --- FastMCP -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def audio_servers(*names: str) -> AsyncIterator[dict[str, str]]:
    """Example servers: each serves only the links that it has handed out itself."""
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        for name in names:
            server = await stack.enter_async_context(open_audio_server(AudioServerOptions(mixer="memory")))
            urls[name] = await stack.enter_async_context(served(server))
        yield urls


def fastmcp(shape: str, servers: dict[str, str], *options: str) -> str:
    named = (f"{name}={server}" for name, server in servers.items())
    return shlex.join([str(PYTHON), str(FASTMCP), shape, *named, *options])


@needs_gateways
@pytest.mark.slow("a program of another Python environment")
@pytest.mark.parametrize(
    ("shape", "names", "tool", "template"),
    [
        ("plain", ["music"], "musicPlayer", "'resource://read_from_http{"),
        ("plain", ["music", "radio"], "radio_musicPlayer", "'resource://radio/read_from_http{"),
        ("mounted", ["music", "radio"], "music_musicPlayer", "'resource://music/read_from_http{"),
    ],
    ids=["one-server", "two-servers", "namespace"],
)
async def test_an_audio_server_behind_fastmcp(
    shape: str, names: list[str], tool: str, template: str, tmp_path: Path
) -> None:
    async with audio_servers(*names) as urls:
        gateway = fastmcp(shape, urls)
        played = await command("play", gateway, tool, "query=first", "--sink", "null", "--json")
        read = await command("read", gateway, tool, "query=first", "-o", tmp_path / "song", "--json")
    assert played.code == 0, played.stderr
    assert played.json["bytes"] == SONG.stat().st_size
    assert played.json["strategy"] == "uri-template"
    assert template in played.json["strategy_reason"]
    assert read.json["sha256"] == sha256(SONG)


PIECE_SECONDS = 72.57


@needs_gateways
@pytest.mark.slow("starts a server for each request, in programs of another Python environment")
async def test_links_outlive_the_processes_that_a_gateway_of_a_gateway_starts_for_each_request() -> None:
    inner = fastmcp("plain", {"music": AUDIO_SERVER, "radio": AUDIO_SERVER})
    gateway = fastmcp("mounted", {"house": inner})
    played = await command(
        "play", gateway, "house_radio_musicPlayer", "query=first", "--sink", "null", "--json"
    )
    assert played.code == 0, played.stderr
    assert played.json["bytes"] == SONG.stat().st_size
    assert played.json["position_seconds"] == pytest.approx(PIECE_SECONDS, abs=0.01)
    assert "its server 'house/radio', which begins the name of the tool" in played.json["strategy_reason"]


@needs_gateways
@pytest.mark.slow("starts a server for each request, in programs of another Python environment")
async def test_http_in_front_of_a_stdio_server() -> None:
    async with http_process(shlex.split(fastmcp("plain", {"music": AUDIO_SERVER}, "--http"))) as url:
        played = await command("play", url, "musicPlayer", "query=first", "--sink", "null", "--json")
    assert played.code == 0, played.stderr
    assert played.json["position_seconds"] == pytest.approx(PIECE_SECONDS, abs=0.01)


@needs_gateways
@pytest.mark.needs_go
@pytest.mark.slow("builds a server with the Go toolchain, and a program of another Python environment")
@pytest.mark.parametrize(
    ("shape", "names", "tool"),
    [
        ("plain", ["pages"], "link"),
        ("plain", ["music", "pages"], "pages_link"),
        ("mounted", ["music", "pages"], "pages_link"),
    ],
    ids=["one-server", "two-servers", "namespace"],
)
async def test_an_mcp_go_server_behind_fastmcp(
    shape: str, names: list[str], tool: str, go_pages: str, tmp_path: Path
) -> None:
    async with (
        audio_servers(*(name for name in names if name != "pages")) as urls,
        http_process([go_pages, "-transport", "http", "-size", "3000017"]) as url,
    ):
        async with connect(url) as session:
            expected = (await session.call_tool("link")).text.strip()
        gateway = fastmcp(shape, {**urls, "pages": url})
        read = await command("read", gateway, tool, "-o", tmp_path / "pages", "--json")
    assert read.code == 0, read.stderr
    assert read.json["sha256"] == expected == sha256(tmp_path / "pages")
    assert read.json["strategy"] == "uri-template"
