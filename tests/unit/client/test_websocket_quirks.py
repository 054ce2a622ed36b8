"""Sessions work with the quirks of WebSocket servers in the field."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx2
import pytest
import trio
import trio.testing

from playhead import Session, connect
from playhead.client.transports.websocket import WebSocketCarrier
from playhead.errors import ConnectError, ServerError, UpgradeRefusedError
from tests.carrier_driver import Driver
from tests.servers.quirky_websocket import quirky_server


async def test_a_server_of_2024_is_asked_again_for_its_revision_on_the_same_connection() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        assert session.protocol_version == "2024-11-05"
        await session.list_tools()
        assert server.methods()[:4] == [
            "server/discover",
            "initialize",
            "initialize",
            "notifications/initialized",
        ]


async def test_the_bare_notification_is_sent_once_and_the_refused_call_repeated() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        for total in (5, 6):
            result = await session.call_tool("calculator", {"operation": "add", "a": 2, "b": total - 2})
            assert result.text.endswith(f"= {total}.000000")
        assert server.methods().count("initialized") == 1
        assert server.methods().count("tools/call") == 3


async def test_calls_that_were_refused_together_are_all_repeated() -> None:
    totals: list[str] = []

    async def add(session: Session, number: int) -> None:
        result = await session.call_tool("calculator", {"operation": "add", "a": number, "b": number})
        totals.append(result.text.partition("= ")[2])

    async with quirky_server() as server, connect(server.url) as session:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(add, session, number)
        assert sorted(map(float, totals)) == [0, 2, 4, 6, 8, 10, 12, 14]
        assert server.methods().count("initialized") == 1


async def test_nothing_is_repeated_where_the_server_wants_no_greeting() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        await session.list_tools()
        assert "initialized" not in server.methods()


@pytest.mark.parametrize("revision_of_choice", ["auto", "legacy"])
async def test_the_handshake_works_in_either_mode(revision_of_choice: str) -> None:
    async with quirky_server() as server, connect(server.url, mode=revision_of_choice) as session:
        assert [tool.name for tool in await session.list_tools()] == ["calculator", "web_search"]


async def test_its_resources_are_read_though_it_knows_no_templates() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        with pytest.raises(ServerError, match="-32601"):
            await session.list_resource_templates()
        async with session.open("note://a") as stream:
            assert b"".join([chunk async for chunk in stream]) == b"a note"


async def test_ids_stay_where_a_server_of_floats_can_echo_them() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        await session.list_tools()
        ids = [request_id for _method, request_id in server.heard if request_id is not None]
        assert ids
        assert all(isinstance(request_id, int) and request_id < 2**53 for request_id in ids)


async def test_unknown_names_are_the_servers_own_errors() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        for ask, said in (
            (lambda: session.call_tool("flute", {}), "tool call failed: tool 'flute' not found"),
            (
                lambda: session.read_resource("note://b"),
                "resource read failed: resource 'note://b' not found",
            ),
            (lambda: session.get_prompt("b"), "prompt get failed: prompt 'b' not found"),
        ):
            with pytest.raises(ServerError, match=said) as caught:
                await ask()
            assert caught.value.code == -32603


async def test_a_prompt_whose_content_is_a_list_is_read_block_by_block() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        prompt = await session.get_prompt("greet")
        assert [message.text for message in prompt.messages] == ["Good\nmorning"]


async def test_an_expression_is_an_error_of_its_calculator_not_of_the_call() -> None:
    async with quirky_server() as server, connect(server.url) as session:
        result = await session.call_tool("calculator", {"expression": "2 + 3"})
        assert result.is_error
        assert result.text == "Error: operation parameter must be a string"


async def test_an_answer_behind_a_slow_one_is_waited_for() -> None:
    order: list[str] = []

    async def ask(session: Session, tool: str, arguments: Mapping[str, object]) -> None:
        await session.call_tool(tool, arguments)
        order.append(tool)

    async with quirky_server() as server, connect(server.url) as session:
        await session.call_tool("calculator", {"operation": "add", "a": 1, "b": 1})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, session, "web_search", {"query": "owls"})
            await server.searching.wait()
            nursery.start_soon(ask, session, "calculator", {"operation": "add", "a": 1, "b": 1})
            await trio.testing.wait_all_tasks_blocked()
            assert order == []
            server.found.set()
        assert order == ["web_search", "calculator"]


async def test_any_other_path_is_refused_with_the_status_it_gave() -> None:
    async with quirky_server() as server:
        url = server.url.replace("/mcp", "/elsewhere")
        with pytest.raises(UpgradeRefusedError, match=r"\(HTTP 200 OK\): is the path correct") as caught:
            async with WebSocketCarrier(url).open(Driver()):
                pass
        assert caught.value.status == 200
        with pytest.raises(ConnectError, match=r"/elsewhere did not accept the .* upgrade \(HTTP 200 OK\)"):
            async with connect(url):
                pass


async def test_its_health_is_plain_http() -> None:
    async with quirky_server() as server, httpx2.AsyncClient() as client:
        health = await client.get(server.url.replace("ws:", "http:").replace("/mcp", "/health"))
        assert json.loads(health.content)["status"] == "healthy"
