"""One of our requests and its outcome: the answer, or the one error that its caller sees.

Most requests pass through the SDK's session, which sends and correlates them. Direct ones do not: a transport
sends them with ids of ours on the same connection (`DirectRequests`).

Only errors that our own side made up are `TransportError`s. A code sent by the peer is its answer, whatever
the number: a server that sends -32001 has answered, it has not timed out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx2
import trio
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from playhead.errors import (
    ConnectionLostError,
    DeadlineError,
    LimitError,
    PlayheadError,
    ProtocolError,
    RangePastEndError,
    ServerError,
    SessionLostError,
)
from playhead.protocol.messages import RpcError

ProgressReport = tuple[float, float | None, str | None]
"""Progress, total and message of a `notifications/progress`."""


@dataclass(slots=True)
class PendingRequest:
    """One of our requests and its outcome."""

    method: str
    take: bool = True
    """True to withhold the result from the SDK; False for the handshake, which the SDK reads itself."""
    request_id: RequestId | None = None
    touched: float = 0.0
    """Time of the last byte of its answer, on trio's clock; 0.0 if the transport can't tell."""
    result: dict[str, Any] | None = None
    answered: bool = False
    taken: bool = False
    """True while the transport has handed the result in, and the SDK has not read the stand-in yet."""
    answer_error: ErrorData | None = None
    failure: PlayheadError | None = None
    report: Callable[[ProgressReport], None] | None = None
    """Receives the reports of its progress."""
    begun: BegunAnswer | None = None
    """Its answer, if it was sent already."""

    async def progressed(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report, which shows that the server is at work on the request."""
        self.touched = trio.current_time()
        if self.report is not None:
            self.report((progress, total, message))

    def notified(self, about: Mapping[str, Any]) -> None:
        """Take the parameters of a `notifications/progress`; invalid ones are ignored."""
        progress, total, text = about.get("progress"), about.get("total"), about.get("message")
        if not isinstance(progress, int | float) or isinstance(progress, bool):
            return
        self.touched = trio.current_time()
        if self.report is not None:
            self.report(
                (
                    float(progress),
                    float(total) if isinstance(total, int | float) else None,
                    text if isinstance(text, str) else None,
                )
            )


@dataclass(slots=True, eq=False, kw_only=True)
class BegunAnswer:
    """The answer to a direct request that only the session can read: an event stream, or an HTTP error.

    The session sends its own request for it, which does not reach the wire: it is answered with this.
    """

    request_id: RequestId
    """The id on the wire."""
    response: httpx2.Response
    sent_at: float
    """On trio's clock."""
    cancel: Callable[[], None]
    """Cancels the request on the wire, in the background."""
    _is_settled: bool = False

    def take(self) -> httpx2.Response | None:
        """The response for the session, which closes it; None if it was abandoned before."""
        taken, self._is_settled = None if self._is_settled else self.response, True
        return taken

    async def abandon(self) -> None:
        """Cancel the request, unless the session has the response. Idempotent."""
        if self.take() is not None:
            self.cancel()
            with trio.CancelScope(shield=True):
                await self.response.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """A transport has left a request to the SDK's session."""

    reason: str
    begun: BegunAnswer | None = None
    """The answer so far, if the request must not be sent again."""


class DirectRequests(Protocol):
    """Requests on a transport's connection that do not pass through the SDK's session."""

    async def send(
        self, request: JSONRPCRequest, *, headers: Mapping[str, str], pending: PendingRequest
    ) -> JSONRPCResponse | JSONRPCError | Declined:
        """Send `request` and return the answer to its id, parsed within the limits and otherwise unread.

        `headers` are for HTTP. An error of the transport's own is a `JSONRPCError` whose `data` is a
        `PlayheadError`; it is set as `pending.failure` if only this request is lost. Each byte of the answer
        sets `pending.touched`, if the transport can tell. Cancelled: the request is cancelled on the wire.
        A read may be declined after it was sent; a call that the server may have run is declined with its
        answer (`Declined.begun`).
        """
        ...


# --- failures --------------------------------------------------------------------------------------------

PAST_END = re.compile(r"\b416\b|range not satisfiable|not satisfiable", re.IGNORECASE)
EVENT_LIMIT = re.compile(r"^SSE stream failed: Server-sent event exceeded the (\d+) byte limit")
"""The SDK's wording. A peer that sends the same text gets the same error, and gains nothing."""
LOST_SESSION = re.compile(
    r"\bno valid session\b|\b(?:invalid|unknown|expired)(?: or expired)? (?:mcp[ -])?session\b"
    r"|\bsession(?:[ -]id)? (?:(?:was|is|has) )?(?:not found|not valid|invalid|unknown|expired|terminated)\b"
    r"|\b(?:server|session) (?:is )?not initialized\b|\bcould not find session\b",
    re.IGNORECASE,
)
"""Texts of servers with HTTP 400 for an unknown session: the TypeScript SDK's examples ("No valid session ID
provided", "Server not initialized"), mcp-go ("Invalid session ID"), and similar ones."""
_SESSION_NOT_FOUND = "session not found"
_OTHER_CODES = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, -32002})
"""Codes of errors about the request itself: a resource may be named "no valid session"."""
QUOTED_CHARS = 500
"""Characters of a peer's own text to quote in a message."""


def quoted(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "…"


def names_lost_session(code: int | None, said: str, *, status: int) -> bool:
    """True if an error answer says that the server does not know the session of the request.

    `code` is None for a body without a JSON-RPC error, `status` the HTTP status (200 on other transports).
    """
    if code in _OTHER_CODES:
        return False
    if code == INVALID_REQUEST and _SESSION_NOT_FOUND in said.lower():
        return True
    if status == 404:
        return "session" in said.lower()
    return status == 400 and LOST_SESSION.search(quoted(said)) is not None


def texts_of(error: ErrorData | RpcError) -> tuple[str, ...]:
    """The texts of an error answer: its message, and its data if that is a string.

    Some servers put a heading into the message and the reason into the data, as the Go template does:
    "initialization failed", "unsupported protocol version: 2025-11-25".
    """
    data = error.data
    return (error.message, data) if isinstance(data, str) and data.strip() else (error.message,)


def text_of(error: ErrorData | RpcError) -> str:
    """The texts of an error answer as one."""
    texts = texts_of(error)
    longest = max(texts, key=len)
    return longest if all(text in longest for text in texts) else ": ".join(texts)


def from_answer(error: ErrorData | RpcError, *, method: str, server: str) -> PlayheadError:
    """The error for a JSON-RPC error answer from the peer."""
    said = quoted(text_of(error))
    if error.code == PARSE_ERROR and said.startswith("Failed to parse"):
        # The SDK's text for a body or event that is not JSON-RPC.
        return ProtocolError(f"{server} answered {method} with something that is not JSON-RPC: {said}")
    if error.code == CONNECTION_CLOSED and (cut := EVENT_LIMIT.search(said)) is not None:
        allowed = int(cut.group(1))
        return LimitError(
            f"expected {server} to answer {method} with an event of at most {allowed} bytes, got more; ask"
            " for smaller pages, or raise Limits.message_bytes",
            limit="message_bytes",
            allowed=allowed,
            got=allowed + 1,
        )
    past_end = method == "resources/read" and PAST_END.search(said) is not None
    kind = RangePastEndError if past_end else ServerError
    return kind(
        f"{server} answered {method} with error {error.code}: {said}",
        code=error.code,
        data=error.data,
        said=error.message,
    )


def lost_session(error: ErrorData | RpcError, *, server: str) -> SessionLostError | None:
    """The error for an answer that says that the session is unknown; None for any other.

    Only for requests after the handshake: before it, a server may answer an unknown method in the same words.
    """
    said = quoted(text_of(error))
    if not names_lost_session(error.code, said, status=200):
        return None
    return SessionLostError(f"{server} no longer knows the session (error {error.code}: {said})")


def from_sdk(error: MCPError, *, method: str, server: str, diagnosis: str) -> PlayheadError:
    """The error for a failure that the SDK made up."""
    if error.code == REQUEST_TIMEOUT:
        return DeadlineError(f"{server} did not answer {method} in time")
    if error.code == CONNECTION_CLOSED:
        return ConnectionLostError(f"the connection to {server} ended before it answered {method}{diagnosis}")
    return ProtocolError(f"{method} to {server} failed with {error.code}: {quoted(error.message)}")
