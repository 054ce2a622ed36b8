"""`playhead tools`: what a server offers, or every server of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, EXIT_NO_CONNECTION, Report, run_command
from playhead.cli.targets import connected, limits_for, server_name, show_url
from playhead.cli.terminal import Terminal, escape_line
from playhead.errors import UsageError
from playhead.limits import Limits

if TYPE_CHECKING:
    from playhead.client.hub_state import ServerState


def tools(
    server: p.ServerOrNone = None,
    every: Annotated[bool, typer.Option("--all", help="Connect to all servers of the servers file.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show each tool's input schema.")] = False,
    config: p.ConfigFile = None,
    timeout: p.Timeout = None,
    json_output: p.Json = False,
) -> None:
    """List a server's tools.

    With --all, list every server with its state and reason, and with -v the tools
    of each, by the names that a model is offered.
    """

    async def command_all(terminal: Terminal, report: Report) -> int:
        return await _every_server(
            terminal, report, config=config, limits=limits_for(timeout), verbose=verbose
        )

    async def command(terminal: Terminal, report: Report) -> int:
        if server is None:
            raise UsageError("no SERVER is named; name one, or say --all for those of the servers file")
        async with connected(server, config=config, timeout=timeout) as session:
            offered = await session.list_tools()
            report["server"] = server_name(session)
            report["protocol_version"] = session.protocol_version
        report["tools"] = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in offered]
        count = "1 tool" if len(offered) == 1 else f"{len(offered)} tools"
        terminal.show(f"{count} of {escape_line(str(report['server']))}")
        terminal.show_rows((tool.name, _summary(tool)) for tool in offered)
        if verbose:
            for tool in offered:
                terminal.show(f"\n{tool.name}\n{json.dumps(tool.input_schema, indent=2)}")
        return EXIT_DONE

    if every and server is not None:
        raise UsageError("either a SERVER or --all, not both")
    run_command(command_all if every else command, json_output=json_output)


async def _every_server(
    terminal: Terminal, report: Report, *, config: Path | None, limits: Limits, verbose: bool
) -> int:
    from playhead.client.hub import open_hub

    async with open_hub(config, limits=limits, show_url=show_url) as hub:
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
    terminal.show_rows((state.name, _state(state, found.failed.get(state.name))) for state in states)
    if verbose and found.tools:
        terminal.show("")
        terminal.show_rows((tool.model_name, _summary(tool.tool)) for tool in found.tools)
    is_any = any(state.status.value == "connected" for state in states)
    return EXIT_DONE if is_any else EXIT_NO_CONNECTION


def _state(state: ServerState, listing: str | None) -> str:
    if listing is not None:
        return f"{state.status.value}, no tools: {listing}"
    if state.tools is None:
        return f"{state.status.value}: {state.reason}"
    return f"{state.status.value}, {'1 tool' if state.tools == 1 else f'{state.tools} tools'}"


def _summary(tool: Any) -> str:
    first = (tool.description or tool.title or "").strip().partition("\n")[0]
    wanted = ", ".join(tool.input_schema.get("properties", {}))
    return f"{first} ({wanted})".strip() if wanted else first
