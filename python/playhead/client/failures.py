"""From what happened to a request to the one error its caller sees.

Only what our own side made up is a `TransportError`. A code sent by the peer is its answer, whatever its
number: a server that says -32001 has answered, it has not timed out.
"""

from __future__ import annotations

import re

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT, ErrorData

from playhead.errors import (
    ConnectionLostError,
    DeadlineError,
    LimitError,
    PlayheadError,
    ProtocolError,
    RangePastEndError,
    ServerError,
)

PAST_END = re.compile(r"\b416\b|range not satisfiable|not satisfiable", re.IGNORECASE)
EVENT_LIMIT = re.compile(r"^SSE stream failed: Server-sent event exceeded the (\d+) byte limit")
"""How the SDK says it; a peer that says the same gets the same error, and gains nothing by it."""
QUOTED_CHARS = 500
"""How much of a peer's own words goes into a message."""


def quoted(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "…"


def from_answer(error: ErrorData, *, method: str, server: str) -> PlayheadError:
    """The error for a JSON-RPC error answer that came in on the wire."""
    said = quoted(error.message)
    if error.code == PARSE_ERROR and said.startswith("Failed to parse"):
        # The SDK's own words for a body or event that is not JSON-RPC.
        return ProtocolError(f"{server} answered {method} with something that is not JSON-RPC: {said}")
    if error.code == CONNECTION_CLOSED and (cut := EVENT_LIMIT.search(said)) is not None:
        allowed = int(cut.group(1))
        return LimitError(
            f"{server} answered {method} with an event longer than {allowed} bytes; ask for smaller pages, or"
            " raise Limits.message_bytes",
            limit="message_bytes",
            allowed=allowed,
            got=allowed + 1,
        )
    kind = RangePastEndError if method == "resources/read" and PAST_END.search(said) else ServerError
    return kind(
        f"{server} answered {method} with error {error.code}: {said}",
        code=error.code,
        data=error.data,
        said=error.message,
    )


def from_sdk(error: MCPError, *, method: str, server: str, diagnosis: str) -> PlayheadError:
    """The error for a failure that the SDK made up by itself."""
    if error.code == REQUEST_TIMEOUT:
        return DeadlineError(f"{server} did not answer {method} in time")
    if error.code == CONNECTION_CLOSED:
        return ConnectionLostError(f"the connection to {server} ended before it answered {method}{diagnosis}")
    return ProtocolError(f"{method} to {server} failed with {error.code}: {quoted(error.message)}")
