"""Structured responses out of text.

Lossless for what the types document: `parse_response(text).to_json()` is `text` again where that is compact
JSON with its keys in the documented order. Otherwise the same values come out, in that form: unknown keys
behind the known ones in the order they came, known keys spelled as documented, and a number in the shortest
form that means the same double (`1e2` as `100.0`); whole numbers keep every digit. Of a key that comes twice
the last counts. Optional keys that were null are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic_core import from_json

from playhead.content.findings import kind_of
from playhead.errors import ResponseError, ResponseTypeError
from playhead.results.responses.base import StructuredResponse
from playhead.results.responses.fields import COMMON
from playhead.results.responses.registry import DEFAULT_REGISTRY, ResponseRegistry

_LONGEST_NAME: Final = 100
"""Characters of a foreign type name that an error quotes."""


def parse_response(text: str, registry: ResponseRegistry = DEFAULT_REGISTRY) -> StructuredResponse:
    """The structured response that `text` is. Keys are matched without regard to case.

    A missing flag is false, a missing `timestamp` 0, a missing `status`, `user_state` or `action` of an audio
    response empty, as in the reference system. What a response can't be understood without has to be there:
    `success`, `tool_name`, and `action` and `message`, `music_name`, `message`, or `error`.

    Raises:
        ResponseTypeError: Its `type` is not in the registry; the message names it (code `INVALID_TYPE`).
        ResponseError: It is no JSON object (`INVALID_JSON`), or a field is missing or of a wrong type
            (`INVALID_FIELD`; `path` says which). The sender's fault, all of them.
    """
    try:
        raw = from_json(text.encode(), allow_inf_nan=False)
    except ValueError as error:
        raise ResponseError(
            f"expected a structured response, a JSON object; came something that is no JSON: {error}",
            code="INVALID_JSON",
            path="$",
            expected="a JSON object",
            came="no JSON",
        ) from error
    if not isinstance(raw, dict):
        raise ResponseError(
            f"expected a structured response, a JSON object; came {kind_of(raw)}",
            code="INVALID_JSON",
            path="$",
            expected="a JSON object",
            came=kind_of(raw),
        )
    return read_response(raw, registry)


def common_keys(raw: Mapping[str, object]) -> Mapping[str, object]:
    """`type`, `success`, `timestamp` and `tool_name` of an object, as far as it has them, in any case."""
    return {
        folded: value
        for key, value in raw.items()
        if (folded := key if key in COMMON else key.lower()) in COMMON
    }


def read_response(raw: Mapping[str, object], registry: ResponseRegistry) -> StructuredResponse:
    """As `parse_response`, of an object that is parsed already."""
    name = common_keys(raw).get("type")
    reader = registry.reader(name) if isinstance(name, str) else None
    if reader is not None:
        return reader(raw)
    came = (
        repr(name[:_LONGEST_NAME]) if isinstance(name, str) else "nothing" if name is None else kind_of(name)
    )
    known = ", ".join(sorted(registry.types))
    raise ResponseTypeError(
        f"unknown type {came} at $.type of a structured response: expected one of {known}",
        code="INVALID_TYPE",
        path="$.type",
        expected=f"one of {known}",
        came=came,
    )
