"""Every provider through every scenario: a real client, its wire, the loop, a hub and an MCP server."""

from __future__ import annotations

from typing import Any

import pytest

from playhead.playback.player import Player
from playhead.playback.sinks import NullSink
from tests.e2e.provider_scenarios import SCENARIOS, THOUGHT, Scenario, Stage, echo
from tests.e2e.provider_world import (
    LATER,
    NAMES,
    PROVIDERS,
    WRITER,
    Name,
    hold_to_golden,
    world,
)
from tests.loop_kit import assert_whole, results_of
from tests.servers.providers.models import model_at
from tests.servers.providers.script import Ask, Reply, Say
from tests.servers.providers.validate import results
from tests.servers.toolbox import PNG

CHORD_FRAMES = 32_000


# --- the scenarios -----------------------------------------------------------------------------------


def cases() -> list[Any]:
    """All, but one: OpenAI's Chat Completions tells no thoughts."""
    return [
        pytest.param(scenario, name, id=f"{scenario.name}-{name}")
        for scenario in SCENARIOS
        for name in NAMES
        if (scenario.name, name) != ("thinking", "openai")
    ]


@pytest.mark.parametrize(("scenario", "name"), cases())
async def test_a_provider_goes_through_the_scenario_with_the_events_of_all_others(
    scenario: Scenario, name: Name, request: pytest.FixtureRequest
) -> None:
    replies = scenario.replies()
    sink = NullSink(real_time=False)
    async with world(name, [*replies, LATER], limits=scenario.limits) as here, Player(sink) as player:
        stage = Stage(scenario, here.box, here.script)
        here.agent.on_event, here.agent.player = stage.on_event, player
        here.agent.approvals = stage.approvals
        result = await here.agent.say("Please")
        if scenario.name == "audio-result":
            await player.wait_finished()
            assert sink.report is not None
            assert sink.report.frames == CHORD_FRAMES, "it played to its end"
        assert len(here.server.requests) == result.rounds == len(replies)
        assert result.ended_by == scenario.ended_by
        assert tuple(each.status for each in results_of(result.messages)) == scenario.statuses
        # The conversation goes on, whatever was in it.
        events = list(stage.events)
        assert (await here.agent.say("Thanks")).text == "You are welcome."
        assert_whole(here.agent.messages)
    # Where a model writes a call into its text, what is wrong with it is said about that text.
    mode = "-prompt" if (name, scenario.name) == ("prompt", "bad-arguments") else ""
    hold_to_golden(f"{scenario.name}{mode}", events, request, is_writer=bool(mode) or name == WRITER)


@pytest.mark.parametrize("name", ["openai", "openai-responses", "anthropic", "compatible", "prompt"])
async def test_torn_arguments_are_told_to_the_model_and_go_back_as_what_its_provider_takes(
    name: Name,
) -> None:
    replies = [Reply(Ask("id_a", "box__echo", '{"label": "a')), Reply(Say("Again."))]
    async with world(name, replies) as here:
        result = await here.agent.say("Please")
        (only,) = results_of(result.messages)
        assert only.status == "bad_arguments"
        assert result.text == "Again."


@pytest.mark.parametrize("name", [*PROVIDERS, "compatible"])
async def test_calls_without_a_name_or_an_id_of_their_own_are_answered(name: Name) -> None:
    replies = [Reply(echo("id_a", "a"), echo("id_a", "b"), Ask("id_c", "")), LATER]
    async with world(name, replies) as here:
        for label in ("a", "b"):
            here.box.let[label].set()
        result = await here.agent.say("Please")
        assert [each.status for each in results_of(result.messages)] == ["done", "done", "unknown"]
        assert_whole(result.messages)
        assert result.text == "You are welcome."


async def test_in_prompt_mode_results_are_told_in_call_order_and_nothing_is_a_function_call() -> None:
    replies = [Reply(Say("Wait."), echo("id_a", "a"), echo("id_b", "b")), LATER]
    async with world("prompt", replies) as here:
        for label in ("b", "a"):
            here.box.let[label].set()
        await here.agent.say("Please")
        system, _, assistant, told_back = here.server.requests[1].body["messages"]
        assert "box__echo" in system["content"]
        assert assistant["content"].count("<tool_use>") == 2, "the model's own calls stay in the history"
        assert told_back["role"] == "user"
        told_text = told_back["content"]
        assert told_text.count("<tool_use_result>") == 2
        assert told_text.index("a!") < told_text.index("b!")
        assert not {"tools", "tool_calls"} & {*here.server.requests[1].body, *assistant}


# --- what the provider gets --------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROVIDERS)
async def test_results_go_back_as_their_provider_has_them(name: Name) -> None:
    replies = [Reply(Ask("id_a", "box__image"), Ask("id_b", "box__fail")), Reply(Say("I see."))]
    async with world(name, replies) as here:
        for label in ("image", "fail"):
            here.box.let[label].set()
        await here.agent.say("Please")
        first, second = here.server.requests
        assert results(first.provider, first.body) == []
        assert PNG in str(second.body), "an image goes natively"
        image, failed = results(second.provider, second.body)
        assert PNG not in str(failed)
        match second.provider:
            case "openai":
                # Text alone in the result; the image follows the last one.
                assert failed["content"].startswith("Error")
                assert [message["role"] for message in second.body["messages"][-3:]] == [
                    "tool",
                    "tool",
                    "user",
                ]
                assert PNG in str(second.body["messages"][-1])
            case "openai-responses":
                assert [part["type"] for part in image["output"]] == ["input_text", "input_image"]
                assert failed["output"].startswith("Error")
            case "anthropic":
                assert [block["type"] for block in image["content"]] == ["text", "image"]
                assert (image["is_error"], failed["is_error"]) == (False, True)
            case "gemini":
                assert image["parts"][0]["inlineData"]["data"] == PNG
                assert ("output" in image["response"], "error" in failed["response"]) == (True, True)


@pytest.mark.parametrize("name", ["openai-responses", "anthropic", "gemini"])
async def test_thinking_goes_back_with_its_signature(name: Name) -> None:
    replies = [Reply(THOUGHT, Ask("id_a", "box__image")), Reply(Say("Done."))]
    async with world(name, replies) as here:
        here.box.let["image"].set()
        await here.agent.say("Please")
        body = here.server.requests[1].body
        match here.model.provider:
            case "openai-responses":
                (item,) = [item for item in body["input"] if item["type"] == "reasoning"]
                assert item["encrypted_content"] == THOUGHT.signature
                assert item["summary"] == [{"text": THOUGHT.text, "type": "summary_text"}]
            case "anthropic":
                block = body["messages"][1]["content"][0]
                assert block == {
                    "type": "thinking",
                    "thinking": THOUGHT.text,
                    "signature": THOUGHT.signature,
                }
            case _:
                thought, call = body["contents"][1]["parts"]
                assert thought == {"text": THOUGHT.text, "thought": True}
                assert call["thoughtSignature"] == THOUGHT.signature


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("before", PROVIDERS)
async def test_a_conversation_goes_on_with_another_provider(before: Name, name: Name) -> None:
    scripted = Reply(
        *(() if before == "openai" else (THOUGHT,)), Say("A moment."), echo("id_a", "a"), echo("id_b", "b")
    )
    async with world(before, [scripted, Reply(Say("Done.")), LATER]) as here:
        for label in ("a", "b"):
            here.box.let[label].set()
        await here.agent.say("Please")
        async with model_at("compatible" if name == "prompt" else name, here.server.url) as other:
            here.agent.model = other
            here.agent.mode = "prompt" if name == "prompt" else "function"
            assert (await here.agent.say("Thanks")).text == "You are welcome."
        last = here.server.requests[-1]
        assert "b!" in str(last.body), "what the tools said goes along"
        if name != "prompt":
            assert len(results(last.provider, last.body)) == 2
