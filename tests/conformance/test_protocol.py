"""Requirements of MCP for a client that no other test covers, against scripted servers."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from playhead.client import connect
from playhead.errors import ConnectError, DeadlineError
from playhead.limits import Limits
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.scripted_stdio import scripted_stdio

HANDSHAKES = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


async def nothing(exchange: Exchange) -> None:
    await exchange.error(-32601, "Method not found")


def chooses(version: str) -> Any:
    """A greeting that settles on `version` whatever the client asks for."""

    async def greet(exchange: Exchange) -> bool:
        if exchange.method == "initialize":
            info = {"name": "raw", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            await exchange.result(result)
        elif exchange.verb == "POST" and "id" not in exchange.message:
            await exchange.raw(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        elif exchange.verb != "POST":
            await exchange.body(b"", status=405)
        else:
            return False
        return True

    return greet


# --- lifecycle ---------------------------------------------------------------------------------------


@pytest.mark.requirement("MCP-01")
async def test_initialized_is_sent_after_the_answer_and_before_anything_else() -> None:
    async with raw_http(nothing) as server:
        server.greet = chooses("2025-11-25")
        async with connect(server.url, mode="legacy"):
            pass
    posts = [method for method in server.methods if method]
    assert posts[:2] == ["initialize", "notifications/initialized"]


@pytest.mark.requirement("MCP-02")
@pytest.mark.parametrize("version", HANDSHAKES)
async def test_a_session_works_in_the_revision_that_the_server_chooses(version: str) -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.method == "tools/call":
            await exchange.result({"content": [{"type": "text", "text": "done"}]})
        else:
            await nothing(exchange)

    async with raw_http(answer) as server:
        server.greet = chooses(version)
        async with connect(server.url, mode="legacy") as session:
            assert session.protocol_version == version
            assert (await session.call_tool("x")).text == "done"


@pytest.mark.requirement("MCP-03")
async def test_a_revision_that_nobody_knows_is_named_and_the_server_left() -> None:
    async with raw_http(nothing) as server:
        server.greet = chooses("1999-12-31")
        with pytest.raises(ConnectError, match="1999-12-31"):
            async with connect(server.url, mode="legacy"):
                raise AssertionError("connected")
    assert "notifications/initialized" not in server.methods


@pytest.mark.requirement("MCP-13")
async def test_an_initialize_that_runs_out_of_time_is_not_cancelled_on_the_wire(
    mock_clock: trio.testing.MockClock,
) -> None:
    async def never(exchange: Exchange) -> bool:
        mock_clock.jump(10)
        mock_clock.rate = 1  # what is done after the deadline takes its time
        await trio.sleep_forever()
        raise AssertionError

    async with raw_http(nothing) as server:
        server.greet = never
        with pytest.raises(ConnectError, match="handshake"):
            async with connect(server.url, mode="legacy", limits=Limits(handshake_seconds=10)):
                raise AssertionError("connected")
    assert server.methods == ["initialize"]


# --- listings ----------------------------------------------------------------------------------------


@pytest.mark.requirement("MCP-18", "MCP-19")
async def test_pages_of_any_size_are_followed_by_cursors_that_are_handed_back_as_they_came() -> None:
    cursors = ["", " =&?\u00e9\u266b", '{"page": 3}', "x" * 5000]
    sizes = [2, 0, 1, 3, 0]
    asked: list[object] = []

    async def page(exchange: Exchange) -> None:
        if exchange.method != "tools/list":
            await nothing(exchange)
            return
        number = len(asked)
        asked.append((exchange.message.get("params") or {}).get("cursor"))
        tools = [{"name": f"{number}.{each}", "inputSchema": {}} for each in range(sizes[number])]
        more = {"nextCursor": cursors[number]} if number < len(cursors) else {}
        await exchange.result({"tools": tools, **more})

    async with raw_http(page) as server, connect(server.url, mode="legacy") as session:
        names = [tool.name for tool in await session.list_tools()]
    assert names == ["0.0", "0.1", "2.0", "3.0", "3.1", "3.2"]
    assert asked == [None, *cursors]


# --- late words --------------------------------------------------------------------------------------

LATE = """
first, second = take("tools/call"), take("tools/call")
token = first["params"]["_meta"]["progressToken"]
say(method="notifications/progress", params={"progressToken": token, "progress": 1})
say(id=first["id"], result={"content": [{"type": "text", "text": "too late"}]})
say(method="notifications/progress", params={"progressToken": token, "progress": 2})
say(id=second["id"], result={"content": [{"type": "text", "text": "in time"}]})
take()
"""


@pytest.mark.requirement("MCP-14", "MCP-16")
async def test_an_answer_and_progress_that_come_after_the_end_of_a_request_reach_nobody() -> None:
    told: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with connect(scripted_stdio(LATE), mode="legacy") as session:
        with pytest.raises(DeadlineError):
            await session.call_tool("x", timeout=0.2, on_progress=note)
        assert (await session.call_tool("x", on_progress=note)).text == "in time"
    assert told == []


# --- streams -----------------------------------------------------------------------------------------


@pytest.mark.requirement("MCP-10")
async def test_a_stream_that_ends_before_its_answer_is_resumed_from_its_last_event() -> None:
    waiting: list[object] = []
    resumed: list[str] = []

    def events(text: str) -> bytes:
        return (
            b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + text.encode()
        )

    async def answer(exchange: Exchange) -> None:
        if exchange.method != "tools/call":
            await nothing(exchange)
            return
        waiting.append(exchange.message["id"])
        await exchange.raw(events("id: event-1\nretry: 20\ndata: \n\n"))
        exchange.closed = True

    async def greet(exchange: Exchange) -> bool:
        if exchange.verb == "GET" and "last-event-id" in exchange.headers:
            resumed.append(exchange.headers["last-event-id"])
            result = '{"content": [{"type": "text", "text": "whole"}]}'
            message = f'{{"jsonrpc": "2.0", "id": {waiting[0]}, "result": {result}}}'
            await exchange.raw(events(f"id: event-2\ndata: {message}\n\n"))
            exchange.closed = True
            return True
        return await server.handshake(exchange)

    async with raw_http(answer, session="s") as server:
        server.greet = greet
        async with connect(server.url, mode="legacy") as session:
            assert (await session.call_tool("x")).text == "whole"
    assert resumed == ["event-1"]


# --- blocks ------------------------------------------------------------------------------------------


@pytest.mark.requirement("MCP-29", "MCP-30", "TR-01")
async def test_embedded_text_and_blobs_and_all_annotations_are_taken() -> None:
    notes = {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}
    contents: list[dict[str, Any]] = [
        {"type": "text", "text": "t"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "x:l", "name": "l"},
        {"type": "resource", "resource": {"uri": "x:t", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "x:b", "blob": "AAEC"}},
    ]

    async def answer(exchange: Exchange) -> None:
        if exchange.method == "tools/call":
            marked = [{**block, "annotations": notes, "_meta": {"k": 1}} for block in contents]
            await exchange.result({"content": marked})
        else:
            await nothing(exchange)

    async with raw_http(answer) as server, connect(server.url, mode="legacy") as session:
        blocks = (await session.call_tool("x")).blocks
    assert [block.findings for block in blocks] == [()] * 6
    for block in blocks:
        content: Any = block.content
        assert content.annotations.model_dump(by_alias=True, mode="json", exclude_none=True) == notes
        assert content.meta == {"k": 1}
    inner: list[Any] = [block.content for block in blocks[4:]]
    assert (inner[0].resource.text, inner[1].resource.blob) == ("inside", "AAEC")
