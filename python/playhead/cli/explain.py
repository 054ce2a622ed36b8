"""`playhead explain`: show the effective configuration of a tool, or the form in which a resource is read."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.targets import connected, find_server, stream_options
from playhead.cli.terminal import Terminal, escape_line
from playhead.cli.trust import with_consent
from playhead.errors import UsageError
from playhead.escaping import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from playhead.client.session.streams import FormExplanation
    from playhead.config.servers import ServerConfig
    from playhead.config.tools import ApprovalPolicy, Resolution, ToolConfigs
    from playhead.config.trust import Trust


def explain(
    tool_id: Annotated[
        str,
        typer.Argument(
            metavar="SERVER__TOOL",
            help="The tool, or its server if TOOL or --resource is given.",
            show_default=False,
        ),
    ],
    tool: Annotated[
        str | None, typer.Argument(metavar="TOOL", help="The tool's own name.", show_default=False)
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            "--resource",
            metavar="URI",
            help="Connect, and show in which form the server delivers ranges of this resource.",
        ),
    ] = None,
    description: Annotated[
        str | None,
        typer.Option(
            "--description", metavar="TEXT", help="The description of the resource's link; it may be a URL."
        ),
    ] = None,
    strategy: p.Strategy = None,
    config: p.ConfigFile = None,
    tool_config: p.ToolConfigFile = None,
    trusted: p.Trust = False,
    timeout: p.Timeout = None,
    deadline: p.Deadline = None,
    json_output: p.Json = False,
) -> None:
    """Show how a tool is configured, or how ranges are read, and why.

    Without --resource no server is started or asked: the tool may not exist.
    """
    if resource is None and not (strategy is description is None):
        raise UsageError("--strategy and --description go with --resource")
    if resource is not None and tool is not None:
        raise UsageError("expected either TOOL or --resource, got both")

    async def explain_resource(terminal: Terminal, report: Report) -> int:
        assert resource is not None
        target = await find_server(tool_id, terminal, config=config, trusted=trusted)
        async with connected(target, terminal, timeout=timeout) as session:
            options = replace(session.default_options(), **stream_options(strategy=strategy, timeout=timeout))
            media = replace(session.media(resource), description=description)
            report["resource"] = resource
            forms = await session.explain_forms(media, options=options)
            report["forms"] = [
                {
                    "strategy": form.name,
                    "offered": form.is_offered,
                    "tried": form.is_tried,
                    "reason": form.reason,
                }
                for form in forms
            ]
            used = ""
            try:
                async with session.open(media, options=options) as stream:
                    await stream.receive_some(1)
                    statistics = stream.statistics()
                used, reason = statistics.strategy, statistics.strategy_reason
                report.update(strategy=used, strategy_reason=reason)
                terminal.show(f"{escape_line(resource)}\nis read with {used}: {escape_line(reason)}\n")
            finally:
                terminal.show("forms of a ranged read, in the order in which they are tried (> is used):")
                terminal.show_rows(
                    (f"{'>' if form.name == used else ' '} {form.name}", _form_line(form)) for form in forms
                )
        return EXIT_DONE

    async def explain_tool(terminal: Terminal, report: Report) -> int:
        from playhead.config.servers import default_servers, load_servers
        from playhead.config.tools import default_approval_policy, default_sources

        def load(trust: Trust) -> tuple[dict[str, ServerConfig], ToolConfigs, ApprovalPolicy]:
            servers = default_servers(trust=trust) if config is None else load_servers(config)
            configs = default_sources(tool_config, trust=trust).load()
            return servers or {}, configs, default_approval_policy(tool_config, trust=trust)

        servers, configs, approvals = await with_consent(terminal, load, trusted=trusted)
        for each in servers.values():
            terminal.hide(each.secrets)
        server, name = _server_and_tool(tool_id, tool, servers=servers, configs=configs)
        entry = servers.get(server)
        resolution = configs.resolve(server, name, server_config=entry)
        allowed = entry is None or entry.allowed_tools is None or name in entry.allowed_tools
        approval = {
            "action": approvals.action(server, name, destructive=False),
            "if_destructive": approvals.action(server, name, destructive=True),
        }
        report.update(_resolution_report(resolution), allowed=allowed, approval=approval)
        _show(terminal, resolution, approval=_approval_line(approval))
        if not allowed:
            terminal.show(f"\nCalls are refused: the tool is not in allowed_tools of {escape_line(server)}.")
        return EXIT_DONE

    command = explain_tool if resource is None else explain_resource
    run_command(command, json_output=json_output, deadline=deadline)


def _form_line(form: FormExplanation) -> str:
    if form.is_offered:
        return escape_line(form.reason)
    return f"{'a small read' if form.is_tried else 'no'}: {escape_line(form.reason)}"


def _server_and_tool(
    tool_id: str, tool: str | None, *, servers: Iterable[str], configs: ToolConfigs
) -> tuple[str, str]:
    """Return the server and the tool that the arguments name. Raises `UsageError` unless one matches."""
    from playhead.config.servers import URL, from_url
    from playhead.config.tools import create_tool_id

    known = sorted({*servers, *(config.server for config in configs if config.server is not None)})
    if tool is not None:
        if tool_id not in known and URL.match(tool_id):
            return from_url(tool_id).name, tool
        if tool_id not in known:
            raise UsageError(f"unknown server {tool_id!r}; {_hint([tool_id], known)}")
        if not tool:
            raise UsageError("the tool name is empty; use `playhead explain SERVER TOOL`")
        return tool_id, tool
    pairs = configs.find(tool_id, known)
    if len(pairs) > 1:
        commands = " or ".join(f"`playhead explain {shlex.join(pair)}`" for pair in pairs)
        raise UsageError(f"{tool_id!r} is ambiguous ({len(pairs)} tools); use {commands}")
    if tool_id in known:
        raise UsageError(f"{tool_id!r} is a server; name one of its tools: {create_tool_id(tool_id, 'TOOL')}")
    if not pairs:
        starts = [tool_id[: separator.start()] for separator in re.finditer("(?=__)", tool_id)] or [tool_id]
        raise UsageError(
            f"expected SERVER__TOOL with a known server, got {tool_id!r}; {_hint(starts, known)}"
        )
    return pairs[0]


def _hint(names: Iterable[str], known: list[str]) -> str:
    if not known:
        return "no servers file was found; give one with --config FILE"
    hints = filter(None, (did_you_mean(name, known) for name in names))
    return next(hints, f"known servers: {', '.join(known)}")


def _effective_settings(resolution: Resolution) -> dict[str, object]:
    """Return the effective value of each setting."""
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


def _resolution_report(resolution: Resolution) -> Report:
    layers = resolution.decided_by
    return {
        "tool_id": resolution.tool_id,
        "server": resolution.server,
        "tool": resolution.tool,
        "layer": resolution.layer,
        "layers": [asdict(step) for step in resolution.looked_at],
        "delivery": resolution.delivery,
        "values": {
            name: {"value": value, "layer": layers.get(name)}
            for name, value in _effective_settings(resolution).items()
        },
    }


_APPROVAL_LINES: Final = {
    "allow": "the model's calls run unasked",
    "ask": "each of the model's calls needs approval",
    "deny": "the model's calls are refused",
}


def _approval_line(approval: Mapping[str, str]) -> str:
    """Describe the approval of calls. Only the server knows whether it marks the tool as destructive."""
    line = _APPROVAL_LINES[approval["action"]]
    if approval["if_destructive"] != approval["action"]:
        line += ", unless the server marks the tool as destructive"
    return line


_UNSET: Final = {
    "description": "the server's own",
    "system_prompt": "none",
    "send_result_to_ai": "decided by the classifier",
    "response_handler": "none",
    "turn": "decided by the blocks",
}
_DELIVERY_LINES: Final = {
    "model": "the model gets the text",
    "user": "the user gets the text; the model learns of the delivery and ends its turn",
    "plan": "the classifier decides who gets the text",
}


def _show(terminal: Terminal, resolution: Resolution, *, approval: str) -> None:
    terminal.show(
        f"{escape_line(resolution.tool_id)} (tool {escape_line(resolution.tool)} of server"
        f" {escape_line(resolution.server)})\n{_DELIVERY_LINES[resolution.delivery]}\n{approval}"
        "\n\nlayers, in order (> decides):"
    )
    terminal.show_rows(
        (f"{'>' if step.decided else ' '} {step.layer}", step.said) for step in resolution.looked_at
    )
    terminal.show("\neffective settings, and the layer that sets them:")
    terminal.show_rows(
        (f"  {name}", f"{_setting_text(name, value)} ({resolution.decided_by.get(name, 'default')})")
        for name, value in _effective_settings(resolution).items()
    )


def _setting_text(name: str, value: object) -> str:
    match value:
        case None:
            return _UNSET[name]
        case str():
            return value
        case list():
            return ", ".join(value) or "nothing"
        case _:
            return json.dumps(value, ensure_ascii=False)
