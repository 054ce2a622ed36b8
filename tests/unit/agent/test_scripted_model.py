"""The scripted model of playhead.testing: what it tells, what it notes, and how it ends."""

from __future__ import annotations

from itertools import repeat

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from playhead.agent.conversation import (
    CallReady,
    CallStarted,
    Model,
    ModelRequest,
    ReplyEnd,
    ReplyPiece,
    TextPiece,
    Thinking,
    ThinkingPiece,
    TokenUsage,
)
from playhead.agent.scripted_model import Pause, ScriptedModel, call, reply
from playhead.errors import ServerError, UsageError
from tests.loop_kit import user

REQUEST = ModelRequest(messages=(user("play it"),))


async def told_by(model: Model, request: ModelRequest = REQUEST) -> list[ReplyPiece]:
    async with model.stream(request) as pieces:
        return [piece async for piece in pieces]


async def test_parts_come_in_their_order_and_the_end_holds_them_all() -> None:
    model = ScriptedModel(
        [reply(Thinking(text="hm"), "One. ", call("a", {"n": 1}), "Two.", usage=TokenUsage(input_tokens=3))]
    )
    *pieces, end = await told_by(model)
    assert [type(piece) for piece in pieces] == [ThinkingPiece, TextPiece, CallStarted, CallReady, TextPiece]
    assert isinstance(end, ReplyEnd)
    assert end.message.text == "One. Two."
    assert [(one.id, one.name, one.arguments) for one in end.message.calls] == [("call_1", "a", {"n": 1})]
    assert (end.stop, end.usage) == ("calls", TokenUsage(input_tokens=3))
    assert model.left_early == ()


async def test_ids_that_a_script_leaves_out_are_unique_over_all_replies() -> None:
    model = ScriptedModel(repeat(reply(call("a"), call("b", id="mine"))))
    ids = [
        [piece.call.id for piece in await told_by(model) if isinstance(piece, CallReady)] for _ in range(2)
    ]
    assert ids == [["call_1", "mine"], ["call_2", "mine"]]


async def test_a_reply_ends_as_the_script_says() -> None:
    model = ScriptedModel([reply("cut o", stop="length"), reply(stop="refused", reason="SAFETY"), reply()])
    ends = [piece for _ in range(3) for piece in await told_by(model) if isinstance(piece, ReplyEnd)]
    assert [(end.stop, end.reason) for end in ends] == [("length", ""), ("refused", "SAFETY"), ("end", "")]


@pytest.mark.parametrize("written", ["{", "[1]", "nonsense", ""])
def test_arguments_that_are_no_object_stay_as_they_were_written(written: str) -> None:
    made = call("a", written)
    assert (made.arguments, made.arguments_text) == (None, written)


@given(
    text=st.text(min_size=1),
    cut=st.none() | st.integers(1, 5) | st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_any_cut_gives_the_same_text(text: str, cut: int | list[int] | None) -> None:
    async def run() -> None:
        pieces = await told_by(ScriptedModel([reply(text)], cut=cut))
        deltas = [piece.text for piece in pieces if isinstance(piece, TextPiece)]
        assert "".join(deltas) == text
        assert all(deltas)
        if isinstance(cut, int):
            assert {len(delta) for delta in deltas[:-1]} <= {cut}
        if cut is None:
            assert len(deltas) == 1

    trio.run(run)


def test_a_cut_below_one_character_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 character"):
        ScriptedModel([], cut=[2, 0])


async def test_a_callable_sees_the_request_and_every_request_is_kept() -> None:
    model = ScriptedModel([reply("first"), lambda request: reply(f"{len(request.messages)} heard")])
    await told_by(model)
    longer = ModelRequest(messages=REQUEST.messages * 3)
    assert TextPiece(text="3 heard") in await told_by(model, longer)
    assert model.requests == (REQUEST, longer)


async def test_a_script_that_is_over_says_so() -> None:
    model = ScriptedModel([reply("only")])
    await told_by(model)
    with pytest.raises(UsageError, match="expected at most 1 requests"):
        await told_by(model)


async def test_a_failure_comes_where_the_script_has_it_and_is_not_leaving_early() -> None:
    fault = ServerError("overloaded", code=529)
    model = ScriptedModel([reply(fault), reply("so far", fault)])
    with pytest.raises(ServerError):
        async with model.stream(REQUEST):
            pytest.fail("a refused request has no pieces")
    heard: list[ReplyPiece] = []

    async def listen() -> None:
        async with model.stream(REQUEST) as pieces:
            async for piece in pieces:
                heard.append(piece)

    with pytest.raises(ServerError):
        await listen()
    assert heard == [TextPiece(text="so far")]
    assert model.left_early == ()


async def test_cancelling_at_a_pause_is_noted(autojump_clock: trio.testing.MockClock) -> None:
    pause = Pause()
    model = ScriptedModel([reply("a"), reply("b", pause, "c")])
    await told_by(model)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(told_by, model)
            await pause.reached.wait()
            nursery.cancel_scope.cancel()
    assert model.left_early == (1,)


async def test_a_pause_ends_when_its_event_is_set(autojump_clock: trio.testing.MockClock) -> None:
    pause = Pause()
    model = ScriptedModel([reply("a", pause, "b")])
    heard: list[ReplyPiece] = []

    async def listen() -> None:
        heard.extend(await told_by(model))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await pause.reached.wait()
            assert heard == []
            pause.until.set()
    assert [piece.text for piece in heard if isinstance(piece, TextPiece)] == ["a", "b"]
    assert model.left_early == ()


async def test_leaving_before_the_end_is_noted_without_cancellation_too() -> None:
    model = ScriptedModel([reply("a", "b")])
    async with model.stream(REQUEST) as pieces:
        async for _ in pieces:
            break
    assert model.left_early == (0,)
