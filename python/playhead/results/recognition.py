"""Whether a text block is a structured response."""

from __future__ import annotations

from typing import Final

from pydantic_core import from_json

from playhead.content.findings import kind_of
from playhead.errors import ResponseError
from playhead.limits import Limits
from playhead.results.responses import ResponseRegistry, StructuredResponse
from playhead.results.responses.reading import common_keys

_JSON_SPACE: Final = " \t\r\n"


def recognise(
    text: str, registry: ResponseRegistry, limits: Limits
) -> StructuredResponse | ResponseError | None:
    """The response that `text` is; None for any other text; the error of one that is nearly a response.

    A response is a JSON object with a registered `type`, a boolean `success` and a string `tool_name`. Nearly
    one has the type and one of the other two, or all three and a wrong field.

    A text is parsed only where it begins with `{` and ends with `}`, and has no more characters and values
    than a message may have (`Limits.message_bytes`, `Limits.json_values`): when the message was
    checked, all of it was one value. What nests deeper than 200 is no JSON to the parser.
    """
    bare = text.strip(_JSON_SPACE)
    if not (bare.startswith("{") and bare.endswith("}")) or len(bare) > limits.message_bytes:
        return None
    if len(bare) > limits.json_values and sum(map(bare.count, ",[{")) > limits.json_values:
        return None
    if not _names_a_response(bare):
        return None
    try:
        raw = from_json(bare.encode(), allow_inf_nan=False)
    except ValueError:
        return None
    found = common_keys(raw)
    name, success, tool = found.get("type"), found.get("success"), found.get("tool_name")
    reader = registry.reader(name) if isinstance(name, str) else None
    if reader is None:
        return None
    match isinstance(success, bool), isinstance(tool, str):
        case True, True:
            pass
        case True, False:
            return _wrong("tool_name", "a string", tool, there="tool_name" in found)
        case False, True:
            return _wrong("success", "a boolean", success, there="success" in found)
        case _:
            return None
    try:
        return reader(raw)
    except ResponseError as error:
        return error


def _names_a_response(text: str) -> bool:
    """Whether `text` can hold one of the two keys that nearly make a response: most JSON texts are parsed by
    their reader, and need not be parsed here before. A key may be written with escapes, in any case."""
    folded = text.lower()
    return "success" in folded or "tool_name" in folded or "\\u" in text


def _wrong(key: str, expected: str, value: object, *, there: bool) -> ResponseError:
    came = kind_of(value) if there else "nothing"
    return ResponseError(
        f"expected {expected} at $.{key} of a structured response, came {came}",
        code="INVALID_FIELD",
        path=f"$.{key}",
        expected=expected,
        came=came,
    )
