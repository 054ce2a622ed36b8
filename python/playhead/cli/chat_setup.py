"""Puts a chat together: model, servers, player, approvals and recorder, each open while it lasts."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.cli.progress import clock, live_line
from playhead.cli.runner import EXIT_DONE, Report
from playhead.cli.terminal import Terminal, escape_line

if TYPE_CHECKING:
    from playhead.agent.agent import Agent
    from playhead.agent.events import Event
    from playhead.agent.model import Model
    from playhead.cli.chat_questions import Questions
    from playhead.client.hub import Hub
    from playhead.playback import Player, Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the command line asked for."""

    model: AbstractAsyncContextManager[Model]
    message: str | None
    """None: a conversation at the terminal."""
    servers: tuple[str, ...] | None
    config: Path | None
    tool_config: Path | None
    sink: Sink | None
    """None: nothing is played."""
    system: str
    record: Path | None
    verbose: bool


async def run_chat(setup: Setup, terminal: Terminal, report: Report) -> int:
    """The conversation, or the one turn. Returns the exit code, and raises what ends a single turn."""
    from playhead.agent.agent import Agent
    from playhead.agent.approvals import Approvals
    from playhead.agent.record import Recorder
    from playhead.cli.chat_lines import Lines
    from playhead.cli.chat_questions import Questions
    from playhead.cli.chat_report import Told
    from playhead.cli.chat_terminal import Conversation
    from playhead.cli.chat_view import View
    from playhead.config.tools import ApprovalPolicy, default_tool_file, load_approval_policy
    from playhead.playback import Player

    view, told = View(terminal, verbose=setup.verbose), Told(report)
    rules_file = setup.tool_config or default_tool_file(os.environ)
    policy = ApprovalPolicy() if rules_file is None else load_approval_policy(rules_file)
    lines = Lines(sys.stdin.fileno())
    conversation: Conversation | None = None

    async def read() -> str | None:
        return await (lines.read() if conversation is None else conversation.answer())

    questions = Questions(terminal, read) if _can_ask(terminal) else None
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(setup.model)
        recorder = None
        if setup.record is not None:
            recorder = await stack.enter_async_context(Recorder(setup.record))
        hub = await stack.enter_async_context(_opened_hub(setup, terminal, report, questions))
        player = None if setup.sink is None else await stack.enter_async_context(Player(setup.sink))

        async def on_event(event: Event) -> None:
            view(event)
            told(event)
            if recorder is not None:
                await recorder.write(event)

        def new_agent() -> Agent:
            return Agent(
                model,
                hub,
                system=setup.system,
                approvals=Approvals(policy, ask=None if questions is None else questions.approve),
                on_event=on_event,
                player=player,
            )

        if setup.message is not None:
            return await _one_turn(new_agent(), setup.message, player, terminal, report)
        assert player is not None, "a conversation is never for a program"
        conversation = Conversation(
            new_agent, hub=hub, player=player, terminal=terminal, view=view, lines=lines
        )
        terminal.say(f"{escape_line(model.name)}, {len(hub.tools)} tools; /help says what can be typed")
        await conversation.run(questions)
    return EXIT_DONE


async def _one_turn(
    agent: Agent, said: str, player: Player | None, terminal: Terminal, report: Report
) -> int:
    """One turn, and its music to the end."""
    from playhead.cli.chat_turns import exit_code, tell_outcome

    result = await agent.say(said)
    report.update(ended_by=result.ended_by, reason=result.reason)
    tell_outcome(result, terminal)
    if player is not None:
        async with live_line(terminal, partial(_playing, player)):
            await player.wait_finished()
    return exit_code(result)


def _playing(player: Player) -> str:
    now = player.snapshot()
    of = "" if now.duration_seconds is None else f"/{clock(now.duration_seconds)}"
    return f"{clock(now.position_seconds)}{of} · {now.title or ''}"


def _can_ask(terminal: Terminal) -> bool:
    """Whether a person is there: who reads the questions, and types."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not terminal.json_output


@asynccontextmanager
async def _opened_hub(
    setup: Setup, terminal: Terminal, report: Report, questions: Questions | None
) -> AsyncIterator[Hub]:
    """The servers, connected as far as they can be; what is wrong with one is said, and ends nothing."""
    from playhead.cli.targets import show_url
    from playhead.client.hub import open_hub
    from playhead.client.hub_state import ServerStatus
    from playhead.config.servers import default_file
    from playhead.config.tools import default_sources

    if setup.config is None and setup.servers is None and default_file(os.environ) is None:
        terminal.say("no servers file (./mcp.json, or --config FILE): the model has no tools", style="yellow")
        opened = open_hub({})
    else:
        opened = open_hub(
            setup.config,
            names=setup.servers,
            tool_configs=default_sources(setup.tool_config),
            show_url=show_url,
            on_elicitation=None if questions is None else questions.elicit,
        )
    async with opened as hub:
        states = await hub.connect_all()
        found = await hub.discover_and_register_all_tools()
        for state in states:
            if state.status is not ServerStatus.CONNECTED:
                terminal.say(f"{escape_line(state.name)} is not there: {state.reason}", style="yellow")
        for name, reason in found.failed.items():
            terminal.say(f"{escape_line(name)} can't list its tools: {reason}", style="yellow")
        report["servers"] = {name: str(state.status) for name, state in hub.states.items()}
        yield hub
