"""The parts of the MCP SDK that it does not document: imported here and nowhere else.

An SDK release may move them. Each names what would make it unnecessary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.client._memory import InMemoryTransport  # until an MCPServer has a public way to its streams
from mcp.client.session import ClientSession
from mcp.shared import _stream_protocols as streams  # until `mcp.client.Transport` names its two streams
from mcp.shared.dispatcher import coerce_request_id  # until it is documented
from mcp.shared.message import SessionMessage

__all__ = [
    "InMemoryTransport",
    "ReadStream",
    "WriteStream",
    "coerce_request_id",
    "mirror_arguments",
    "stamped",
]

ReadStream = streams.ReadStream[SessionMessage | Exception]
WriteStream = streams.WriteStream[SessionMessage]


def mirror_arguments(session: ClientSession, headers: Mapping[str, Mapping[tuple[str, ...], str]]) -> None:
    """Let `session` repeat arguments in HTTP headers. Until the SDK takes a listing that it did not read
    itself: its own reading refuses a page of the list for one invalid tool."""
    session._x_mcp_header_maps = {tool: dict(names) for tool, names in headers.items()}


def stamped(
    session: ClientSession, method: str, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the parameters and HTTP headers with which `session` would send a request.

    The `_meta` of revision 2026-07-28 and the headers of the revision are among them. Until the SDK sends a
    request whose answer it does not read.
    """
    data: dict[str, Any] = {"method": method, "params": dict(params)}
    options: Any = {}
    session._stamp(data, options)
    return data["params"], options.get("headers", {})
