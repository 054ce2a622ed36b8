"""The types of content blocks, one row each, with the fields for parsing and for validation.

Both check the JSON types. Parsing accepts null for an optional field, and any string that can be encoded as
UTF-8; the SDK's types then accept the block, too, with the same values. Validation also checks the syntax of
strings.

To add a type, add a row here, its class to `content.types.KNOWN`, and its kind to `results.kinds.view_of`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from playhead.content.formats import base64_problem, mime_problem, quoted, time_problem, uri_problem

JsonType = Literal["string", "integer", "number", "boolean", "object", "array"]
Check = Callable[[object], bool]
MOST_BYTES: Final = 2**53 - 1
"""The largest size that a link may state. JSON parsers disagree about larger integers (RFC 8259, section
6)."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: its name, its JSON type, and the syntax of its string."""

    name: str
    kind: JsonType = "string"
    required: bool = False
    expected: str = ""
    problem: Callable[[str], str | None] | None = None
    """Returns the defect of a string, or None, for validation."""
    fits: Check | None = None
    """Returns True for a valid value, for parsing. None accepts any string, or any object."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (value.isascii() or _SURROGATE.search(value) is None)


def _is_object(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value))


def is_size(value: object) -> TypeGuard[int]:
    """Return True for a number of bytes, at most `MOST_BYTES`."""
    return type(value) is int and 0 <= value <= MOST_BYTES


def _is_fraction(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator] # a number


def _is_list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_one_of(*values: str) -> Check:
    return lambda value: value in values


def _is_object_of(*fields: Field) -> Check:
    """Return a check for an object with valid values of `fields`. It may have other fields, too."""

    def check_of(field: Field) -> Check:
        return field.fits or (_is_object if field.kind == "object" else _is_text)

    required = [(field.name, check_of(field)) for field in fields if field.required]
    optional = [(field.name, check_of(field)) for field in fields if not field.required]
    return lambda value: (
        isinstance(value, dict)
        and all(name in value and check(value[name]) for name, check in required)
        and all(value.get(name) is None or check(value[name]) for name, check in optional)
    )


def text_field(name: str, *, required: bool = False) -> Field:
    return Field(name=name, required=required)


def uri_field(name: str, *, required: bool = False) -> Field:
    return Field(name=name, required=required, expected="a URI (RFC 3986)", problem=uri_problem)


def _mime_field(*, required: bool = False) -> Field:
    return Field(name="mimeType", required=required, expected="a MIME type (RFC 6838)", problem=mime_problem)


def _base64_field(name: str) -> Field:
    return Field(
        name=name,
        required=True,
        expected="base64 (RFC 4648, padded, no whitespace)",
        problem=base64_problem,
        fits=lambda value: isinstance(value, memoryview) or _is_text(value),
    )


def _size_problem(text: str) -> str | None:
    width, x, height = text.partition("x")
    digits = width.isascii() and width.isdigit() and height.isascii() and height.isdigit()
    return None if text == "any" or (x and digits) else quoted(text)


def _theme_problem(text: str) -> str | None:
    return None if text in ("light", "dark") else quoted(text)


SIZE: Final = Field(name="", expected="WxH, such as 48x48, or any", problem=_size_problem)
ICON: Final = (
    uri_field("src", required=True),
    _mime_field(),
    Field(name="sizes", kind="array", fits=_is_list_of(_is_text)),
    Field(name="theme", expected="light or dark", problem=_theme_problem, fits=_is_one_of("light", "dark")),
)
ICONS: Final = Field(name="icons", kind="array", fits=_is_list_of(_is_object_of(*ICON)))
ANNOTATIONS: Final = (
    Field(name="audience", kind="array", fits=_is_list_of(_is_one_of("user", "assistant"))),
    Field(name="priority", kind="number", fits=_is_fraction),
    Field(name="lastModified", expected="an ISO 8601 time", problem=time_problem),
)
_META: Final = Field(name="_meta", kind="object")
COMMON: Final = (Field(name="annotations", kind="object", fits=_is_object_of(*ANNOTATIONS)), _META)
"""Optional fields of every block."""
TEXT_CONTENTS: Final = (
    uri_field("uri", required=True),
    _mime_field(),
    text_field("text", required=True),
    _META,
)
BLOB_CONTENTS: Final = (uri_field("uri", required=True), _mime_field(), _base64_field("blob"), _META)
_IS_TEXT_CONTENTS: Final = _is_object_of(*TEXT_CONTENTS)
_IS_BLOB_CONTENTS: Final = _is_object_of(*BLOB_CONTENTS)


def _is_contents(value: object) -> bool:
    if not isinstance(value, dict) or ("text" in value) == ("blob" in value):
        return False
    return _IS_BLOB_CONTENTS(value) if "blob" in value else _IS_TEXT_CONTENTS(value)


class BlockType:
    """One type of block. Its first field is essential: without it, a block is an `UnknownBlock`."""

    def __init__(self, *fields: Field, since: str | None) -> None:
        """`since` is the revision that introduced the type; None for a draft."""
        self.fields = fields
        """The type's own fields, without the fields of every block (`COMMON`)."""
        self.since = since
        self.essential = fields[0].name
        self.has_data = self.essential == "data"
        """True if the block is base64 with a MIME type."""
        self.fits = _is_object_of(*fields, *COMMON)


_SIZE_FIELD: Final = Field(name="size", kind="integer", fits=is_size)
BLOCK_TYPES: Final[Mapping[str, BlockType]] = {
    "text": BlockType(text_field("text", required=True), since="2024-11-05"),
    "image": BlockType(_base64_field("data"), _mime_field(required=True), since="2024-11-05"),
    "audio": BlockType(_base64_field("data"), _mime_field(required=True), since="2025-03-26"),
    "resource_link": BlockType(
        uri_field("uri", required=True),
        text_field("name", required=True),
        text_field("title"),
        text_field("description"),
        _mime_field(),
        _SIZE_FIELD,
        ICONS,
        since="2025-06-18",
    ),
    "resource": BlockType(
        Field(name="resource", kind="object", required=True, fits=_is_contents), since="2024-11-05"
    ),
    "file": BlockType(
        Field(
            name="file",
            kind="object",
            required=True,
            fits=_is_object_of(
                uri_field("uri", required=True),
                text_field("name"),
                _mime_field(),
                _SIZE_FIELD,
                Field(name="digest", kind="object"),
            ),
        ),
        since=None,
    ),
}
