"""`TemplateTool`, the definition of a tool, and what all tools share: answers and the check of arguments.

A tool that fails raises a `PlayheadError`. The server then answers with `isError` and the error's message,
which a model reads and which should say what to do. Any other exception is a bug, and becomes a JSON-RPC
error.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from playhead.content.builders import create_annotations, create_text_content
from playhead.content.findings import kind_of
from playhead.errors import UsageError

Arguments = Mapping[str, Any]
"""Arguments that fit the tool's `inputSchema`, with the schema's defaults for missing ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTool:
    """A tool."""

    definition: types.Tool
    run: Callable[[Arguments], Awaitable[types.CallToolResult]]

    @property
    def name(self) -> str:
        return self.definition.name


def answer(text: str, structured: dict[str, Any]) -> types.CallToolResult:
    """Return a result in two forms: a sentence for a person, and data.

    The data are `structuredContent` and, for clients that do not know it, the same JSON in a text block. Each
    block has its audience in its annotations, so that a client need not show or send both.
    """
    return types.CallToolResult(
        content=[
            create_text_content(text, annotations=create_annotations(audience=["user"])),
            create_text_content(
                json.dumps(structured, ensure_ascii=False),
                annotations=create_annotations(audience=["assistant"]),
            ),
        ],
        structured_content=structured,
    )


def failed(text: str) -> types.CallToolResult:
    """Return the answer of a tool that failed."""
    return types.CallToolResult(content=[create_text_content(text)], is_error=True)


MOST_FAULTS: Final = 5
"""Limits the faults in a message."""


def checked_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of a call; add defaults, and convert whole numbers to `int` (JSON's 5.0 is a 5).

    `schema` is one of our own, so its patterns and references need no bounds.

    Raises:
        UsageError: the arguments break the schema. The message names several faults at once, because a model
            reads it and tries again.
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
    """Describe an error of the validator in words for a model."""
    where = ".".join(str(key) for key in error.absolute_path)
    expected, got = error.validator_value, _shown_value(error.instance)
    match error.validator:
        case "required":
            # One error for each missing name, which jsonschema puts only into its message.
            yield error.message.replace("is a required property", "is missing")
        case "additionalProperties":
            known = ", ".join(error.schema["properties"])
            unknown = [name for name in error.instance if name not in error.schema["properties"]]
            yield f"unknown {', '.join(repr(name[:40]) for name in unknown[:5])}; expected {known}"
        case "oneOf" | "anyOf":
            choices = [" and ".join(choice["required"]) for choice in expected]
            yield f"give either {', or '.join(choices)}, not both"
        case "type":
            yield f"{where}: expected {'an' if expected[0] in 'aio' else 'a'} {expected}, got {got}"
        case "enum":
            yield f"{where}: expected one of {', '.join(map(str, expected))}, got {got}"
        case "minimum" | "maximum":
            least_or_most = "least" if error.validator == "minimum" else "most"
            yield f"{where}: expected at {least_or_most} {expected}, got {got}"
        case "minLength" | "maxLength":
            least_or_most = "least" if error.validator == "minLength" else "most"
            noun = "character" if expected == 1 else "characters"
            yield f"{where}: expected at {least_or_most} {expected} {noun}, got {len(error.instance)}"
        case "pattern":
            yield f"{where}: expected a match of {expected}, got {got}"
        case "maxProperties":
            yield f"expected at most {expected} arguments, got {len(error.instance)}"
        case _:
            yield f"{where} breaks {error.validator} {expected!r:.80}"


def _shown_value(value: object) -> str:
    return repr(value)[:80] if isinstance(value, str | int | float) else kind_of(value)
