"""`playhead tools`: what a server offers."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.targets import server_name
from playhead.cli.terminal import Terminal, escape, escape_line


def tools(
    server: p.Server,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show each tool's input schema.")] = False,
    config: p.ConfigFile = None,
    json_output: p.Json = False,
) -> None:
    """List a server's tools."""

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.client import connect

        async with connect(server, config=config) as session:
            offered = await session.list_tools()
            report["server"] = server_name(session)
            report["protocol_version"] = session.protocol_version
        report["tools"] = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in offered]
        terminal.show(f"{len(offered)} tools of {escape_line(str(report['server']))}")
        table = Table(box=None, show_header=False, pad_edge=False)
        for tool in offered:
            table.add_row(escape_line(tool.name), escape(_summary(tool)))
        if not json_output:
            terminal.out.print(table, soft_wrap=False)
        if verbose:
            for tool in offered:
                terminal.show(f"\n{tool.name}\n{json.dumps(tool.input_schema, indent=2)}")
        return EXIT_DONE

    run_command(command, json_output=json_output)


def _summary(tool: Any) -> str:
    first = (tool.description or tool.title or "").strip().partition("\n")[0]
    wanted = ", ".join(tool.input_schema.get("properties", {}))
    return f"{first} ({wanted})" if wanted else first
