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
from tests.servers.providers.script import Reply, Say
from tests.servers.providers.validate import results

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


# --- what the provider gets --------------------------------------------------------------------------


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
