"""The arguments of a call, held against the tool's own `inputSchema` before the tool sees them.

A model reads what is wrong and tries again, so the message says everything that is wrong at once, and where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from playhead.content.findings import kind_of
from playhead.errors import UsageError

MOST_FAULTS: Final = 5
"""Told at once: a call that has more is not worth a longer text."""


def checked_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with defaults for those left out, and whole numbers as `int` (JSON's 5.0 is a 5).

    `schema` is one of our own, and therefore trusted: its patterns and references need no bounds.

    Raises:
        UsageError: they break the schema.
    """
    errors = sorted(Draft202012Validator(schema).iter_errors(arguments), key=lambda error: error.json_path)
    if errors:
        faults = [fault for error in errors for fault in _faults(error)]
        rest = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
        raise UsageError(f"wrong arguments: {'; '.join(faults[:MOST_FAULTS])}{rest}")
    properties: Mapping[str, Mapping[str, Any]] = schema["properties"]
    defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
    whole = {name for name, each in properties.items() if each.get("type") == "integer"}
    return defaults | {name: int(value) if name in whole else value for name, value in arguments.items()}


def _faults(error: ValidationError) -> Iterator[str]:
    where = ".".join(str(key) for key in error.absolute_path)
    wanted, came = error.validator_value, _came(error.instance)
    match error.validator:
        case "required":
            # One error for each missing name; jsonschema says which only in its message.
            yield error.message.replace("is a required property", "is missing")
        case "additionalProperties":
            known = ", ".join(error.schema["properties"])
            unknown = [name for name in error.instance if name not in error.schema["properties"]]
            yield f"unknown {', '.join(repr(name[:40]) for name in unknown[:5])}; there are {known}"
        case "oneOf" | "anyOf":
            ways = [" and ".join(way["required"]) for way in wanted]
            yield f"give either {', or '.join(ways)}, and not both"
        case "type":
            yield f"{where} must be of type {wanted}, but is {came}"
        case "enum":
            yield f"{where} must be one of {', '.join(map(str, wanted))}, but is {came}"
        case "minimum" | "maximum":
            least = "least" if error.validator == "minimum" else "most"
            yield f"{where} must be at {least} {wanted}, but is {came}"
        case "minLength" | "maxLength":
            least = "least" if error.validator == "minLength" else "most"
            noun = "character" if wanted == 1 else "characters"
            yield f"{where} must have at {least} {wanted} {noun}, but has {len(error.instance)}"
        case "pattern":
            yield f"{where} must match {wanted}, but is {came}"
        case "maxProperties":
            yield f"at most {wanted} arguments go together, but {len(error.instance)} came"
        case _:
            yield f"{where} breaks {error.validator} {wanted!r:.80}"


def _came(value: object) -> str:
    return repr(value)[:80] if isinstance(value, str | int | float) else kind_of(value)
