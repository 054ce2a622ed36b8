"""Tool schemas in the subset of JSON Schema that each provider accepts.

OpenAI and Anthropic (`object_schema`) refuse the whole request, with every other tool in it, if one schema
has `anyOf`, `oneOf` or `allOf` at its root ("input_schema does not support oneOf, allOf, or anyOf at the top
level"), or a root type other than `object`. So the properties of these are folded into the root. The model
still sees every argument, and the tool's own server still checks how they combine. Below the root everything
is allowed and unchanged.

Gemini (`gemini_parameters`, for `parametersJsonSchema`) refuses the whole request for a `$ref` next to other
keywords, one that points outside `$defs`, and a root that isn't an object. So references within the schema
are inlined, and the keywords next to them preserved. A reference of a recursive type can't be inlined, so it
stays, without other keywords. `parameters`, the older field, takes a subset of OpenAPI 3.0 without
`additionalProperties: {…}`, `oneOf`, `const` and lists of types. Source: `FunctionDeclaration` of
google-genai 3.4, and the API's page about JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_EITHER: Final = ("anyOf", "oneOf")
_REFUSED: Final = frozenset({*_EITHER, "allOf", "not", "enum", "$ref"})


def object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return `parameters` as an object with `properties`, without keywords that are refused at the root."""
    root = {"type": "object", "properties": {}, **parameters}
    root["type"] = "object"
    if not isinstance(root["properties"], Mapping):
        root["properties"] = {}
    if _REFUSED.isdisjoint(root):
        return root
    properties, required = _fold(parameters, parameters, set())
    allowed = {key: value for key, value in root.items() if key not in _REFUSED}
    return {**allowed, "properties": properties, **({"required": required} if required else {})}


def _fold(schema: Any, whole: Mapping[str, Any], followed: set[str]) -> tuple[dict[str, Any], list[str]]:
    """Collect the properties of `schema`, and the names that are required in every case.

    Each reference is followed once, because a second time would add nothing, and definitions that refer to
    each other twice would double the work at each level.
    """
    if not isinstance(schema, Mapping):
        return {}, []
    declared, names = schema.get("properties"), schema.get("required")
    properties = dict(declared) if isinstance(declared, Mapping) else {}
    required = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    for branch in (*_branches(schema, "allOf"), *_target(schema, whole, followed)):
        inner, needed = _fold(branch, whole, followed)
        properties = {**inner, **properties}
        required += [name for name in needed if name not in required]
    # A property of several alternatives gets the alternatives of its schemas, and is never required.
    choices: dict[str, list[Any]] = {}
    for branch in (branch for key in _EITHER for branch in _branches(schema, key)):
        for name, value in _fold(branch, whole, followed)[0].items():
            known = choices.setdefault(name, [])
            if value not in known:
                known.append(value)
    for name, values in choices.items():
        properties.setdefault(name, values[0] if len(values) == 1 else {"anyOf": values})
    return properties, required


def _branches(schema: Mapping[str, Any], key: str) -> list[Any]:
    branches = schema.get(key)
    return branches if isinstance(branches, list) else []


def _target(schema: Mapping[str, Any], whole: Mapping[str, Any], followed: set[str]) -> Iterator[Any]:
    """Yield the target of the schema's reference within `whole`, unless it was followed before."""
    pointer = schema.get("$ref")
    if not isinstance(pointer, str) or not pointer.startswith("#/") or pointer in followed:
        return
    followed.add(pointer)
    yield _at_pointer(whole, pointer)


def _at_pointer(root: Mapping[str, Any], pointer: str) -> Any:
    """Find the target of a pointer inside a schema, or None."""
    if not pointer.startswith("#"):
        return None
    node: Any = root
    for step in pointer[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


_DROPPED: Final = frozenset({"$schema", "$id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary"})
"""The keywords that are dropped, because they don't constrain a value."""
_DEFINITIONS: Final = ("$defs", "definitions")
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", *_DEFINITIONS})
"""The keywords whose keys are names, not keywords."""
_VALUES: Final = frozenset({"const", "default", "enum", "examples", "required"})
"""The keywords whose values are not schemas."""
_MOST_INLINED: Final = 20_000
"""Limits the keywords, names and values that are inlined for one schema, because definitions that refer to
each other twice double with each level."""
_DEEPEST: Final = 16
"""Limits the references inlined within each other."""


def gemini_parameters(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `schema` for `parametersJsonSchema`; None for a tool without arguments, to be omitted."""
    taken: dict[str, Any] = _Rewriter(schema).rewrite()
    if taken.get("type") != "object":
        taken["type"] = "object"  # a tool's arguments are an object, whatever the schema says
    return None if set(taken) <= {"type", "properties", "title"} and not taken.get("properties") else taken


class _Rewriter:
    """Rewrites one schema, inlining its references. `inside` holds the references being inlined."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST_INLINED
        self._names: dict[str, str] = {}
        """The references that stay, as pointers, with their names in `$defs`."""

    def rewrite(self) -> dict[str, Any]:
        taken = self._schema(self._root, ())
        rewritten: dict[str, Any] = dict(taken) if isinstance(taken, Mapping) else {}
        for key in _DEFINITIONS:
            rewritten.pop(key, None)
        definitions: dict[str, Any] = {}
        while missing := [pointer for pointer, name in self._names.items() if name not in definitions]:
            for pointer in missing:
                definitions[self._names[pointer]] = self._schema(_at_pointer(self._root, pointer), (pointer,))
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
        target = _at_pointer(self._root, pointer)
        if target is None:
            # The target is outside of the schema: only the keywords next to the reference are known.
            return self._keywords(rest, inside)
        if pointer in inside or len(inside) == _DEEPEST or self._left <= 0:
            name = self._names.setdefault(pointer, f"d{len(self._names)}")
            return {"$ref": f"#/$defs/{name}"}
        written = self._schema(target, (*inside, pointer))
        base = dict(written) if isinstance(written, Mapping) else {}
        # The keywords next to a reference are specific to this place: a description, a default.
        return base if set(base) == {"$ref"} else {**base, **self._keywords(rest, inside)}
