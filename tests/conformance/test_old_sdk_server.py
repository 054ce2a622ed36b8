"""Our client against the WebSocket server of the SDK's first major version: an independent peer."""

from __future__ import annotations

import pytest
import trio

from playhead import connect
from playhead.errors import ConnectError, DeadlineError, ServerError, UpgradeRefusedError
from tests.conformance.old_sdk import needs_old_sdk, old_server

pytestmark = [needs_old_sdk, pytest.mark.slow("programs of another Python environment")]


async def test_every_kind_of_request_is_answered_by_a_real_old_server() -> None:
    async with old_server() as url:
        async with connect(url) as session:
            assert session.protocol_version == "2025-11-25"
            assert session.server_info is not None
            assert session.server_info.name == "old"
            assert [tool.name for tool in await session.list_tools()] == ["add", "wait", "fail"]
            assert (await session.call_tool("add", {"a": 2, "b": 40})).text == "42"
            failed = await session.call_tool("fail", {})
            assert failed.is_error
            assert "out of tape" in failed.text
            assert [prompt.name for prompt in await session.list_prompts()] == ["greet"]
            assert (await session.get_prompt("greet", {"name": "Ada"})).messages[0].text.endswith("Ada")
            async with session.open("note://big") as stream:
                assert b"".join([chunk async for chunk in stream]) == bytes(range(256)) * 4096
            with pytest.raises(ServerError):
                await session.read_resource("note://none")

            # Given up after the last sign of life, and the session goes on.
            with pytest.raises(DeadlineError):
                await session.call_tool("wait", {}, timeout=0.2)
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(session.call_tool, "add", {"a": number, "b": number})
            assert session.statistics().reconnects == 0

        async with connect(url, mode="legacy") as session:
            assert (await session.call_tool("add", {"a": 1, "b": 1})).text == "2"

        with pytest.raises(ConnectError, match="HTTP 403") as caught:
            async with connect(url.replace("/mcp", "/elsewhere")):
                pass
        assert not isinstance(caught.value, UpgradeRefusedError)
