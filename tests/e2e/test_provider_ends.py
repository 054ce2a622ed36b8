"""Turns that end in the middle, by the user or by the provider: on every wire, and nothing is left."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio

from playhead.client.hub import open_hub
from playhead.config.servers import ServerConfig
from playhead.config.tools import ToolConfigs
from playhead.errors import ConnectionLostError, ModelError
from tests.e2e.provider_scenarios import SCENARIOS, Stage, echo
from tests.e2e.provider_world import (
    LATER,
    NAMES,
    WRITER,
    Name,
    hold_to_golden,
    world,
)
from tests.loop_kit import assert_whole, results_of
from tests.servers.providers.script import Ask, Broken, Hold, Reply, Say
from tests.servers.raw_http import Exchange, raw_http


@pytest.mark.parametrize("how", ["abort", "cancel"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_turn_that_ends_in_the_middle_ends_at_its_provider_and_its_server(
    name: Name, how: str, request: pytest.FixtureRequest
) -> None:
    hold = Hold()
    replies = [
        Reply(Say("Just a moment."), echo("id_a", "a"), echo("id_b", "b"), hold),
        Reply(echo("id_c", "c")),
        LATER,
    ]
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
        # The same session goes on, and so does the conversation.
        here.box.let["c"].set()
        assert (await here.agent.say("Go on")).text == "You are welcome."
        assert_whole(here.agent.messages)
        assert len(here.server.requests) == 3
    if how == "abort":
        hold_to_golden("cancel-in-the-middle", events, request, is_writer=name == WRITER)


@pytest.mark.parametrize("how", ["abort", "cancel"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["before the head", "in the text", "in the second round"])
async def test_a_turn_can_end_wherever_its_provider_is(name: Name, where: str, how: str) -> None:
    hold = Hold()
    held = {
        "before the head": [Reply(hold, Say("Never said."))],
        "in the text": [Reply(Say("Just a moment."), hold, Say("Never said."))],
        "in the second round": [Reply(echo("id_a", "a")), Reply(Say("So it is."), hold)],
    }
    async with world(name, [*held[where], LATER]) as here:
        here.box.let["a"].set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.agent.say, "Please")
            await hold.reached.wait()
            if how == "abort":
                here.agent.abort()
            else:
                nursery.cancel_scope.cancel()
        await here.server.requests[-1].gone.wait()
        assert (await here.agent.say("Go on")).text == "You are welcome."
        assert "Never said." not in str(here.agent.messages)
        assert_whole(here.agent.messages)


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_server_behind_http_is_told_by_notification_which_call_is_cancelled(how: str) -> None:
    called, told_off = trio.Event(), trio.Event()
    asked: list[Any] = []
    cancelled: list[Any] = []

    async def answer(exchange: Exchange) -> None:
        if exchange.method == "tools/list":
            tool = {"name": "hang", "inputSchema": {"type": "object", "properties": {}}}
            await exchange.result({"tools": [tool]})
        elif exchange.method == "tools/call":
            asked.append(exchange.message["id"])
            called.set()
            await told_off.wait()

    async def greet(exchange: Exchange) -> bool:
        if exchange.method == "notifications/cancelled":
            cancelled.append(exchange.message["params"]["requestId"])
            told_off.set()
        return await raw.handshake(exchange)

    hold = Hold()
    async with (
        raw_http(answer) as raw,
        world(WRITER, [Reply(Ask("id_a", "far__hang"), hold), LATER]) as here,
        open_hub({"far": ServerConfig(url=raw.url)}, tool_configs=ToolConfigs()) as hub,
    ):
        raw.greet = greet
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        here.agent.tools = hub
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.agent.say, "Please")
            await hold.reached.wait()
            await called.wait()
            if how == "abort":
                here.agent.abort()
            else:
                nursery.cancel_scope.cancel()
        await told_off.wait()
        assert cancelled == asked
        await here.server.requests[0].gone.wait()
        assert (await here.agent.say("Go on")).text == "You are welcome."


# --- what providers do wrong -------------------------------------------------------------------------


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
