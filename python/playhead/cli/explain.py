"""`playhead explain`: which configuration holds for a tool, and why."""

from __future__ import annotations

import json
import os
import re
import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Final

import typer

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.terminal import Terminal, escape_line
from playhead.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from playhead.config.tools import Resolution, ToolConfigs


def explain(
    tool_id: Annotated[
        str,
        typer.Argument(
            metavar="SERVER__TOOL", help="The tool, or its server where TOOL follows.", show_default=False
        ),
    ],
    tool: Annotated[
        str | None, typer.Argument(metavar="TOOL", help="The tool's own name.", show_default=False)
    ] = None,
    config: p.ConfigFile = None,
    tool_config: p.ToolConfigFile = None,
    json_output: p.Json = False,
) -> None:
    """Tell which configuration holds for a tool, and why.

    Nothing is started and nobody is asked: whether the server has such a tool is not looked at.
    """

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.config.servers import default_file, load_servers
        from playhead.config.tools import default_sources

        path = config or default_file(os.environ)
        servers = load_servers(path) if path is not None else {}
        configs = default_sources(tool_config).load()
        server, name = _meant(tool_id, tool, servers=servers, configs=configs)
        entry = servers.get(server)
        resolution = configs.resolve(server, name, server_config=entry)
        allowed = entry is None or entry.allowed_tools is None or name in entry.allowed_tools
        report.update(_reported(resolution), allowed=allowed)
        _show(terminal, resolution)
        if not allowed:
            terminal.show(f"\nA call is refused: allowed_tools of {escape_line(server)} leaves the tool out.")
        return EXIT_DONE

    run_command(command, json_output=json_output)


def _meant(
    tool_id: str, tool: str | None, *, servers: Iterable[str], configs: ToolConfigs
) -> tuple[str, str]:
    """The server and the tool, by the names that are known. Raises `UsageError` where none or several fit."""
    from playhead.config.servers import URL, from_url
    from playhead.config.tools import create_tool_id

    known = sorted({*servers, *(config.server for config in configs if config.server is not None)})
    if tool is not None:
        if tool_id not in known and URL.match(tool_id):
            return from_url(tool_id).name, tool
        if tool_id not in known:
            raise UsageError(f"there is no server {tool_id!r}; {_hint([tool_id], known)}")
        if not tool:
            raise UsageError("the tool's name is empty; say `playhead explain SERVER TOOL`")
        return tool_id, tool
    found = configs.find(tool_id, known)
    if len(found) > 1:
        ways = " or ".join(f"`playhead explain {shlex.join(pair)}`" for pair in found)
        raise UsageError(f"{tool_id!r} can mean {len(found)} tools; say {ways}")
    if tool_id in known:
        raise UsageError(
            f"{tool_id!r} is a server; say which of its tools: {create_tool_id(tool_id, 'TOOL')}"
        )
    if not found:
        starts = [tool_id[: at.start()] for at in re.finditer("(?=__)", tool_id)] or [tool_id]
        raise UsageError(
            f"expected SERVER__TOOL with a server that is known, came {tool_id!r}; {_hint(starts, known)}"
        )
    return found[0]


def _hint(names: Iterable[str], known: list[str]) -> str:
    if not known:
        return "no servers file was found: say --config FILE"
    near = [match for name in names for match in get_close_matches(name, known, n=1)]
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


def _values(resolution: Resolution) -> dict[str, object]:
    """What holds in effect, by the names of a configuration's settings."""
    from playhead.config.tools import handler_name

    config, policy = resolution.config, resolution.policy()
    handler = None if config is None else config.response_handler
    return {
        "description": config and config.description,
        "system_prompt": config and config.system_prompt,
        "save_output": resolution.save_output,
        "send_result_to_ai": None if config is None else config.send_result_to_ai,
        "response_handler": None if handler is None else handler_name(handler),
        "metadata": dict(config.metadata) if config is not None else {},
        "trust_structured": policy.trust_structured,
        "turn": policy.turn,
        "stops": sorted(policy.stops),
    }


def _reported(resolution: Resolution) -> Report:
    layers = resolution.decided_by
    return {
        "tool_id": resolution.tool_id,
        "server": resolution.server,
        "tool": resolution.tool,
        "layer": resolution.layer,
        "layers": [
            {"layer": step.layer, "found": step.found, "decided": step.decided, "said": step.said}
            for step in resolution.looked_at
        ],
        "delivery": resolution.delivery,
        "values": {
            name: {"value": value, "layer": layers.get(name)} for name, value in _values(resolution).items()
        },
    }


_UNSET: Final = {
    "description": "the server's own",
    "system_prompt": "nothing is added",
    "send_result_to_ai": "as the classifier decides",
    "response_handler": "none",
    "turn": "as the blocks say",
}
_DELIVERY: Final = {
    "model": "the model gets the text",
    "user": "the user gets the text; the model hears that it was delivered, its turn ends",
    "plan": "the classifier decides who gets the text",
}


def _show(terminal: Terminal, resolution: Resolution) -> None:
    terminal.show(
        f"{escape_line(resolution.tool_id)} (tool {escape_line(resolution.tool)} of server"
        f" {escape_line(resolution.server)})\n{_DELIVERY[resolution.delivery]}"
        "\n\nlayers, in their order (> decides):"
    )
    terminal.show_rows(
        (f"{'>' if step.decided else ' '} {step.layer}", step.said) for step in resolution.looked_at
    )
    terminal.show("\nwhat holds, and the layer that says so:")
    terminal.show_rows(
        (f"  {name}", f"{_written(name, value)} ({resolution.decided_by.get(name, 'default')})")
        for name, value in _values(resolution).items()
    )


def _written(name: str, value: object) -> str:
    match value:
        case None:
            return _UNSET[name]
        case str():
            return value
        case list():
            return ", ".join(value) or "nothing"
        case _:
            return json.dumps(value, ensure_ascii=False)
