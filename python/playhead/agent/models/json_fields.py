"""Functions that all codecs use: they read a provider's JSON within limits, and make values safe to send."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from playhead.agent.conversation import Provider, ToolCall
from playhead.content.findings import kind_of
from playhead.errors import LimitError, ModelError
from playhead.escaping import shortened
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.messages import check_structure
from playhead.strict_json import parse_json

UNNAMED: Final = "unnamed"
"""The name of a call without a name. No provider would accept a conversation with an empty one."""
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INVALID_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_EMPTY: Final[Mapping[str, Any]] = {}


def text_at(source: Mapping[str, Any], key: str) -> str:
    """Return the string under `key`; an empty one if there is none."""
    value = source.get(key)
    return value if isinstance(value, str) else ""


def mapping_at(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object under `key`; an empty one if there is none."""
    value = source.get(key)
    return value if isinstance(value, Mapping) else _EMPTY


def mappings_at(source: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects in the array under `key`; an empty list without an array."""
    value = source.get(key)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def count_at(source: Mapping[str, Any], key: str) -> int | None:
    """Return the non-negative integer under `key`, if any."""
    value = source.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def wire_name(name: str) -> str:
    """Return a called tool's name in a form that every provider accepts in a conversation.

    Models call names that no tool has (`functions.read`, `multi_tool_use.parallel`). Such a call gets an
    error as its result, but providers would refuse every later request with the unchanged name.
    """
    return _INVALID_IN_NAMES.sub("_", name)[:64] or UNNAMED


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str]:
    """Parse a call's arguments. Return them and "", or None and the mistake, as text for the model.

    Blank text means `{}`.
    """
    if not text.strip():
        return {}, ""
    try:
        # Python could parse deeper nesting, but could not write it again, so every later request would fail.
        check_structure(text.encode("utf-8", "surrogatepass"), DEFAULT_LIMITS)
        value = parse_json(text)
    except LimitError:
        return None, "the arguments are nested too deeply, or hold too many values"
    except ValueError as error:
        return None, f"the arguments are not JSON: {error}"
    if not isinstance(value, dict):
        return None, f"the arguments must be a JSON object, not {kind_of(value)}"
    return value, ""


def tool_call(call_id: str, name: str, text: str, *, cut_off: str = "") -> ToolCall:
    """Make the call whose arguments a model wrote as `text`.

    A call without a name, or with arguments that aren't an object, has a `problem`, which tells the model the
    mistake. The tool loop repairs empty and repeated ids.

    Args:
        cut_off: the problem of a reply that was cut off. The call gets it unless `text` is a complete object.
            Empty `text` is not one.
    """
    arguments, problem = parse_arguments(text)
    if cut_off and not is_object(text):
        arguments, problem = None, cut_off
    if not name:
        arguments, problem = None, "the call has no name"
    return ToolCall(
        id=call_id, name=name or UNNAMED, arguments=arguments, arguments_text=text, problem=problem
    )


def sendable(value: Any) -> Any:
    """Replace lone surrogates. A model can write them as escapes, but UTF-8 can't represent them."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {sendable(key): sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in value]
    return value


def parse_event(data: str, *, provider: str, limits: Limits = DEFAULT_LIMITS) -> Mapping[str, Any]:
    """Parse the data of one event, an object.

    Raises:
        ModelError: it is not a JSON object.
        LimitError: it is nested deeper, or holds more values, than `limits` allows.
    """
    check_structure(data.encode(), limits)
    try:
        value = parse_json(data)
    except ValueError as error:
        raise ModelError(
            f"expected JSON events in the stream of {provider}, got {shortened(data)!r} ({error}); check that"
            " base_url leads to this provider's API",
            provider=provider,
        ) from None
    if not isinstance(value, dict):
        raise ModelError(
            f"expected an object in each event of the stream of {provider}, got {shortened(data)!r}",
            provider=provider,
        )
    # A lone surrogate (from an escape) could never be sent back.
    return sendable(value) if "\\u" in data else value


def stream_error(error: Any, *, provider: Provider) -> ModelError:
    """Return the `ModelError` for an error that the provider sent in its stream."""
    fields = error if isinstance(error, Mapping) else {"message": error}
    message = text_at(fields, "message") or json.dumps(error)
    kind = next(filter(None, (text_at(fields, key) for key in ("code", "status", "type"))), "")
    quoted = shortened(f"{kind}: {message}" if kind else message)
    return ModelError(
        f"{provider} broke off its reply: {quoted}", provider=provider, status=count_at(fields, "code")
    )


def is_object(text: str) -> bool:
    """Return True if `text` is a complete JSON object, so that no more of it can follow."""
    return text.rstrip().endswith("}") and parse_arguments(text)[0] is not None
