"""Every provider through every scenario: a real client, its wire, the loop, a hub and an MCP server."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from playhead.agent.agent import Agent
from playhead.agent.events import Event
from playhead.agent.middleware import Mode
from playhead.agent.model import Model
from playhead.agent.providers.anthropic_client import AnthropicModel
from playhead.agent.providers.compatible import CompatibleModel
from playhead.agent.providers.gemini_client import GeminiModel
from playhead.agent.providers.openai_client import OpenAIChatModel, OpenAIResponsesModel
from playhead.client.groups import bare
from playhead.client.hub import Hub, open_hub
from playhead.config.tools import ToolConfigs
from playhead.errors import ConnectionLostError, ModelError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.playback.player import Player
from playhead.playback.sinks import NullSink
from tests.e2e.provider_scenarios import SCENARIOS, THOUGHT, Scenario, Stage, echo, in_tags, told
from tests.loop_kit import assert_whole, results_of, tasks
from tests.servers.providers.script import Ask, Broken, Hold, Refuse, Reply, Say
from tests.servers.providers.validate import check_request, results
from tests.servers.providers.wire_server import WireServer, wire_server
from tests.servers.toolbox import PNG, WAV, Toolbox

GOLDEN = Path(__file__).parents[1] / "golden"
KEY = "sk-test-0123456789abcdef"
WAV_BASE64 = base64.b64encode(WAV).decode("ascii")
LATER = Reply(Say("You are welcome."))
FAIL_AFTER_SECONDS = 30
"""For a whole world. It is there for what would hang: each takes a tenth of a second."""

Name = Literal[
    "openai", "openai-responses", "anthropic", "gemini", "gemini-without-ids", "compatible", "prompt"
]
WRITER: Name = "openai-responses"
"""Whose events make the golden files: any could, this one goes first."""
PROVIDERS: tuple[Name, ...] = (WRITER, "openai", "anthropic", "gemini")
NAMES: tuple[Name, ...] = (*PROVIDERS, "gemini-without-ids", "compatible", "prompt")


def model_at(name: Name, server: WireServer) -> Any:
    """A model of the provider, at the server; it never sends a request twice."""
    match name:
        case "openai":
            return OpenAIChatModel("gpt-5.2", api_key=KEY, base_url=server.openai_url, max_retries=0)
        case "openai-responses":
            return OpenAIResponsesModel("gpt-5.2", api_key=KEY, base_url=server.openai_url, max_retries=0)
        case "anthropic":
            return AnthropicModel("claude-test", api_key=KEY, base_url=server.url, max_retries=0)
        case "gemini":
            return GeminiModel("gemini-3-flash", api_key=KEY, base_url=server.gemini_url)
        case "gemini-without-ids":
            return GeminiModel("gemini-2.5-flash", api_key=KEY, base_url=server.gemini_url)
        case "compatible" | "prompt":
            return CompatibleModel("llama", api_key=KEY, base_url=server.openai_url)


@dataclass(slots=True)
class World:
    """One provider's model, at a server of its script, with a box of tools."""

    agent: Agent
    model: Model
    server: WireServer
    box: Toolbox
    script: list[Reply | Refuse]
    before: int
    """How many tasks there were before the model was opened."""


@asynccontextmanager
async def world(
    name: Name, replies: Sequence[Reply | Refuse], *, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[World]:
    """Leaving it checks that no task is left, and that every request was one that its provider takes."""
    mode: Mode = "prompt" if name == "prompt" else "function"
    script = [in_tags(each) if mode == "prompt" and isinstance(each, Reply) else each for each in replies]
    box = Toolbox()
    with bare(deep=True), trio.fail_after(FAIL_AFTER_SECONDS):
        async with box_hub(box, limits) as hub, wire_server(script) as server:
            await trio.testing.wait_all_tasks_blocked()
            before = tasks()
            async with model_at(name, server) as model:
                agent = Agent(model, hub, system="You are a voice assistant.", mode=mode)
                yield World(agent, model, server, box, script, before)
            assert box.running == []
            while tasks() != before:
                await trio.lowlevel.checkpoint()
    assert server.refused == []
    for captured in server.requests:
        check_request(captured, is_openai=name not in ("compatible", "prompt"))
        assert WAV_BASE64 not in str(captured.body), "sound that plays is not for the model"


def hold_to_golden(
    scenario: str, events: Sequence[Event], request: pytest.FixtureRequest, *, is_writer: bool
) -> None:
    """The events are those of the golden file, which one provider writes and all others are held against."""
    lines = told(events)
    assert KEY not in lines
    golden = GOLDEN / f"provider-{scenario}.jsonl"
    if request.config.getoption("--update-golden") and is_writer:
        golden.write_text(lines)
    assert lines == golden.read_text(), "if this is meant: pytest --update-golden tests/e2e/test_providers.py"


@asynccontextmanager
async def box_hub(box: Toolbox, limits: Limits) -> AsyncIterator[Hub]:
    async with open_hub({"box": box.server}, tool_configs=ToolConfigs(), limits=limits) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        yield hub


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
        async with model_at(name, here.server) as other:
            here.agent.model = other
            here.agent.mode = "prompt" if name == "prompt" else "function"
            assert (await here.agent.say("Thanks")).text == "You are welcome."
        last = here.server.requests[-1]
        assert "b!" in str(last.body), "what the tools said goes along"
        if name != "prompt":
            assert len(results(last.provider, last.body)) == 2


# --- the end in the middle ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["abort", "cancel"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_turn_that_ends_in_the_middle_ends_at_its_provider_and_its_server(
    name: Name, how: str, request: pytest.FixtureRequest
) -> None:
    hold = Hold()
    replies = [Reply(Say("Just a moment."), echo("id_a", "a"), echo("id_b", "b"), hold), LATER]
    async with world(name, replies) as here:
        stage = Stage(SCENARIOS[0], here.box, here.script)
        here.agent.on_event = stage.on_event
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.agent.say, "Please")
            await hold.reached.wait()
            while len(here.box.running) < 2:
                await trio.lowlevel.checkpoint()
            if how == "abort":
                here.agent.abort()
            else:
                nursery.cancel_scope.cancel()
        await here.server.requests[0].gone.wait()
        while here.box.running:
            await trio.lowlevel.checkpoint()
        assert sorted(here.box.cancelled) == ["a", "b"], "notifications/cancelled came for both"
        assert [each.status for each in results_of(here.agent.messages)] == ["cancelled"] * 2
        events = list(stage.events)
        assert (await here.agent.say("Go on")).text == "You are welcome."
        assert_whole(here.agent.messages)
        assert len(here.server.requests) == 2
    if how == "abort":
        hold_to_golden("cancel-in-the-middle", events, request, is_writer=name == WRITER)


# --- what providers do wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_a_provider_that_refuses_is_an_error_that_names_no_key(name: Name, status: int) -> None:
    refusal = Refuse(status=status, message=f"not with {KEY}", headers=(("retry-after", "7"),))
    async with world(name, [refusal, LATER]) as here:
        stage = Stage(SCENARIOS[0], here.box, here.script)
        here.agent.on_event = stage.on_event
        with pytest.raises(ModelError) as caught:
            await here.agent.say("Please")
        assert caught.value.status == status
        assert KEY not in str(caught.value) + told(stage.events)
        assert caught.value.retry_after_seconds == 7
        assert len(here.server.requests) == 1
        assert (await here.agent.say("Again")).text == "You are welcome."


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["reset", "garbage", "error"])
async def test_a_reply_that_breaks_off_is_an_error_and_its_calls_are_cancelled(
    name: Name, how: Literal["reset", "garbage", "error"]
) -> None:
    async with world(name, [Reply(Say("Just a moment."), echo("id_a", "a"), Broken(how)), LATER]) as here:
        with pytest.raises(ConnectionLostError if how == "reset" else ModelError):
            await here.agent.say("Please")
        assert_whole(here.agent.messages)
        assert {each.status for each in results_of(here.agent.messages)} <= {"cancelled"}
        assert (await here.agent.say("Again")).text == "You are welcome."


@pytest.mark.parametrize("name", ["openai", "openai-responses", "anthropic"])
async def test_the_sdk_sends_again_what_was_refused_for_the_moment(name: Name) -> None:
    busy = Refuse(status=429, headers=(("retry-after-ms", "1"),))
    async with world(name, [busy, LATER]) as here:
        again: dict[str, Any] = {"api_key": KEY, "max_retries": 1}
        match name:
            case "openai":
                model: Any = OpenAIChatModel("gpt-5.2", base_url=here.server.openai_url, **again)
            case "openai-responses":
                model = OpenAIResponsesModel("gpt-5.2", base_url=here.server.openai_url, **again)
            case _:
                model = AnthropicModel("claude-test", base_url=here.server.url, **again)
        async with model:
            here.agent.model = model
            assert (await here.agent.say("Please")).text == "You are welcome."
        assert len(here.server.requests) == 2
