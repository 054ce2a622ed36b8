"""Check HTTP answers: statuses, `Retry-After`, TLS failures, and the JSON-RPC message of a POST."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Final

import httpx2
import pydantic_core
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp_types import JSONRPCError, JSONRPCResponse, RequestId

from playhead.client.transports.outcomes import names_lost_session, quoted
from playhead.errors import (
    NO_DESCRIPTOR,
    AccessDeniedError,
    ConnectionLostError,
    HttpRefusedError,
    HttpStatusError,
    ProtocolError,
    SessionLostError,
    is_descriptor_limit,
)
from playhead.limits import Limits
from playhead.protocol import sdk_messages as messages
from playhead.redaction import redacted_url

_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
"""RFC 9110 has whole seconds; some servers send fractions."""
_DATE_CHARS: Final = 64
"""The longest of the three date forms has 33."""
_REASON_KEYS: Final = ("detail", "message", "error", "error_description")


def retry_after_seconds(headers: Mapping[str, str], *, now: float) -> float | None:
    """The wait that `Retry-After` asks for (RFC 9110, section 10.2.3); None if the header is missing or
    invalid.

    `now` is the time of day in seconds since 1970. A date is relative to it; one in the past gives 0.
    """
    text = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    if not 0 < len(text) <= _DATE_CHARS:
        return None
    try:
        date = parsedate_tz(text)
        return None if date is None else max(0.0, mktime_tz(date) - now)
    except (ValueError, OverflowError):  # month 13, year 99999999
        return None


def tls_reason(error: BaseException) -> str | None:
    """The reason and the servers file key to set, if TLS caused `error`; HTTP libraries only chain the
    cause."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    match found:
        case None:
            return None
        case ssl.SSLCertVerificationError():
            return (
                f"certificate verification failed ({found.verify_message}); set tls.authorities to the"
                " issuing CA if you trust it"
            )
        case _:
            said = (getattr(found, "reason", None) or type(found).__name__).replace("_", " ").lower()
            return (
                f"TLS failed ({said}); does the server speak https on this port, and does it require a client"
                " certificate (tls.certificate, tls.key)?"
            )


TRY_LATER: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses that ask for a retry whatever the body says (RFC 9110, section 15; RFC 8470; RFC 6585): a gateway
may put a JSON-RPC error with any code into the body."""
_FIRST_SERVER_STATUS: Final = 500


def place_of(url: str) -> str:
    """`url` without its parts that may be secret (`redaction.redacted_url`)."""
    try:
        httpx2.URL(url)
    except httpx2.InvalidURL:
        return "(not a URL)"
    return redacted_url(url)


def unreachable(place: str, error: BaseException) -> str:
    """Return the message about a connection to `place` that could not be made, with the system's reason."""
    causes: list[BaseException] = [error]
    reason = "timed out" if "Timeout" in type(error).__name__ else "the connection failed"
    for cause in causes:  # grows
        if isinstance(cause, socket.gaierror | UnicodeError):
            reason = "no such host"
        elif isinstance(cause, OSError) and is_descriptor_limit(cause):
            return f"could not connect to {place}: {NO_DESCRIPTOR}"
        elif isinstance(cause, OSError) and cause.errno:
            reason = os.strerror(cause.errno).lower()
        inner = cause.__cause__ or cause.__context__
        causes += cause.exceptions if isinstance(cause, BaseExceptionGroup) else [inner] if inner else []
    return f"could not connect to {place}: {reason}; check that the server is running there"


def connection_error(error: Exception, url: str) -> ConnectionLostError:
    """The error for a request to `url` that failed in an HTTP library, httpx2 or the httpcore2 under it."""
    place = place_of(url)
    # Not the library's text: it quotes an illegal header with its value.
    kind = type(error).__name__
    if (reason := tls_reason(error)) is not None:
        return ConnectionLostError(f"could not connect to {place}: {reason}")
    if kind in ("ConnectError", "ConnectTimeout"):
        return ConnectionLostError(unreachable(place, error))
    # Since TLS 1.3 a refused client certificate shows at the first read, often without a reason.
    on_tls = kind == "ReadError" and url.startswith("https:")
    hint = "; does the server want a client certificate (tls.certificate)?" if on_tls else ""
    return ConnectionLostError(
        f"the connection to {place} failed before the answer was complete ({kind}){hint}"
    )


def is_retryable(status: int) -> bool:
    """True if a retry may help after an HTTP status without a JSON-RPC error."""
    return status in TRY_LATER or status >= _FIRST_SERVER_STATUS


def check_status(response: httpx2.Response, content: bytes, *, now: float) -> None:
    """Raise the error that `response` stands for; return if its body is the server's JSON-RPC error.

    `now` is the time of day in seconds since 1970, for a date in `Retry-After`.

    Raises:
        SessionLostError: the request was part of a session that the server no longer knows.
        AccessDeniedError: 401 or 403, whatever the body.
        HttpStatusError: 408, 425, 429, 502, 503 or 504, whatever the body; another of 500 or above without a
            JSON-RPC error.
        HttpRefusedError: another status of 300 to 499 without a JSON-RPC error.
    """
    status = response.status_code
    place = place_of(str(response.request.url))
    answered = f"HTTP {status} {response.reason_phrase}".rstrip()
    error = _error_in(content)
    if MCP_SESSION_ID in response.request.headers and _session_is_lost(status, error, content):
        raise SessionLostError(f"{place} no longer knows the session (HTTP {status})")
    if status in (401, 403):
        raise AccessDeniedError(
            f"{place} refused access with {answered}: set valid credentials under `headers` or `auth`",
            status=status,
        )
    if status in TRY_LATER or (error is None and is_retryable(status)):
        said = words_of(response, content) if error is None else error["message"]
        raise HttpStatusError(
            f"{place} answered {answered}" + (f": {quoted(said)}" if said else ""),
            status=status,
            retry_after_seconds=retry_after_seconds(response.headers, now=now),
        )
    if error is None:
        said = quoted(words_of(response, content)) or "is it an MCP endpoint?"
        raise HttpRefusedError(f"{place} answered {answered}: {said}", status=status)


def words_of(response: httpx2.Response, content: bytes) -> str:
    """The reason that a gateway or framework gives as plain text or in JSON (FastAPI's `detail`, `error`,
    `error.message`); empty without one."""
    match response.headers.get("content-type", "").partition(";")[0].strip().lower():
        case "text/plain":
            return " ".join(content.decode("utf-8", "replace").split())
        case "application/json":
            try:
                body = pydantic_core.from_json(content)
            except ValueError:
                return ""
            while isinstance(body, dict):
                body = next((body[key] for key in _REASON_KEYS if key in body), None)
            return body if isinstance(body, str) else ""
        case _:
            return ""


def _session_is_lost(status: int, error: dict[str, Any] | None, content: bytes) -> bool:
    if error is not None:
        return names_lost_session(error["code"], error["message"], status=status)
    if status == 404:
        return True
    return status == 400 and names_lost_session(None, content.decode("utf-8", "replace"), status=status)


def _error_in(content: bytes) -> dict[str, Any] | None:
    """The JSON-RPC error in a body; None for anything that the SDK would not accept as one."""
    try:
        # Not the json module: 60 KiB of brackets make it raise RecursionError.
        message = pydantic_core.from_json(content)
    except ValueError:
        return None
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return error if type(error.get("code")) is int else None


def check_answer(content: bytes, request_id: RequestId, limits: Limits, *, url: httpx2.URL) -> None:
    """Raise unless the JSON in `content`, which the SDK parses next, answers `request_id`.

    The SDK passes on any message: another request would get this answer, and this one would wait for its
    deadline. Raises `ProtocolError` for that, and `LimitError` for nesting or values past the limits.
    """
    frame = messages.check_structure(content, limits)
    key = messages.answered_plainly(frame)
    if key is None:
        key = messages.answered_key(messages.parse_message(content, limits, frame=frame))
    if key != messages.key_of(request_id):
        raise wrong_answer(key, request_id, url=url)


def parse_answer(
    content: bytes, request_id: RequestId, limits: Limits, *, url: httpx2.URL
) -> JSONRPCResponse | JSONRPCError:
    """Parse the JSON in `content`, with views of its long blobs. Raises as `check_answer`."""
    message = messages.parse_message(content, limits, views=True)
    key = messages.answered_key(message)
    if key != messages.key_of(request_id):
        raise wrong_answer(key, request_id, url=url)
    assert isinstance(message, JSONRPCResponse | JSONRPCError)
    return message


def wrong_answer(key: str | None, request_id: RequestId, *, url: httpx2.URL) -> ProtocolError:
    """The error for a body from `url` that answers the request `key`, or none, in place of `request_id`."""
    return ProtocolError(
        f"expected {place_of(str(url))} to answer request {request_id}, got "
        + ("a message that is not an answer" if key is None else f"an answer to request {key[:40]!r}")
    )
