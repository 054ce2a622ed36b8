"""One result for every call, whatever happens to it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio

from playhead.agent.agent import run_turn
from playhead.agent.approvals import Approval, ApprovalPolicy, ApprovalRequest, Approvals
from playhead.agent.budgets import Budgets
from playhead.agent.conversation import ToolCall, ToolResult
from playhead.agent.events import Event, ImageComplete, ToolCallError, ToolCallResponse, ToolProgress
from playhead.agent.middleware import TurnHandle, TurnResult
from playhead.agent.scripted_model import Pause, ScriptedModel, call, reply
from playhead.agent.tool_calls import SUGGESTED
from playhead.agent.tool_runner import CallOutcome, ResultImage
from playhead.errors import DeadlineError, ServerError, TransportError, UnknownToolError
from tests.loop_kit import (
    Gate,
    Tools,
    assert_requests_whole,
    assert_whole,
    echo,
    once,
    results_of,
    shape,
    silent,
    user,
)


async def one(function: Any, made: ToolCall | None = None, **options: Any) -> tuple[ToolResult, list[Event]]:
    """The result of one call of the tool `t`, beside one of the tool `other` that works."""
    events: list[Event] = []
    model = ScriptedModel([reply(made or call("t", {"n": 1}), call("other")), reply("ok")])
    tools = Tools({"t": function, "other": echo})
    result = await run_turn(model, tools, [user("go")], on_event=events.append, **options)
    assert result.text == "ok"
    assert_whole(result.messages)
    assert_requests_whole(model)
    first, second = results_of(model.requests[1].messages)
    assert (second.name, second.status) == ("other", "done"), "its neighbour goes on"
    about = [event for event in events if getattr(getattr(event, "tool", None), "id", None) == first.call_id]
    ends = [event for event in about if isinstance(event, ToolCallResponse | ToolCallError)]
    assert len(ends) == 1
    assert ends[0].tool.status == ("done" if first.status == "done" else "error")
    return first, about


def raising(error: BaseException) -> Any:
    async def tool(call: ToolCall) -> str:
        raise error

    return tool


async def test_what_a_tool_answers_is_its_result() -> None:
    result, about = await one(echo)
    assert (result.text, result.status) == ("t:1", "done")
    assert shape(about) == [
        "mcp_tool_in_progress(call_1)",
        "mcp_tool_call_begin(call_1)",
        "mcp_tool_call_response(call_1)",
    ]


async def test_a_tools_own_error_is_an_answer() -> None:
    async def tool(call: ToolCall) -> CallOutcome:
        return CallOutcome(
            result=ToolResult(call_id=call.id, name=call.name, text="Error: no such song", status="error")
        )

    result, about = await one(tool)
    assert (result.text, result.status) == ("Error: no such song", "error")
    assert isinstance(about[-1], ToolCallResponse)


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (
            DeadlineError("music did not answer tools/call in time"),
            "timeout",
            "The call timed out: music did",
        ),
        (TimeoutError(), "timeout", "The call timed out: no answer in time"),
        (trio.TooSlowError(), "timeout", "The call timed out: no answer in time"),
        (
            ServerError("music answered -32000", code=-32000),
            "error",
            "The call failed: music answered -32000",
        ),
        (UnknownToolError("gone", name="t"), "unknown", "Tool not found: t; the tools are other"),
        (ZeroDivisionError("sk-secret"), "error", "The call failed: ZeroDivisionError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_what_is_raised_in_place_of_an_answer_is_told(error: Exception, status: str, text: str) -> None:
    result, about = await one(raising(error))
    assert result.status == status
    assert result.text.startswith(text)
    assert "sk-secret" not in result.text
    assert isinstance(about[-1], ToolCallError)
    assert (about[-1].status, about[-1].error) == (status, result.text)


async def test_the_exception_itself_is_in_the_outcome() -> None:
    error = ZeroDivisionError("why")
    model = ScriptedModel([reply(call("t")), reply("ok")])
    result = await run_turn(model, Tools({"t": raising(error)}), [user("go")])
    assert result.outcomes[0].error is error


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tt", "Tool not found: tt; did you mean t?"),
        ("zzz", "Tool not found: zzz; the tools are t, other"),
    ],
)
async def test_an_unknown_tool_is_answered_with_near_names(name: str, text: str) -> None:
    result, about = await one(echo, call(name))
    assert (result.status, result.text, result.name) == ("unknown", text, name)
    assert shape(about) == ["mcp_tool_in_progress(call_1)", "mcp_tool_call_error(call_1)"]


@pytest.mark.parametrize(
    ("written", "came"),
    [('{"n": ', "got '{\"n\": '"), ("[1]", "got '[1]'"), ("", "got nothing"), ('"x"', "got '\"x\"'")],
)
async def test_arguments_that_are_no_object_are_answered_with_what_was_expected(
    written: str, came: str
) -> None:
    result, about = await one(raising(AssertionError("must not run")), call("t", written))
    assert result.status == "bad_arguments"
    assert result.text == (
        "The call of t was not made: its arguments could not be read: expected one JSON object, "
        f"{came}. Its parameters: n. Call it again with one JSON object."
    )
    assert "mcp_tool_call_begin(call_1)" not in shape(about)


async def test_what_a_codec_knows_of_bad_arguments_is_told() -> None:
    made = ToolCall(id="x", name="t", arguments=None, arguments_text="{", problem="the JSON ends at 1")
    result, _ = await one(echo, made)
    assert "could not be read: the JSON ends at 1." in result.text


async def test_a_runner_that_mixes_up_ids_does_not_mix_up_the_history() -> None:
    async def tool(call: ToolCall) -> CallOutcome:
        return CallOutcome(result=ToolResult(call_id="other id", name="other name", text="x"))

    result, _ = await one(tool)
    assert (result.call_id, result.name) == ("call_1", "t")


async def test_progress_is_told_and_pictures_are_named() -> None:
    class Reporting(Tools):
        async def call(self, call: ToolCall, *, on_progress: Any, on_media: Any) -> CallOutcome:
            await on_progress(1.0, 2.0, "half")
            result = ToolResult(call_id=call.id, name=call.name, text="[image]")
            return CallOutcome(result=result, pictures=(ResultImage(mime_type="image/png", size_bytes=3),))

    events: list[Event] = []
    model = ScriptedModel([reply(call("t")), reply("ok")])
    await run_turn(model, Reporting({"t": echo}), [user("go")], on_event=events.append)
    (progress,) = (event for event in events if isinstance(event, ToolProgress))
    assert (progress.progress, progress.total, progress.message) == (1.0, 2.0, "half")
    (image,) = (event for event in events if isinstance(event, ImageComplete))
    assert (image.tool.id, image.tool.status, image.size_bytes) == ("call_1", "done", 3)


async def test_a_callback_that_raises_on_progress_ends_the_turn_and_is_no_call_failure() -> None:
    class Reporting(Tools):
        async def call(self, call: ToolCall, *, on_progress: Any, on_media: Any) -> CallOutcome:
            await on_progress(1.0, None, None)
            raise AssertionError("unreachable")

    def on_event(event: Event) -> None:
        if isinstance(event, ToolProgress):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_turn(
            ScriptedModel([reply(call("t"))]), Reporting({"t": echo}), [user("go")], on_event=on_event
        )


async def test_near_names_are_looked_for_a_few_times_in_a_reply_since_nothing_runs_meanwhile() -> None:
    model = ScriptedModel([reply(*(call("tooth") for _ in range(50))), reply("ok")])
    result = await run_turn(model, Tools({"tool": echo, "add": echo}), [user("go")])
    texts = [each.text for each in results_of(result.messages)]
    assert texts[0] == "Tool not found: tooth; did you mean tool?"
    assert texts[-1] == "Tool not found: tooth; the tools are tool, add"
    assert sum("did you mean" in text for text in texts) == SUGGESTED


async def test_a_runner_that_cannot_say_what_to_approve_fails_the_call_and_not_the_turn() -> None:
    class Mute(Tools):
        def approval_request(self, call: ToolCall) -> ApprovalRequest | None:
            if call.name == "t":
                raise KeyError(call.name)
            return ApprovalRequest(server="", tool=call.name, description=None, arguments={})

    model = ScriptedModel([reply(call("t"), call("other")), reply("ok")])
    tools = Mute({"t": echo, "other": echo})
    result = await run_turn(model, tools, [user("go")])
    assert [each.status for each in results_of(result.messages)] == ["error", "done"]
    assert tools.finished == ["call_2"]


async def test_calls_that_a_failing_model_leaves_behind_are_told_as_cancelled_before_the_error() -> None:
    gate, pause, events = Gate(), Pause(), list[Event]()
    lost = TransportError("the connection was lost")
    model = ScriptedModel([reply(call("t"), pause, lost)])
    async with once(gate.reached, pause.until.set):
        with pytest.raises(TransportError):
            await run_turn(model, Tools({"t": gate}), [user("go")], on_event=events.append)
    assert shape(events)[-4:] == [
        "mcp_tool_call_begin(call_1)",
        "mcp_tool_call_error(call_1)",
        "mcp_tool_complete(call_1)",
        "error",
    ]


@pytest.mark.parametrize("how", ["it swallows it", "it is a group"])
async def test_what_the_callback_raises_on_progress_ends_the_turn_whatever_the_runner_makes_of_it(
    how: str,
) -> None:
    class Reporting(Tools):
        async def call(self, call: ToolCall, *, on_progress: Any, on_media: Any) -> CallOutcome:
            with suppress(ZeroDivisionError):
                await on_progress(1.0, None, None)
            return await super().call(call, on_progress=on_progress, on_media=on_media)

    def on_event(event: Event) -> None:
        if isinstance(event, ToolProgress):
            error = ZeroDivisionError()
            raise ExceptionGroup("a nursery's", [error]) if how == "it is a group" else error

    turn = TurnHandle()
    model = ScriptedModel([reply(call("t")), reply("not asked for")])
    with pytest.RaisesGroup(ZeroDivisionError, allow_unwrapped=True, flatten_subgroups=True):
        await run_turn(model, Reporting({"t": echo}), [user("go")], on_event=on_event, turn=turn)
    assert_whole(turn.messages)
    assert len(model.requests) == 1


@pytest.mark.parametrize("by", ["abort", "deadline"])
async def test_a_clean_up_that_raises_while_its_call_is_cancelled_does_not_fail_the_turn(
    by: str, autojump_clock: trio.testing.MockClock
) -> None:
    reached = trio.Event()

    async def messy(call: ToolCall) -> str:
        async def child() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("the clean-up failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            reached.set()
            await trio.sleep_forever()
        return "unreachable"

    turn = TurnHandle()
    model = ScriptedModel([reply(call("t")), reply("ok")])
    async with once(reached if by == "abort" else trio.Event(), turn.abort):
        result = await run_turn(
            model, Tools({"t": messy}), [user("go")], turn=turn, budgets=Budgets(max_seconds=5)
        )
    assert result.ended_by == ("aborted" if by == "abort" else "seconds")
    assert_whole(result.messages)
    (outcome,) = result.outcomes
    assert outcome.result.status == ("cancelled" if by == "abort" else "over_budget")
    assert isinstance(outcome.error, ExceptionGroup), "it is not lost"


# --- approvals -------------------------------------------------------------------------------------------


async def asked(allow: bool) -> tuple[TurnResult, list[Event], list[ApprovalRequest]]:
    requests: list[ApprovalRequest] = []
    events: list[Event] = []

    async def ask(request: ApprovalRequest) -> Approval:
        requests.append(request)
        await trio.lowlevel.checkpoint()
        return Approval(allow=allow)

    model = ScriptedModel([reply(call("t", {"n": 1})), reply("ok")])
    result = await run_turn(
        model,
        Tools({"t": echo}),
        [user("go")],
        approvals=Approvals(ApprovalPolicy(default="ask"), ask=ask),
        on_event=events.append,
    )
    return result, events, requests


async def test_a_call_that_is_asked_about_is_pending_until_it_is_allowed() -> None:
    result, events, requests = await asked(allow=True)
    assert [text for text in shape(events) if "call_1)" in text][:4] == [
        "mcp_tool_in_progress(call_1)",
        "mcp_tool_pending(call_1)",
        "mcp_tool_call_begin(call_1)",
        "mcp_tool_call_response(call_1)",
    ]
    assert [(request.tool, dict(request.arguments)) for request in requests] == [("t", {"n": 1})]
    assert results_of(result.messages)[0].status == "done"


async def test_a_denied_call_never_begins_and_the_model_hears_of_it() -> None:
    result, events, _ = await asked(allow=False)
    assert "mcp_tool_call_begin(call_1)" not in shape(events)
    (denied,) = results_of(result.messages)
    assert (denied.status, denied.text) == ("denied", "The call was declined by the user.")


async def test_calls_that_a_rule_allows_begin_in_the_streams_order() -> None:
    events: list[Event] = []
    model = ScriptedModel([reply(call("t"), call("t")), reply("ok")])
    await run_turn(
        model,
        Tools({"t": echo}),
        [user("go")],
        approvals=Approvals(ApprovalPolicy(default="allow")),
        middlewares=[silent],  # both calls come at once
        on_event=events.append,
    )
    assert [text for text in shape(events) if "progress" in text or "begin" in text] == [
        "mcp_tool_in_progress(call_1)",
        "mcp_tool_call_begin(call_1)",
        "mcp_tool_in_progress(call_2)",
        "mcp_tool_call_begin(call_2)",
    ]


# --- budgets ---------------------------------------------------------------------------------------------


async def test_a_call_that_outlives_the_turns_seconds_is_over_budget(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def tool(call: ToolCall) -> str:
        await trio.sleep_forever()
        return ""

    model = ScriptedModel([reply(call("t")), reply("late")])
    tools = Tools({"t": tool})
    result = await run_turn(model, tools, [user("go")], budgets=Budgets(max_seconds=5))
    (only,) = results_of(result.messages)
    assert only.status == "over_budget"
    assert only.text == "The call was not completed: this turn has used its 5 seconds."
    assert tools.cancelled == ["call_1"]
    assert result.ended_by == "seconds"
