"""`playhead tools`: what a server offers."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.targets import connected, server_name
from playhead.cli.terminal import Terminal, escape_line


def tools(
    server: p.Server,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show each tool's input schema.")] = False,
    config: p.ConfigFile = None,
    timeout: p.Timeout = None,
    json_output: p.Json = False,
) -> None:
    """List a server's tools."""

    async def command(terminal: Terminal, report: Report) -> int:
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

    run_command(command, json_output=json_output)


def _summary(tool: Any) -> str:
    first = (tool.description or tool.title or "").strip().partition("\n")[0]
    wanted = ", ".join(tool.input_schema.get("properties", {}))
    return f"{first} ({wanted})" if wanted else first
