"""A provider's real client at a local server of its wire, the loop, a hub and an MCP server behind it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import trio

from playhead.agent.agent import Agent
from playhead.agent.conversation import Model
from playhead.agent.events import Event
from playhead.agent.middleware import Mode
from playhead.client.hub import Hub, open_hub
from playhead.concurrency import unwrap_exception_group
from playhead.config.tools import ToolConfigs
from playhead.limits import DEFAULT_LIMITS, Limits
from tests.e2e.provider_scenarios import in_tags, told
from tests.loop_kit import tasks
from tests.servers.providers.models import KEY, ModelName, model_at
from tests.servers.providers.script import Refuse, Reply, Say
from tests.servers.providers.validate import check_request
from tests.servers.providers.wire_server import WireServer, wire_server
from tests.servers.toolbox import WAV, Toolbox

GOLDEN = Path(__file__).parents[1] / "golden"
WAV_BASE64 = base64.b64encode(WAV).decode("ascii")
LATER = Reply(Say("You are welcome."))
FAIL_AFTER_SECONDS = 30
"""For a whole world. It is there for what would hang: each takes a tenth of a second."""

Name = ModelName | Literal["prompt"]
WRITER: Name = "openai-responses"
"""Whose events make the golden files: any could, this one goes first."""
PROVIDERS: tuple[Name, ...] = (WRITER, "openai", "anthropic", "gemini")
NAMES: tuple[Name, ...] = (*PROVIDERS, "gemini-without-ids", "compatible", "prompt")


@dataclass(slots=True)
class World:
    """One provider's model, at a server of its script, with a box of tools."""

    agent: Agent
    model: Model
    server: WireServer
    box: Toolbox
    script: list[Reply | Refuse]
    before: int
    """The number of tasks before the model was opened."""


@asynccontextmanager
async def world(
    name: Name,
    replies: Sequence[Reply | Refuse],
    *,
    limits: Limits = DEFAULT_LIMITS,
    max_retries: int = 0,
) -> AsyncIterator[World]:
    """Leaving it checks that no task is left, and that every request was one that its provider takes."""
    mode: Mode = "prompt" if name == "prompt" else "function"
    script = [in_tags(each) if mode == "prompt" and isinstance(each, Reply) else each for each in replies]
    box = Toolbox()
    with unwrap_exception_group(deep=True), trio.fail_after(FAIL_AFTER_SECONDS):
        async with box_hub(box, limits) as hub, wire_server(script) as server:
            await trio.testing.wait_all_tasks_blocked()
            before = tasks()
            provider = "compatible" if name == "prompt" else name
            async with model_at(provider, server.url, max_retries=max_retries) as model:
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
