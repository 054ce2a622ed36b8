"""Fields of JSON objects that came from a provider, and values fit to be sent to one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def text_at(source: Mapping[str, Any], key: str) -> str:
    """The string under `key`; empty where there is none."""
    found = source.get(key)
    return found if isinstance(found, str) else ""


def mapping_at(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under `key`; empty where there is none."""
    found = source.get(key)
    return found if isinstance(found, Mapping) else {}


def mappings_at(source: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects in the array under `key`; none where there is no array."""
    found = source.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def count_at(source: Mapping[str, Any], key: str) -> int | None:
    """The whole number under `key`, from 0."""
    found = source.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def sendable(value: Any) -> Any:
    """`value` without lone surrogates: users can paste them, and nobody can send them as UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {sendable(key): sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in value]
    return value
