"""`playhead tools` and `playhead call`: list the tools of servers, call one and show its result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from playhead.cli import parameters as p
from playhead.cli.listening import Heard, More, during_call, listen, waiting_lines
from playhead.cli.runner import EXIT_DONE, EXIT_NO_CONNECTION, Report, run_command
from playhead.cli.sinks import SinkName, check_sink, make_sink
from playhead.cli.targets import (
    arguments_for,
    call_tool,
    connected,
    find_server,
    limits_for,
    options_for,
    stream_options,
    url_shower,
)
from playhead.cli.terminal import Terminal, escape_line
from playhead.cli.trust import with_consent
from playhead.errors import ProtocolError, ToolFailedError, UsageError
from playhead.escaping import counted
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.plan import KeepReference

if TYPE_CHECKING:
    from mcp_types import Tool

    from playhead.client import CallResult
    from playhead.client.call_results.processing import ProcessedResult
    from playhead.client.hub.server import ServerState
    from playhead.client.session.requests import OnMedia
    from playhead.config.servers import ServerConfig
    from playhead.config.tools import Resolution
    from playhead.config.trust import Trust
    from playhead.stream.source import Playable


def tools(
    server: p.ServerOrNone = None,
    every: Annotated[bool, typer.Option("--all", help="Connect to all servers in the servers file.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show each tool's input schema.")] = False,
    config: p.ConfigFile = None,
    trusted: p.Trust = False,
    timeout: p.Timeout = None,
    deadline: p.Deadline = None,
    json_output: p.Json = False,
) -> None:
    """List a server's tools.

    With --all, list every configured server with its state, and with -v their
    tools under the names that a model sees.
    """

    async def command_all(terminal: Terminal, report: Report) -> int:
        return await _list_every_server(
            terminal, report, config=config, trusted=trusted, limits=limits_for(timeout), verbose=verbose
        )

    async def command(terminal: Terminal, report: Report) -> int:
        if server is None:
            raise UsageError("expected SERVER or --all (every server in the servers file), got neither")
        target = await find_server(server, terminal, config=config, trusted=trusted)
        async with connected(target, terminal, timeout=timeout) as session:
            offered = await session.list_tools()
            report["server"] = session.server_name
            report["protocol_version"] = session.protocol_version
        report["tools"] = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in offered]
        terminal.show(f"{counted(len(offered), 'tool')} from {escape_line(str(report['server']))}")
        terminal.show_rows((tool.name, _summary(tool)) for tool in offered)
        if verbose:
            for tool in offered:
                terminal.show(f"\n{tool.name}\n{json.dumps(tool.input_schema, indent=2)}")
        return EXIT_DONE

    if every and server is not None:
        raise UsageError("expected SERVER or --all, got both")
    run_command(command_all if every else command, json_output=json_output, deadline=deadline)


async def _list_every_server(
    terminal: Terminal,
    report: Report,
    *,
    config: Path | None,
    trusted: bool,
    limits: Limits,
    verbose: bool,
) -> int:
    from playhead.client.hub import open_hub
    from playhead.config.servers import find_servers
    from playhead.config.tools import default_sources

    servers, sources = await with_consent(
        terminal,
        lambda trust: (find_servers(config, trust=trust), default_sources(trust=trust)),
        trusted=trusted,
    )
    for each in servers.values():
        terminal.hide(each.secrets)
    async with open_hub(servers, tool_configs=sources, limits=limits, show_url=url_shower(terminal)) as hub:
        await hub.connect_all()
        found = await hub.discover_and_register_all_tools()
        states = list(hub.states.values())
    report["servers"] = [
        {"name": state.name, "status": state.status.value, "reason": state.reason, "tools": state.tools}
        | ({"reason": found.failed[state.name]} if state.name in found.failed else {})
        for state in states
    ]
    report["configured"] = found.configured
    report["tools"] = [
        {"tool_id": tool.tool_id, "model_name": tool.model_name, "server": tool.server}
        | {"tool": tool.tool.model_dump(mode="json", by_alias=True, exclude_none=True)}
        for tool in found.tools
    ]
    terminal.show_rows((state.name, _state_line(state, found.failed.get(state.name))) for state in states)
    if verbose and found.tools:
        terminal.show("")
        terminal.show_rows((tool.model_name, _summary(tool.tool)) for tool in found.tools)
    is_any = any(state.status.value == "connected" for state in states)
    return EXIT_DONE if is_any else EXIT_NO_CONNECTION


def _state_line(state: ServerState, listing: str | None) -> str:
    if listing is not None:
        return f"{state.status.value}, no tools: {listing}"
    if state.tools is None:
        return f"{state.status.value}: {state.reason}"
    return f"{state.status.value}, {counted(state.tools, 'tool')}"


def _summary(tool: Tool) -> str:
    first = (tool.description or tool.title or "").strip().partition("\n")[0]
    wanted = ", ".join(tool.input_schema.get("properties", {}))
    return f"{first} ({wanted})".strip() if wanted else first


def call(
    server: p.Server,
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help="The tool's name; `playhead tools` lists them.")
    ],
    pairs: p.Pairs = None,
    arguments: p.ArgsJson = None,
    force: Annotated[
        bool, typer.Option("--force", help="Send arguments that the tool's schema does not list.")
    ] = False,
    config: p.ConfigFile = None,
    tool_config: p.ToolConfigFile = None,
    trusted: p.Trust = False,
    sink: SinkName = None,
    quiet: Annotated[
        bool, typer.Option("--no-play", help="Show links and audio instead of playing them.")
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option(
            "--save-images", metavar="DIR", help="Where to save images. [default: the current directory]"
        ),
    ] = None,
    candidates: Annotated[
        bool,
        typer.Option("--candidates", help="List what may be audio in the result, and what became of it."),
    ] = False,
    unsaved: Annotated[bool, typer.Option("--no-save", help="Save nothing, even if configured.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Explain what happens to each block, and why.")
    ] = False,
    timeout: p.Timeout = None,
    patience: p.Patience = None,
    live: p.Live = False,
    deadline: p.Deadline = None,
    allow_origins: p.AllowOrigins = None,
    allow_paths: p.AllowPaths = None,
    json_output: p.Json = False,
) -> None:
    """Call a tool, show its result and play its audio.

    Images are saved, and outputs as the tool's configuration says (`playhead
    explain`). With --json, audio is played only if --sink is given.
    """
    typed = p.parse_arguments(pairs, arguments)
    given = stream_options(timeout=timeout, patience=patience, live=live)
    check_sink(sink)
    folder = None if unsaved else _image_folder(images)

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.cli.showing import (
            Showing,
            candidate_rows,
            result_report,
            saved_report,
            turn_report,
        )
        from playhead.client.call_results.processing import Saving, process
        from playhead.config.outputs import OutputStore, default_output_folder

        target = await find_server(
            server,
            terminal,
            config=config,
            trusted=trusted,
            allow_origins=allow_origins,
            allow_paths=allow_paths,
        )
        resolution = await with_consent(
            terminal,
            lambda trust: _resolve_tool(target, tool, file=tool_config, unsaved=unsaved, trust=trust),
            trusted=trusted,
        )
        async with connected(target, terminal, timeout=timeout) as session:
            policy = resolution.policy(session.policy)
            tool_arguments = await arguments_for(
                session, tool, typed, force=force, advice="; --force sends it anyway"
            )
            saving = Saving(OutputStore(default_output_folder()), resolution, tool_arguments)
            plays = not quiet and (sink is not None or not json_output)
            processed: ProcessedResult | None = None

            async def call_and_show(on_media: OnMedia) -> Sequence[Playable]:
                nonlocal processed
                result = await call_tool(
                    session,
                    tool,
                    tool_arguments,
                    terminal,
                    timeout=timeout,
                    policy=policy,
                    on_media=(lambda media: on_media(saving.teed(media))) if plays else None,
                )
                report.update(result_report(tool, result))
                processed = await process(tool, result, saving=saving, limits=DEFAULT_LIMITS)
                report["text_for_model"] = processed.text_for_model
                report["turn"] = turn_report(processed.turn)
                showing = Showing(tool=tool, terminal=terminal, folder=folder, verbose=verbose)
                report["images"] = showing.images
                handled = processed.handler_response
                message = None if handled is None else handled.message
                await showing.show(result, turn=processed.turn, message=message)
                if candidates:
                    terminal.show_rows(candidate_rows(result))
                return processed.late_media if plays else ()

            async def play(media: Sequence[Playable], more: More) -> None:
                if not media:
                    return
                waiting = waiting_lines(terminal, session.server_name)
                options = options_for(session, given, profile="play", on_event=waiting)
                speaker = make_sink(sink, real_time=False)
                heard = Heard.of(media)
                report["player"] = {"items": heard.items, "files": heard.files}
                await listen(media, speaker, terminal, heard, options=options, more=more)

            try:
                await during_call(call_and_show, play)
            finally:
                if processed is not None:
                    report["saved"] = await saved_report(processed, terminal, played=plays)
        assert processed is not None
        raise_errors(tool, processed.result)
        for error in (processed.handler_error, processed.saving_error):
            if error is not None:
                raise error
        return EXIT_DONE

    run_command(command, json_output=json_output, deadline=deadline)


def _resolve_tool(
    server: ServerConfig, tool: str, *, file: Path | None, unsaved: bool, trust: Trust
) -> Resolution:
    """Return the tool's configuration, resolved as in a hub. Raises `ConfigError`."""
    from playhead.config.tools import ToolOverride, default_sources

    configs = default_sources(file, trust=trust).load()
    resolution = configs.resolve(server.name, tool, server_config=server)
    if unsaved and resolution.save_output:
        override = ToolOverride(save_output=False)
        resolution = configs.resolve(server.name, tool, override=override, server_config=server)
    return resolution


def _image_folder(images: Path | None) -> Path:
    """Return the directory for images. Raises `UsageError` if it does not exist."""
    folder = Path() if images is None else images
    if not folder.is_dir():
        raise UsageError(f"--save-images: {folder} is not a directory; create it first")
    return folder


def raise_errors(tool: str, result: CallResult) -> None:
    """Raise the tool's own error, or `ProtocolError` if no block of the result is usable."""
    if result.is_error or result.errors:
        reasons = "\n".join(result.errors) or "(no reason given)"
        raise ToolFailedError(f"tool {escape_line(tool)} failed: {reasons}")
    broken = _undecodable_blocks(result)
    if broken and len(broken) == len(result.plan.dispositions) and "structuredContent" not in result.raw:
        raise ProtocolError(
            f"expected a usable result from tool {escape_line(tool)}, got only {', '.join(broken)}"
        )


def _undecodable_blocks(result: CallResult) -> list[str]:
    """Return the blocks whose bytes can't be decoded, each with the reason."""
    blocks = []
    for item in result.plan.dispositions:
        place = f"$.content[{item.index}]."
        is_broken = any(
            finding.path.startswith(place) and finding.expected.startswith("base64")
            for finding in result.findings
        )
        if isinstance(item, KeepReference) and is_broken:
            blocks.append(f"block {item.index} ({item.reason})")
    return blocks
