"""A user's own code around the turn, the model call, the tool call and the listing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from playhead.agent.agent import Agent, run_turn
from playhead.agent.conversation import ReplyPiece, TextPiece, ToolCall, ToolSpec
from playhead.agent.events import Event, TextComplete
from playhead.agent.middleware import (
    CallNext,
    Context,
    Hooks,
    ListNext,
    MiddlewareContext,
    Next,
    ReadNext,
    TurnHandle,
    TurnParams,
    TurnResult,
)
from playhead.agent.scripted_model import ScriptedModel, call, reply
from playhead.agent.tool_runner import CallOutcome
from playhead.errors import ModelError, TransportError
from playhead.stream.source import Playable
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.loop_kit import (
    Gate,
    NotingPlayer,
    Tools,
    assert_requests_whole,
    assert_whole,
    done,
    echo,
    middleware,
    once,
    results_of,
    retrying,
    shape,
    silent,
    user,
)

Wrap = Callable[[Next], Next]


def noting(notes: list[Any], name: str) -> Callable[[MiddlewareContext], Wrap]:
    async def ask(next: Next, context: Context, params: TurnParams) -> TurnResult:
        notes.append((name, context.depth))
        return await next(context, params)

    def composed(api: MiddlewareContext) -> Wrap:
        notes.append(f"{name} composed")
        return middleware(ask)(api)

    return composed


async def test_the_chain_is_composed_once_and_entered_again_at_the_loop_with_the_depth() -> None:
    notes: list[Any] = []
    around = Hooks(turn=[noting(notes, "turn")], model=[noting(notes, "outer"), noting(notes, "inner")])
    model = ScriptedModel([reply(call("t")), reply(call("t")), reply("ok")])
    await run_turn(model, Tools({"t": echo}), [user("go")], middlewares=around)
    assert sorted(note for note in notes if isinstance(note, str)) == [
        "inner composed",
        "outer composed",
        "turn composed",
    ]
    assert [note for note in notes if isinstance(note, tuple)] == [
        ("turn", 0),
        ("outer", 0),
        ("inner", 0),
        ("outer", 1),
        ("inner", 1),
        ("outer", 2),
        ("inner", 2),
    ]


async def test_a_plain_sequence_is_around_each_model_call() -> None:
    notes: list[Any] = []
    model = ScriptedModel([reply(call("t")), reply("ok")])
    await run_turn(model, Tools({"t": echo}), [user("go")], middlewares=[noting(notes, "m")])
    assert notes[1:] == [("m", 0), ("m", 1)]


async def test_a_model_middleware_changes_the_request_and_the_pieces() -> None:
    @middleware
    async def shouting(next: Next, context: Context, params: TurnParams) -> TurnResult:
        async def on_piece(piece: ReplyPiece) -> None:
            if isinstance(piece, TextPiece):
                piece = TextPiece(text=piece.text.upper())
            await context.on_piece(piece)

        asked = replace(params.request, system=params.request.system + "!")
        return await next(replace(context, on_piece=on_piece), TurnParams(request=asked))

    events: list[Event] = []
    model = ScriptedModel([reply("hello")])
    await run_turn(model, None, [user("hi")], system="Hey", middlewares=[shouting], on_event=events.append)
    assert model.requests[0].system == "Hey!"
    assert [event.text for event in events if isinstance(event, TextComplete)] == ["HELLO"]


async def test_a_middleware_that_retries_has_one_reply_told_and_every_call_answered() -> None:
    events: list[Event] = []
    lost = TransportError("the connection was lost")
    model = ScriptedModel(
        [reply("Hel", call("t", {"n": 1}), lost), reply("Hello", call("t", {"n": 2})), reply("ok")]
    )
    result = await run_turn(
        model, Tools({"t": echo}), [user("hi")], middlewares=[retrying], on_event=events.append
    )
    assert [event.text for event in events if isinstance(event, TextComplete)] == ["Hello", "ok"]
    # The first try's call ran: the model must know of it.
    assert sorted(each.text for each in results_of(result.messages)) == ["t:1", "t:2"]
    assert_whole(result.messages)
    assert_requests_whole(model)


async def test_a_call_middleware_may_change_refuse_and_answer_calls() -> None:
    @middleware
    async def gatekeeper(next: CallNext, context: Context, made: ToolCall) -> CallOutcome:
        n = (made.arguments or {})["n"]
        if n == 1:
            return done(made, "from the cache")
        if n == 2:
            raise ModelError("not today", provider="us")
        return await next(context, replace(made, arguments={"n": n * 10}))

    tools = Tools({"t": echo})
    model = ScriptedModel([reply(*(call("t", {"n": n}) for n in (1, 2, 3))), reply("ok")])
    result = await run_turn(model, tools, [user("hi")], middlewares=Hooks(call=[gatekeeper]))
    assert [(each.text, each.status) for each in results_of(result.messages)] == [
        ("from the cache", "done"),
        ("The call failed: not today", "error"),
        ("t:30", "done"),
    ]
    assert tools.finished == ["call_3"]


async def test_a_list_middleware_decides_what_can_be_called() -> None:
    @middleware
    async def hiding(next: ListNext, context: Context, nothing: None) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in await next(context, nothing) if spec.name != "secret")

    tools = Tools({"t": echo, "secret": echo})
    model = ScriptedModel([reply(call("secret"), call("t")), reply("ok")])
    result = await run_turn(model, tools, [user("hi")], middlewares=Hooks(list=[hiding]))
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["t"], ["t"]]
    assert [each.status for each in results_of(result.messages)] == ["unknown", "done"]


async def test_a_turn_middleware_sees_every_piece_and_the_whole_result() -> None:
    pieces: list[ReplyPiece] = []
    seen: list[TurnResult] = []

    @middleware
    async def watching(next: Next, context: Context, params: TurnParams) -> TurnResult:
        async def on_piece(piece: ReplyPiece) -> None:
            pieces.append(piece)

        seen.append(await next(replace(context, on_piece=on_piece), params))
        return seen[0]

    model = ScriptedModel([reply("a", call("t")), reply("b")])
    result = await run_turn(model, Tools({"t": echo}), [user("hi")], middlewares=Hooks(turn=[watching]))
    assert [piece.text for piece in pieces if isinstance(piece, TextPiece)] == ["a", "b"]
    assert seen == [result]


@pytest.mark.parametrize("where", ["turn", "model", "list"])
async def test_what_a_middleware_raises_ends_the_turn_as_it_is(where: str) -> None:
    calls = 0

    @middleware
    async def broken(next: Any, context: Context, params: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2 or where == "turn":
            raise ZeroDivisionError
        return await next(context, params)

    events: list[Event] = []
    tools = Tools({"t": echo})
    model = ScriptedModel([reply(call("t"))])
    agent = Agent(model, tools, middlewares=Hooks(**{where: [broken]}), on_event=events.append)
    with pytest.raises(ZeroDivisionError):
        await agent.say("go")
    assert shape(events)[-1] == "error"
    assert_whole(agent.messages)
    assert len(results_of(agent.messages)) == (0 if where == "turn" else 1)


async def test_a_calls_cancellation_passes_through_its_middlewares() -> None:
    ends: list[str] = []

    @middleware
    async def noticing(next: CallNext, context: Context, made: ToolCall) -> CallOutcome:
        try:
            return await next(context, made)
        except trio.Cancelled:
            ends.append("cancelled")
            raise

    hang = Gate()
    agent = Agent(
        ScriptedModel([reply(call("hang"))]), Tools({"hang": hang}), middlewares=Hooks(call=[noticing])
    )
    async with once(hang.reached, agent.abort):
        await agent.say("go")
    assert ends == ["cancelled"]


async def test_a_read_middleware_decides_what_the_player_reads() -> None:
    @middleware
    async def quieter(next: ReadNext, context: Context, media: Playable) -> Playable:
        given = await next(context, media)
        return ScriptedMedia(reader=ScriptedReader(b""), title=f"{given.title}, quieter")

    async def sing(made: ToolCall) -> CallOutcome:
        return done(made, "ok", media=(ScriptedMedia(reader=ScriptedReader(b""), title="A"),))

    model = ScriptedModel([reply(call("sing")), reply("ok")])
    around, player = Hooks(read=[quieter]), NotingPlayer()
    await run_turn(model, Tools({"sing": sing}), [user("go")], middlewares=around, player=player)
    assert player.got == [("play", ["A, quieter"])]


async def test_calls_that_only_the_final_message_has_run_too() -> None:
    """A model or middleware that gives no `CallReady`."""

    model = ScriptedModel([reply(call("t", {"n": 1}), call("t", {"n": 2})), reply("ok")])
    result = await run_turn(model, Tools({"t": echo}), [user("go")], middlewares=[silent])
    assert [each.text for each in results_of(result.messages)] == ["t:1", "t:2"]
    # The same, where the turn ends as the first of them is told: the second never started.
    turn = TurnHandle()

    async def on_event(event: Event) -> None:
        if event.type == "mcp_tool_in_progress":
            turn.abort()
        await trio.lowlevel.checkpoint()

    model = ScriptedModel([reply(call("t"), call("t"))])
    tools = Tools({"t": echo})
    result = await run_turn(model, tools, [user("go")], middlewares=[silent], on_event=on_event, turn=turn)
    assert_whole(result.messages)
    assert [each.status for each in results_of(result.messages)] == ["cancelled", "cancelled"]
    assert tools.finished == []
