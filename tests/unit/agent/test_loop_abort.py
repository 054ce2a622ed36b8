"""Ending a turn in the middle: nothing is left running, and the history can go on."""

from __future__ import annotations

from itertools import count

import pytest
import trio

from playhead.agent.agent import Agent, run_turn
from playhead.agent.approvals import Approval, ApprovalPolicy, ApprovalRequest, Approvals
from playhead.agent.conversation import AssistantMessage, Text, ToolCall
from playhead.agent.events import Event
from playhead.agent.middleware import TurnHandle
from playhead.agent.scripted_model import Pause, ScriptedModel, call, reply
from tests.loop_kit import (
    Gate,
    Tools,
    assert_requests_whole,
    assert_whole,
    cancelled_after,
    echo,
    once,
    results_of,
    shape,
    tasks,
    user,
)

# --- abort -----------------------------------------------------------------------------------------------


async def test_abort_while_text_streams_keeps_what_came() -> None:
    pause = Pause()
    events: list[Event] = []
    model = ScriptedModel([reply("Once upon ", pause, "a time"), reply("The end.")])
    agent = Agent(model, Tools({"t": echo}), on_event=events.append)

    async with once(pause.reached, agent.abort):
        result = await agent.say("a story")
    assert (result.ended_by, result.text, result.rounds) == ("aborted", "Once upon", 1)
    assert model.left_early == (0,)
    assert shape(events) == ["llm_response_created", "text_delta", "text_complete", "llm_response_complete"]
    assert agent.messages == (user("a story"), AssistantMessage(parts=(Text(text="Once upon"),)))
    assert (await agent.say("go on")).text == "The end."
    assert_requests_whole(model)


async def test_abort_before_anything_came_leaves_only_what_the_user_said() -> None:
    pause = Pause()
    model = ScriptedModel([reply(pause)])
    turn = TurnHandle()
    async with once(pause.reached, turn.abort):
        result = await run_turn(model, None, [user("hi")], turn=turn)
    assert (result.ended_by, result.messages) == ("aborted", ())


async def test_abort_while_calls_run_gives_each_open_one_a_cancelled_result() -> None:
    gate = Gate()
    events: list[Event] = []
    tools = Tools({"quick": echo, "hang": gate})
    model = ScriptedModel([reply("So: ", call("quick"), call("hang"), call("hang")), reply("Welcome back.")])
    agent = Agent(model, tools, on_event=events.append)

    async def abort() -> None:
        await gate.reached.wait()
        await trio.testing.wait_all_tasks_blocked()
        agent.abort()
        agent.abort()  # does nothing more

    before = tasks()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort)
        result = await agent.say("go")
    assert tasks() == before
    assert result.ended_by == "aborted"
    assert [each.status for each in results_of(result.messages)] == ["done", "cancelled", "cancelled"]
    assert sorted(tools.cancelled) == ["call_2", "call_3"]
    assert shape(events)[-3:] == [
        "mcp_tool_call_error(call_2)",
        "mcp_tool_call_error(call_3)",
        "mcp_tool_complete(call_1, call_2, call_3)",
    ]
    assert [event.tool.status for event in events if event.type == "mcp_tool_call_error"] == [  # type: ignore[union-attr]
        "cancelled",
        "cancelled",
    ]
    assert (await agent.say("hello?")).text == "Welcome back."
    assert_requests_whole(model)


async def test_abort_while_the_reply_streams_and_a_call_runs_ends_both() -> None:
    pause = Pause()
    tools = Tools({"hang": Gate()})
    model = ScriptedModel([reply("a", call("hang"), "b", pause, call("hang"))])
    agent = Agent(model, tools)

    async with once(pause.reached, agent.abort):
        result = await agent.say("go")
    assert model.left_early == (0,)
    assert tools.cancelled == ["call_1"]
    assert [type(part) for part in result.messages[0].parts] == [Text, ToolCall, Text]  # type: ignore[union-attr]
    assert_whole(agent.messages)


async def test_abort_while_somebody_is_asked() -> None:
    asked = trio.Event()

    async def ask(request: ApprovalRequest) -> Approval:
        asked.set()
        await trio.sleep_forever()
        raise AssertionError

    tools = Tools({"t": echo})
    approvals = Approvals(ApprovalPolicy(default="ask"), ask=ask)
    agent = Agent(ScriptedModel([reply(call("t"))]), tools, approvals=approvals)

    async with once(asked, agent.abort):
        result = await agent.say("go")
    assert [each.status for each in results_of(result.messages)] == ["cancelled"]
    assert tools.finished == []


async def test_a_turn_that_was_aborted_before_it_begins_asks_nobody() -> None:
    turn = TurnHandle()
    turn.abort()
    model = ScriptedModel([])
    result = await run_turn(model, Tools({"t": echo}), [user("go")], turn=turn)
    assert (result.ended_by, result.rounds, model.requests) == ("aborted", 0, ())


async def test_abort_from_a_tool_ends_the_turn_and_its_own_call() -> None:
    turn = TurnHandle()

    async def stop(call: ToolCall) -> str:
        turn.abort()
        await trio.lowlevel.checkpoint()
        return "unreachable"

    model = ScriptedModel([reply(call("stop"))])
    result = await run_turn(model, Tools({"stop": stop}), [user("go")], turn=turn)
    assert (result.ended_by, len(model.requests)) == ("aborted", 1)
    assert [each.status for each in results_of(result.messages)] == ["cancelled"]


async def test_abort_when_all_is_done_keeps_the_results() -> None:
    turn = TurnHandle()

    def on_event(event: Event) -> None:
        if event.type == "mcp_tool_complete":
            turn.abort()

    model = ScriptedModel([reply(call("t"))])
    result = await run_turn(model, Tools({"t": echo}), [user("go")], turn=turn, on_event=on_event)
    assert (result.ended_by, len(model.requests)) == ("aborted", 1)
    assert [each.status for each in results_of(result.messages)] == ["done"]


# --- at every checkpoint ---------------------------------------------------------------------------------


def script() -> ScriptedModel:
    return ScriptedModel(
        [
            reply("One. ", call("t", {"n": 1}), "Two. ", call("t", {"n": 2})),
            reply(call("asked"), call("missing"), call("t", "{")),
            reply("Done."),
            reply("Here I am."),
        ],
        cut=3,
    )


def agent_of(model: ScriptedModel, tools: Tools) -> Agent:
    async def ask(request: ApprovalRequest) -> Approval:
        await trio.lowlevel.checkpoint()
        return Approval(allow=True)

    async def on_event(event: Event) -> None:
        await trio.lowlevel.checkpoint()

    approvals = Approvals(ApprovalPolicy(default="ask"), ask=ask)
    return Agent(model, tools, approvals=approvals, on_event=on_event)


@pytest.mark.parametrize("how", ["cancel", "abort"])
async def test_ending_it_at_every_checkpoint_leaves_no_task_and_no_orphan(how: str) -> None:
    before = tasks()
    for checkpoints in count():
        model, tools = script(), Tools({"t": echo, "asked": echo})
        agent = agent_of(model, tools)
        result = None
        if how == "cancel":
            async with cancelled_after(checkpoints) as scope:
                result = await agent.say("go")
            assert (result is None) == scope.cancelled_caught
            over = result is not None
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(abort_after, agent, checkpoints)
                result = await agent.say("go")
                nursery.cancel_scope.cancel()
            over = result.ended_by == "answer"
            assert agent.messages == (user("go"), *result.messages)
        assert tasks() == before
        assert tools.running == 0
        assert_whole(agent.messages)
        assert_requests_whole(model)
        if over:
            break
        # Whatever was cut short, the next turn can go on from it.
        again = ScriptedModel([reply("Here I am.")])
        agent.model = again
        assert (await agent.say("hello?")).text == "Here I am."
        assert_requests_whole(again)
    assert checkpoints > 30, "the loop was cut at more than a few places"


async def abort_after(agent: Agent, checkpoints: int) -> None:
    for _ in range(checkpoints):
        await trio.lowlevel.checkpoint()
    agent.abort()
