"""The tool loop: the order of what it tells, what the history gets, and when a turn is over."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from playhead.agent.agent import Agent, run_turn
from playhead.agent.conversation import (
    AssistantMessage,
    StopReason,
    Text,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from playhead.agent.events import Event, TextComplete, to_json
from playhead.agent.middleware import Mode
from playhead.agent.scripted_model import Pause, ScriptedModel, ScriptedReply, call, reply
from playhead.agent.tool_runner import CallOutcome
from playhead.errors import BusyError, ModelError, UsageError
from playhead.results.plan import TurnDecision
from tests.loop_kit import (
    Gate,
    Tools,
    assert_requests_whole,
    assert_whole,
    done,
    echo,
    results_of,
    shape,
    user,
)

GOLDEN = Path(__file__).parents[2] / "golden"


class InTurn(Tools):
    """Tools `a` and `b`: `b` waits for the reply's end, and `a` for `b`, so results come out of order."""

    def __init__(self) -> None:
        b_done, self.reply_over = trio.Event(), trio.Event()
        self.events: list[Event] = []

        async def a(call: ToolCall) -> str:
            await b_done.wait()
            return "from a"

        async def b(call: ToolCall) -> str:
            await self.reply_over.wait()
            return "from b"

        super().__init__({"a": a, "b": b})
        self._b_done = b_done

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        if event.type == "usage":
            self.reply_over.set()
        if event.type == "mcp_tool_call_response":
            self._b_done.set()


# --- what is told ----------------------------------------------------------------------------------------


def written(mode: Mode) -> list[ScriptedReply]:
    """A reply with two calls and the answer, as the model of each mode writes it."""
    usage = TokenUsage(input_tokens=10, output_tokens=5)
    last = reply("Both are done.", usage=usage)
    if mode == "function":
        return [reply("Just a moment. ", call("a", id="a"), call("b", id="b"), usage=usage), last]
    tags = "".join(f"<tool_use><name>{name}</name><arguments>{{}}</arguments></tool_use>" for name in "ab")
    return [reply("Just a moment. " + tags, usage=usage), last]


@pytest.mark.parametrize("mode", ["function", "prompt"])
async def test_the_events_of_a_turn_with_two_calls_are_golden(
    mode: Mode, request: pytest.FixtureRequest
) -> None:
    tools = InTurn()
    model = ScriptedModel(written(mode))
    result = await run_turn(model, tools, [user("a and b, please")], mode=mode, on_event=tools.on_event)
    assert result.text == "Both are done."
    lines = "".join(to_json(event) + "\n" for event in tools.events)
    golden = GOLDEN / f"turn-{mode}.jsonl"
    if request.config.getoption("--update-golden"):
        golden.write_text(lines)
    meant = "if this is meant: pytest --update-golden tests/unit/agent/test_loop.py"
    assert lines == golden.read_text(), meant


async def test_responses_come_as_they_finish_and_results_in_the_order_of_the_calls() -> None:
    tools = InTurn()
    model = ScriptedModel(written("function"))
    result = await run_turn(model, tools, [user("go")], on_event=tools.on_event)
    assert shape(tools.events) == [
        "llm_response_created",
        "text_delta",
        "mcp_tool_in_progress(a)",
        "mcp_tool_call_begin(a)",
        "mcp_tool_in_progress(b)",
        "mcp_tool_call_begin(b)",
        "text_complete",
        "llm_response_complete",
        "usage",
        "mcp_tool_call_response(b)",
        "mcp_tool_call_response(a)",
        "mcp_tool_complete(a, b)",
        "llm_response_created",
        "text_delta",
        "text_complete",
        "llm_response_complete",
        "usage",
    ]
    assert [each.text for each in results_of(result.messages)] == ["from a", "from b"]
    assert_requests_whole(model)


@pytest.mark.parametrize("cut", [None, 1, (3, 1, 7)])
async def test_prompt_mode_comes_to_the_same_as_function_calls(cut: int | tuple[int, ...] | None) -> None:
    outcomes = []
    for mode in ("function", "prompt"):
        mode_: Mode = "prompt" if mode == "prompt" else "function"
        tools = InTurn()
        model = ScriptedModel(written(mode_), cut=cut)
        agent = Agent(model, tools, mode=mode_, on_event=tools.on_event)
        result = await agent.say("go")
        assert_whole(agent.messages)
        kinds = [event.type for event in tools.events if event.type != "text_delta"]
        texts = [event.text for event in tools.events if isinstance(event, TextComplete)]
        results = [(each.name, each.text, each.status) for each in results_of(result.messages)]
        outcomes.append((result.text, result.rounds, result.ended_by, kinds, texts, results))
    assert outcomes[0] == outcomes[1]


async def test_an_event_callback_may_be_async_and_gets_events_one_after_the_other() -> None:
    inside = 0
    seen: list[Event] = []

    async def on_event(event: Event) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await trio.lowlevel.checkpoint()
        seen.append(event)
        inside -= 1

    calls = [call("t", {"n": n}) for n in range(20)]
    await run_turn(
        ScriptedModel([reply(*calls), reply("ok")]), Tools({"t": echo}), [user("go")], on_event=on_event
    )
    assert len([event for event in seen if event.type == "mcp_tool_call_response"]) == 20
    # Each call's own events are in order, whatever the others do.
    for n in range(1, 21):
        own = [text for text in shape(seen) if text.endswith(f"(call_{n})")]
        assert own == [
            f"mcp_tool_in_progress(call_{n})",
            f"mcp_tool_call_begin(call_{n})",
            f"mcp_tool_call_response(call_{n})",
        ]


async def test_a_call_runs_while_the_reply_still_comes() -> None:
    ran = trio.Event()

    async def tool(call: ToolCall) -> str:
        ran.set()
        return "early"

    # The reply goes on only after the tool was run.
    model = ScriptedModel([reply(call("t"), Pause(until=ran), "and so on"), reply("done")])
    with trio.fail_after(10):
        result = await run_turn(model, Tools({"t": tool}), [user("go")])
    assert result.messages[0].text == "and so on"  # type: ignore[union-attr]


# --- rounds ----------------------------------------------------------------------------------------------


async def test_a_second_round_sees_the_first_one_whole() -> None:
    model = ScriptedModel(
        [
            reply(call("t", {"n": 1}), usage=TokenUsage(input_tokens=1, output_tokens=2)),
            reply("and ", call("t", {"n": 2}), usage=TokenUsage(input_tokens=10, output_tokens=20)),
            reply("done", usage=TokenUsage(input_tokens=100, output_tokens=None)),
        ]
    )
    result = await run_turn(model, Tools({"t": echo}), [user("go")], system="Be brief.")
    assert result.rounds == 3
    assert (result.ended_by, result.text) == ("answer", "done")
    assert result.usage == TokenUsage(input_tokens=111, output_tokens=22)
    assert [type(each) for each in result.messages] == [
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]
    assert model.requests[2].messages == (user("go"), *result.messages[:-1])
    assert {request.system for request in model.requests} == {"Be brief."}
    assert [outcome.result.text for outcome in result.outcomes] == ["t:1", "t:2"]
    assert_requests_whole(model)


async def test_a_result_that_stops_the_turn_does_so_after_all_results_are_in_the_history() -> None:
    async def play(call: ToolCall) -> CallOutcome:
        return done(call, "[audio: playing]", turn=TurnDecision(decision="stop", reason="audio plays"))

    model = ScriptedModel([reply(call("play"), call("t"))])
    result = await run_turn(model, Tools({"play": play, "t": echo}), [user("go")])
    assert (result.ended_by, result.reason, result.rounds) == ("tool_turn", "audio plays", 1)
    assert [each.name for each in results_of(result.messages)] == ["play", "t"]
    assert len(model.requests) == 1


async def test_without_tools_the_loop_only_streams() -> None:
    model = ScriptedModel([reply("hello")])
    result = await run_turn(model, None, [user("hi")])
    assert result.messages == (AssistantMessage(parts=(Text(text="hello"),), provider="openai"),)
    assert model.requests[0].tools == ()


async def test_a_call_without_any_tools_has_its_result_and_ends_the_turn() -> None:
    result = await run_turn(ScriptedModel([reply(call("ghost"))]), None, [user("hi")])
    (only,) = results_of(result.messages)
    assert (only.status, only.text) == ("unknown", "Tool not found: ghost; no tools are offered")


@pytest.mark.parametrize(
    ("stop", "ended_by"), [("length", "length"), ("refused", "refused"), ("other", "answer")]
)
async def test_a_reply_that_did_not_just_end_says_why_in_the_providers_words(
    stop: StopReason, ended_by: str
) -> None:
    told = reply("so far", stop=stop, reason="SAFETY")
    result = await run_turn(ScriptedModel([told]), Tools({"t": echo}), [user("hi")])
    assert result.ended_by == ended_by
    assert result.reason.endswith(": SAFETY")


async def test_a_refusal_ends_the_turn_though_it_has_calls() -> None:
    model = ScriptedModel([reply(call("t"), stop="refused")])
    result = await run_turn(model, Tools({"t": echo}), [user("hi")])
    assert (result.ended_by, len(model.requests)) == ("refused", 1)
    assert_whole(result.messages)


async def test_a_tool_that_appears_during_the_turn_is_offered_next() -> None:
    tools = Tools({})

    async def unlock(call: ToolCall) -> str:
        tools.functions["secret"] = echo
        return "unlocked"

    tools.functions["unlock"] = unlock
    model = ScriptedModel([reply(call("unlock")), reply(call("secret")), reply("ok")])
    result = await run_turn(model, tools, [user("go")])
    assert [[spec.name for spec in request.tools] for request in model.requests] == [
        ["unlock"],
        ["unlock", "secret"],
        ["unlock", "secret"],
    ]
    assert [each.status for each in results_of(result.messages)] == ["done", "done"]


async def test_system_prompts_of_tools_are_added_while_they_are_offered() -> None:
    class Prompted(Tools):
        def system_prompt(self, offered: tuple[ToolSpec, ...]) -> str:
            return "Use " + " and ".join(spec.name for spec in offered) + "."

    model = ScriptedModel([reply(call("t")), reply("ok")])
    await run_turn(model, Prompted({"t": echo}), [user("go")], system="Be brief.")
    assert [request.system for request in model.requests] == ["Be brief.\n\nUse t."] * 2


async def test_no_more_calls_run_at_once_than_the_budget_says() -> None:
    full = trio.Event()

    async def wait_for_others(call: ToolCall) -> str:
        if tools.running == 32:
            full.set()
        await full.wait()
        return await echo(call)

    tools = Tools({"t": wait_for_others})
    calls = [call("t", {"n": n}) for n in range(100)]
    result = await run_turn(ScriptedModel([reply(*calls), reply("ok")]), tools, [user("go")])
    assert tools.most_at_once == 32
    assert [each.text for each in results_of(result.messages)] == [f"t:{n}" for n in range(100)]


# --- what fails ------------------------------------------------------------------------------------------


async def test_a_model_that_fails_ends_the_turn_and_leaves_a_history_that_can_go_on() -> None:
    events: list[Event] = []
    broken = ModelError("the provider is overloaded", provider="openai")
    model = ScriptedModel([reply("Let me see. ", call("hang"), broken), reply("better now")])
    tools = Tools({"hang": Gate()})
    agent = Agent(model, tools, on_event=events.append)
    with pytest.raises(ModelError, match="overloaded"):
        await agent.say("go")
    assert shape(events)[-1] == "error"
    assert tools.cancelled == ["call_1"]
    assert_whole(agent.messages)
    assert [each.status for each in results_of(agent.messages)] == ["cancelled"]
    assert (await agent.say("again")).text == "better now"
    assert_requests_whole(model)


async def test_the_words_of_foreign_exceptions_are_in_no_event() -> None:
    events: list[Event] = []
    model = ScriptedModel([reply(ValueError("Bearer sk-secret"))])
    with pytest.raises(ValueError, match="sk-secret"):
        await run_turn(model, None, [user("go")], on_event=events.append)
    assert events[-1].type == "error"
    assert "sk-secret" not in to_json(events[-1])
    assert "ValueError" in to_json(events[-1])


@pytest.mark.parametrize("at", range(17))
async def test_what_the_event_callback_raises_ends_the_turn_as_it_is(at: int) -> None:
    tools = InTurn()
    seen = 0

    def on_event(event: Event) -> None:
        nonlocal seen
        tools.on_event(event)
        seen += 1
        if seen == at + 1:
            raise ZeroDivisionError(f"at {event.type}")

    agent = Agent(ScriptedModel(written("function")), tools, on_event=on_event)
    with pytest.raises(ZeroDivisionError):
        await agent.say("go")
    assert seen == at + 1, "no event is told after it"
    assert tools.running == 0
    assert_whole(agent.messages)


async def test_tasks_that_wait_to_tell_something_tell_nothing_after_the_callback_raised() -> None:
    seen: list[str] = []

    async def on_event(event: Event) -> None:
        seen.append(event.type)
        await trio.testing.wait_all_tasks_blocked()
        if event.type == "mcp_tool_call_response":
            raise ZeroDivisionError

    model = ScriptedModel([reply(*(call("t", {"n": n}) for n in range(5)), Pause())])
    with pytest.raises(ZeroDivisionError):
        await run_turn(model, Tools({"t": echo}), [user("go")], on_event=on_event)
    assert seen[-1] == "mcp_tool_call_response"
    assert seen.count("mcp_tool_call_response") == 1


async def test_a_turn_needs_a_message_and_a_handle_of_its_own() -> None:
    from playhead.agent.middleware import TurnHandle

    with pytest.raises(UsageError, match="at least"):
        await run_turn(ScriptedModel([]), None, [])
    handle = TurnHandle()
    await run_turn(ScriptedModel([reply("x")]), None, [user("hi")], turn=handle)
    with pytest.raises(UsageError, match="a new one for each turn"):
        await run_turn(ScriptedModel([reply("x")]), None, [user("hi")], turn=handle)


# --- a conversation --------------------------------------------------------------------------------------


async def test_an_agent_keeps_the_history_from_turn_to_turn() -> None:
    model = ScriptedModel([reply(call("t", {"n": 1})), reply("one"), reply("two")])
    agent = Agent(
        model, Tools({"t": echo}), history=[user("before"), AssistantMessage(parts=(Text(text="."),))]
    )
    await agent.say("first")
    await agent.say(Text(text="second"), Text(text="part"))
    assert [type(each).__name__ for each in agent.messages] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
    ]
    assert agent.messages[6] == UserMessage(parts=(Text(text="second"), Text(text="part")))
    assert model.requests[-1].messages == agent.messages[:-1]


async def test_a_second_turn_at_once_is_refused() -> None:
    pause = Pause()
    agent = Agent(ScriptedModel([reply(pause)]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.say, "one")
        await pause.reached.wait()
        with pytest.raises(BusyError):
            await agent.say("two")
        agent.abort()
    assert agent.messages == (user("one"),)
