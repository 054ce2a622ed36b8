"""The proxy's hosts: each has its own session with each server, which asks only this host."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio.testing
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.message import ServerMessageMetadata

from playhead import connect
from playhead.client.session import list_changed
from playhead.client.session.backchannel import Backchannel
from playhead.client.session.elicitation import Question, RefusedError, Reply
from playhead.client.session.session import Session
from playhead.config.servers import ServerConfig
from playhead.config.tools import ApprovalPolicy, ApprovalRule
from playhead.errors import ServerError
from playhead.servers.proxy import ProxyOptions
from playhead.servers.proxy.proxy_server import open_proxy, serve

ANY = {"type": "object"}
OLD_ASKING = Path("tests/servers/old_asking.py").read_text()
FORM: Any = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def asking() -> Server[Any]:
    """Return a server whose tools ask their client, log, report progress, and change its lists."""
    sessions: dict[int, int] = {}

    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        names = ("ask", "sample", "roots", "log", "progress", "change", "counter")
        wipe = types.Tool(
            name="wipe", input_schema=ANY, annotations=types.ToolAnnotations(destructive_hint=True)
        )
        return types.ListToolsResult(tools=[wipe, *(types.Tool(name=n, input_schema=ANY) for n in names)])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> Any:
        session, related = context.session, context.request_id
        text = "done"
        if params.name == "ask" and context.protocol_version == "2026-07-28":
            return await _ask_in_result(params)
        if params.name == "ask":
            reply = await session.elicit_form("Who?", FORM, related_request_id=related)
            text = f"{reply.action} {reply.content}"
        elif params.name == "sample":
            metadata = ServerMessageMetadata(related_request_id=related)
            request = types.CreateMessageRequest(
                params=types.CreateMessageRequestParams(
                    messages=[
                        types.SamplingMessage(role="user", content=types.TextContent(type="text", text="2+2"))
                    ],
                    max_tokens=9,
                )
            )
            made = await session.send_request(request, types.CreateMessageResult, metadata=metadata)
            text = made.content.text
        elif params.name == "roots":
            metadata = ServerMessageMetadata(related_request_id=related)
            listed = await session.send_request(
                types.ListRootsRequest(), types.ListRootsResult, metadata=metadata
            )
            text = str(listed.roots[0].uri)
        elif params.name == "log":
            message = types.LoggingMessageNotificationParams(level="info", data=params.arguments)
            await session.send_notification(
                types.LoggingMessageNotification(params=message), related_request_id=related
            )
        elif params.name == "progress":
            await session.report_progress(1, 2, "half")
        elif params.name == "change":
            await session.send_tool_list_changed()
        elif params.name == "counter":
            key = id(context.lifespan_context)
            sessions[key] = sessions.get(key, 0) + 1
            text = str(sessions[key])
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def set_level(_context: object, _params: object) -> types.EmptyResult:
        return types.EmptyResult()

    server: Server[Any] = Server("asking", on_list_tools=list_tools, on_call_tool=call_tool)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    return server


async def _ask_in_result(params: types.CallToolRequestParams) -> Any:
    answers = getattr(params, "input_responses", None)
    if answers is None:
        elicit = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
        return {"resultType": "input_required", "inputRequests": {"who": elicit}, "requestState": "s1"}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"hello {params.request_state}")]
    )


class Host:
    """A host that answers, and records the questions and notifications."""

    def __init__(self, name: str = "host") -> None:
        self.name = name
        self.asked: list[str] = []
        self.notified: list[tuple[str, Mapping[str, Any]]] = []
        self.changed = trio.Event()

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(method)
        match method:
            case "elicitation/create":
                content = {"name": self.name} if "Who" in params["message"] else {"allow": True}
                return {"action": "accept", "content": content}
            case "sampling/createMessage":
                return {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"}
            case "roots/list":
                return {"roots": [{"uri": f"file:///{self.name}"}]}
        raise RefusedError(method, code=-32601)

    def note(self, method: str, params: Mapping[str, Any]) -> None:
        self.notified.append((method, params))
        if method.endswith("list_changed"):
            self.changed.set()

    def backchannel(self, **capabilities: Any) -> Backchannel:
        return Backchannel(ask=self.ask, on_notification=self.note, capabilities=capabilities)


ALL: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}


@asynccontextmanager
async def connected(
    host: Host, target: Any, mode: str = "legacy", **capabilities: Any
) -> AsyncIterator[Session]:
    async with connect(target, mode=mode, backchannel=host.backchannel(**(capabilities or ALL))) as session:
        yield session


@asynccontextmanager
async def over_http(server: Any, policy: ApprovalPolicy | None = None) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        options = ProxyOptions(transport="http", port=0)
        yield await nursery.start(partial(serve, {"asking": server}, None, options, policy=policy))
        nursery.cancel_scope.cancel()


async def test_elicitation_sampling_and_roots_pass_within_a_generation() -> None:
    host = Host("Ada")
    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions()) as proxy,
        connected(host, proxy) as session,
    ):
        assert (await session.call_tool("ask")).text == "accept {'name': 'Ada'}"
        assert (await session.call_tool("sample")).text == "4"
        assert (await session.call_tool("roots")).text == "file:///Ada"
    assert host.asked == ["elicitation/create", "sampling/createMessage", "roots/list"]


async def test_the_newest_generation_asks_in_results_and_they_pass_unread() -> None:
    async def answer(question: Question) -> Reply:
        assert question.message == "Who?"
        return Reply(action="accept", content={"name": "Ada"})

    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions()) as proxy,
        connect(proxy, mode="2026-07-28", on_elicitation=answer) as session,
    ):
        assert (await session.call_tool("ask")).text == "hello s1"


async def test_a_server_cannot_ask_a_host_without_the_capability() -> None:
    host = Host()
    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions()) as proxy,
        connect(proxy, mode="legacy") as session,
    ):
        with pytest.raises(ServerError):
            await session.call_tool("ask")
    assert not host.asked


async def test_a_question_between_the_generations_is_declined_with_a_reason() -> None:
    host = Host()
    config = ServerConfig(
        name="old", command=(sys.executable, "-m", "tests.servers.old_asking"), mode="legacy"
    )
    async with (
        open_proxy({"asking": config}, None, ProxyOptions()) as proxy,
        connected(host, proxy, "2026-07-28") as session,
    ):
        assert (
            "speaks MCP 2025-11-25, and the host a newer generation" in (await session.call_tool("ask")).text
        )
    assert not host.asked


@pytest.mark.parametrize("tool", ["ask", "roots"])
async def test_what_a_server_asks_reaches_only_the_host_that_called(tool: str) -> None:
    one, two = Host("one"), Host("two")
    async with over_http(asking()) as url, connected(one, url) as first, connected(two, url) as second:
        assert "one" in (await first.call_tool(tool)).text
        assert "two" in (await second.call_tool(tool)).text
    assert len(one.asked) == len(two.asked) == 1


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("blob", ["c29uZw==", 'x","uri":"evil', "not base64 \\"])
async def test_a_blob_passes_over_http_as_the_server_sent_it(blob: str, mode: str) -> None:
    async def read(_context: object, params: types.ReadResourceRequestParams) -> Any:
        members = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return members | {"contents": [{"uri": params.uri, "blob": blob}]}

    server: Server[Any] = Server("blobs", on_read_resource=read)
    async with over_http(server) as url, connect(url, mode=mode) as session:
        result = await session.request("resources/read", {"uri": "song://1"})
    assert result["contents"] == [{"uri": "song://1", "blob": blob}]


async def test_each_host_over_http_has_a_session_of_its_own_with_the_server() -> None:
    async with (
        over_http(asking()) as url,
        connect(url, mode="legacy") as first,
        connect(url, mode="legacy") as second,
    ):
        counts = [(await session.call_tool("counter")).text for session in (first, first, second)]
    assert counts == ["1", "2", "1"]


async def test_log_messages_pass_before_the_result_and_to_their_host_only() -> None:
    one, two = Host("one"), Host("two")
    async with over_http(asking()) as url, connected(one, url) as first, connected(two, url):
        await first.request("logging/setLevel", {"level": "debug"})
        await first.call_tool("log", {"secret": 1})
        assert [
            (method, params["data"]) for method, params in one.notified if method == "notifications/message"
        ] == [("notifications/message", {"secret": 1})]
    assert not [method for method, _ in two.notified if method == "notifications/message"]


async def test_over_stdio_a_notification_never_passes_after_the_result_that_it_preceded() -> None:
    host = Host()
    old = f"{sys.executable} -m tests.servers.old_asking"
    proxy = [sys.executable, "-m", "playhead", "serve", "proxy", old, "--sink", "none"]
    async with connected(host, proxy) as session:
        await session.request("resources/subscribe", {"uri": "song://1"})
        for count in range(1, 21):
            await session.call_tool("touch")
            assert [method for method, _ in host.notified] == ["notifications/resources/updated"] * count


@pytest.mark.parametrize("transport", ["memory", "http"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_progress_passes(transport: str, mode: str) -> None:
    reports: list[object] = []

    async def report(*values: object) -> None:
        reports.append(values)

    if transport == "http":
        async with over_http(asking()) as url, connect(url, mode=mode) as session:
            await session.call_tool("progress", on_progress=report)
    else:
        async with (
            open_proxy({"asking": asking()}, None, ProxyOptions()) as proxy,
            connect(proxy, mode=mode) as session,
        ):
            await session.call_tool("progress", on_progress=report)
    assert reports == [(1, 2, "half")]


async def test_a_changed_list_is_announced() -> None:
    host = Host()
    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions()) as proxy,
        connected(host, proxy) as session,
    ):
        assert session.capabilities.tools is not None
        assert session.capabilities.tools.list_changed
        await session.call_tool("change")
        with trio.fail_after(5):
            await host.changed.wait()


async def test_a_subscription_of_the_newest_generation_passes_changes_and_updates() -> None:
    bus = InMemorySubscriptionBus()
    listed = Server("listed", on_subscriptions_listen=ListenHandler(bus), on_list_tools=_no_tools)
    seen: list[tuple[str, Any]] = []
    arrived = trio.Event()

    def note(method: str, params: Mapping[str, Any]) -> None:
        seen.append((method.removeprefix("notifications/"), params.get("uri")))
        if len(seen) == 3:
            arrived.set()

    async def publish() -> None:
        while not seen:  # the acknowledgement
            await trio.testing.wait_all_tasks_blocked()
        await bus.publish(ToolsListChanged())
        await bus.publish(ResourceUpdated(uri="song://1"))

    back = Backchannel(ask=Host().ask, on_notification=note)
    targets = {"listed": listed, "asking": asking()}
    async with (
        open_proxy(targets, None, ProxyOptions()) as proxy,
        connect(proxy, mode="2026-07-28", backchannel=back) as session,
        trio.open_nursery() as nursery,
    ):
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["listed+song://1"]}
        nursery.start_soon(session.listen, wanted)
        nursery.start_soon(publish)
        with trio.fail_after(10):
            await arrived.wait()
        nursery.cancel_scope.cancel()
    assert seen == [
        ("subscriptions/acknowledged", None),
        ("tools/list_changed", None),
        ("resources/updated", "listed+song://1"),
    ]


async def _no_tools(_context: object, _params: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[])


async def test_a_server_that_was_down_is_listed_once_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "late.py"
    late = ServerConfig(name="late", command=(sys.executable, str(script)))
    async with (
        open_proxy({"late": late, "asking": asking()}, None, ProxyOptions()) as proxy,
        connect(proxy, mode="legacy") as session,
    ):
        assert "late__ask" not in {tool.name for tool in await session.list_tools()}
        (line,) = capsys.readouterr().err.splitlines()  # once, though each listing tries again
        assert line.startswith("playhead proxy: late: ")
        script.write_text(OLD_ASKING)
        assert "late__ask" in {tool.name for tool in await session.list_tools()}


async def test_a_server_that_dies_is_started_again_each_time() -> None:
    config = ServerConfig(name="old", command=(sys.executable, "-m", "tests.servers.old_asking"))
    async with (
        open_proxy({"old": config}, None, ProxyOptions()) as proxy,
        connect(proxy, mode="legacy") as session,
    ):
        for _death in range(2):
            with pytest.raises(ServerError, match="ended"):
                await session.call_tool("die")
            assert (await session.call_tool("echo", {"a": 1})).text == "{'a': 1}"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_subscription_is_renewed_with_a_server_that_was_lost(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_changed, "RETRY_SECONDS", (0.0,) * 5)
    updates, updated = trio.open_memory_channel[object](9)

    def note(method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/resources/updated":
            updates.send_nowait(params["uri"])

    config = ServerConfig(name="old", command=(sys.executable, "-m", "tests.servers.old_asking"))
    back = Backchannel(ask=Host().ask, on_notification=note)
    async with (
        open_proxy({"old": config}, None, ProxyOptions()) as proxy,
        connect(proxy, mode=mode, backchannel=back) as session,
        trio.open_nursery() as nursery,
    ):
        if mode == "legacy":
            await session.request("resources/subscribe", {"uri": "song://1"})
        else:
            nursery.start_soon(session.listen, {"resourceSubscriptions": ["song://1"]})
        with trio.fail_after(20):
            while not updated.statistics().current_buffer_used:  # a `listen` is acknowledged later
                await session.call_tool("touch")
            await trio.testing.wait_all_tasks_blocked(0.05)
            while updated.statistics().current_buffer_used:
                assert await updated.receive() == "song://1"
            with pytest.raises(ServerError, match="ended"):
                await session.call_tool("die")
            assert await updated.receive() == "song://1"  # it may have changed meanwhile
            await session.call_tool("touch")
            assert await updated.receive() == "song://1"
        if mode == "legacy":
            await session.request("resources/unsubscribe", {"uri": "song://1"})
            await session.call_tool("touch")
            assert not updated.statistics().current_buffer_used
            with pytest.raises(ServerError, match="no such song"):
                await session.request("resources/subscribe", {"uri": "song://missing"})
        nursery.cancel_scope.cancel()


# --- approvals -------------------------------------------------------------------------------------------

ASK = ApprovalPolicy(
    rules=(ApprovalRule(action="ask", tool="log"), ApprovalRule(action="deny", tool="roots"))
)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_rule_asks_the_hosts_user(mode: str) -> None:
    questions: list[Question] = []
    allow = True

    async def answer(question: Question) -> Reply:
        questions.append(question)
        return Reply(action="accept", content={"allow": allow})

    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions(), policy=ASK) as proxy,
        connect(proxy, mode=mode, on_elicitation=answer) as session,
    ):
        assert (await session.call_tool("log", {"song": "So\u202eWhat"})).text == "done"
        allow = False
        refused = await session.call_tool("log")
        assert (refused.is_error, refused.errors) == (True, ("declined by the user",))
    assert questions[0].message == 'Allow log of asking with {"song": "So\\u{202E}What"}?'
    assert len(questions) == 2


async def test_a_rule_that_asks_refuses_where_the_host_cannot_ask_and_names_the_remedy() -> None:
    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions(), policy=ASK) as proxy,
        connect(proxy, mode="legacy") as session,
    ):
        refused = await session.call_tool("log")
        assert refused.is_error
        assert 'put { server = "asking", tool = "log", action = "allow" } first' in refused.errors[0]
        denied = await session.call_tool("roots")
        assert denied.errors == ("not allowed: a rule of the user denies this tool",)


async def test_a_destructive_tool_asks_by_default() -> None:
    host = Host()
    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions()) as proxy,
        connected(host, proxy) as session,
    ):
        assert (await session.call_tool("wipe")).text == "done"
        assert (await session.call_tool("change")).text == "done"
    assert host.asked == ["elicitation/create"]


async def test_an_answer_counts_for_the_arguments_that_were_asked_about_and_once() -> None:
    async with (
        open_proxy({"asking": asking()}, None, ProxyOptions(), policy=ASK) as proxy,
        connect(proxy, mode="2026-07-28", backchannel=Host().backchannel(**ALL)) as session,
    ):
        asked = (await session.call_tool("log", {"a": 1}, members={})).raw
        answer = {
            "requestState": asked["requestState"],
            "inputResponses": {"playhead/approval": {"action": "accept", "content": {"allow": True}}},
        }
        assert (await session.call_tool("log", {"a": 2}, members=answer)).is_error
        assert (await session.call_tool("log", {"a": 1}, members=answer)).is_error
        asked = (await session.call_tool("log", {"a": 1}, members={})).raw
        answer["requestState"] = asked["requestState"]
        assert (await session.call_tool("log", {"a": 1}, members=answer)).text == "done"
        assert (await session.call_tool("log", {"a": 1}, members=answer)).is_error
