"""Ids of calls are the model's, and models are careless: the history holds each once all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from playhead.agent.agent import run_turn
from playhead.agent.conversation import (
    AssistantMessage,
    CallReady,
    ModelRequest,
    Provider,
    ReplyEnd,
    ReplyPiece,
    Text,
    TokenUsage,
    ToolCall,
    ToolMessage,
)
from playhead.agent.events import Event, ToolInProgress
from playhead.agent.middleware import TurnHandle
from playhead.agent.scripted_model import Pause, ScriptedModel, call, reply
from playhead.errors import TransportError
from tests.loop_kit import Tools, assert_whole, echo, once, results_of, retrying, user


class Verbatim:
    """A model that gives messages as they are, calls first; an exception comes after the calls before it."""

    provider: Provider = "anthropic"
    name = "verbatim"

    def __init__(self, *script: Sequence[ToolCall | Exception]) -> None:
        self._script = iter(script)
        self.requests: list[ModelRequest] = []

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        self.requests.append(request)
        yield self._pieces(next(self._script, ()))

    async def _pieces(self, told: Sequence[ToolCall | Exception]) -> AsyncIterator[ReplyPiece]:
        calls = []
        for part in told:
            await trio.lowlevel.checkpoint()
            if isinstance(part, Exception):
                raise part
            calls.append(part)
            yield CallReady(call=part)
        parts = tuple(calls) or (Text(text="done"),)
        raw = tuple({"type": "tool_use", "id": call.id} for call in calls)
        message = AssistantMessage(parts=parts, provider="anthropic", raw=raw)
        yield ReplyEnd(message=message, stop="calls" if calls else "end", usage=TokenUsage())


def made(id: str, n: int) -> ToolCall:
    return ToolCall(id=id, name="t", arguments={"n": n}, arguments_text="")


async def test_calls_of_one_reply_under_one_id_or_none_get_ids_of_their_own() -> None:
    asked = [made(id_, n) for n, id_ in enumerate(("a", "a", "", "", "a_2"))]
    model = Verbatim(asked)
    events: list[Event] = []
    result = await run_turn(model, Tools({"t": echo}), [user("go")], on_event=events.append)
    assert_whole(result.messages)
    assert_whole(model.requests[1].messages)
    results = results_of(result.messages)
    assert [each.text for each in results] == ["t:0", "t:1", "t:2", "t:3", "t:4"]
    ids = [each.call_id for each in results]
    assert ids[0] == "a"
    assert all(ids)
    assert [event.tool.id for event in events if isinstance(event, ToolInProgress)] == ids
    said = result.messages[0]
    assert isinstance(said, AssistantMessage)
    assert said.raw == (), "the provider's own blocks hold the ids as they came"


async def test_ids_and_blocks_stay_as_they_came_where_nothing_is_wrong_with_them() -> None:
    result = await run_turn(Verbatim([made("a", 1), made("b", 2)]), Tools({"t": echo}), [user("go")])
    said = result.messages[0]
    assert isinstance(said, AssistantMessage)
    assert said.parts == (made("a", 1), made("b", 2))
    assert said.raw == ({"type": "tool_use", "id": "a"}, {"type": "tool_use", "id": "b"})


async def test_a_call_that_is_repeated_by_a_retry_under_its_old_id_keeps_its_own_result() -> None:
    lost = TransportError("the connection was lost")
    model = Verbatim([made("a", 1), lost], [made("a", 2)])
    result = await run_turn(model, Tools({"t": echo}), [user("go")], middlewares=[retrying])
    assert_whole(result.messages)
    said, answered = result.messages[:2]
    assert isinstance(said, AssistantMessage)
    assert isinstance(answered, ToolMessage)
    assert [(each.arguments or {})["n"] for each in said.calls] == [2, 1]
    assert [each.text for each in answered.results] == ["t:2", "t:1"]
    assert said.raw == (), "the provider's own blocks know nothing of the call before the retry"


async def test_a_reply_cut_short_after_a_retry_holds_no_text_of_the_first_attempt() -> None:
    pause = Pause()
    lost = TransportError("the connection was lost")
    model = ScriptedModel([reply("Once ", call("t"), lost), reply("Twice upon", pause)])
    turn = TurnHandle()
    async with once(pause.reached, turn.abort):
        result = await run_turn(model, Tools({"t": echo}), [user("go")], middlewares=[retrying], turn=turn)
    assert result.text == "Twice upon"
    assert_whole(result.messages)
    assert [each.status for each in results_of(result.messages)] == ["done"]
