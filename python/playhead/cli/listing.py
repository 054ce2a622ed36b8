"""The contents of a server, for `playhead ls` and for `playhead play SERVER`."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.targets import connected, find_server
from playhead.cli.terminal import Terminal, escape_line, human_bytes
from playhead.content.audio import is_audio
from playhead.errors import RemoteError
from playhead.escaping import counted

if TYPE_CHECKING:
    from pydantic import BaseModel

    from playhead.client import Session


def ls(
    server: p.Server,
    config: p.ConfigFile = None,
    trusted: p.Trust = False,
    timeout: p.Timeout = None,
    deadline: p.Deadline = None,
    json_output: p.Json = False,
) -> None:
    """List a server's tools, resources, templates and prompts."""

    async def command(terminal: Terminal, report: Report) -> int:
        target = await find_server(server, terminal, config=config, trusted=trusted)
        async with connected(target, terminal, timeout=timeout) as session:
            lists = await _read_lists(
                session, ("tools", "resources", "templates", "prompts"), terminal, report
            )
        for name, items in lists.items():
            _show(name, items, terminal)
        return EXIT_DONE

    run_command(command, json_output=json_output, deadline=deadline)


async def show_playable(session: Session, server: str, terminal: Terminal, report: Report) -> int:
    """Show the audio among a server's resources, its tools, and how to play them."""
    lists = await _read_lists(session, ("resources", "tools"), terminal, report)
    audio = [it for it in lists.get("resources", []) if is_audio(it.get("mimeType"), it["uri"])]
    report["resources"] = audio
    tools = lists.get("tools", [])
    _show("audio resources", audio, terminal)
    _show("tools", tools, terminal)
    command = f"playhead play {shlex.quote(server)}"
    if audio:
        terminal.say(f"to play one of the resources: {command} URI", whole=True)
    if tools:
        terminal.say(f"to play what a tool returns: {command} TOOL [KEY=VALUE]...", whole=True)
    return EXIT_DONE


async def _read_lists(
    session: Session, names: Sequence[str], terminal: Terminal, report: Report
) -> dict[str, list[dict[str, Any]]]:
    """Return the lists that the server offers, in JSON's types, and add them to the report.

    A list that fails is a warning. If all fail, it raises the first error.
    """
    offered = session.capabilities
    lists: Mapping[str, tuple[object, Callable[[], Awaitable[Sequence[BaseModel]]]]] = {
        "tools": (offered.tools, session.list_tools),
        "resources": (offered.resources, session.list_resources),
        "templates": (offered.resources, session.list_resource_templates),
        "prompts": (offered.prompts, session.list_prompts),
    }
    report |= {"server": session.server_name, "protocol_version": session.protocol_version}
    read_lists: dict[str, list[dict[str, Any]]] = {}
    failures: list[RemoteError] = []
    for name in names:
        capability, read = lists[name]
        if capability is None:
            continue
        try:
            with terminal.doing(f"listing {name}"):
                items = await read()
        except RemoteError as error:
            failures.append(error)
            terminal.warn(f"{name}: {error}")
        else:
            read_lists[name] = [it.model_dump(mode="json", by_alias=True, exclude_none=True) for it in items]
    if failures and not read_lists:
        raise failures[0]
    report |= {name: read_lists.get(name, []) for name in names}
    if not read_lists:
        terminal.say(f"{escape_line(session.server_name)} offers none of: {', '.join(names)}")
    return read_lists


def _show(name: str, items: Sequence[Mapping[str, Any]], terminal: Terminal) -> None:
    if items:
        terminal.show(counted(len(items), name.removesuffix("s")))
        terminal.show_rows((f"  {_address_or_call(it)}", " · ".join(_details(it))) for it in items)


def _address_or_call(item: Mapping[str, Any]) -> str:
    """Return the URI of a resource, or the name of a tool or prompt with its arguments."""
    if address := item.get("uri") or item.get("uriTemplate"):
        return str(address)
    properties = (item.get("inputSchema") or {}).get("properties", {})
    arguments = [*properties, *(it["name"] for it in item.get("arguments") or ())]
    return f"{item['name']}({', '.join(arguments)})"


def _details(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the details of an item: its title, type, size and the first line of its description."""
    first = str(item.get("description") or "").strip().partition("\n")[0]
    if "uri" in item or "uriTemplate" in item:
        yield str(item.get("title") or item["name"])
    if item.get("mimeType"):
        yield str(item["mimeType"])
    if item.get("size") is not None:
        yield human_bytes(item["size"])
    if first:
        yield first
