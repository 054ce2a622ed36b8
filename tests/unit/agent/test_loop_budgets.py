"""Every budget really ends a turn, with an answer, after a known number of model calls."""

from __future__ import annotations

from itertools import count, repeat
from typing import Any

import pytest
import trio

from playhead.agent.agent import run_turn
from playhead.agent.budgets import Budgets
from playhead.agent.conversation import ModelRequest, TokenUsage, ToolCall
from playhead.agent.middleware import Context, Hooks, MiddlewareContext, Next, TurnParams, TurnResult
from playhead.agent.scripted_model import ScriptedModel, ScriptedReply, call, reply
from playhead.errors import UsageError
from tests.loop_kit import Tools, assert_requests_whole, assert_whole, echo, middleware, results_of, user


def insatiable(**options: Any) -> ScriptedModel:
    """A model that calls `t` as long as it is offered, and then answers."""
    numbers = count()

    def next_reply(request: ModelRequest) -> ScriptedReply:
        if not request.tools:
            return reply("That is all I know.")
        return reply(call("t", {"n": next(numbers)}), **options)

    return ScriptedModel(repeat(next_reply))


async def run(model: ScriptedModel, budgets: Budgets | None = None, **options: Any) -> TurnResult:
    tools = options.pop("tools", None) or Tools({"t": echo})
    result = await run_turn(model, tools, [user("go")], budgets=budgets, **options)
    assert_whole(result.messages)
    assert_requests_whole(model)
    return result


def assert_last_answer(model: ScriptedModel, result: TurnResult, *, calls: int, why: str) -> None:
    """The model was called so often, the last time without tools and told why, and its answer is the end."""
    assert len(model.requests) == calls == result.rounds
    assert all(request.tools for request in model.requests[:-1])
    last = model.requests[-1]
    assert last.tools == ()
    assert last.system.endswith(
        f"No tool can be called any more in this turn: {why}. Answer the user now with what is known, and say"
        " what is missing."
    )
    assert result.reason == why
    assert result.text == "That is all I know."


async def test_ten_rounds_and_then_an_eleventh_call_without_tools() -> None:
    model = insatiable()
    tools = Tools({"t": echo})
    result = await run(model, tools=tools)
    assert result.ended_by == "depth"
    why = "this turn has used its 10 rounds of calls"
    assert_last_answer(model, result, calls=11, why=why)
    assert len(tools.finished) == 10


async def test_the_same_call_in_every_round_ends_at_the_depth_too() -> None:
    script = [*repeat(reply(call("t")), 10), reply("That is all I know.")]
    model = ScriptedModel(script)
    result = await run(model)
    assert (result.ended_by, len(model.requests)) == ("depth", 11)


@pytest.mark.parametrize("depth", [0, 1, 3])
async def test_the_depth_can_be_chosen(depth: int) -> None:
    model = insatiable()
    result = await run(model, Budgets(max_depth=depth), system="Be brief.")
    why = f"this turn has used its {depth} rounds of calls"
    assert_last_answer(model, result, calls=depth + 1, why=why)
    assert model.requests[-1].system.startswith("Be brief.\n\n")


async def test_without_bounds_only_the_model_ends_the_turn() -> None:
    free = Budgets(max_depth=None, max_calls=None, max_seconds=None, max_tokens=None, max_repeats=None)
    model = ScriptedModel([*repeat(reply(call("t")), 50), reply("done")])
    result = await run(model, free)
    assert (result.ended_by, result.rounds) == ("answer", 51)


async def test_calls_beyond_the_budget_are_not_made() -> None:
    tools = Tools({"t": echo})
    calls = [call("t", {"n": n}) for n in range(5)]
    model = ScriptedModel([reply(*calls), reply("That is all I know.")])
    result = await run(model, Budgets(max_calls=3), tools=tools)
    assert result.ended_by == "calls"
    assert_last_answer(model, result, calls=2, why="this turn has used its 3 calls")
    assert [each.status for each in results_of(result.messages)] == ["done"] * 3 + ["over_budget"] * 2
    assert len(tools.finished) == 3


async def test_calls_of_all_rounds_count() -> None:
    model = insatiable()
    result = await run(model, Budgets(max_calls=4))
    assert result.ended_by == "calls"
    assert len(model.requests) == 6  # the fifth round's call is refused


async def test_tokens_of_all_replies_count() -> None:
    model = insatiable(usage=TokenUsage(input_tokens=300, output_tokens=50))
    result = await run(model, Budgets(max_tokens=1000))
    assert result.ended_by == "tokens"
    assert_last_answer(model, result, calls=4, why="this turn has used its 1000 tokens")


async def test_the_same_call_too_often_ends_the_turn() -> None:
    script = [*repeat(reply(call("t", {"n": 1})), 4), reply("That is all I know.")]
    model = ScriptedModel(script)
    result = await run(model, Budgets(max_repeats=3))
    assert result.ended_by == "repeats"
    why = "t was called with the same arguments 3 times, the limit for one turn"
    assert_last_answer(model, result, calls=5, why=why)
    assert [each.status for each in results_of(result.messages)] == ["done"] * 3 + ["over_budget"]


async def test_calls_are_the_same_whatever_the_order_and_spelling_of_their_arguments() -> None:
    written = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{"a": 1, "b": 3}']
    model = ScriptedModel([reply(*(call("t", text) for text in written)), reply("ok")])
    result = await run(model, Budgets(max_repeats=1))
    assert [each.status for each in results_of(result.messages)] == ["done", "over_budget", "done"]


async def test_the_seconds_of_a_turn_end_it(autojump_clock: trio.testing.MockClock) -> None:
    async def slow(call: ToolCall) -> str:
        await trio.sleep(2)
        return "at last"

    model = insatiable()
    result = await run(model, Budgets(max_seconds=5), tools=Tools({"t": slow}))
    assert result.ended_by == "seconds"
    assert_last_answer(model, result, calls=4, why="this turn has used its 5 seconds")
    assert [each.status for each in results_of(result.messages)] == ["done", "done", "over_budget"]


async def test_a_call_in_the_last_answer_is_answered_and_not_made() -> None:
    tools = Tools({"t": echo})
    model = ScriptedModel(repeat(reply("I insist: ", call("t"))))
    result = await run(model, Budgets(max_depth=2), tools=tools)
    assert (result.ended_by, result.rounds, len(tools.finished)) == ("depth", 3, 2)
    assert results_of(result.messages)[-1].status == "over_budget"


async def test_a_middleware_that_reenters_by_itself_does_not_lift_the_limit() -> None:
    def greedy(api: MiddlewareContext) -> Any:
        async def ask(next: Next, context: Context, params: TurnParams) -> TurnResult:
            return await api.reenter(context, params) if not context.depth else await next(context, params)

        return middleware(ask)(api)

    model = insatiable()
    result = await run(model, middlewares=Hooks(turn=[greedy]))
    assert (result.ended_by, len(model.requests)) == ("depth", 11)


@pytest.mark.parametrize(
    "bad", [{"max_depth": -1}, {"max_seconds": float("nan")}, {"max_parallel": 0}, {"max_parallel": 2.5}]
)
def test_a_budget_that_is_no_number_of_something_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        Budgets(**bad)
