"""Streamable HTTP against a real server: connections are reused, both answer modes and both eras work."""

from __future__ import annotations

import pytest
import trio
from mcp.server.mcpserver import MCPServer

from playhead.client import Session, connect
from playhead.client.transports.http_answers import place_of
from playhead.errors import SessionLostError
from tests.servers.counted_http import CountedServer, counted_http

pytestmark = pytest.mark.filterwarnings(
    # The SDK leaves an event stream at the answer; the libraries' inner generators go to trio's collector.
    "ignore:Async generator 'httpcore2:ResourceWarning",
    "ignore:Async generator 'httpx2:ResourceWarning",
)

IN_FLIGHT = 4


def pages_server() -> MCPServer:
    server: MCPServer = MCPServer("pages", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.resource("resource://pages{?start,end}")
    def pages(start: int = 0, end: int = 0) -> bytes:
        return b"x" * (end - start)

    return server


async def read_many(session: Session, count: int) -> None:
    for start in range(count):
        page = await session.read_resource(f"resource://pages?start={start}&end={start + 3}")
        assert page.blobs == ("eHh4",)


@pytest.mark.parametrize("json_response", [True, False], ids=["json", "sse"])
@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_a_hundred_reads_reuse_their_connections(mode: str, json_response: bool) -> None:
    async with counted_http(pages_server(), json_response=json_response) as server:
        async with connect(server.url, mode=mode) as session:
            assert session.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            async with trio.open_nursery() as nursery:
                for _ in range(IN_FLIGHT):
                    nursery.start_soon(read_many, session, 100 // IN_FLIGHT)
        # One more for the listing of templates, and in the old era one for the server's own stream.
        assert len(server.clients) <= IN_FLIGHT + 1 + (mode == "legacy")


async def serve_until(
    stop: trio.Event, json_response: bool, port: int, *, task_status: trio.TaskStatus[CountedServer]
) -> None:
    async with counted_http(pages_server(), json_response=json_response, port=port) as server:
        task_status.started(server)
        await stop.wait()


@pytest.mark.parametrize("json_response", [True, False], ids=["json", "sse"])
async def test_after_a_server_restart_reads_go_on(json_response: bool) -> None:
    async with trio.open_nursery() as outer:
        first_stop, second_stop = trio.Event(), trio.Event()
        async with trio.open_nursery() as first:
            server = await first.start(serve_until, first_stop, json_response, 0)
            manager = connect(server.url, mode="legacy")
            talk = trio.Event()
            read_on = trio.Event()

            async def converse() -> None:
                async with manager as session:
                    await read_many(session, 2)
                    talk.set()
                    await read_on.wait()
                    with pytest.raises(SessionLostError):
                        await read_many(session, 1)
                    await read_many(session, 2)
                    assert session.statistics().reconnects == 1
                second_stop.set()

            outer.start_soon(converse)
            await talk.wait()
            first_stop.set()
        # Another process of the server, as it were: same address, no memory of the session.
        port = int(server.url.split(":")[2].partition("/")[0])
        await outer.start(serve_until, second_stop, json_response, port)
        read_on.set()


def test_a_place_shows_no_userinfo_query_or_fragment() -> None:
    assert place_of("https://me:secret@host/mcp?key=secret#secret") == "https://host/mcp"
    assert place_of("http://host:port/") == "(not a URL)"
