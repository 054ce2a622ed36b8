"""Reading JSON that a provider sent, and making what it gets fit to be sent. Shared by the codecs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from playhead.client.transports.messages import check_structure
from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NOTHING: Final[Mapping[str, Any]] = {}


def text_at(source: Mapping[str, Any], key: str) -> str:
    """The string under `key`; empty where there is none."""
    found = source.get(key)
    return found if isinstance(found, str) else ""


def mapping_at(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under `key`; empty where there is none."""
    found = source.get(key)
    return found if isinstance(found, Mapping) else _NOTHING


def mappings_at(source: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects in the array under `key`; none where there is no array."""
    found = source.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def count_at(source: Mapping[str, Any], key: str) -> int | None:
    """The whole number under `key`, from 0."""
    found = source.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def wire_name(name: str) -> str:
    """A called tool's name, as every provider takes it in a conversation.

    Models ask for names that no tool has (`functions.read`, `multi_tool_use.parallel`). The call is answered
    with an error, but its name, given back as it was, would fail every later request.
    """
    return _NO_NAME.sub("_", name)[:64] or "_"


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str]:
    """A call's arguments, or None and what is wrong with them, for the model to read. No text is `{}`."""
    if not text.strip():
        return {}, ""
    try:
        # What is nested deeper could be parsed, and not be written again: it would fail each later request.
        check_structure(text.encode("utf-8", "surrogatepass"), DEFAULT_LIMITS)
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except LimitError:
        return None, "the arguments are nested too deeply, or hold too many values"
    except ValueError as error:
        return None, f"the arguments are not JSON: {error}"
    if not isinstance(found, dict):
        return None, f"the arguments must be a JSON object, not {_kind(found)}"
    return found, ""


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a number or boolean")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def sendable(value: Any) -> Any:
    """`value` without lone surrogates, which a model can write as escapes and nobody can send as UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {sendable(key): sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in value]
    return value
