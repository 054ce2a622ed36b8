"""Several runners as one: every tool reaches its own runner, with its own approval and prompt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from playhead.agent import Agent, Approvals, ToolRunner
from playhead.agent.approvals import ApprovalPolicy, ApprovalRequest, ApprovalRule
from playhead.agent.conversation import ToolCall, ToolSpec
from playhead.agent.scripted_model import ScriptedModel, call, reply
from playhead.agent.tool_runner import JoinedRunner
from playhead.errors import UnknownToolError
from tests.loop_kit import Tools, echo, results_of, silent


class House(Tools):
    """A runner that describes its calls and adds to the system prompt."""

    def system_prompt(self, offered: Sequence[ToolSpec]) -> str:
        return f"The house has {', '.join(spec.name for spec in offered)}."

    def approval_request(self, call: ToolCall) -> ApprovalRequest | None:
        return ApprovalRequest(server="house", tool=call.name, description="", arguments={})


async def test_tools_of_several_runners_are_offered_and_each_call_reaches_its_own() -> None:
    garden, house = Tools({"door": echo, "tree": echo}), House({"door": echo, "lamp": echo})
    model = ScriptedModel([reply(call("door"), call("lamp"), call("tree"), call("roof")), reply("Done.")])
    result = await Agent(model, [garden, house]).say("All of them.")
    assert [spec.name for spec in model.requests[0].tools] == ["door", "tree", "lamp"]
    assert [each.status for each in results_of(result.messages)] == ["done", "done", "done", "unknown"]
    assert (sorted(garden.finished), house.finished) == (["call_1", "call_3"], ["call_2"])


async def test_a_runner_adds_a_prompt_for_its_own_tools_only() -> None:
    model = ScriptedModel([reply("Yes?")])
    tools = [Tools({"door": echo}), House({"door": echo, "lamp": echo})]
    await Agent(model, tools, system="Be brief.").say("Hello.")
    assert model.requests[0].system == "Be brief.\n\nThe house has lamp."


async def test_each_runner_describes_its_calls_for_approval() -> None:
    garden, house = Tools({"tree": echo}), House({"lamp": echo})
    denied = ApprovalPolicy(rules=(ApprovalRule(action="deny", server="house"),))
    model = ScriptedModel([reply(call("tree"), call("lamp")), reply("Done.")])
    result = await Agent(model, [garden, house], approvals=Approvals(denied)).say("Both.")
    assert [each.status for each in results_of(result.messages)] == ["done", "denied"]


@pytest.mark.parametrize("tools", [None, []])
async def test_no_tools_are_offered_without_runners(tools: Sequence[ToolRunner] | None) -> None:
    model = ScriptedModel([reply(call("lamp")), reply("There is none.")])
    result = await Agent(model, tools).say("Light.")
    assert model.requests[0].tools == ()
    assert result.text == ""


async def test_a_tool_that_disappeared_is_an_unknown_tool() -> None:
    house = House({"lamp": echo})
    joined = JoinedRunner([house])
    assert [spec.name for spec in joined.specs()] == ["lamp"]
    del house.functions["lamp"]
    assert joined.specs() == ()
    assert joined.approval_request(call("lamp")) is None
    with pytest.raises(UnknownToolError, match="no longer available"):
        await joined.call(call("lamp"), on_progress=_ignore, on_media=_ignore)


async def _ignore(*_: object) -> None: ...


@pytest.mark.parametrize("attempt", range(8))
async def test_the_calls_of_one_reply_reach_their_runner_in_order(attempt: int) -> None:
    """Also if all start at once; the order of trio's tasks is random, hence several attempts."""
    began: list[str] = []

    async def note(call: ToolCall) -> str:
        began.append(call.id)
        return "ok"

    model = ScriptedModel([reply(*[call("note")] * 10), reply("Done.")])
    await Agent(model, Tools({"note": note}), middlewares=[silent]).say("Go.")
    assert began == [f"call_{number}" for number in range(1, 11)]
