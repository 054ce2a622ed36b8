"""JSON that models and their providers write: events of a stream, and the arguments of calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

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
    # Half a character (an escaped surrogate without its other half) cannot be sent back in UTF-8.
    return _mended(value) if "\\u" in data else value


def parse_arguments(text: str) -> tuple[Mapping[str, Any] | None, str]:
    """A call's arguments, and what is wrong with them where they are no object.

    Nothing at all is no arguments: servers write an empty string for a tool that has none.
    """
    if not text.strip():
        return {}, ""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return None, f"the arguments are no JSON ({error})"
    if isinstance(value, dict):
        return _mended(value), ""
    return None, f"the arguments are no JSON object, but of type {type(value).__name__}"


def is_object(text: str) -> bool:
    """Whether `text` is a whole JSON object, so that nothing can follow it."""
    return text.rstrip().endswith("}") and parse_arguments(text)[0] is not None


def shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _mended(value: Any) -> Any:
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            return value
        case list():
            return [_mended(item) for item in value]
        case dict():
            return {_mended(key): _mended(item) for key, item in value.items()}
        case _:
            return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
