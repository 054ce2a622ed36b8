"""What goes wrong between us and a provider, in this package's tree of errors, and without keys.

An HTTP status in place of a reply is a `ModelError`, whatever the status: the provider answered. A connection
that fails is one of the `TransportError` classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import httpx2

from playhead.agent.conversation import Provider
from playhead.agent.providers.wire_json import shortened
from playhead.errors import ConnectError, ConnectionLostError, DeadlineError, ModelError, TransportError

_KEYS: Final = re.compile(
    r"\b(?:sk|pk|gsk|xai)[-_][^\s\"',;]{6,}|\bAIza[\w-]{6,}|\bBearer\s+\S+", re.IGNORECASE
)
"""What looks like a key: providers quote one (or its ends) when they refuse it."""


def status_error(
    status: int,
    body: object,
    *,
    provider: Provider,
    place: str,
    headers: Mapping[str, str],
    key: str | None = None,
) -> ModelError:
    """The error for an HTTP status that is no success.

    Args:
        body: as parsed, or its text.
        place: the host that answered.
        headers: of the answer.
        key: what must not be quoted.
    """
    said = hidden(_said(body), key)
    quoted = f": {shortened(said)}" if said else ""
    wait = _wait_seconds(headers)
    match status:
        case 401 | 403:
            # Nothing is quoted here: this is where keys are.
            text = f"{place} refused the key (HTTP {status}): give one that may use this model"
        case 404:
            text = f"{place} has no such model or address (HTTP 404){quoted}; check model and base_url"
        case 413:
            text = f"{place} takes no request this long (HTTP 413){quoted}; send a shorter conversation"
        case 429:
            until = "" if wait is None else f"; it asks to wait {wait:g} s"
            text = f"{place} takes no more requests now (HTTP 429){quoted}{until}"
        case _ if 300 <= status < 400:
            text = (
                f"{place} redirects (HTTP {status}), which is not followed: the key would go along; give the"
                " address it leads to as base_url, if you trust it"
            )
        case _ if status >= 500:
            text = f"{place} failed (HTTP {status}){quoted}; try again later"
        case _:
            text = f"{place} did not take the request (HTTP {status}){quoted}"
    return ModelError(text, provider=provider, status=status, retry_after_seconds=wait)


def transport_error(error: BaseException | None, *, place: str) -> TransportError:
    """The error for a request that got no answer, or not all of it; no text of the libraries' is in it."""
    kind = type(error).__name__
    match error:
        case httpx2.ConnectTimeout() | httpx2.ConnectError():
            return ConnectError(
                f"no connection to {place} ({kind}): is base_url right, and the network there?"
            )
        case httpx2.TimeoutException():
            return DeadlineError(
                f"{place} kept silent for too long ({kind}); raise timeout_seconds, or ask again"
            )
        case _:
            return ConnectionLostError(
                f"the connection to {place} failed before the reply was whole ({kind})"
            )


def hidden(text: str, key: str | None) -> str:
    """`text` without `key`, and without what looks like one."""
    if key:
        text = text.replace(key, "[key]")
    return _KEYS.sub("[key]", text)


def parsed_body(content: bytes) -> object:
    """An error's body: JSON where it is that."""
    text = content.decode("utf-8", errors="replace")
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return parsed


def _said(body: object) -> str:
    """The message in `{"error": {"message"}}`, `{"message"}`, `{"error": "…"}`, or a plain text."""
    while isinstance(body, Mapping):
        body = body.get("error") or body.get("message") or body.get("detail")
    text = body if isinstance(body, str) else ""
    return "" if text.lstrip().startswith("<") else " ".join(text.split())  # a page of HTML says nothing


def _wait_seconds(headers: Mapping[str, str]) -> float | None:
    asked = headers.get("retry-after", "").strip()
    # The other form, a date, would need a clock.
    return float(asked) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", asked) else None
