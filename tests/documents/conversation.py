"""A conversation with a server in which nearly every kind of message is said, and every one is heard."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as types
import trio
from mcp import Client
from mcp.client import ClientRequestContext, Transport
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from pydantic import FileUrl

Streams = tuple[Any, Any]
MODES = ("legacy", "auto")


@asynccontextmanager
async def in_memory(server: Server[Any]) -> AsyncIterator[Streams]:
    """A transport to `server` in this process."""
    async with create_client_server_memory_streams() as (mine, (read, write)), trio.open_nursery() as nursery:
        nursery.start_soon(server.run, read, write, server.create_initialization_options())
        yield mine
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def tapped(transport: AbstractAsyncContextManager[Streams], heard: list[str]) -> AsyncIterator[Streams]:
    """`transport`, whose messages of both directions are added to `heard` as they go over the wire."""
    async with (
        transport as (read, write),
        create_client_server_memory_streams() as (mine, (sent, received)),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_pass_on, sent, write, heard)
        nursery.start_soon(_pass_on, read, received, heard)
        yield mine
        nursery.cancel_scope.cancel()


async def _pass_on(read: Any, write: Any, heard: list[str]) -> None:
    async for message in read:
        if isinstance(message, SessionMessage):
            heard.append(wire(message))
        await write.send(message)


def wire(message: SessionMessage) -> str:
    return message.message.model_dump_json(by_alias=True, exclude_unset=True)


async def talk(transport: Transport, *, mode: str) -> None:
    """Everything that the SDK's client can ask."""
    progressed: list[float] = []

    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada", "loud": False})

    async def sample(
        context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        said = types.TextContent(type="text", text="It.")
        return types.CreateMessageResult(role="assistant", content=said, model="none", stop_reason="endTurn")

    async def roots(context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///music"), name="Music")])

    async def log(params: object) -> None: ...

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        progressed.append(progress)

    client = Client(
        transport,
        mode=mode,
        elicitation_callback=answer,
        sampling_callback=sample,
        list_roots_callback=roots,
        logging_callback=log,
        cache=None,
    )
    async with client:
        if mode == "legacy":
            await ask_old(client)
        tools = await client.list_tools()
        await client.list_tools(cursor=tools.next_cursor)
        await client.call_tool("everything", {})
        await client.call_tool("progress", {}, progress_callback=progress)
        assert progressed == [1]
        await client.call_tool("ask", {})
        await client.call_tool("fail", {"a": 1})
        await client.list_resources()
        await client.list_resource_templates()
        await client.read_resource("x://song")
        await client.list_prompts()
        await client.get_prompt("sing", {"topic": "sea"})
        reference = types.PromptReference(type="ref/prompt", name="sing")
        await client.complete(reference, {"name": "topic", "value": "se"}, {"key": "major"})
        for failing in (client.call_tool("none", {}), client.read_resource("x://none")):
            try:
                await failing
            except MCPError:
                continue
            raise AssertionError("an error was expected")
        with trio.CancelScope() as scope:

            async def leave(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            await client.call_tool("hang", {}, progress_callback=leave)
        if mode != "legacy":
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("changed", {})
                async for _ in changes:
                    break


async def ask_old(client: Client) -> None:
    """Requests that later versions dropped; the client's own methods would warn."""
    for request in (
        types.PingRequest(),
        types.SubscribeRequest(params=types.SubscribeRequestParams(uri="x://song")),
        types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri="x://song")),
    ):
        await client.session.send_request(request, types.EmptyResult)


FIRST_CLIENT: tuple[dict[str, Any], ...] = (
    {
        "id": "a",
        "method": "initialize",
        "params": {
            "protocolVersion": "2024-11-05",
            "capabilities": {"roots": {"listChanged": True}, "experimental": {"x": {"y": 1}}},
            "clientInfo": {"name": "first", "version": "1"},
        },
    },
    {"method": "initialized"},
    {"method": "notifications/initialized", "params": {}},
    {"id": "b", "method": "tools/list", "params": {}},
    {"id": "c", "method": "tools/call", "params": {"name": "everything", "arguments": {}}},
    {"id": 4, "method": "ping"},
    {"id": 5, "method": "logging/setLevel", "params": {"level": "info"}},
    {"id": 6, "method": "resources/read", "params": {"uri": "x://none"}},
    {"id": 7, "method": "prompts/get", "params": {"name": "sing", "arguments": {"topic": "sea"}}},
    {"id": 8, "method": "completion/complete", "params": {
        "ref": {"type": "ref/resource", "uri": "x://{name}"}, "argument": {"name": "name", "value": "so"}}},
    {"method": "notifications/roots/list_changed"},
)  # fmt: skip
"""A client of the first version, written by hand: string ids, and the bare `initialized`."""


async def say(streams: Streams, messages: Iterable[Mapping[str, Any]]) -> None:
    """Messages as they are, one after another; each request until its answer."""
    read, write = streams
    for said in messages:
        message = types.jsonrpc_message_adapter.validate_json(json.dumps({"jsonrpc": "2.0", **said}))
        await write.send(SessionMessage(message))
        while "id" in said and json.loads(wire(await read.receive())).get("id") != said["id"]:
            pass


async def conversation(
    connect: Callable[[], AbstractAsyncContextManager[Streams]],
    first_client: Iterable[Mapping[str, Any]],
    talk: Callable[..., Awaitable[None]],
) -> list[str]:
    """All three conversations with a server, each over its own connection; one JSON message an item."""
    heard: list[str] = []
    async with tapped(connect(), heard) as streams:
        await say(streams, first_client)
    for mode in MODES:
        await talk(tapped(connect(), heard), mode=mode)
    return heard


async def whole_conversation(server: Server[Any]) -> list[str]:
    return await conversation(partial(in_memory, server), FIRST_CLIENT, talk)
