"""A tool's JSON Schema as Gemini takes it in `parametersJsonSchema`.

That field takes JSON Schema, and refuses the whole request for a few things: a `$ref` beside other keywords,
one that leads elsewhere than to `$defs`, and a root that is no object. So references within the schema are
written out, the text beside them kept; where that can't end (a type that holds itself) they stay references,
alone. `parameters`, the older field, takes a subset of OpenAPI 3.0 and is not used: it has no place for
`additionalProperties: {…}`, `oneOf`, `const` or a list of types.
Source: `FunctionDeclaration` of google-genai 3.4, and the API's page about JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_DROPPED: Final = frozenset({"$schema", "$id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary"})
"""Say nothing about a value."""
_DEFINITIONS: Final = ("$defs", "definitions")
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", *_DEFINITIONS})
"""Keywords whose keys are names, not keywords."""
_VALUES: Final = frozenset({"const", "default", "enum", "examples", "required"})
"""Keywords whose values are no schemas."""
_MOST_WRITTEN_OUT: Final = 20_000
"""Keywords, names and values written out for the references of one schema. Definitions that name each other
twice double with each level."""
_DEEPEST: Final = 16
"""References within references."""


def gemini_parameters(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """`schema` for `parametersJsonSchema`; None where a tool has no arguments, which is then left out."""
    taken: dict[str, Any] = _Rewriter(schema).rewrite()
    if taken.get("type") != "object":
        taken["type"] = "object"  # what a tool's arguments are, whatever else the schema says
    return None if set(taken) <= {"type", "properties", "title"} and not taken.get("properties") else taken


class _Rewriter:
    """One pass over one schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST_WRITTEN_OUT
        self._kept: dict[str, str] = {}
        """References that stay: the pointer, and its name in `$defs`."""

    def rewrite(self) -> dict[str, Any]:
        taken = self._schema(self._root, ())
        rewritten: dict[str, Any] = dict(taken) if isinstance(taken, Mapping) else {}
        for key in _DEFINITIONS:
            rewritten.pop(key, None)
        definitions: dict[str, Any] = {}
        while missing := [pointer for pointer, name in self._kept.items() if name not in definitions]:
            for pointer in missing:
                definitions[self._kept[pointer]] = self._schema(self._find(pointer), (pointer,))
        if definitions:
            rewritten["$defs"] = definitions
        return rewritten

    def _schema(self, schema: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(schema, list):
            return [self._schema(each, inside) for each in schema]
        if not isinstance(schema, Mapping):
            return schema
        pointer = schema.get("$ref")
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if isinstance(pointer, str):
            return self._reference(pointer, rest, inside)
        return self._keywords(rest, inside)

    def _keywords(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        if inside:
            self._left -= sum(
                len(each) if isinstance(each, list | Mapping) else 1 for each in schema.values()
            )
        taken: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _DROPPED or key in _DEFINITIONS:
                continue
            if key in _NAMED and isinstance(value, Mapping):
                taken[key] = {name: self._schema(each, inside) for name, each in value.items()}
            else:
                taken[key] = value if key in _VALUES else self._schema(value, inside)
        return taken

    def _reference(self, pointer: str, rest: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        target = self._find(pointer)
        if target is None:
            # Leads out of the schema: what stands beside it is all we know.
            return self._keywords(rest, inside)
        if pointer in inside or len(inside) == _DEEPEST or self._left <= 0:
            name = self._kept.setdefault(pointer, f"d{len(self._kept)}")
            return {"$ref": f"#/$defs/{name}"}
        written = self._schema(target, (*inside, pointer))
        base = dict(written) if isinstance(written, Mapping) else {}
        # Beside a reference stands what is special here: its description, a default.
        return base if set(base) == {"$ref"} else {**base, **self._keywords(rest, inside)}

    def _find(self, pointer: str) -> Any:
        """What a pointer within the schema names, or None."""
        if not pointer.startswith("#"):
            return None
        found: Any = self._root
        for step in pointer[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found
