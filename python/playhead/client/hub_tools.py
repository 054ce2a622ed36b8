"""The tools of all servers together: what a model is offered, and which one a name means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from mcp_types import Tool

from playhead.client.names import ToolKey, ToolNames, name_tools
from playhead.config.servers import ServerConfig
from playhead.config.tools import Resolution, ToolConfigs
from playhead.errors import UnknownToolError, UsageError

NEAR_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTool:
    """A tool of one of the servers."""

    model_name: str
    """The name to offer it under; see client.names."""
    tool_id: str
    """`server__tool`, for people and configuration files."""
    server: str
    tool: Tool
    """As the server lists it. Text in it is the server's, not to be trusted."""
    description: str | None
    """For the model: the configuration's, else the server's."""
    resolution: Resolution = field(repr=False)
    """What is configured for it (without any call's override)."""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        return self.tool.input_schema

    @property
    def system_prompt(self) -> str | None:
        """To be added to the model's system prompt while this tool is offered."""
        return None if self.resolution.config is None else self.resolution.config.system_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What `discover_and_register_all_tools` found."""

    tools: tuple[HubTool, ...]
    configured: int
    """How many of them have a configuration, of whatever layer."""
    failed: Mapping[str, str]
    """Servers that are connected and whose tools can't be listed, with the reason."""


class Catalog:
    """All tools that are known now. Never changes; a new one is made when a list changes."""

    def __init__(self, tools: Iterable[HubTool] = (), names: ToolNames | None = None) -> None:
        self.tools = tuple(tools)
        self._by_key: dict[ToolKey, HubTool] = {(tool.server, tool.tool.name): tool for tool in self.tools}
        self._names = names or ToolNames()

    def find(self, what: str | ToolKey) -> HubTool | None:
        """The tool that is meant; None for one that isn't here.

        A text is a model name, else an id. Raises `UsageError` for an id that several tools have.
        """
        if not isinstance(what, str):
            return self._by_key.get(what)
        key = self._names.keys.get(what)
        if key is not None:
            return self._by_key[key]
        keys = self._names.by_id.get(what, ())
        if len(keys) > 1:
            several = " or ".join(f"{self._by_key[key].model_name} (server {key[0]!r})" for key in keys)
            raise UsageError(f"the id {what!r} is that of several tools; say which: {several}")
        return self._by_key[keys[0]] if keys else None

    def unknown(self, what: str | ToolKey) -> UnknownToolError:
        """The error for something that `find` doesn't find, with the names that come near."""
        name = what if isinstance(what, str) else f"{what[1]} of server {what[0]}"
        known = {tool.model_name: tool for tool in self.tools}
        known |= {tool.tool_id: tool for tool in self.tools}
        by_tool = {tool.tool.name: tool for tool in self.tools}
        wanted = what if isinstance(what, str) else what[1]
        close = [known[found] for found in get_close_matches(wanted, known, n=NEAR_NAMES)]
        close += [by_tool[found] for found in get_close_matches(wanted, by_tool, n=NEAR_NAMES)]
        near = tuple(dict.fromkeys(tool.model_name for tool in close))[:NEAR_NAMES]
        hint = f"did you mean {', '.join(near)}?" if near else f"{len(self.tools)} tools are known"
        return UnknownToolError(f"there is no tool {name!r}; {hint}", name=name, near=near)


def catalog_of(
    listed: Mapping[str, Iterable[Tool]],
    *,
    servers: Mapping[str, ServerConfig | None],
    configs: ToolConfigs,
) -> Catalog:
    """The catalog of what each server lists; `servers` are all there are, connected or not."""
    found = {(server, tool.name): tool for server, tools in listed.items() for tool in tools}
    names = name_tools(found, servers=servers)
    tools = []
    for (server, name), tool in found.items():
        resolution = configs.resolve(server, name, server_config=servers.get(server))
        config = resolution.config
        tools.append(
            HubTool(
                model_name=names.names[server, name],
                tool_id=resolution.tool_id,
                server=server,
                tool=tool,
                description=(config.description if config is not None else None) or tool.description,
                resolution=resolution,
            )
        )
    return Catalog(tools, names)
