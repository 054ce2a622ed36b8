"""The table of protocol revisions: one row for each, with all its differences for a client.

The client reads this table and never compares the names of revisions. `content/revisions.py` has another
table, for the format of results. The source of each row is the specification of that date. Revision
2024-11-05 has another HTTP transport (HTTP+SSE), which this client does not support.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from playhead._core import __version__

CLIENT_INFO: Final = {"name": "playhead", "version": __version__}

_META_PREFIX: Final = "io.modelcontextprotocol/"
SERVER_INFO_META: Final = _META_PREFIX + "serverInfo"
SUBSCRIPTION_META: Final = _META_PREFIX + "subscriptionId"

_FILES_CAPABILITY: Final = {"download": True, "transports": ["https"]}
"""The capability to download files over HTTP (SEP-2631, a draft)."""

_CAPABILITIES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "elicitation/create": ("elicitation", {"form": {}, "url": {}}),
    "sampling/createMessage": ("sampling", {}),
    "roots/list": ("roots", {"listChanged": True}),
}
"""The capability to declare for each method of server requests that the program answers."""

_NAME_PARAMETERS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that the header `Mcp-Name` repeats, by method."""

_PLAIN_HEADER: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_BASE64_HEADER: Final = re.compile(r"=\?base64\?.*\?=")

ToolHeaders = Mapping[str, Mapping[tuple[str, ...], str]]
"""The end of a header's name, by the name of a tool and the path of an argument (`tool_headers`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One row: the differences of a revision that concern a client."""

    name: str
    has_initialize: bool = True
    """True if the handshake is `initialize` and `notifications/initialized`. Otherwise it is
    `server/discover`, and each request carries the client's name, version and capabilities (`stamps`)."""
    asks: frozenset[str] = frozenset()
    """The methods of requests that a server may send. Since 2026-07-28 there are none: a server asks in its
    results instead (`input_required`)."""
    has_batches: bool = False
    """True if a list of messages is a valid message."""
    has_listen: bool = False
    """True if a client subscribes to notifications of changes with `subscriptions/listen`. Otherwise servers
    send them unasked."""
    has_resumption: bool = False
    """True if a broken HTTP stream can be continued with `Last-Event-ID`."""
    closing_cancels: bool = False
    """True if a request is cancelled by closing its POST, and by nothing else."""
    has_routing_headers: bool = False
    """True if HTTP requests have the headers `Mcp-Method`, `Mcp-Name` and `Mcp-Param-…`."""
    never_cancelled: frozenset[str] = frozenset({"initialize", "server/discover"})

    def stamps(self, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members that each request has in `_meta`."""
        if self.has_initialize:
            return {}
        return {
            _META_PREFIX + "protocolVersion": self.name,
            _META_PREFIX + "clientInfo": CLIENT_INFO,
            _META_PREFIX + "clientCapabilities": dict(capabilities),
        }

    def headers(
        self, method: str | None, params: Mapping[str, Any], tool_headers: ToolHeaders
    ) -> list[tuple[bytes, bytes]]:
        """Return the HTTP headers of a request, in addition to the constant ones and the session's.

        Args:
            method: None for a notification, an answer, GET and DELETE.
        """
        if method == "initialize":
            return []  # no revision is agreed on yet
        headers = [(b"mcp-protocol-version", self.name.encode())]
        if not self.has_routing_headers or method is None:
            return headers
        headers.append((b"mcp-method", _header_value(method)))
        name = params.get(_NAME_PARAMETERS.get(method, ""))
        if not isinstance(name, str):
            return headers
        headers.append((b"mcp-name", _header_value(name)))
        paths = tool_headers.get(name, {}) if method == "tools/call" else {}
        for path, token in paths.items():
            value = _argument_text(params.get("arguments"), path)
            if value is not None:
                headers.append((b"mcp-param-" + token.encode(), _header_value(value)))
        return headers


_SERVER_REQUESTS: Final = frozenset({"ping", "roots/list", "sampling/createMessage"})

REVISIONS: Final[Mapping[str, Revision]] = {
    row.name: row
    for row in (
        Revision(name="2024-11-05", asks=_SERVER_REQUESTS),
        Revision(name="2025-03-26", asks=_SERVER_REQUESTS, has_batches=True, has_resumption=True),
        Revision(name="2025-06-18", asks=_SERVER_REQUESTS | {"elicitation/create"}, has_resumption=True),
        Revision(name="2025-11-25", asks=_SERVER_REQUESTS | {"elicitation/create"}, has_resumption=True),
        Revision(
            name="2026-07-28",
            has_initialize=False,
            has_listen=True,
            closing_cancels=True,
            has_routing_headers=True,
        ),
    )
}
"""The revisions by name, the oldest first."""

OLDEST: Final = REVISIONS["2024-11-05"]
NEWEST_INITIALIZED: Final = REVISIONS["2025-11-25"]
NEWEST: Final = REVISIONS["2026-07-28"]


def client_capabilities(answered: Collection[str]) -> dict[str, Any]:
    """Return the capabilities that this client declares.

    Args:
        answered: the methods of server requests that the program answers.
    """
    declared = {name: value for method, (name, value) in _CAPABILITIES.items() if method in answered}
    return {**declared, "files": _FILES_CAPABILITY}


def _header_value(text: str) -> bytes:
    """Return the text, in base64 if a header cannot carry it (MCP 2026-07-28, "Streamable HTTP")."""
    if (not text or _PLAIN_HEADER.fullmatch(text)) and not _BASE64_HEADER.fullmatch(text):
        return text.encode("ascii")
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="


def _argument_text(arguments: object, path: tuple[str, ...]) -> str | None:
    """Return the argument at `path` as text; None if it is missing, null, or has no form in a header."""
    value = arguments
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None
