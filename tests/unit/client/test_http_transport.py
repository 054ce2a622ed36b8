"""Streamable HTTP against a real server: connections are reused, both answer modes and both eras work."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from pydantic import Field

from playhead.client import Session, connect
from playhead.client.transports.http_errors import place_of
from playhead.errors import SessionLostError
from tests.servers.counted_http import CountedServer, counted_http
from tests.servers.raw_http import Exchange, raw_http

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
        # A connection whose event stream ends right after its answer is free a moment later.
        draining = 0 if json_response else IN_FLIGHT
        assert len(server.clients) <= IN_FLIGHT + draining + 1 + (mode == "legacy")


async def serve_until(
    stop: trio.Event, json_response: bool, port: int, *, task_status: trio.TaskStatus[CountedServer]
) -> None:
    async with counted_http(pages_server(), json_response=json_response, port=port) as server:
        task_status.started(server)
        await stop.wait()


@pytest.mark.requirement("MCP-09")
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


@pytest.mark.requirement("MCP-39")
async def test_a_tool_that_wants_a_parameter_in_a_header_too_is_called_after_a_look_at_its_schema() -> None:
    runs: list[str] = []
    server: MCPServer = MCPServer("headers", log_level="CRITICAL")

    @server.tool()
    def weather(city: Annotated[str, Field(json_schema_extra={"x-mcp-header": "City"})]) -> str:
        runs.append(city)
        return f"rain in {city}"

    async with (
        counted_http(server, json_response=True) as counted,
        connect(counted.url, mode="2026-07-28") as session,
    ):
        for city in ("Oslo", "Malmö"):
            assert (await session.call_tool("weather", {"city": city})).text == f"rain in {city}"
    assert runs == ["Oslo", "Malmö"]
    # A refusal, the listing and the call; then the call alone (and the templates, once).
    assert len(counted.queries) == 5


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"], ids=["straight", "redirected"])
@pytest.mark.parametrize("json_response", [True, False], ids=["json", "sse"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_key_in_the_query_reaches_the_server_and_no_log(
    mode: str, json_response: bool, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    levels = {name: logging.getLogger(name).level for name in ("httpx2", "httpcore2", "mcp")}
    async with counted_http(pages_server(), json_response=json_response) as server:
        url = server.url.removesuffix("/mcp") + f"{path}?key=hush-42&a=%20b"
        async with connect(url, mode=mode) as session:
            await read_many(session, 2)
    assert set(server.queries) == {b"key=hush-42&a=%20b"}
    assert {record.name.partition(".")[0] for record in caplog.records} >= {"httpcore2", "mcp"}
    # A server that redirects sends the key back, and httpcore2 shows every answer's headers at DEBUG.
    echoed = [line for line in caplog.text.splitlines() if "receive_response_headers.complete" in line]
    assert [line for line in caplog.text.splitlines() if "hush-42" in line and line not in echoed] == []
    assert path != "/mcp" or "hush-42" not in caplog.text
    assert {name: logging.getLogger(name).level for name in levels} == levels


def test_a_place_shows_no_userinfo_query_or_fragment() -> None:
    assert place_of("https://me:secret@host/mcp?key=secret#secret") == "https://host/mcp?key=…"
    assert place_of("http://host:port/") == "(not a URL)"


@pytest.mark.requirement("MCP-39")
async def test_behaviour_24_headers_are_learned_from_every_page_and_forgotten_with_their_mark() -> None:
    marked = {"type": "object", "properties": {"c": {"type": "string", "x-mcp-header": "City"}}}
    wrong = {"type": "object", "properties": {"c": {"type": "string", "x-mcp-header": "two words"}}}
    pages: list[dict[str, Any]] = [
        {
            "tools": [{"name": "first", "inputSchema": marked}, {"name": "bad", "inputSchema": wrong}],
            "nextCursor": "2",
        },
        {"tools": [{"name": "second", "inputSchema": marked}]},
        {"tools": [{"name": "first", "inputSchema": {"type": "object"}}]},
    ]
    seen: list[tuple[str, str | None]] = []

    async def handle(exchange: Exchange) -> None:
        match exchange.method:
            case "tools/list":
                await exchange.result(pages.pop(0))
            case "tools/call":
                called = exchange.message["params"]["name"]
                seen.append((called, exchange.headers.get("mcp-param-city")))
                await exchange.result({"content": []})
            case _:
                await exchange.error(-32601, "no")

    async with raw_http(handle) as server, connect(server.url, mode="2026-07-28") as session:
        for _ in range(2):
            assert "bad" not in [tool.name for tool in await session.list_tools()]
            for name in ("first", "second"):
                await session.call_tool(name, {"c": "Oslo"})
    assert seen == [("first", "Oslo"), ("second", "Oslo"), ("first", None), ("second", None)]
