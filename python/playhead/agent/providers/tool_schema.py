"""A tool's JSON Schema with a root that OpenAI and Anthropic take: an object, and nothing but.

Both refuse the whole request, with every other tool in it, where one schema has `anyOf`, `oneOf` or `allOf`
at its root ("input_schema does not support oneOf, allOf, or anyOf at the top level"), or a type there that is
not just `object`. So what stands in these is folded into the root: the model still sees every argument, and
the tool's own server goes on to check what they must be together. Below the root all of it is allowed, and
kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_EITHER: Final = ("anyOf", "oneOf")
_REFUSED: Final = frozenset({*_EITHER, "allOf", "not", "enum", "$ref"})


def object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`parameters` as an object with `properties`, and without what is refused at the root."""
    root = {"type": "object", "properties": {}, **parameters}
    root["type"] = "object"
    if not isinstance(root["properties"], Mapping):
        root["properties"] = {}
    if _REFUSED.isdisjoint(root):
        return root
    properties, required = _folded(parameters, parameters, set())
    kept = {key: value for key, value in root.items() if key not in _REFUSED}
    return {**kept, "properties": properties, **({"required": required} if required else {})}


def _folded(schema: Any, whole: Mapping[str, Any], followed: set[str]) -> tuple[dict[str, Any], list[str]]:
    """The properties of `schema`, and which of them are required whatever is chosen.

    A reference is followed once: a second time it would add nothing, and definitions that name each other
    twice would double with each level.
    """
    if not isinstance(schema, Mapping):
        return {}, []
    own, must = schema.get("properties"), schema.get("required")
    properties = dict(own) if isinstance(own, Mapping) else {}
    required = [name for name in must if isinstance(name, str)] if isinstance(must, list) else []
    for branch in (*_branches(schema, "allOf"), *_target(schema, whole, followed)):
        found, needed = _folded(branch, whole, followed)
        properties = {**found, **properties}
        required += [name for name in needed if name not in required]
    choices: dict[str, list[Any]] = {}
    for branch in (branch for key in _EITHER for branch in _branches(schema, key)):
        for name, value in _folded(branch, whole, followed)[0].items():
            known = choices.setdefault(name, [])
            if value not in known:
                known.append(value)
    for name, values in choices.items():
        properties.setdefault(name, values[0] if len(values) == 1 else {"anyOf": values})
    return properties, required


def _branches(schema: Mapping[str, Any], key: str) -> list[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _target(schema: Mapping[str, Any], whole: Mapping[str, Any], followed: set[str]) -> Iterator[Any]:
    """What the schema's reference names, within the whole."""
    pointer = schema.get("$ref")
    if not isinstance(pointer, str) or not pointer.startswith("#/") or pointer in followed:
        return
    followed.add(pointer)
    found: Any = whole
    for step in pointer[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            return
        found = found[key]
    yield found
