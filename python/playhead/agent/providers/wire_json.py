"""Events of JSON in a provider's stream, held against the limits before they are parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from playhead.agent.providers.wire import parse_arguments, sendable
from playhead.client.transports.messages import check_structure
from playhead.errors import ModelError
from playhead.limits import DEFAULT_LIMITS, Limits

_SHOWN_CHARS = 200
"""How much of what came is quoted in an error."""


def parse_event(data: str, *, provider: str, limits: Limits = DEFAULT_LIMITS) -> Mapping[str, Any]:
    """One event's data, an object.

    Raises:
        ModelError: it is something else.
        LimitError: it is nested deeper, or holds more values, than `limits` allows.
    """
    check_structure(data.encode(), limits)
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ModelError(
            f"expected events of JSON in the stream of {provider}, got {shortened(data)!r} ({error}): does"
            " base_url lead to this provider's API?",
            provider=provider,
        ) from None
    if not isinstance(value, dict):
        raise ModelError(
            f"expected an object in each event of the stream of {provider}, got {shortened(data)!r}",
            provider=provider,
        )
    # Half a character (an escaped surrogate without its other half) could never be sent back.
    return sendable(value) if "\\u" in data else value


def is_object(text: str) -> bool:
    """Whether `text` is a whole JSON object, so that nothing can follow it."""
    return text.rstrip().endswith("}") and parse_arguments(text)[0] is not None


def shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
