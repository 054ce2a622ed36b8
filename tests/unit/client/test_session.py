"""Sessions with real servers in this process, and with one written by hand for what no SDK would send."""

from __future__ import annotations

import base64
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import AudioContent, BlobResourceContents, EmbeddedResource, ResourceLink, TextContent
from trio.testing import MockClock

from playhead.client import BytesMedia, ResourceMedia, connect
from playhead.client.session.connection import Connection
from playhead.config.servers import ServerConfig
from playhead.content import UnknownBlock
from playhead.errors import (
    BlockedAddressError,
    ClosedError,
    ConfigError,
    LimitError,
    ProtocolError,
    UsageError,
)
from playhead.limits import Limits
from playhead.servers.http import base_url
from playhead.stream.source import Playable
from playhead.stream.strategies import ResourceRequest
from tests.servers.loopback import app_server
from tests.servers.raw_http import Exchange, raw_http

MODES = ["auto", "legacy", "2026-07-28"]
DATA = bytes(range(256)) * 100


def sample_server() -> MCPServer:
    server: MCPServer = MCPServer("sample", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:  # no thread: the jumping clock would not wait for one
        return a + b

    @server.tool()
    def mixed() -> list[TextContent | ResourceLink | AudioContent | EmbeddedResource]:
        held = base64.b64encode(DATA).decode()
        blob = BlobResourceContents(uri="x:blob", mime_type="audio/flac", blob=held)
        return [
            TextContent(type="text", text="here:"),
            ResourceLink(
                type="resource_link", uri="resource://data", name="data", mime_type="audio/mpeg", size=9
            ),
            AudioContent(type="audio", data=held, mime_type="audio/wav"),
            EmbeddedResource(type="resource", resource=blob),
        ]

    @server.tool()
    async def slow(context: Context) -> str:
        for step in range(8):
            await trio.sleep(50)
            await context.report_progress(step, 8)
        return "done"

    @server.resource("resource://data{?start,end}")
    def data(start: int = 0, end: int = len(DATA)) -> bytes:
        return DATA[start:end]

    return server


@pytest.mark.requirement("MCP-20", "MCP-25", "MCP-32", "MCP-38")
@pytest.mark.parametrize("mode", MODES)
async def test_both_eras_give_the_same_answers(mode: str) -> None:
    async with connect(sample_server(), mode=mode) as session:
        assert session.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        result = await session.call_tool("add", {"a": 1, "b": 2})
        assert (result.text, result.is_error, result.raw["structuredContent"]) == ("3", False, {"result": 3})
        assert [tool.name for tool in await session.list_tools()] == ["add", "mixed", "slow"]
        templates = await session.list_resource_templates()
        assert [template.uri_template for template in templates] == ["resource://data{?start,end}"]
        assert await session.list_resources() == []
        page = await session.read_range(ResourceRequest(uri="resource://data?start=3&end=6"))
        assert page.blobs == ("AwQF",)


@pytest.mark.requirement("MCP-28", "MCP-32")
@pytest.mark.parametrize("mode", MODES)
async def test_a_links_bytes_come_in_ranges(mode: str) -> None:
    async with connect(sample_server(), mode=mode) as session:
        (link,) = (await session.call_tool("mixed")).links
        async with link.open() as stream:
            assert await stream.read_all() == DATA
            assert stream.statistics().strategy == "uri-template"


@pytest.mark.requirement("MCP-27")
async def test_media_keep_their_order_and_hold_their_bytes() -> None:
    async with connect(sample_server()) as session:
        result = await session.call_tool("mixed")
        assert [type(item) for item in result.media] == [ResourceMedia, BytesMedia, BytesMedia]
        assert [item.mime_type for item in result.media] == ["audio/mpeg", "audio/wav", "audio/flac"]
        assert [item.size_bytes for item in result.media] == [9, len(DATA), len(DATA)]
        for item in result.media[1:]:
            assert isinstance(item, Playable)
            async with item.open() as stream:
                assert await stream.read_all() == DATA


async def test_a_held_block_past_the_limit_is_refused_before_decoding() -> None:
    async with connect(sample_server(), limits=Limits(block_bytes=1000)) as session:
        with pytest.raises(LimitError) as caught:
            async with (await session.call_tool("mixed")).resources[1].open():
                raise AssertionError("opened")
        assert caught.value.limit == "block_bytes"


@pytest.mark.requirement("TR-02", "TR-03", "TR-04")
async def test_unknown_and_invalid_blocks_fail_nothing_and_are_kept_raw() -> None:
    blocks: list[object] = [
        {"type": "text", "text": "a", "foo": {"deep": 1}, "annotations": {"priority": 1, "zzz": 2}},
        {"type": "hologram", "data": [1]},
        {"type": "resource_link", "name": "no uri"},
        "no object",
        {"type": 7},
        {"type": "text", "text": "b"},
    ]
    raw = {"content": blocks, "isError": True, "extra": None}

    async def handle(exchange: Exchange) -> None:
        await exchange.result(raw)

    async with raw_http(handle) as server, connect(server.url) as session:
        result = await session.call_tool("x")
        assert result.raw == raw
        assert result.is_error
        assert result.text == "a\nb"
        assert result.blocks[0].raw == blocks[0]
        kinds = [block.content.kind for block in result.blocks if isinstance(block.content, UnknownBlock)]
        assert kinds == ["hologram", "resource_link", "", ""]
        assert "tools/list" not in server.methods


@pytest.mark.requirement("MCP-41")
@pytest.mark.parametrize(
    "raw", [{}, {"content": "x"}, {"content": None}, {"resultType": "input_required", "content": []}]
)
async def test_an_invalid_result_is_a_protocol_error(raw: dict[str, object]) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result(raw)

    async with raw_http(handle) as server, connect(server.url) as session:
        with pytest.raises(ProtocolError):
            await session.call_tool("x")


async def test_too_many_blocks_are_refused() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result({"content": [{}] * 11, "contents": [{"uri": "x", "blob": ""}] * 11})

    async with raw_http(handle) as server, connect(server.url, limits=Limits(result_items=10)) as session:
        with pytest.raises(LimitError):
            await session.call_tool("x")
        with pytest.raises(LimitError):
            await session.read_resource("x:")


@pytest.mark.requirement("MCP-31")
async def test_arguments_and_meta_of_a_ranged_read_reach_the_wire() -> None:
    seen: list[dict[str, object]] = []

    async def handle(exchange: Exchange) -> None:
        seen.append(exchange.message["params"])
        await exchange.result({"contents": [{"uri": "x:", "blob": "eHh4", "mimeType": "a/b"}, {"text": "t"}]})

    async with raw_http(handle) as server, connect(server.url) as session:
        request = ResourceRequest(uri="x:", arguments={"url": "u", "start": 0}, meta={"range": {"start": 0}})
        page = await session.read_range(request)
    assert (page.blobs, page.text_items, page.mime_type) == (("eHh4",), 1, "a/b")
    assert seen[0]["arguments"] == {"url": "u", "start": 0}
    assert seen[0]["_meta"] == {"range": {"start": 0}}


async def test_a_listing_that_never_ends_is_cut() -> None:
    pages = 0

    async def handle(exchange: Exchange) -> None:
        nonlocal pages
        pages += 1
        await exchange.result(
            {"tools": [{"name": "t", "inputSchema": {}}, {"bad": 1}], "nextCursor": str(pages)}
        )

    limits = Limits(listing_pages=5)
    async with raw_http(handle) as server, connect(server.url, limits=limits) as session:
        with pytest.raises(LimitError) as caught:
            await session.list_tools()
        assert (caught.value.limit, pages) == ("listing_pages", 5)


@pytest.mark.requirement("MCP-05", "MCP-15")
async def test_progress_extends_a_call_and_reaches_the_caller(autojump_clock: MockClock) -> None:
    steps: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async with connect(sample_server()) as session:
        result = await session.call_tool("slow", on_progress=note)
        assert result.text == "done"
        assert len(steps) == 8


@pytest.mark.requirement("MCP-12")
async def test_cancelling_a_call_reaches_the_server() -> None:
    entered, cancelled = trio.Event(), trio.Event()
    server: MCPServer = MCPServer("waits", log_level="CRITICAL")

    @server.tool()
    async def wait() -> str:
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        return ""

    async with connect(server) as session:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.call_tool, "wait")
            await entered.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            await cancelled.wait()


async def test_an_error_in_the_body_propagates_unchanged() -> None:
    with pytest.raises(KeyError):
        async with connect(sample_server()):
            raise KeyError("mine")
    with pytest.raises(ExceptionGroup, match="mine") as caught:
        async with connect(sample_server()):
            raise ExceptionGroup("mine", [KeyError("one")])
    assert isinstance(caught.value.exceptions[0], KeyError)


async def test_a_session_cannot_be_used_after_its_context() -> None:
    async with connect(sample_server()) as session:
        pass
    with pytest.raises(ClosedError):
        await session.call_tool("add")


async def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        async with connect(sample_server()) as session:
            assert (await session.call_tool("add", {"a": 1, "b": 2})).text == "3"
        del session
        assert not [each for each in gc.get_objects() if isinstance(each, Connection)]
    finally:
        gc.enable()


async def test_an_invalid_target_mode_or_timeout_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="auto, legacy"):
        async with connect(sample_server(), mode="2025-11-25"):
            raise AssertionError("connected")
    async with connect(sample_server()) as session:
        with pytest.raises(UsageError):
            await session.read_resource("x:", timeout=-1)
    targets: list[Any] = [[], None, 5, Path("server.py")]
    for target in targets:
        with pytest.raises(ConfigError, match=r"give the program|expected a name of the servers file"):
            async with connect(target):
                raise AssertionError("connected")


# --- links to the web --------------------------------------------------------------------------------


@asynccontextmanager
async def origin() -> AsyncIterator[str]:
    """A web server that honours ranges of `DATA`."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        asked = dict(scope["headers"])[b"range"].decode().removeprefix("bytes=")
        start, end = (int(part) for part in asked.split("-"))
        part = DATA[start : end + 1]
        said = f"bytes {start}-{start + len(part) - 1}/{len(DATA)}" if part else f"bytes */{len(DATA)}"
        headers = [(b"content-range", said.encode()), (b"content-length", str(len(part)).encode())]
        await send({"type": "http.response.start", "status": 206 if part else 416, "headers": headers})
        await send({"type": "http.response.body", "body": part})

    async with app_server(app) as sock:
        yield base_url(sock)


async def answer_nothing(exchange: Exchange) -> None:
    await exchange.error(-32601, "Method not found")


async def test_a_link_to_the_web_is_read_from_its_origin_where_that_is_allowed() -> None:
    async with origin() as url, raw_http(answer_nothing) as server:
        async with (
            connect(ServerConfig(url=server.url, allow_origins=(url,))) as session,
            session.open(f"{url}/music") as stream,
        ):
            assert await stream.read_all() == DATA
            assert stream.statistics().strategy == "http-range"
        assert "resources/read" not in server.methods


@pytest.mark.requirement("MCP-40")
async def test_a_link_to_a_private_address_is_not_followed() -> None:
    async with origin() as url, raw_http(answer_nothing) as server, connect(server.url) as session:
        with pytest.raises(BlockedAddressError):
            async with session.open(f"{url}/music") as stream:
                await stream.read_all()


async def test_invalid_capabilities_are_an_error_for_those_who_read_them() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result({"content": [{"type": "text", "text": "owls"}]})

    async with raw_http(handle) as raw:
        raw.capabilities = {"tools": 3}
        async with connect(raw.url, mode="legacy") as session:
            assert (await session.call_tool("x")).text == "owls"
            with pytest.raises(ProtocolError, match="invalid capabilities"):
                _ = session.capabilities
