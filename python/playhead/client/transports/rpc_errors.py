"""The errors that a caller sees for JSON-RPC error answers.

No code means a failure on this side: -32001 from the peer is an ordinary answer, although the TypeScript SDK
uses it for its own timeouts.
"""

from __future__ import annotations

import re

from playhead.errors import PlayheadError, RangePastEndError, ServerError, SessionLostError
from playhead.escaping import shortened
from playhead.protocol.messages import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError

PAST_END = re.compile(r"\b416\b|not satisfiable", re.IGNORECASE)
LOST_SESSION = re.compile(
    r"\bno valid session\b|\b(?:invalid|unknown|expired)(?: or expired)? (?:mcp[ -])?session\b"
    r"|\bsession(?:[ -]id)? (?:(?:was|is|has) )?(?:not found|not valid|invalid|unknown|expired|terminated)\b"
    r"|\b(?:server|session) (?:is )?not initialized\b|\bcould not find session\b",
    re.IGNORECASE,
)
"""Matches the texts of HTTP 400 for an unknown session: the TypeScript SDK's examples ("No valid session ID
provided", "Server not initialized"), mcp-go's ("Invalid session ID"), and similar ones."""
_SESSION_NOT_FOUND = "session not found"
_RESOURCE_NOT_FOUND = -32002
_REQUEST_FAULT_CODES = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, _RESOURCE_NOT_FOUND})
"""Codes that blame the request, never the session. Their text is not searched, because it may quote the
request: a resource may be named "unknown session"."""
QUOTED_CHARS = 500
"""Limits the text of the peer that a message quotes, and that is searched for a reason."""


def quoted(text: str) -> str:
    return shortened(text, QUOTED_CHARS)


def names_lost_session(code: int | None, text: str, *, status: int) -> bool:
    """Return True if an error answer says that the server does not know the session of the request.

    `code` is None for a body without a JSON-RPC error, `status` the HTTP status (200 on other transports).
    """
    if code in _REQUEST_FAULT_CODES:
        return False
    if code == INVALID_REQUEST and _SESSION_NOT_FOUND in text.lower():
        return True
    if status == 404:
        return "session" in text.lower()
    return status == 400 and LOST_SESSION.search(quoted(text)) is not None


def texts_of(error: RpcError) -> tuple[str, ...]:
    """Return the strings of an error answer: its message, and its data if that is a string.

    Some servers put a heading into the message and the reason into the data, as the Go template does:
    "initialization failed", "unsupported protocol version: 2025-11-25".
    """
    data = error.data
    return (error.message, data) if isinstance(data, str) and data.strip() else (error.message,)


def says(error: RpcError, words: re.Pattern[str]) -> bool:
    """Return True if `words` are near the beginning of one of an error answer's strings."""
    return any(words.search(quoted(text)) for text in texts_of(error))


def text_of(error: RpcError) -> str:
    """Return the strings of an error answer joined to one, without repeating any."""
    texts = texts_of(error)
    longest = max(texts, key=len)
    return longest if all(text in longest for text in texts) else ": ".join(texts)


def from_answer(error: RpcError, *, method: str, server: str) -> PlayheadError:
    """Return the error for a JSON-RPC error answer from the peer."""
    text = quoted(text_of(error))
    past_end = method == "resources/read" and PAST_END.search(text) is not None
    kind = RangePastEndError if past_end else ServerError
    return kind(
        f"{server} answered {method} with error {error.code}: {text}",
        code=error.code,
        data=error.data,
        server_message=error.message,
    )


def lost_session(error: RpcError, *, server: str) -> SessionLostError | None:
    """Return the error for an answer that says that the session is unknown; None for any other.

    Not for requests of the handshake: a server may answer an unknown method in the same words.
    """
    text = quoted(text_of(error))
    if not names_lost_session(error.code, text, status=200):
        return None
    return SessionLostError(f"{server} no longer knows the session (error {error.code}: {text})")
