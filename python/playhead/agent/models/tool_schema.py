"""Tool schemas in the subset of JSON Schema that each provider accepts.

OpenAI and Anthropic refuse the whole request, with every other tool in it, if one schema has `anyOf`, `oneOf`
or `allOf` at its root ("input_schema does not support oneOf, allOf, or anyOf at the top level"), or a root
type other than `object`. So `object_schema` folds the properties in these keywords into the root. The model
still gets every argument, and the tool's own server still checks their combination. Below the root everything
is allowed and unchanged.

Gemini refuses the whole request for a `$ref` next to other keywords, for a `$ref` that points outside
`$defs`, and for a root that isn't an object. So `gemini_parameters` (for `parametersJsonSchema`) inlines the
references within the schema, and preserves the keywords next to them. It can't inline a reference of a
recursive type, which stays, without other keywords. `parameters`, the older field, takes a subset of OpenAPI
3.0 without `additionalProperties: {…}`, `oneOf`, `const` and lists of types. Source: `FunctionDeclaration` of
google-genai 3.4, and the API's page about JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_REFUSED_AT_ROOT: Final = frozenset({*_ALTERNATIVES, "allOf", "not", "enum", "$ref"})


def object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return `parameters` as an object with `properties`, without the keywords that APIs refuse at the
    root."""
    root = {"type": "object", "properties": {}, **parameters}
    root["type"] = "object"
    if not isinstance(root["properties"], Mapping):
        root["properties"] = {}
    if _REFUSED_AT_ROOT.isdisjoint(root):
        return root
    properties, required = _fold_into_root(parameters, parameters, set())
    allowed = {key: value for key, value in root.items() if key not in _REFUSED_AT_ROOT}
    return {**allowed, "properties": properties, **({"required": required} if required else {})}


def _fold_into_root(
    schema: Any, whole: Mapping[str, Any], followed: set[str]
) -> tuple[dict[str, Any], list[str]]:
    """Collect the properties of `schema`, and the names that are required in every case.

    It follows each reference once. A second time would add nothing, and definitions that refer to each other
    twice would double the work at each level.
    """
    if not isinstance(schema, Mapping):
        return {}, []
    declared, names = schema.get("properties"), schema.get("required")
    properties = dict(declared) if isinstance(declared, Mapping) else {}
    required = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    for branch in (*_branches(schema, "allOf"), *_target_of_reference(schema, whole, followed)):
        inner, needed = _fold_into_root(branch, whole, followed)
        properties = {**inner, **properties}
        required += [name for name in needed if name not in required]
    # A property of several alternatives gets the alternatives of its schemas, and is never required.
    choices: dict[str, list[Any]] = {}
    for branch in (branch for key in _ALTERNATIVES for branch in _branches(schema, key)):
        for name, value in _fold_into_root(branch, whole, followed)[0].items():
            known = choices.setdefault(name, [])
            if value not in known:
                known.append(value)
    for name, values in choices.items():
        properties.setdefault(name, values[0] if len(values) == 1 else {"anyOf": values})
    return properties, required


def _branches(schema: Mapping[str, Any], key: str) -> list[Any]:
    branches = schema.get(key)
    return branches if isinstance(branches, list) else []


def _target_of_reference(
    schema: Mapping[str, Any], whole: Mapping[str, Any], followed: set[str]
) -> Iterator[Any]:
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
"""The keywords to drop, because they don't constrain a value."""
_DEFINITIONS: Final = ("$defs", "definitions")
_KEYED_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", *_DEFINITIONS})
"""The keywords whose keys are names, not keywords."""
_NOT_SCHEMAS: Final = frozenset({"const", "default", "enum", "examples", "required"})
"""The keywords whose values are not schemas."""
_MAX_INLINED: Final = 20_000
"""Limits the keywords, names and values to inline for one schema, because definitions that refer to each
other twice double with each level."""
_MAX_DEPTH: Final = 16
"""Limits the references to inline within each other."""


def gemini_parameters(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `schema` for `parametersJsonSchema`. None for a tool without arguments means to omit that
    field."""
    rewritten = _ReferenceInliner(schema).rewrite()
    rewritten["type"] = "object"  # a tool's arguments are an object, whatever the schema says
    if set(rewritten) <= {"type", "properties", "title"} and not rewritten.get("properties"):
        return None
    return rewritten


class _ReferenceInliner:
    """Inlines the references of one schema. `inside` has the references around the current place."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._inlined_left = _MAX_INLINED
        self._names: dict[str, str] = {}
        """The references that stay, as pointers, with their names in `$defs`."""

    def rewrite(self) -> dict[str, Any]:
        taken = self._inline(self._root, ())
        rewritten: dict[str, Any] = dict(taken) if isinstance(taken, Mapping) else {}
        for key in _DEFINITIONS:
            rewritten.pop(key, None)
        definitions: dict[str, Any] = {}
        while missing := [pointer for pointer, name in self._names.items() if name not in definitions]:
            for pointer in missing:
                definitions[self._names[pointer]] = self._inline(_at_pointer(self._root, pointer), (pointer,))
        if definitions:
            rewritten["$defs"] = definitions
        return rewritten

    def _inline(self, schema: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(schema, list):
            return [self._inline(each, inside) for each in schema]
        if not isinstance(schema, Mapping):
            return schema
        pointer = schema.get("$ref")
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if isinstance(pointer, str):
            return self._inline_reference(pointer, rest, inside)
        return self._inline_keywords(rest, inside)

    def _inline_keywords(self, schema: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        if inside:
            self._inlined_left -= sum(
                len(each) if isinstance(each, list | Mapping) else 1 for each in schema.values()
            )
        taken: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _DROPPED or key in _DEFINITIONS:
                continue
            if key in _KEYED_BY_NAME and isinstance(value, Mapping):
                taken[key] = {name: self._inline(each, inside) for name, each in value.items()}
            else:
                taken[key] = value if key in _NOT_SCHEMAS else self._inline(value, inside)
        return taken

    def _inline_reference(
        self, pointer: str, rest: Mapping[str, Any], inside: tuple[str, ...]
    ) -> dict[str, Any]:
        target = _at_pointer(self._root, pointer)
        if target is None:
            # The target is outside of the schema: only the keywords next to the reference are known.
            return self._inline_keywords(rest, inside)
        if pointer in inside or len(inside) == _MAX_DEPTH or self._inlined_left <= 0:
            name = self._names.setdefault(pointer, f"d{len(self._names)}")
            return {"$ref": f"#/$defs/{name}"}
        written = self._inline(target, (*inside, pointer))
        base = dict(written) if isinstance(written, Mapping) else {}
        # The keywords next to a reference are specific to this place: a description, a default.
        return base if set(base) == {"$ref"} else {**base, **self._inline_keywords(rest, inside)}
