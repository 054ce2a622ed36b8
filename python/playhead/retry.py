"""The rules for retries, for every request that this package sends.

| failure | a read, or a model's reply | a call with effects |
|---|---|---|
| lost connection, silence, HTTP 408, 425, 5xx, a body without the answer | retry | no: it may have run |
| HTTP 429 or 503 | retry | retry: it was not begun |
| internal error of the server: a JSON-RPC code not named below | retry | no |
| refusal: another HTTP 4xx, or a code for an invalid request | retry in another form; three times | no |
| unusable page: invalid base64, or a violation of the protocol | retry once | no |
| anything else | no | no |

The time of the next try is not decided here: the planner (`rust/core`) knows it for the reads of a stream,
and a model's client for its requests. Both wait as long as `Retry-After` asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from playhead.errors import (
    Base64Error,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    ProtocolError,
    ResourceChangedError,
    ServerEndedError,
    ServerError,
    StreamBrokenError,
    ToolFailedError,
    TransportError,
)

TRY_LATER: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses that ask for a retry (RFC 9110, section 15; RFC 8470; RFC 6585), whatever the body says: a gateway
may put a JSON-RPC error with any code into it. Some servers use these numbers as JSON-RPC codes."""
_NOT_BEGUN: Final = frozenset({429, 503})
"""Statuses of a request that the server refused before it ran."""
_FIRST_SERVER_STATUS: Final = 500
_REFUSALS: Final = frozenset({-32700, -32600, -32601, -32602, -32002})
"""The JSON-RPC and MCP codes of a request that would fail again."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
"""Matches the seconds in `Retry-After`. RFC 9110 has whole seconds; some servers send fractions."""
_DATE_CHARS: Final = 64
"""Limits the text that is parsed as a date. The longest of the three forms has 33 characters."""


def is_retryable(status: int) -> bool:
    """Return whether a retry may help after an HTTP status without a JSON-RPC error."""
    return status in TRY_LATER or status >= _FIRST_SERVER_STATUS


def was_not_begun(error: PlayheadError) -> bool:
    """Return whether the server refused a request before it ran, so that even a call with effects may be
    repeated."""
    return isinstance(error, HttpStatusError) and error.status in _NOT_BEGUN


def retry_after_seconds(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the wait that `Retry-After` asks for (RFC 9110, section 10.2.3); None if the header is missing
    or invalid.

    `now` is the time of day in seconds since 1970. A date is relative to it; one in the past gives 0.
    """
    text = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    if not 0 < len(text) <= _DATE_CHARS:
        return None
    from email.utils import mktime_tz, parsedate_tz

    try:
        date = parsedate_tz(text)
        return None if date is None else max(0.0, mktime_tz(date) - now)
    except (ValueError, OverflowError):  # month 13, year 99999999
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """The class of a failed read, in the planner's terms."""

    kind: Literal["lost", "refused", "damaged", "final"]
    code: int | None = None
    retry_after_seconds: float | None = None


def read_failure(error: PlayheadError) -> ReadFailure:
    """Classify the error of a read. Reads are idempotent, so a server's own faults are retried, too."""
    match error:
        case ServerEndedError() | StreamBrokenError():
            return ReadFailure(kind="final")
        case TransportError():
            return ReadFailure(kind="lost", retry_after_seconds=error.retry_after_seconds)
        case HttpRefusedError():
            return ReadFailure(kind="refused", code=error.status)
        case ServerError():
            is_status = 400 <= error.code < _FIRST_SERVER_STATUS and error.code not in TRY_LATER
            is_refusal = error.code in _REFUSALS or is_status
            return ReadFailure(kind="refused" if is_refusal else "lost", code=error.code)
        case ToolFailedError():
            return ReadFailure(kind="refused")
        case Base64Error() | ProtocolError() | ResourceChangedError():
            return ReadFailure(kind="damaged")
        case _:
            return ReadFailure(kind="final")
