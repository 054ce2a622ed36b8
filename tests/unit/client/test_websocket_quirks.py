"""Sessions work with the quirks of WebSocket servers in the field."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from playhead import Session, connect
from playhead.errors import ServerError
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


async def test_the_bare_notification_is_sent_once_and_the_refused_calls_are_repeated() -> None:
    totals: list[str] = []

    async def add(session: Session, number: int) -> None:
        result = await session.call_tool("calculator", {"operation": "add", "a": number, "b": number})
        totals.append(result.text.partition("= ")[2])

    async with quirky_server() as server, connect(server.url) as session:
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(add, session, number)
        assert sorted(map(float, totals)) == [0, 2, 4, 6, 8, 10, 12, 14]
        await add(session, 8)
        assert server.methods().count("initialized") == 1
        assert server.methods().count("tools/call") <= 8 + 8 + 1


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
