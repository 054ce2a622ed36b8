"""Copies the definitions of schema.json into openapi.yaml, behind its last comment: its generators follow no
reference into another file. Run `python -m tests.documents.components` after a change of schema.json.

Generators do little with a `oneOf`: openapi-generator checks a value against each branch by the names of its
members, without constants, unknown members and optional arrays, so that a message fits several branches or
none, and the client fails. So a `oneOf` becomes one object with the members of all branches, and
`if: {oneOf: …}, else: false`, which says the same to a validator and nothing to a generator. Lists of types
and conditions in `allOf` are rewritten in the same way, for the same reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import playhead.servers.template as package
from playhead.servers.template.documents import message_schema, openapi_text

OPENAPI = Path(package.__file__).parent / "openapi.yaml"
MARK = (
    "    # Below: the definitions of schema.json, written here by `python -m tests.documents.components`.\n"
)
WIDTH = 110
RENAMED = {"Error": "ErrorObject"}
"""A class of this name would hide a class that every generated JavaScript module uses."""

SUCCESS, FAILURE = {"$ref": "#/$defs/Success"}, {"$ref": "#/$defs/Failure"}

Schema = dict[str, Any]


def components() -> Schema:
    """The definitions as components. Without their titles: generators name classes by them."""
    schema = message_schema()
    kinds = {
        "Message": {"description": schema["description"], "oneOf": schema["oneOf"]},
        "Answer": {"description": "The answer to a request.", "oneOf": [SUCCESS, FAILURE]},
        "AnyMembers": {
            "description": "An object, as the definition of this kind of message says.",
            "type": "object",
            "additionalProperties": True,
        },
    }
    defs = _renamed({name: _moved(each) for name, each in {**kinds, **schema["$defs"]}.items()})
    return {name: _plain(each, defs) for name, each in defs.items()}


def with_components(document: str) -> str:
    """`document` with what is behind the comment made anew."""
    lines = [f"    {name}:\n" + _block(each, 6) for name, each in components().items()]
    return document.partition(MARK)[0] + MARK + "".join(lines)


def _plain(schema: Any, defs: Schema) -> Any:
    """`schema` for generators, and with the same verdict on every value."""
    if isinstance(schema, list):
        return [_plain(each, defs) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain(each, defs) for key, each in schema.items()}
    strict: Schema = {}
    if "oneOf" in schema:
        strict["oneOf"] = plain.pop("oneOf")
        if "properties" not in plain and (shape := _shape(schema, defs))["properties"]:
            merged = {name: _plain(each, defs) for name, each in shape["properties"].items()}
            plain |= {"type": "object", "properties": merged, "required": shape["required"]}
    if isinstance(schema.get("type"), list):
        strict["type"] = plain.pop("type")
    if any("if" in each for each in schema.get("allOf", ())):
        strict["allOf"] = plain.pop("allOf")
    return {**plain, "if": strict, "else": False} if strict else plain


def _shape(schema: Schema, defs: Schema) -> Schema:
    """The members of an object, and those that it requires; of a `oneOf`, those of all branches together."""
    while "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if "oneOf" not in schema:
        return {"properties": schema.get("properties", {}), "required": schema.get("required", [])}
    shapes = [_shape(branch, defs) for branch in schema["oneOf"]]
    names = dict.fromkeys(name for shape in shapes for name in shape["properties"])
    required = [name for name in names if all(name in shape["required"] for shape in shapes)]
    members = {
        name: _merged([shape["properties"][name] for shape in shapes if name in shape["properties"]], defs)
        for name in names
    }
    return {"properties": {} if any(not s["properties"] for s in shapes) else members, "required": required}


def _merged(members: list[Schema], defs: Schema) -> Schema:
    """One schema for a member that several branches have: as much as is true of all of them."""
    first, *others = members
    if all(each == first for each in others):
        return first
    if all("const" in each or "enum" in each for each in members):
        values = dict.fromkeys(value for each in members for value in each.get("enum", [each.get("const")]))
        return {"type": "string", "enum": list(values)}
    if all(_is_object(each, defs) for each in members):
        return {"$ref": "#/components/schemas/AnyMembers"}
    return {"description": "A value, as the definition of this kind of message says."}


def _is_object(schema: Schema, defs: Schema) -> bool:
    while "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    branches = schema.get("oneOf") or schema.get("allOf")
    if branches and "type" not in schema:
        return all(_is_object(each, defs) for each in branches)
    return bool(schema.get("type") == "object")


def _moved(value: Any) -> Any:
    match value:
        case dict():
            return {
                key: _moved(each) for key, each in value.items() if key != "title" or isinstance(each, dict)
            }
        case list():
            return [_moved(each) for each in value]
        case str():
            return value.replace("#/$defs/", "#/components/schemas/")
        case _:
            return value


def _renamed(defs: Schema) -> Schema:
    text = json.dumps(defs)
    for old, new in RENAMED.items():
        text = text.replace(f'schemas/{old}"', f'schemas/{new}"')
    return {RENAMED.get(name, name): each for name, each in json.loads(text).items()}


def _block(value: Any, indent: int) -> str:
    """YAML whose leaves are JSON, which is YAML too: it needs no rules of its own for quoting."""
    pad = " " * indent
    text = ""
    if isinstance(value, dict):
        for key, each in value.items():
            text += f"{pad}{_key(key)}:" + _leaf_or_block(each, indent)
    else:
        for each in value:
            text += f"{pad}- {json.dumps(each, ensure_ascii=False)}\n"
    return text


def _leaf_or_block(value: Any, indent: int) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or len(line) + indent < WIDTH - 30:
        return f" {line}\n"
    return "\n" + _block(value, indent + 2)


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() else json.dumps(key)


def main() -> None:
    OPENAPI.write_text(with_components(openapi_text()), "utf-8")


if __name__ == "__main__":
    main()
