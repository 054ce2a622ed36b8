"""Whether what a tool calls a schema is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from playhead.content.findings import Notes, kind_of
from playhead.content.formats import quoted
from playhead.content.validation_schema import check_output

_MOST_VALUES: Final = 5_000
_NO_SCHEMA: Final = "a valid JSON Schema"
"""How `check_output` begins what it says of a schema that its dialect's metaschema refuses. What it says
else (a schema too big to be checked, a reference that nobody follows) proves nothing."""


def schema_problem(schema: object, *, name: str, of_object: bool) -> str | None:
    """What is wrong with the schema in the field `name`, as the end of a message; None where nothing is.

    `of_object` says that it has to have `type: "object"` at its root.
    """
    if not isinstance(schema, dict):
        return f"expected {name} to be a JSON Schema, an object; came {kind_of(schema)}"
    kind = schema.get("type")
    if of_object and kind != "object":
        came = quoted(kind) if isinstance(kind, str) else "nothing" if kind is None else kind_of(kind)
        return f'expected {name}.type "object", came {came}'
    notes = Notes()
    check_output(notes, "$", {}, schema)
    for finding in notes.all():
        if finding.expected == _NO_SCHEMA:
            where = finding.path.replace("outputSchema", name, 1)
            came = finding.came.replace("outputSchema", name)
            return f"expected {name} to be a valid JSON Schema; {where} is {came}"
    missing = _leading_nowhere(schema)
    if missing is not None:
        return f"expected every $ref of {name} to lead to a schema in it; {quoted(missing)} leads nowhere"
    return None


def _leading_nowhere(schema: Mapping[str, object]) -> str | None:
    """The first `$ref` into the schema itself that finds nothing there."""
    references: list[str] = []
    left: list[object] = [schema]
    seen = 0
    while left:
        value = left.pop()
        seen += 1
        if seen > _MOST_VALUES:
            return None
        if isinstance(value, dict):
            if isinstance(value.get("$id"), str) and value is not schema:
                return None  # references in there are resolved against that id
            reference = value.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/"):
                references.append(reference)
            # What stands in these is data, whatever it looks like.
            left.extend(
                item for key, item in value.items() if key not in ("const", "enum", "default", "examples")
            )
        elif isinstance(value, list):
            left.extend(value)
    return next((reference for reference in references if not _leads(schema, reference)), None)


def _leads(schema: Mapping[str, object], reference: str) -> bool:
    """RFC 6901, as a fragment."""
    at: object = schema
    for part in reference[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and key in at:
            at = at[key]
        elif isinstance(at, list) and key.isdecimal() and int(key) < len(at):
            at = at[int(key)]
        else:
            return False
    return True
