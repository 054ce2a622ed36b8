"""The tool loop over real servers: a hub of the SDK's own, and what the model gets of their results."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import trio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import AudioContent, ImageContent, TextContent, ToolAnnotations

from playhead.agent.agent import Agent, run_turn
from playhead.agent.approvals import ApprovalPolicy, ApprovalRule, Approvals
from playhead.agent.budgets import Budgets
from playhead.agent.conversation import ToolSpec
from playhead.agent.events import AudioStart, Event, ImageComplete, ToolProgress
from playhead.agent.scripted_model import ScriptedModel, call, reply
from playhead.agent.tool_runner import HubRunner
from playhead.client.hub import Hub, open_hub
from playhead.config.servers import ServerConfig
from playhead.config.tools import ToolConfigs, create_tool_config
from playhead.limits import Limits
from tests.loop_kit import NotingPlayer, assert_requests_whole, results_of, shape, tasks, user

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
WAV = base64.b64encode(b"RIFF\x24\0\0\0WAVE").decode()


class House:
    """A server with a tool of every kind; it notes which calls run and which were cancelled."""

    def __init__(self) -> None:
        self.running = 0
        self.cancelled: list[str] = []
        self.server: MCPServer = MCPServer("house", log_level="CRITICAL")
        for tool in (self.add, self.wait, self.picture, self.sing, self.broken, self.slow, self.long):
            self.server.add_tool(tool)
        self.server.add_tool(
            self.wipe, annotations=ToolAnnotations(destructive_hint=True), description="Deletes all"
        )

    async def add(self, a: int, b: int = 1) -> str:
        return str(a + b)

    async def wait(self, name: str = "x") -> str:
        self.running += 1
        try:
            await anyio.sleep_forever()
        except trio.Cancelled:
            self.cancelled.append(name)
            raise
        finally:
            self.running -= 1
        return "unreachable"

    async def picture(self) -> list[TextContent | ImageContent]:
        image = ImageContent(data=PNG, mime_type="image/png")
        return [TextContent(text="a cat"), image]

    async def sing(self) -> list[AudioContent]:
        return [AudioContent(data=WAV, mime_type="audio/wav")]

    async def broken(self) -> str:
        raise ValueError("out of milk")

    async def slow(self, context: Context[Any, Any]) -> str:
        await context.report_progress(1, 2, "half")
        return "done"

    async def long(self) -> str:
        return "0123456789" * 1000

    async def wipe(self) -> str:
        return "all gone"


@asynccontextmanager
async def house_hub(
    house: House, *, configs: ToolConfigs | None = None, **options: Any
) -> AsyncIterator[Hub]:
    async with open_hub({"house": house.server}, tool_configs=configs or ToolConfigs(), **options) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        yield hub


async def test_calls_run_on_their_server_and_every_kind_of_end_is_one_result() -> None:
    house, events = House(), list[Event]()
    model = ScriptedModel(
        [
            reply(
                call("house__add", {"a": 2, "b": 3}),
                call("house__broken"),
                call("house__ad", {"a": 1}),
                call("house__add", {"a": "two"}),
                call("house__slow"),
            ),
            reply("ok"),
        ]
    )
    async with house_hub(house) as hub:
        result = await run_turn(model, hub, [user("go")], on_event=events.append)
    texts = [(each.status, each.text) for each in results_of(result.messages)]
    assert texts[0] == ("done", "5")
    assert texts[1][0] == "error"
    assert texts[1][1] == "Error: Error executing tool broken"
    assert texts[2][0] == "unknown"
    assert texts[2][1].startswith("Tool not found: house__ad; did you mean house__add")
    assert texts[3][0] == "error", "the server checks the arguments against its schema"
    assert texts[4] == ("done", "done")
    assert [(event.progress, event.message) for event in events if isinstance(event, ToolProgress)] == [
        (1.0, "half")
    ]
    assert [spec.name for spec in model.requests[0].tools][:2] == ["house__add", "house__wait"]
    assert "b" not in model.requests[0].tools[0].parameters["required"]
    assert_requests_whole(model)


async def test_an_image_goes_to_a_model_that_can_see_and_never_as_text() -> None:
    for images in (True, False):
        events: list[Event] = []
        model = ScriptedModel([reply(call("house__picture")), reply("A cat!")])
        async with house_hub(House()) as hub:
            runner = HubRunner(hub, images=images)
            result = await run_turn(model, runner, [user("look")], on_event=events.append)
        (only,) = results_of(result.messages)
        assert [(media.kind, media.mime_type, media.base64) for media in only.media] == (
            [("image", "image/png", PNG)] if images else []
        )
        assert only.text.startswith("a cat\n[image, image/png")
        assert PNG not in only.text
        assert [event.mime_type for event in events if isinstance(event, ImageComplete)] == ["image/png"]


async def test_sound_plays_at_once_and_ends_the_turn() -> None:
    player, events = NotingPlayer(), list[Event]()
    model = ScriptedModel([reply(call("house__sing"), call("house__sing"), call("house__add", {"a": 1}))])
    async with house_hub(House()) as hub:
        result = await run_turn(model, hub, [user("sing")], player=player, on_event=events.append)
        assert (result.ended_by, len(model.requests)) == ("tool_turn", 1)
        assert [how for how, _ in player.got] == ["play", "enqueue"]
        starts = [event.mime_type for event in events if isinstance(event, AudioStart)]
        assert starts == ["audio/wav"] * 2
        assert [each.status for each in results_of(result.messages)] == ["done"] * 3
        assert [len(outcome.media) for outcome in result.outcomes] == [1, 1, 0]
        # No model gets base64, and one that hears none where playing was the purpose.
        assert all(not each.media and WAV not in each.text for each in results_of(result.messages))


async def test_a_tools_configured_system_prompt_is_there_while_it_is_offered() -> None:
    configs = ToolConfigs(
        [
            create_tool_config("house", "add", system_prompt="Add with care.", send_result_to_ai=True),
            create_tool_config("house", "wait", system_prompt="Waiting is for ever."),
        ]
    )
    model = ScriptedModel([reply(call("house__add", {"a": 1})), reply("2")])
    async with house_hub(House(), configs=configs) as hub:
        await run_turn(model, hub, [user("go")], system="Be brief.", budgets=Budgets(max_depth=1))
    first, last = model.requests
    assert first.system == "Be brief.\n\nAdd with care.\n\nWaiting is for ever."
    assert "care" not in last.system, "no tool is offered any more"


async def test_a_result_for_the_user_only_ends_the_turn_and_keeps_its_media_from_the_model() -> None:
    configs = ToolConfigs([create_tool_config("house", "picture", save_output=False)])
    model = ScriptedModel([reply(call("house__picture"))])
    async with house_hub(House(), configs=configs) as hub:
        result = await run_turn(model, hub, [user("go")])
    (only,) = results_of(result.messages)
    assert (only.text, only.media, result.ended_by) == ("delivered to the user", (), "tool_turn")
    assert result.outcomes[0].processed is not None
    assert "a cat" in result.outcomes[0].processed.text_for_user


async def test_long_text_is_cut_for_the_model() -> None:
    model = ScriptedModel([reply(call("house__long")), reply("ok")])
    async with house_hub(House(), limits=Limits(model_text_chars=500)) as hub:
        result = await run_turn(model, hub, [user("go")])
    (only,) = results_of(result.messages)
    assert len(only.text) <= 500
    assert "characters left out here" in only.text


async def test_a_server_that_does_not_answer_in_time_is_a_timeout() -> None:
    house = House()
    model = ScriptedModel([reply(call("house__wait", {"name": "a"})), reply("It takes too long.")])
    async with house_hub(house, limits=Limits(tool_seconds=0.2)) as hub:
        result = await run_turn(model, hub, [user("go")])
    (only,) = results_of(result.messages)
    assert only.status == "timeout"
    assert only.text.startswith("The call timed out: ")
    assert house.cancelled == ["a"]


@pytest.mark.parametrize("approvals", [None, Approvals()], ids=["by default", "with approvals of nobody"])
async def test_a_tool_that_says_it_destroys_does_not_run_where_nobody_can_be_asked(
    approvals: Approvals | None,
) -> None:
    model = ScriptedModel([reply(call("house__wipe"), call("house__add", {"a": 1})), reply("ok")])
    async with house_hub(House()) as hub:
        result = await run_turn(model, hub, [user("go")], approvals=approvals)
    denied, added = results_of(result.messages)
    assert denied.status == "denied"
    assert "nobody to ask" in denied.text
    assert added.status == "done"


@pytest.mark.parametrize("how", ["cancel", "abort", "seconds"])
async def test_ending_a_turn_ends_its_calls_on_the_servers_too(how: str) -> None:
    house = House()
    names = [f"call {n}" for n in range(5)]
    model = ScriptedModel([reply(*(call("house__wait", {"name": name}) for name in names)), reply("ok")])
    budgets = Budgets(max_seconds=0.5) if how == "seconds" else None
    async with house_hub(house) as hub:
        await trio.testing.wait_all_tasks_blocked()
        before = tasks()
        agent = Agent(model, hub, budgets=budgets)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.say, "go")
                while house.running < 5:
                    await trio.lowlevel.checkpoint()
                if how == "cancel":
                    nursery.cancel_scope.cancel()
                elif how == "abort":
                    agent.abort()
            while house.running:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
        assert sorted(house.cancelled) == names
        assert tasks() == before
        status = "over_budget" if how == "seconds" else "cancelled"
        assert [each.status for each in results_of(agent.messages)] == [status] * 5


async def test_a_dead_server_costs_its_calls_and_nothing_else() -> None:
    house = House()
    dead = ServerConfig(command=("/nowhere/server",))
    model = ScriptedModel([reply(call("dead__x"), call("house__add", {"a": 1})), reply("ok")])
    events: list[Event] = []
    async with open_hub({"dead": dead, "house": house.server}, tool_configs=ToolConfigs()) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        result = await run_turn(model, hub, [user("go")], on_event=events.append)
    assert [each.status for each in results_of(result.messages)] == ["unknown", "done"]
    assert "mcp_tool_call_begin(call_1)" not in shape(events)


class Stale(HubRunner):
    """Offers for ever what the hub had at first."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._first = super().specs()

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._first


async def test_a_tool_that_its_server_took_away_is_not_called_by_its_name() -> None:
    """The hub would list again and find it, and the rules for its server would not have been asked."""
    model = ScriptedModel([reply(call("house__wipe")), reply("ok")])
    async with house_hub(House()) as hub:
        runner = Stale(hub)
        await hub.disconnect_from_server("house")
        await hub.connect_to_server("house")  # it would be listed by the next call
        approvals = Approvals(ApprovalPolicy(rules=(ApprovalRule(action="deny", server="house"),)))
        result = await run_turn(model, runner, [user("go")], approvals=approvals)
        assert hub.tools == ()
    (only,) = results_of(result.messages)
    assert only.status == "unknown"


@pytest.mark.parametrize("approvals", [None, Approvals()], ids=["unasked", "asked"])
async def test_a_tool_that_is_gone_when_it_is_called_is_unknown(approvals: Approvals | None) -> None:
    model = ScriptedModel([reply(call("house__add", {"a": 1})), reply("ok")])
    async with house_hub(House()) as hub:
        runner = Stale(hub)
        await hub.disconnect_from_server("house")
        result = await run_turn(model, runner, [user("go")], approvals=approvals)
    (only,) = results_of(result.messages)
    assert only.status == "unknown"
    assert only.text.startswith("Tool not found: house__add; ")
    assert result.text == "ok"
