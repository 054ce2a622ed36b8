"""Questions of a server for the user, in both protocol eras."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from trio.testing import MockClock

from playhead.client import Question, Reply, connect
from playhead.client.session.elicitation import Elicitor, RefusedError, handlers, question_of, with_defaults
from playhead.errors import DeadlineError, LimitError, ProtocolError, ServerError, UsageError
from playhead.limits import Limits
from tests.servers.raw_http import Exchange, raw_http

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "loud": {"type": "boolean", "default": False},
        "stations": {"type": "array", "default": ["one", "two"]},
        "hostile": {"type": "object", "default": {"deep": {}}},
        "none": 3,
    },
    "required": ["name"],
}
FORM = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": SCHEMA}}


class Taste(BaseModel):
    genre: str
    volume: int = 30


def asking_server() -> MCPServer:
    server: MCPServer = MCPServer("asks", log_level="CRITICAL")

    @server.tool()
    async def choose(context: Context) -> str:
        answer = await context.elicit("What do you like?", Taste)
        return f"{answer.action} {getattr(answer, 'data', None)}"

    return server


async def likes_jazz(question: Question) -> Reply:
    assert question.message == "What do you like?"
    assert question.required == {"genre"}
    assert set(question.fields) == {"genre", "volume"}
    return Reply(action="accept", content={"genre": "jazz"})


@pytest.mark.requirement("MCP-34")
async def test_an_accepted_answer_reaches_the_tool_with_the_defaults_of_what_was_left_out() -> None:
    async with connect(asking_server(), mode="legacy", on_elicitation=likes_jazz) as session:
        assert (await session.call_tool("choose")).text == "accept genre='jazz' volume=30"


@pytest.mark.requirement("MCP-34")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_is_sent_without_content(action: Any) -> None:
    async def refuse(question: Question) -> Reply:
        return Reply(action=action, content={"genre": "not to be sent"})

    async with connect(asking_server(), mode="legacy", on_elicitation=refuse) as session:
        assert (await session.call_tool("choose")).text == f"{action} None"


@pytest.mark.requirement("MCP-35")
async def test_without_a_handler_the_server_learns_that_nobody_can_answer() -> None:
    async with connect(asking_server(), mode="legacy") as session:
        with pytest.raises(ServerError, match="Elicitation not supported"):
            await session.call_tool("choose")


async def test_time_that_the_user_takes_does_not_count_as_silence_of_the_server(
    autojump_clock: MockClock,
) -> None:
    async def slow(question: Question) -> Reply:
        await trio.sleep(300)
        return Reply(action="accept", content={"genre": "slow"})

    async with connect(asking_server(), mode="legacy", on_elicitation=slow) as session:
        assert "slow" in (await session.call_tool("choose", timeout=20)).text


async def test_a_user_who_never_answers_ends_with_the_calls_total(autojump_clock: MockClock) -> None:
    cancelled = trio.Event()

    async def never(question: Question) -> Reply:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    limits = Limits(tool_total_seconds=100)
    async with connect(asking_server(), mode="legacy", limits=limits, on_elicitation=never) as session:
        with pytest.raises(DeadlineError):
            await session.call_tool("choose", timeout=20)
        await cancelled.wait()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_exception_of_the_handler_propagates_from_the_session(mode: str) -> None:
    async def breaks(question: Question) -> Reply:
        raise KeyError("mine")

    async def ask(exchange: Exchange) -> None:
        await exchange.result({"resultType": "input_required", "inputRequests": {"a": FORM}})

    async with raw_http(ask) as server:
        target: Any = asking_server() if mode == "legacy" else server.url
        with pytest.raises(KeyError, match="mine"):
            async with connect(target, mode=mode, on_elicitation=breaks) as session:
                await session.call_tool("choose")


# --- rounds, since 2026-07-28 ------------------------------------------------------------------------


@pytest.mark.requirement("MCP-34")
async def test_a_call_that_needs_input_is_sent_again_with_the_answers_and_the_very_state() -> None:
    sent: list[dict[str, Any]] = []

    async def handle(exchange: Exchange) -> None:
        if exchange.method != "tools/call":
            await exchange.error(-32601, "no")
            return
        sent.append(exchange.message)
        if len(sent) == 1:
            again = {
                "resultType": "input_required",
                "requestState": '{"a": 1 }',
                "inputRequests": {"q": FORM},
            }
            await exchange.result(again)
        elif len(sent) == 2:
            await exchange.result({"resultType": "input_required", "requestState": "next"})
        else:
            await exchange.result({"content": [{"type": "text", "text": "done"}]})

    async def answer(question: Question) -> Reply:
        return Reply(action="accept", content={"name": "Ada"})

    async with (
        raw_http(handle) as server,
        connect(server.url, mode="2026-07-28", on_elicitation=answer) as session,
    ):
        assert (await session.call_tool("x", {"k": 1})).text == "done"
    first, second, third = (message["params"] for message in sent)
    assert "inputResponses" not in first
    assert "requestState" not in first
    content = {"name": "Ada", "loud": False, "stations": ["one", "two"]}
    assert second["inputResponses"] == {"q": {"action": "accept", "content": content}}
    assert second["requestState"] == '{"a": 1 }'
    assert (third["requestState"], "inputResponses" in third) == ("next", False)
    assert [message["arguments"] for message in (first, second, third)] == [{"k": 1}] * 3
    assert len({message["id"] for message in sent}) == 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"inputRequests": {"q": FORM}}, LimitError),
        ({"inputRequests": {str(number): FORM for number in range(1025)}}, LimitError),
        ({"inputRequests": {"q": {"method": "roots/list"}}}, ProtocolError),
        ({"inputRequests": {"q": {"method": "nonsense"}}}, ProtocolError),
        ({}, ProtocolError),
    ],
    ids=["without end", "too many", "not offered", "unknown", "nothing"],
)
async def test_a_server_that_asks_for_what_it_may_not_fails_its_call(
    answer: dict[str, object], expected: type[Exception]
) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result({"resultType": "input_required", **answer})

    async with (
        raw_http(handle) as server,
        connect(server.url, mode="2026-07-28", on_elicitation=agree) as session,
    ):
        with pytest.raises(expected):
            await session.call_tool("x")


async def agree(question: Question) -> Reply:
    return Reply(action="accept", content={"name": "Ada"})


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "a stream"])
async def test_prompts_and_reads_that_need_input_are_sent_again_too(method: str) -> None:
    sent: list[dict[str, Any]] = []
    answers: dict[str, dict[str, Any]] = {
        "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "done"}}]},
        "resources/read": {"contents": [{"uri": "x:y", "blob": "ZG9uZQ=="}]},
    }

    async def handle(exchange: Exchange) -> None:
        if exchange.method not in answers:
            await exchange.error(-32601, "no")
            return
        sent.append(exchange.message["params"])
        if "inputResponses" in sent[-1]:
            await exchange.result(answers[exchange.method])
        else:
            await exchange.result(
                {"resultType": "input_required", "inputRequests": {"q": FORM}, "requestState": "s"}
            )

    async with (
        raw_http(handle) as server,
        connect(server.url, mode="2026-07-28", on_elicitation=agree) as session,
    ):
        if method == "prompts/get":
            prompt = await session.get_prompt("p", {"k": "v"})
            assert prompt.messages[0].text == "done"
            assert sent[1]["arguments"] == {"k": "v"}
        elif method == "resources/read":
            assert (await session.read_resource("x:y")).blobs == ("ZG9uZQ==",)
        else:
            async with session.open("x:y") as stream:
                assert await stream.receive_some() == b"done"
    assert sent[1]["requestState"] == "s"
    assert sent[1]["inputResponses"]["q"]["action"] == "accept"


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "a stream"])
async def test_input_that_nobody_can_give_is_a_protocol_error(method: str) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result({"resultType": "input_required", "inputRequests": {"q": FORM}})

    async with raw_http(handle) as server, connect(server.url, mode="2026-07-28") as session:

        async def read() -> None:
            match method:
                case "prompts/get":
                    await session.get_prompt("p")
                case "resources/read":
                    await session.read_resource("x:y")
                case _:
                    async with session.open("x:y") as stream:
                        await stream.receive_some()

        with pytest.raises(ProtocolError, match="elicitation/create in the middle of"):
            await read()


# --- a server's own requests -------------------------------------------------------------------------


def test_without_a_function_nothing_is_offered() -> None:
    assert handlers(None) == {}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": 3, "requestedSchema": {}},
        {"message": "Who?"},
        {"message": "Who?", "requestedSchema": []},
        {"message": "Who?", "mode": "url", "requestedSchema": {}},
        {"message": "Who?", "mode": "dance", "requestedSchema": {}},
        {"mode": "url", "url": "https://pay.example/"},
    ],
)
async def test_an_invalid_question_is_refused_and_nobody_is_asked(params: dict[str, Any]) -> None:
    async def never(question: Question) -> Reply:
        raise AssertionError(question)

    async with trio.open_nursery() as nursery:
        table = handlers(Elicitor(never, nursery=nursery, server="s"))
        with pytest.raises(RefusedError, match="Invalid request parameters") as refused:
            await table["elicitation/create"](params)
        assert refused.value.code == -32602


async def test_an_answer_goes_back_as_the_protocol_says() -> None:
    async with trio.open_nursery() as nursery:
        table = handlers(Elicitor(agree, nursery=nursery, server="s"))
        page = {"mode": "url", "message": "Pay", "url": "https://pay.example/"}
        assert await table["elicitation/create"](page) == {"action": "accept"}
        form = {"mode": "form", "message": "Who?", "requestedSchema": SCHEMA}
        answer = await table["elicitation/create"](form)
        assert answer == {
            "action": "accept",
            "content": {"name": "Ada", "loud": False, "stations": ["one", "two"]},
        }


# --- the question and the reply ----------------------------------------------------------------------


def test_a_question_contains_only_fields_that_can_be_shown() -> None:
    question = question_of({"message": "Who?", "requestedSchema": SCHEMA}, server="s")
    assert (question.message, question.server, question.url) == ("Who?", "s", None)
    assert sorted(question.fields) == ["hostile", "loud", "name", "stations"]
    assert question.required == {"name"}


def test_an_invalid_default_is_left_out() -> None:
    question = question_of({"message": "", "requestedSchema": SCHEMA}, server="s")
    reply = with_defaults(Reply(action="accept", content={"name": "n", "loud": True}), question)
    assert reply.content == {"name": "n", "loud": True, "stations": ["one", "two"]}


def test_an_accepted_reply_without_a_required_field_is_the_callers_fault() -> None:
    question = question_of({"message": "", "requestedSchema": SCHEMA}, server="s")
    with pytest.raises(UsageError, match="without name"):
        with_defaults(Reply(action="accept"), question)


def test_a_page_to_open_is_shown_whole_and_answered_without_content() -> None:
    params = {"mode": "url", "message": "Pay", "url": "https://pay.example/?id=1", "elicitationId": "e"}
    question = question_of(params, server="s")
    assert (question.url, question.fields) == ("https://pay.example/?id=1", {})
    assert with_defaults(Reply(action="accept"), question).content == {}


async def test_the_first_call_waits_until_the_servers_own_stream_is_settled() -> None:
    called = trio.Event()
    called_before: list[bool] = []

    async def handle(exchange: Exchange) -> None:
        called.set()
        await exchange.result({"content": []})

    async def greet(exchange: Exchange) -> bool:
        if exchange.verb == "GET":
            with trio.move_on_after(0.3):  # far less than the call would wait
                await called.wait()
            called_before.append(called.is_set())
        return await server.handshake(exchange)

    async with raw_http(handle, session="s") as server:
        server.greet = greet
        async with connect(server.url, mode="legacy", on_elicitation=likes_jazz) as session:
            await session.call_tool("choose")
    assert called_before == [False]
