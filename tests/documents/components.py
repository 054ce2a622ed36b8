"""Copies the definitions of schema.json into openapi.yaml, behind its last comment: its generators follow no
reference into another file. Run `python -m tests.documents.components` after a change of schema.json.
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


def components() -> dict[str, Any]:
    """The definitions as components. Without their titles: generators name classes by them."""
    schema = message_schema()
    root = {"description": schema["description"], "oneOf": schema["oneOf"]}
    return {name: _moved(each) for name, each in {"Message": root, **schema["$defs"]}.items()}


def with_components(document: str) -> str:
    """`document` with what is behind the comment made anew."""
    lines = [f"    {name}:\n" + _block(each, 6) for name, each in components().items()]
    return document.partition(MARK)[0] + MARK + "".join(lines)


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
