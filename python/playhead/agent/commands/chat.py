"""`playhead chat`: a model with the tools of your servers, in a terminal, a pipe or a script.

The model, servers, player, approvals and recorder are each open for as long as the chat lasts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
import typer

from playhead.agent.models.providers import ProviderName, open_model
from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.sinks import SinkName, make_sink
from playhead.cli.targets import with_permissions
from playhead.cli.terminal import Terminal, clock, escape_line
from playhead.cli.trust import with_consent
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.agent.agent import Agent
    from playhead.agent.commands.chat_questions import Questions
    from playhead.agent.conversation import Model
    from playhead.agent.events import Event
    from playhead.client.hub import Hub
    from playhead.config.servers import ServerConfig
    from playhead.config.tools import ApprovalPolicy, ApprovalRule, ToolConfigSources
    from playhead.config.trust import Trust
    from playhead.playback import Player, Sink


def chat(
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="The message. [default: stdin, or a conversation]"),
    ] = None,
    provider: Annotated[ProviderName | None, typer.Option(help="API of the model.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the model.")] = None,
    base_url: p.ModelUrl = None,
    servers: Annotated[
        str | None, typer.Option(metavar="A,B", help="Servers to use, by name. [default: all]")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVER/TOOL",
            help="Run these tools without asking, e.g. 'music/*', unless a rule denies them; repeatable.",
        ),
    ] = None,
    config: p.ConfigFile = None,
    tool_config: p.ToolConfigFile = None,
    trusted: p.Trust = False,
    allow_origins: p.AllowOrigins = None,
    allow_paths: p.AllowPaths = None,
    sink: SinkName = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="System prompt.", show_default=False)
    ] = None,
    prompt_template: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Prompt template that describes the tools (with --provider prompt)."
        ),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record the events to a new file.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show a recording, without model or servers.")
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(
            metavar="N", help="Speed of --replay: 1 as recorded, 2 twice as fast. [default: no delays]"
        ),
    ] = None,
    deadline: p.Deadline = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Also show thinking, progress and tokens.")
    ] = False,
    json_output: p.Json = False,
) -> None:
    """Chat with a model that can call your servers' tools.

    Music keeps playing while you type, and the model can control it. API keys are read from
    OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY or GOOGLE_API_KEY.
    With --json, audio is played only with --sink.
    """
    if replay is not None:
        if message is not None or record is not None:
            raise UsageError("--replay shows a recording: omit MESSAGE and --record")
        _replay(replay, pace=pace, verbose=verbose, json_output=json_output, deadline=deadline)
    if pace is not None:
        raise UsageError("--pace needs --replay")
    if provider is None or not model:
        missing = "--provider" if provider is None else "--model"
        raise UsageError(
            f"{missing} is missing: give the API of the model (--provider) and its name (--model)"
        )
    if prompt_template is not None and provider != "prompt":
        raise UsageError("--prompt-template needs --provider prompt; other providers have function calling")
    from playhead.agent.commands.chat_questions import allowed_rules

    allowed = allowed_rules(allow)
    single_message = _message_of_single_turn(message, json_output=json_output)
    template = None if prompt_template is None else text_of(prompt_template, option="--prompt-template")
    opened = open_model(provider, model, base_url=base_url, environment=os.environ)
    setup = ChatSetup(
        model=opened if provider != "prompt" else _prompt_model(opened, template, str(prompt_template)),
        message=single_message,
        servers=None if servers is None else tuple(name.strip() for name in servers.split(",")),
        config=config,
        allow=allowed,
        allow_origins=allow_origins,
        allow_paths=allow_paths,
        tool_config=tool_config,
        trusted=trusted,
        # In a conversation even the null sink plays in real time, so that commands have audio to act on.
        sink=None if json_output and sink is None else make_sink(sink, real_time=single_message is None),
        system=_system_prompt(system),
        record=record,
        verbose=verbose,
    )

    async def command(terminal: Terminal, report: Report) -> int:
        warn_if_readable(terminal, base_url)
        return await run_chat(setup, terminal, report)

    run_command(command, json_output=json_output, deadline=deadline)


def _system_prompt(value: str | None) -> str:
    if value is None or not value.startswith("@"):
        return value or ""
    return text_of(Path(value[1:]), option="--system")


def _message_of_single_turn(argument: str | None, *, json_output: bool) -> str | None:
    """Return the message of a single turn; None for a conversation at the terminal."""
    if argument is None and sys.stdin.isatty():
        if json_output:
            raise UsageError("--json needs a MESSAGE: a conversation has no single result")
        return None
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if argument is None else argument
    if not text.strip():
        raise UsageError("the message is empty: pass a MESSAGE, or write one to stdin")
    return text


def _replay(
    path: Path, *, pace: float | None, verbose: bool, json_output: bool, deadline: float | None
) -> None:
    """Show the recording at `path` as the turn was shown. Never returns."""

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.agent import recording as recordings
        from playhead.agent.commands.chat_view import ChatView, TurnSummary
        from playhead.agent.events import Failed

        view, summary = ChatView(terminal, verbose=verbose), TurnSummary(report)

        def show(event: Event) -> None:
            view(event)
            summary(event)
            if isinstance(event, Failed):
                terminal.fail(event.error)

        recording = await trio.to_thread.run_sync(recordings.read_recording, path)
        await recordings.replay(recording, show, pace=pace)
        view.end_line()
        if recording.broken_end is not None:
            terminal.say(f"the recording is cut off: {recording.broken_end}", style="yellow")
        if recording.unknown:
            terminal.say(
                f"skipped {recording.unknown} events of types unknown to this version", style="yellow"
            )
        return EXIT_DONE

    run_command(command, json_output=json_output, deadline=deadline)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSetup:
    """The checked values of the command line."""

    model: AbstractAsyncContextManager[Model]
    message: str | None
    """The message of a single turn; None for a conversation at the terminal."""
    servers: tuple[str, ...] | None
    config: Path | None
    allow: tuple[ApprovalRule, ...]
    allow_origins: list[str] | None
    allow_paths: list[str] | None
    tool_config: Path | None
    trusted: bool
    sink: Sink | None
    """The sink for audio; None plays nothing."""
    system: str
    record: Path | None
    verbose: bool


async def run_chat(setup: ChatSetup, terminal: Terminal, report: Report) -> int:
    """Run the conversation or the single turn; return the exit code. Raises what ends a single turn."""
    from playhead.agent.agent import Agent
    from playhead.agent.approvals import Approvals
    from playhead.agent.commands.chat_questions import Questions, how_to_allow
    from playhead.agent.commands.chat_terminal import TerminalChat
    from playhead.agent.commands.chat_view import ChatView, TurnSummary
    from playhead.agent.commands.terminal_lines import TerminalLines
    from playhead.agent.playback_tools import player_tools
    from playhead.agent.recording import Recorder
    from playhead.config.tools.files import user_tool_file
    from playhead.playback import Player
    from playhead.playback.player_tools import PLAYER_TOOLS

    view, summary = ChatView(terminal, verbose=setup.verbose), TurnSummary(report)
    servers, sources, policy = await _load_configuration(setup, terminal)
    lines = TerminalLines(sys.stdin.fileno())
    conversation: TerminalChat | None = None

    async def read() -> str | None:
        return await (lines.read() if conversation is None else conversation.answer())

    questions = Questions(terminal, read) if _can_ask(terminal) else None
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(setup.model)
        recorder = None
        if setup.record is not None:
            recorder = await stack.enter_async_context(Recorder(setup.record))
        opened = _open_hub(setup, servers, sources, terminal, report, questions)
        hub = await stack.enter_async_context(opened)
        player = None if setup.sink is None else await stack.enter_async_context(Player(setup.sink))

        async def on_event(event: Event) -> None:
            view(event)
            summary(event)
            if recorder is not None:
                await recorder.write(event)

        rules_file = setup.tool_config or user_tool_file(os.environ)

        def new_agent() -> Agent:
            return Agent(
                model,
                # A single turn begins in silence and ends with its music, so it has nothing to control.
                hub if player is None or setup.message is not None else [player_tools(player), hub],
                system=setup.system,
                approvals=Approvals(
                    policy,
                    ask=None if questions is None else questions.approve,
                    remedy=partial(how_to_allow, file=rules_file),
                ),
                on_event=on_event,
                player=player,
            )

        if setup.message is not None:
            return await _run_single_turn(new_agent(), setup.message, player, terminal, report)
        assert player is not None, "a conversation always has a player"
        conversation = TerminalChat(
            new_agent, hub=hub, player=player, terminal=terminal, view=view, lines=lines
        )
        count = len(hub.tools) + len(PLAYER_TOOLS)
        terminal.say(f"{escape_line(model.name)}, {count} tools; /help lists the commands")
        await conversation.run(questions)
    return EXIT_DONE


async def _load_configuration(
    setup: ChatSetup, terminal: Terminal
) -> tuple[dict[str, ServerConfig] | None, ToolConfigSources, ApprovalPolicy]:
    """Load the servers and the settings of their tools, and apply the options of the command to them."""
    from playhead.config.servers import default_servers, load_servers
    from playhead.config.tools import default_approval_policy, default_sources

    def load(trust: Trust) -> tuple[dict[str, ServerConfig] | None, ToolConfigSources, ApprovalPolicy]:
        return (
            default_servers(trust=trust) if setup.config is None else load_servers(setup.config),
            default_sources(setup.tool_config, trust=trust),
            default_approval_policy(setup.tool_config, trust=trust),
        )

    servers, sources, policy = await with_consent(terminal, load, trusted=setup.trusted)
    if servers is not None:
        for each in servers.values():
            terminal.hide(each.secrets)
        servers = {
            name: with_permissions(each, setup.allow_origins, setup.allow_paths)
            for name, each in servers.items()
        }
    return servers, sources, replace(policy, approved=setup.allow)


async def _run_single_turn(
    agent: Agent, message: str, player: Player | None, terminal: Terminal, report: Report
) -> int:
    """Run one turn, and play its music to the end."""
    from playhead.agent.commands.chat_view import exit_code, raise_if_refused, show_outcome, show_waiting

    result = await agent.say(message)
    report.update(ended_by=result.ended_by, reason=result.reason)
    show_outcome(result, terminal)
    if player is not None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(show_waiting, player, terminal)
            with terminal.showing(partial(_playing_line, player)):
                await player.wait_finished()
            nursery.cancel_scope.cancel()
    raise_if_refused(result)
    return exit_code(result)


def _playing_line(player: Player) -> str:
    now = player.snapshot()
    of = "" if now.duration_seconds is None else f"/{clock(now.duration_seconds)}"
    return f"{clock(now.position_seconds)}{of} · {now.title or ''}"


def _can_ask(terminal: Terminal) -> bool:
    """Return True if a person can read questions and type answers."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not terminal.json_output


@asynccontextmanager
async def _open_hub(
    setup: ChatSetup,
    servers: dict[str, ServerConfig] | None,
    sources: ToolConfigSources,
    terminal: Terminal,
    report: Report,
    questions: Questions | None,
) -> AsyncIterator[Hub]:
    """Connect to the servers. If one fails, report it and use the others."""
    from playhead.agent.playback_tools import PLAYER
    from playhead.cli.targets import url_shower
    from playhead.client.hub import open_hub
    from playhead.client.hub.server import ServerStatus
    from playhead.playback.player_tools import PLAYER_TOOLS

    if servers is None and setup.servers is None:
        tools = "no tools" if setup.message is not None else "only the player's tools"
        terminal.say(f"no servers file (./mcp.json, or --config FILE): the model has {tools}", style="yellow")
    async with open_hub(
        servers or {},
        names=setup.servers,
        tool_configs=sources,
        show_url=url_shower(terminal),
        on_elicitation=None if questions is None else questions.elicit,
    ) as hub:
        states = await hub.connect_all()
        discovery = await hub.discover_and_register_all_tools()
        for state in states:
            if state.status is not ServerStatus.CONNECTED:
                terminal.say(f"{escape_line(state.name)} is not connected: {state.reason}", style="yellow")
        for name, reason in discovery.failed.items():
            terminal.say(f"{escape_line(name)} failed to list its tools: {reason}", style="yellow")
        report["servers"] = {name: str(state.status) for name, state in hub.states.items()}
        names = [(tool.server, tool.tool.name) for tool in hub.tools]
        if setup.message is None:
            names += [(PLAYER, name) for name in PLAYER_TOOLS]
        for rule in setup.allow:
            if not any(rule.fits(server, tool) for server, tool in names):
                unused = escape_line(f"--allow {rule.server}/{rule.tool}")
                terminal.say(f"{unused} fits none of the {len(names)} tools", style="yellow")
        yield hub


def warn_if_readable(terminal: Terminal, base_url: str | None) -> None:
    if is_readable(base_url):
        terminal.say(
            "--base-url is not https: the network can read the key and the conversation", style="yellow"
        )


def is_readable(url: str | None) -> bool:
    """Return True if the network can read requests to `url` and the key in them: plain HTTP to another
    machine."""
    from playhead.net_guard import is_loopback

    return url is not None and url.lower().startswith("http://") and not is_loopback(url)


def _prompt_model(
    inner: AbstractAsyncContextManager[Model], template: str | None, where: str
) -> AbstractAsyncContextManager[Model]:
    from playhead.agent.prompt_mode import DEFAULT_PROMPT, PromptModel, PromptTemplate

    chosen = DEFAULT_PROMPT if template is None else PromptTemplate(text=template, where=where)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Model]:
        async with inner as model:
            yield PromptModel(model, template=chosen)

    return opened()


def text_of(path: Path, *, option: str) -> str:
    """Read the text file that an option names. Raises `UsageError` if it isn't UTF-8, `OSError` if it can't
    be read."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{option}: {path}: expected UTF-8 text, got an invalid byte at {error.start}"
        ) from None
