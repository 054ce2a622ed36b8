"""The fields of a result's objects, as literal tables, and the walk over one object.

The tables follow the published schemas; where those only say "string", the check is the one their text
asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from playhead.content.findings import Notes, kind_of, step
from playhead.content.formats import base64_problem, mime_problem, quoted, time_problem, uri_problem

Kind = Literal["string", "integer", "number", "boolean", "object", "array"]

_ARTICLE: Final[Mapping[Kind, str]] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "object": "an object",
    "array": "an array",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: its name, its JSON type, and what its text must be."""

    name: str
    kind: Kind = "string"
    required: bool = False
    expected: str = ""
    problem: Callable[[str], str | None] | None = None
    """What is wrong with a string, or None."""


def _text(name: str, *, required: bool = False) -> Field:
    return Field(name=name, required=required)


def _mime(*, required: bool = False) -> Field:
    return Field(name="mimeType", required=required, expected="a MIME type (RFC 6838)", problem=mime_problem)


def _uri(name: str, *, required: bool = False) -> Field:
    return Field(name=name, required=required, expected="a URI (RFC 3986)", problem=uri_problem)


def _base64(name: str) -> Field:
    return Field(
        name=name,
        required=True,
        expected="base64 (RFC 4648, padded, no white space)",
        problem=base64_problem,
    )


_TYPE: Final = _text("type", required=True)
BLOCKS: Final[Mapping[str, tuple[Field, ...]]] = {
    "text": (_TYPE, _text("text", required=True)),
    "image": (_TYPE, _base64("data"), _mime(required=True)),
    "audio": (_TYPE, _base64("data"), _mime(required=True)),
    "resource_link": (
        _TYPE,
        _uri("uri", required=True),
        _text("name", required=True),
        _text("title"),
        _text("description"),
        _mime(),
        Field(name="size", kind="integer"),
        Field(name="icons", kind="array"),
    ),
    "resource": (_TYPE, Field(name="resource", kind="object", required=True)),
}
COMMON: Final = (Field(name="annotations", kind="object"), Field(name="_meta", kind="object"))
"""What every block may carry."""
TEXT_CONTENTS: Final = (_uri("uri", required=True), _mime(), _text("text", required=True))
BLOB_CONTENTS: Final = (_uri("uri", required=True), _mime(), _base64("blob"))
ANNOTATIONS: Final = (
    Field(name="audience", kind="array"),
    Field(name="priority", kind="number"),
    Field(name="lastModified", expected="an ISO 8601 time", problem=time_problem),
)


def _size_problem(text: str) -> str | None:
    width, x, height = text.partition("x")
    digits = width.isascii() and width.isdigit() and height.isascii() and height.isdigit()
    return None if text == "any" or (x and digits) else quoted(text)


SIZE: Final = Field(name="", expected="WxH, such as 48x48, or any", problem=_size_problem)


def _theme_problem(text: str) -> str | None:
    return None if text in ("light", "dark") else quoted(text)


ICON: Final = (
    _uri("src", required=True),
    _mime(),
    Field(name="sizes", kind="array"),
    Field(name="theme", expected="light or dark", problem=_theme_problem),
)
SERVER_INFO: Final = (
    _text("name", required=True),
    _text("version", required=True),
    _text("title"),
    _text("description"),
    _uri("websiteUrl"),
    Field(name="icons", kind="array"),
)
"""`Implementation`: what a result's `_meta` may say of its server since 2026-07-28."""


def check_fields(notes: Notes, path: str, raw: Mapping[str, object], fields: tuple[Field, ...]) -> None:
    """Each field of `fields` that is missing or wrong. Fields that no table has are allowed everywhere."""
    for field in fields:
        if field.name in raw:
            check_value(notes, step(path, field.name), raw[field.name], field)
        elif field.required:
            notes.add(step(path, field.name), expected=_expected(field), came="nothing")


def check_value(notes: Notes, path: str, value: object, field: Field) -> None:
    if not _is(field.kind, value):
        notes.add(path, expected=_expected(field), came=kind_of(value))
    elif isinstance(value, str) and field.problem is not None and (problem := field.problem(value)):
        notes.add(path, expected=field.expected, came=problem)


def _expected(field: Field) -> str:
    return field.expected or _ARTICLE[field.kind]


def _is(kind: Kind, value: object) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            # JSON has one kind of number: 3.0 is an integer (JSON Schema, validation, 6.1.1).
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
