"""The catalog of all servers' tools, and the names under which they are offered to a model.

A tool has three names:

* Its *key* is the pair `(server, tool)`.
* Its *id* `server__tool` is for people and configuration files. It may be ambiguous, because names may
  contain `__`: the tool `c` of a server `a__b` and the tool `b__c` of a server `a` have the same id.
* Its *model name* is unique and accepted by every provider: 1 to 64 characters of `[A-Za-z0-9_-]`, the first
  one a letter or `_` (OpenAI: `^[a-zA-Z0-9_-]{1,64}$`; Gemini: first a letter or `_`).

The model name is the id, if that is allowed and not ambiguous. Otherwise it is a readable part of the id and
a hash of the key. It depends only on the tool and on the names in the servers file, not on which servers are
connected, so that a model's history stays valid after a reconnection.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from playhead.config.servers import ServerConfig
from playhead.config.tools import Resolution, ToolConfigs, create_tool_id
from playhead.errors import UnknownToolError, UsageError

if TYPE_CHECKING:
    from mcp_types import Tool, ToolAnnotations

MODEL_NAME_CHARS: Final = 64
HASH_DIGITS: Final = 10
"""40 bits. Among 10,000 tools with equal readable parts, two collide with a probability of 1 in 20,000. The
later key then gets another hash."""

ToolKey = tuple[str, str]
"""`(server, tool)`, as written in the servers file and in the server's listing."""

_ALLOWED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_DISALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]+")


def model_name(server: str, tool: str, *, servers: Iterable[str] = (), salt: int = 0) -> str:
    """Return the model name of `tool` of `server`.

    `servers` are all names in the servers file: they show if a tool of another server can have the same id.
    A `salt` other than 0 gives another name, for a key whose name is taken.
    """
    tool_id = create_tool_id(server, tool)
    owners = {name for name in servers if tool_id.startswith(create_tool_id(name, ""))} | {server}
    looks_hashed = re.search(rf"_[0-9a-f]{{{HASH_DIGITS}}}\Z", tool_id) is not None
    if salt == 0 and _ALLOWED.fullmatch(tool_id) and len(owners) == 1 and not looks_hashed:
        return tool_id
    return _readable(tool_id) + "_" + _hash(server, tool, salt)


def _readable(tool_id: str) -> str:
    readable = _DISALLOWED.sub("_", tool_id)
    if not _ALLOWED.match(readable):
        readable = f"_{readable}"
    return readable[: MODEL_NAME_CHARS - HASH_DIGITS - 1]


def _hash(server: str, tool: str, salt: int) -> str:
    # The length tells ("ab", "c") and ("a", "bc") apart. "surrogatepass": JSON may contain lone surrogates.
    key = f"{salt}:{len(server)}:{server}{tool}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(key).hexdigest()[:HASH_DIGITS]


def name_tools(tools: Iterable[ToolKey], *, servers: Iterable[str] = ()) -> dict[ToolKey, str]:
    """Return the model name of each of the `tools`, independently of their order.

    `servers` is as for `model_name`; the servers of the `tools` are added.
    """
    unique_keys = sorted(set(tools))
    all_servers = frozenset(servers) | {server for server, _ in unique_keys}
    key_by_name: dict[str, ToolKey] = {}
    for key in unique_keys:
        names = (model_name(*key, servers=all_servers, salt=salt) for salt in count())
        key_by_name[next(name for name in names if name not in key_by_name)] = key
    return {key: name for name, key in key_by_name.items()}


NEAR_NAMES: Final = 3
"""Limits the suggestions for an unknown tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTool:
    """A tool of one of the servers."""

    model_name: str
    """The name under which it is offered to a model."""
    tool_id: str
    """`server__tool`, for people and configuration files."""
    server: str
    tool: Tool
    """The tool as the server lists it. Its text is the server's and not trusted."""
    description: str | None
    """The description that the model gets: the configuration's, else the server's."""
    resolution: Resolution = field(repr=False)
    """Its configuration, without any call's override."""
    annotations: ToolAnnotations | None = None
    """The server's hints about the tool. None if it gives none, or if every tool of the server has the
    protocol's defaults: some frameworks add those by themselves (`has_default_hints`)."""

    @property
    def input_schema(self) -> Mapping[str, Any]:
        return self.tool.input_schema

    @property
    def system_prompt(self) -> str | None:
        """Added to the model's system prompt while this tool is offered."""
        return None if self.resolution.config is None else self.resolution.config.system_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The result of `Hub.discover_and_register_all_tools`."""

    tools: tuple[HubTool, ...]
    configured: int
    """The number of tools with a configuration in any layer."""
    failed: Mapping[str, str]
    """The connected servers whose tools can't be listed, with the reason."""


class Catalog:
    """All known tools. Immutable; a new catalog is made when a list changes."""

    def __init__(self, tools: Iterable[HubTool] = ()) -> None:
        self.tools = tuple(tools)
        self._by_key: dict[ToolKey, HubTool] = {(tool.server, tool.tool.name): tool for tool in self.tools}
        self._by_name = {tool.model_name: tool for tool in self.tools}

    def find(self, what: str | ToolKey) -> HubTool | None:
        """Return the tool with this key, model name or id; None if it is unknown.

        Raises `UsageError` for an id that several tools share.
        """
        if not isinstance(what, str):
            return self._by_key.get(what)
        if what in self._by_name:
            return self._by_name[what]
        same = sorted((tool for tool in self.tools if tool.tool_id == what), key=lambda tool: tool.server)
        if len(same) > 1:
            several = " or ".join(f"{tool.model_name} (server {tool.server!r})" for tool in same)
            raise UsageError(f"the id {what!r} belongs to several tools; use one of {several}")
        return same[0] if same else None

    def unknown(self, what: str | ToolKey) -> UnknownToolError:
        """Return the error for a tool that `find` does not know, with suggestions."""
        name = what if isinstance(what, str) else f"{what[1]} of server {what[0]}"
        known = {tool.model_name: tool for tool in self.tools}
        known |= {tool.tool_id: tool for tool in self.tools}
        by_tool = {tool.tool.name: tool for tool in self.tools}
        wanted = what if isinstance(what, str) else what[1]
        close = [known[match] for match in get_close_matches(wanted, known, n=NEAR_NAMES)]
        close += [by_tool[match] for match in get_close_matches(wanted, by_tool, n=NEAR_NAMES)]
        near = tuple(dict.fromkeys(tool.model_name for tool in close))[:NEAR_NAMES]
        hint = f"did you mean {', '.join(near)}?" if near else f"{len(self.tools)} tools are known"
        return UnknownToolError(f"unknown tool {name!r}; {hint}", name=name, near=near)


def catalog_of(
    listed: Mapping[str, Iterable[Tool]],
    *,
    servers: Mapping[str, ServerConfig | None],
    configs: ToolConfigs,
    silent: Collection[str] = (),
) -> Catalog:
    """Return the catalog of the listed tools. `servers` are all servers, connected or not.

    `silent` are the servers whose annotations are left out, as they say nothing (`has_default_hints`).
    """
    by_key = {(server, tool.name): tool for server, tools in listed.items() for tool in tools}
    names = name_tools(by_key, servers=servers)
    tools = []
    for (server, name), tool in by_key.items():
        resolution = configs.resolve(server, name, server_config=servers.get(server))
        config = resolution.config
        tools.append(
            HubTool(
                model_name=names[server, name],
                tool_id=resolution.tool_id,
                server=server,
                tool=tool,
                description=(config.description if config is not None else None) or tool.description,
                resolution=resolution,
                annotations=None if server in silent else tool.annotations,
            )
        )
    return Catalog(tools)
