"""Check HTTP answers: statuses, failed connections, and the JSON-RPC message of a POST."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from playhead._core import Frame
from playhead.client.transports.rpc_errors import from_answer, names_lost_session, quoted
from playhead.client.transports.tls import tls_reason
from playhead.errors import (
    NO_DESCRIPTOR,
    AccessDeniedError,
    ConnectionLostError,
    HttpRefusedError,
    HttpStatusError,
    LimitError,
    PlayheadError,
    ProtocolError,
    SessionLostError,
    is_descriptor_limit,
)
from playhead.limits import Limits
from playhead.protocol import messages
from playhead.protocol.messages import RpcError
from playhead.redaction import redacted_url
from playhead.retry import TRY_LATER, is_retryable, retry_after_seconds
from playhead.strict_json import STRICT_DECODER
from playhead.web_address import WebAddress

_REASON_KEYS: Final = ("detail", "message", "error", "error_description")


def place_of(url: str) -> str:
    """`url` without its parts that may be secret (`redaction.redacted_url`)."""
    try:
        WebAddress.parse(url)
    except ValueError:
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
    """Return the error for a request to `url` that failed in httpcore2."""
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
    if kind == "ProxyError":
        return ConnectionLostError(f"the proxy refused the connection to {place}: {quoted(str(error))}")
    return ConnectionLostError(
        f"the connection to {place} failed before the answer was complete ({kind}){hint}"
    )


def check_status(
    status: int,
    reason: str,
    headers: Mapping[str, str],
    content: bytes,
    *,
    place: str,
    in_session: bool,
    now: float,
) -> None:
    """Raise the error that an answer from `place` stands for; return if its body is a JSON-RPC error.

    `in_session`: the request named a session. `now` is the time of day in seconds since 1970, for a date in
    `Retry-After`.

    Raises:
        SessionLostError: the request was part of a session that the server no longer knows.
        AccessDeniedError: 401 or 403, whatever the body.
        HttpStatusError: 408, 425, 429, 502, 503 or 504, whatever the body; another of 500 or above without a
            JSON-RPC error.
        HttpRefusedError: another status of 300 to 499 without a JSON-RPC error.
    """
    answered = f"HTTP {status} {reason}".rstrip()
    error = _error_in(content)
    if in_session and _session_is_lost(status, error, content):
        raise SessionLostError(f"{place} no longer knows the session (HTTP {status})")
    if status in (401, 403):
        raise AccessDeniedError(
            f"{place} refused access with {answered}: set valid credentials under `headers` or `auth`",
            status=status,
        )
    if status in TRY_LATER or (error is None and is_retryable(status)):
        said = words_of(headers, content) if error is None else error["message"]
        raise HttpStatusError(
            f"{place} answered {answered}" + (f": {quoted(said)}" if said else ""),
            status=status,
            retry_after_seconds=retry_after_seconds(headers, now=now),
        )
    if error is None:
        said = quoted(words_of(headers, content)) or "is it an MCP endpoint?"
        raise HttpRefusedError(f"{place} answered {answered}: {said}", status=status)


def words_of(headers: Mapping[str, str], content: bytes) -> str:
    """Return the reason that a gateway or framework gives as plain text or in JSON (FastAPI's `detail`,
    `error`, `error.message`); empty without one."""
    match headers.get("content-type", "").partition(";")[0].strip().lower():
        case "text/plain":
            return " ".join(content.decode("utf-8", "replace").split())
        case "application/json":
            try:
                body = STRICT_DECODER.decode(content.decode())
            except (ValueError, RecursionError):
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
    """Return the JSON-RPC error in a body; None for anything else."""
    try:
        message = STRICT_DECODER.decode(content.decode())
    except (ValueError, RecursionError):  # 60 KiB of brackets
        return None
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return error if type(error.get("code")) is int else None


def unanswered(
    data: bytes, request_id: int | str, limits: Limits, *, place: str, status: int
) -> HttpStatusError | LimitError:
    """Return the error for a body from `place` that did not answer the request on whose POST it arrived."""
    frame = Frame(data)
    try:
        messages.decode(data, limits, frame)
    except LimitError as error:
        return error
    except ProtocolError as error:
        got = f"a body that cannot be read: {error}"
    else:
        is_answer = frame.kind in ("result", "error")
        got = (
            f"an answer to request {str(frame.id)[:40]!r}" if is_answer else "a message that is not an answer"
        )
    return HttpStatusError(f"expected {place} to answer request {request_id}, got {got}", status=status)


def unnamed_refusal(content: bytes, *, method: str, server: str) -> PlayheadError | None:
    """Return the error for a refusal that names no request by number: SDKs write `"server-error"` for the id
    of one that they have not read. None for any other."""
    key, error = Frame(content).id, _error_in(content)
    if error is None or not isinstance(key, str) or key.isdecimal():
        return None
    return from_answer(
        RpcError(error["code"], error["message"], error.get("data")), method=method, server=server
    )


def unfollowed(to: WebAddress | None, *, status: int, place: str) -> HttpRefusedError:
    """Return the error for a redirect that is not followed."""
    where = "an invalid address" if to is None else place_of(str(replace(to, query=None, fragment=None)))
    hint = "use that URL if it is the server's"
    if to is not None and to.scheme == "http" and place.startswith("https:"):
        hint = (
            "it would leave TLS. The server is probably behind a proxy whose forwarded headers it does not"
            " trust; try the address with https"
        )
    return HttpRefusedError(
        f"{place} redirects (HTTP {status}) to {where}, which is not followed: {hint}", status=status
    )
