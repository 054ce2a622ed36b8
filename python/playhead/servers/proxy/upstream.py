"""A server behind the proxy, as one host sees it: its session, its names in the proxy, and its listings."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError

from playhead.client.hub.catalog import model_name
from playhead.client.hub.server import HubServer, ServerStatus
from playhead.client.session.requests import OnProgress, list_all, typed
from playhead.client.session.session import Session
from playhead.client.session.tool_calls import has_default_hints
from playhead.config.servers import server_identity
from playhead.errors import PlayheadError, ServerError
from playhead.limits import Limits
from playhead.protocol.revisions import REVISIONS, Revision

RETRY_SECONDS: Final = 2.0
"""Limits the wait of a listing for a server that was down. The attempt goes on in the background."""

_DISALLOWED: Final = re.compile(r"[^a-z0-9-]+")
_STRING_RULES: Final = re.compile(r'"(contentEncoding|const|enum|format|maxLength|minLength|pattern)":')
"""Matches the keywords of a JSON Schema that restrict strings."""

LISTS: Final = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
}
"""The listing methods, each with the capability that it needs and the member of its result."""


def schemes(names: Collection[str]) -> dict[str, str]:
    """Return the start of each server's URIs in the proxy, such as `music+`; empty for the only server."""
    if len(names) == 1:
        return dict.fromkeys(names, "")
    made: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        scheme = _DISALLOWED.sub("-", name.lower()).strip("-")[:20]
        scheme = scheme if scheme[:1].isalpha() else f"s-{scheme}"
        made[name] = f"{scheme}-{number}+" if f"{scheme}+" in made.values() else f"{scheme}+"
    return made


@dataclass(slots=True, kw_only=True)
class Upstream:
    """One server, in the session of one host."""

    name: str
    scheme: str
    server: HubServer
    limits: Limits
    calls: list[Any] = field(default_factory=list)
    """The host's requests that this server is answering, the newest last."""
    subscribing: list[Callable[[], None]] = field(default_factory=list)
    """Called, in order, as the server acknowledges the subscriptions."""
    connected: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    """Wakes its tasks when the server has a connection again."""
    tools: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The tools of the last listing, without annotations that prove nothing."""

    # --- the session -------------------------------------------------------------------------------

    async def session(self) -> Session:
        """Return the live session. A server that was down, or a process that has ended, is started again.

        Raises `ConnectError` with the reason if it is still down.
        """
        config, status = self.server.config, self.server.state.status
        is_process = config is not None and config.command is not None and config.restart != "never"
        if self.server.session is None or (status is ServerStatus.LOST and is_process):
            await self.server.connect()
        return self.server.live_session()

    @property
    def identity(self) -> str:
        """A digest of the server's URL or command; empty for a server object in this process."""
        if self.server.config is None:
            return ""
        return hashlib.sha256(json.dumps(server_identity(self.server.config)).encode()).hexdigest()

    @property
    def revision(self) -> Revision | None:
        """The protocol revision of the session; None if the server is down."""
        session = self.server.session
        return None if session is None else REVISIONS[session.protocol_version]

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the server, empty while it is down."""
        session = self.server.session
        return {} if session is None else ((session.handshake or {}).get("capabilities") or {})

    def offers(self, capability: str) -> bool:
        """Return whether the server has a capability, or had no handshake in which to declare it."""
        session = self.server.session
        return session is not None and (session.handshake is None or capability in self.capabilities)

    async def ask(
        self, method: str, params: Mapping[str, Any], *, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send a request, and return its raw result. Raises `MCPError`."""
        try:
            session = await self.session()
            return await session.request(method, params, on_progress=on_progress)
        except PlayheadError as error:
            raise wire_error(error) from error

    # --- listings ----------------------------------------------------------------------------------

    async def items(self, method: str) -> list[dict[str, Any]]:
        """Return all that the server lists, from all pages; nothing while it is down. Raises `MCPError`."""
        capability, member = LISTS[method]
        if self.server.session is None:
            with trio.move_on_after(RETRY_SECONDS):
                await self.server.connect()
        session = self.server.session
        if session is None or not self.offers(capability):
            return []
        try:
            if member != "tools":
                return await list_all(session.request, method, limits=self.limits, server=session.name)
            tools = await session.list_tool_fields()  # the session learns which headers a call needs
        except PlayheadError as error:
            raise wire_error(error) from error
        allowed = None if self.server.config is None else self.server.config.allowed_tools
        tools = [tool for tool in tools if allowed is None or tool.get("name") in allowed]
        silent = has_default_hints(typed(types.Tool, tools))
        self.tools = {
            str(tool.get("name")): {**tool, "annotations": None} if silent else tool for tool in tools
        }
        return tools

    # --- names and URIs in the proxy ---------------------------------------------------------------

    def shown_name(self, name: str, servers: Iterable[str]) -> str:
        """Return the name of a tool or prompt in the proxy."""
        return model_name(self.name, name, servers=servers) if self.scheme else name

    def moved(self, result: Mapping[str, Any], member: str) -> dict[str, Any]:
        """Put the server's scheme before each URI in the blocks of a result."""
        blocks = result.get(member)
        if not self.scheme or not isinstance(blocks, list):
            return dict(result)
        return {**result, member: [self._moved(block) for block in blocks]}

    def _moved(self, block: object) -> object:
        if not isinstance(block, dict):
            return block
        if isinstance(block.get("resource"), dict):
            return {**block, "resource": self._moved(block["resource"])}
        if isinstance(block.get("content"), dict):  # a message of a prompt
            return {**block, "content": self._moved(block["content"])}
        return {**block, "uri": f"{self.scheme}{block['uri']}"} if "uri" in block else block


def without_unmet_schema(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a listed tool without an `outputSchema` that a line in place of base64 would not meet."""
    if not _STRING_RULES.search(json.dumps(tool.get("outputSchema"))):
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def wire_error(error: PlayheadError) -> MCPError:
    """Return a server's error with its code and data; other failures are internal errors."""
    if isinstance(error, ServerError):
        return MCPError(error.code, error.server_message or str(error), error.data)
    return MCPError(types.INTERNAL_ERROR, str(error))
