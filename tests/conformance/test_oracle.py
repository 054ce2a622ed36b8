"""The SDK's client as the oracle: through ours a program sees the same of a server, on each transport."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client as SdkClient
from mcp.client.stdio import StdioServerParameters
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from playhead.client import Question, Reply, Session, connect
from playhead.client.transports.sdk_websocket import websocket_transport
from playhead.errors import ServerError
from tests.servers.compared import BYTES, MODERN, NAMES, Peer
from tests.servers.counted_http import counted_http
from tests.servers.relayed_stdio import relayed_stdio
from tests.servers.served_websocket import served_websocket

pytestmark = pytest.mark.filterwarnings(
    # The SDK leaves an event stream at the answer; the libraries' inner generators go to trio's collector.
    "ignore:Async generator 'httpcore2:ResourceWarning",
    "ignore:Async generator 'httpx2:ResourceWarning",
    "ignore:.*deprecated as of 2026-07-28",
)

Json = Any


# --- the two clients -------------------------------------------------------------------------------------


Report = tuple[float, float | None, str | None]


@dataclass(kw_only=True)
class Notes:
    """Questions and reports that reached a program."""

    questions: list[str] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.reports.append((progress, total, message))


@dataclass(kw_only=True)
class Ours(Notes):
    session: Session = field(init=False)

    async def answer(self, question: Question) -> Reply:
        self.questions.append(question.message)
        return Reply(action="accept", content={"name": "Ada"})

    def about(self) -> Json:
        info, session = self.session.server_info, self.session
        return session.protocol_version, info and (info.name, info.version), bool(session.capabilities.tools)

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Json:
        try:
            result = await self.session.call_tool(name, arguments, on_progress=self.report)
        except ServerError as error:
            return error.code, error.server_message, error.data
        return [block.fields for block in result.blocks], result.is_error, result.raw.get("structuredContent")

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.session.list_tools()]

    async def read(self, uri: str) -> bytes:
        (blob,) = (await self.session.read_resource(uri)).blobs
        return base64.b64decode(str(blob))

    async def prompt(self, name: str, arguments: dict[str, str]) -> Json:
        return [(each.role, each.text) for each in (await self.session.get_prompt(name, arguments)).messages]

    async def notice_a_change(self) -> None:
        await change_until(self, self.session.tool_list_changes().receive)


@dataclass(kw_only=True)
class Sdks(Notes):
    client: SdkClient = field(init=False)
    changed: trio.Event = field(default_factory=trio.Event)

    async def answer(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.questions.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def receive(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changed.set()

    def about(self) -> Json:
        info, client = self.client.server_info, self.client
        has_tools = bool(client.server_capabilities.tools)
        return client.protocol_version, info and (info.name, info.version), has_tools

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Json:
        try:
            result = await self.client.call_tool(name, arguments, progress_callback=self.report)
        except MCPError as error:
            return error.error.code, error.error.message, error.error.data
        raw = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return raw["content"], raw.get("isError", False), result.structured_content

    async def names(self) -> list[str]:
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            if (cursor := page.next_cursor) is None:
                return names

    async def read(self, uri: str) -> bytes:
        (content,) = (await self.client.read_resource(uri)).contents
        assert isinstance(content, types.BlobResourceContents)
        return base64.b64decode(content.blob)

    async def prompt(self, name: str, arguments: dict[str, str]) -> Json:
        messages = (await self.client.get_prompt(name, arguments)).messages
        return [(each.role, getattr(each.content, "text", None)) for each in messages]

    async def notice_a_change(self) -> None:
        if self.client.protocol_version != MODERN:
            await change_until(self, self.changed.wait)
            return
        async with self.client.listen(tools_list_changed=True) as subscription:
            await change_until(self, subscription.__aiter__().__anext__)


Client = Ours | Sdks


async def change_until(client: Client, arrived: Callable[[], Awaitable[object]]) -> None:
    """Call the tool `change` until its notification has arrived: a subscription takes a moment to begin."""

    async def change() -> None:
        while True:
            await client.call("change")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await arrived()
        nursery.cancel_scope.cancel()


# --- the ways to the server ------------------------------------------------------------------------------

WAYS = ["memory", "stdio", "json", "events", "websocket"]


@asynccontextmanager
async def reachable(server: Server[Any], way: str, whose: str) -> AsyncIterator[Any]:
    """The target that either client connects to."""
    is_ours = whose == "ours"
    match way:
        case "memory":
            yield server
        case "stdio":
            async with relayed_stdio(server) as command:
                yield command if is_ours else StdioServerParameters(command=command[0], args=command[1:])
        case "websocket":
            async with served_websocket(server) as port:
                url = f"ws://127.0.0.1:{port}/mcp"
                yield url if is_ours else websocket_transport(url)
        case _:
            async with counted_http(server, json_response=way == "json") as counted:
                yield counted.url


@asynccontextmanager
async def connected(peer: Peer, way: str, whose: str, mode: str) -> AsyncIterator[Client]:
    with trio.fail_after(30):
        async with reachable(peer.server(), way, whose) as target:
            if whose == "ours":
                ours = Ours()
                async with connect(target, mode=mode, on_elicitation=ours.answer) as ours.session:
                    yield ours
            else:
                sdks = Sdks()
                async with SdkClient(
                    target,
                    mode=mode,
                    cache=None,
                    elicitation_callback=sdks.answer,
                    message_handler=sdks.receive,
                ) as sdks.client:
                    yield sdks


# --- the behaviours --------------------------------------------------------------------------------------


Behaviour = Callable[[Client, Peer, str], Awaitable[None]]


async def is_introduced(client: Client, peer: Peer, mode: str) -> None:
    revision = "2025-11-25" if mode == "legacy" else MODERN
    assert client.about() == (revision, None if mode == MODERN else ("oracle", "1"), mode != MODERN)


async def a_call_gives_every_block(client: Client, peer: Peer, mode: str) -> None:
    assert await client.call("echo", {"k": "\u00e9 \U0001f3b5"}) == (
        [
            {"type": "text", "text": "{'k': '\u00e9 \U0001f3b5'} \u2028\x00", "_meta": {"k": 1}},
            {"type": "audio", "data": BYTES, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "x:b", "blob": BYTES}},
        ],
        False,
        {"a": [1, None, 1.5]},
    )


async def errors_are_told_apart(client: Client, peer: Peer, mode: str) -> None:
    assert await client.call("fail") == ([], True, None)
    assert await client.call("none") == (-32050, "no tool none", {"reason": "none"})
    assert (await client.call("echo"))[1] is False


async def progress_arrives_and_a_log_message_disturbs_nothing(client: Client, peer: Peer, mode: str) -> None:
    assert await client.call("report") == ([{"type": "text", "text": "reported"}], False, None)
    assert client.reports[-1] == (3, 3, "step 3")  # ours leaves out those that nobody could take in time
    assert client.reports == sorted(client.reports)


async def a_cancelled_call_ends_at_the_server(client: Client, peer: Peer, mode: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call, "hang")
        await peer.started.wait()
        nursery.cancel_scope.cancel()
    await peer.cancelled.wait()
    assert (await client.call("fail"))[1] is True


async def all_pages_are_listed(client: Client, peer: Peer, mode: str) -> None:
    assert await client.names() == NAMES


async def resources_and_prompts_are_read(client: Client, peer: Peer, mode: str) -> None:
    assert await client.read("x:song") == bytes(range(40))
    assert await client.prompt("p", {"k": "v"}) == [("assistant", "p {'k': 'v'}")]


async def a_question_is_answered(client: Client, peer: Peer, mode: str) -> None:
    assert await client.call("ask") == ([{"type": "text", "text": "{'name': 'Ada'}"}], False, None)
    assert client.questions == ["Who?"]


async def what_is_not_offered_is_refused(client: Client, peer: Peer, mode: str) -> None:
    refused = [(-32600, "Sampling not supported"), (-32600, "List roots not supported")]
    expected = [*refused, (-32601, "Method not found")]
    assert await client.call("wonder") == ([{"type": "text", "text": str(expected)}], False, None)


async def a_changed_list_is_noticed(client: Client, peer: Peer, mode: str) -> None:
    await client.notice_a_change()


BEHAVIOURS = [
    is_introduced,
    a_call_gives_every_block,
    errors_are_told_apart,
    progress_arrives_and_a_log_message_disturbs_nothing,
    a_cancelled_call_ends_at_the_server,
    all_pages_are_listed,
    resources_and_prompts_are_read,
    a_question_is_answered,
    what_is_not_offered_is_refused,
    a_changed_list_is_noticed,
]


def cases() -> list[tuple[Behaviour, str, str, str]]:
    """All but what a server cannot do: report or ask where it answers in JSON, ask by itself since 2026."""
    impossible = {
        *((progress_arrives_and_a_log_message_disturbs_nothing, "json", mode) for mode in ("auto", "legacy")),
        (a_question_is_answered, "json", "legacy"),
        (what_is_not_offered_is_refused, "json", "legacy"),
        *((what_is_not_offered_is_refused, way, "auto") for way in WAYS),
    }
    return [
        (behaviour, whose, way, mode)
        for behaviour in BEHAVIOURS
        for whose in ("ours", "sdk")
        for way in WAYS
        for mode in ("auto", "legacy", *((MODERN,) if behaviour is is_introduced else ()))
        if (behaviour, way, mode) not in impossible
    ]


@pytest.mark.parametrize(
    ("behaviour", "whose", "way", "mode"), cases(), ids=lambda value: getattr(value, "__name__", value)
)
async def test_a_program_sees_the_same(behaviour: Behaviour, whose: str, way: str, mode: str) -> None:
    peer = Peer()
    async with connected(peer, way, whose, mode) as client:
        await behaviour(client, peer, mode)
