"""The syntax of strings in a block (base64, MIME types, URIs, times, `_meta` keys), and long base64.

Each `…_problem` function describes the defect of a string, or returns None. No description quotes binary
data. Every regular expression runs in linear time, because a server chooses the strings.

Long base64 is a view of its message, and becomes a string when a program reads it (`Base64Holder`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit

from playhead._core import check_base64, decode_base64
from playhead.content.audio import SNIFF_BYTES
from playhead.errors import Base64Error

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAME = r"[0-9A-Za-z][0-9A-Za-z!#$&^_.+-]{0,126}"
_MIME: Final = re.compile(
    rf"{_NAME}/{_NAME}[ \t]*(?:;[ \t]*(?:{_TOKEN}=(?:{_TOKEN}|\"(?:[^\"\\]|\\.)*\")[ \t]*)?)*", re.ASCII
)
"""RFC 6838, section 4.2, for the names; RFC 2045, section 5.1, for the parameters."""
_URI: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]++|%[0-9A-Fa-f]{2})*+"
)
"""RFC 3986: a scheme, then the characters allowed in a URI. The quantifiers are possessive (`++`),
because backtracking takes a minute on 60 MiB."""
_META_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_META_KEY: Final = re.compile(
    rf"(?:{_META_LABEL}(?:\.{_META_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
)
"""MCP, "General fields: _meta": an optional prefix of labels, a slash, a name that may be empty."""
_MAX_CHARS = 8192
"""A MIME type or key with more characters is always invalid."""

_BASE64_DEFECTS = {
    "byte": "a character outside the base64 alphabet",
    "length": "a length other than a multiple of four",
    "padding": "wrong padding",
    "last_symbol": "non-zero trailing bits",
}


def base64_problem(text: Base64Text) -> str | None:
    """Validate base64 strictly: RFC 4648, section 4, padded, no whitespace."""
    try:
        check_base64(text)
    except Base64Error as error:
        return f"{_BASE64_DEFECTS.get(error.kind, error.kind)} at character {error.index} of {len(text)}"
    return None


def mime_problem(text: str) -> str | None:
    if len(text) > _MAX_CHARS:
        return f"a string of {len(text)} characters"
    return None if _MIME.fullmatch(text) else quoted(text)


def uri_problem(text: str) -> str | None:
    if not _URI.fullmatch(text):
        return quoted(text)
    try:
        urlsplit(text)
    except ValueError:
        return quoted(text)
    return None


def time_problem(text: str) -> str | None:
    """Validate an ISO 8601 date, or date and time; the time zone is optional."""
    if len(text) > 64 or not text.isascii() or (len(text) > 10 and "T" not in text):
        return quoted(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return quoted(text)
    return None


def meta_key_problem(key: str) -> str | None:
    if len(key) > _MAX_CHARS:
        return f"a key of {len(key)} characters"
    return None if _META_KEY.fullmatch(key) else quoted(key)


def quoted(text: str) -> str:
    """Quote a string for a finding: short and ASCII, so that it cannot inject terminal sequences."""
    return ascii(text) if len(text) <= 80 else f"{text[:60]!a}… ({len(text)} characters)"


def number(value: float) -> str:
    """Format a number for a finding. Python refuses to print an integer of more than 4300 digits."""
    return "a huge number" if abs(value) >= 10**39 else repr(value)


_BASE64_CHARACTERS: Final = f"{string.ascii_letters}{string.digits}+/_-\\"
"""The characters of both alphabets of RFC 4648, and the backslash of JSON escapes."""
_BASE64_MASK: Final = bytes(ord("A") if chr(code) in _BASE64_CHARACTERS else ord(" ") for code in range(256))
_MASKED_RUN: Final = b"A" * 60
"""Masked text that contains this run is taken for base64. Wrapped base64 has such runs too: its lines have at
least 64 characters."""

Base64Text: TypeAlias = str | memoryview
"""Base64 as received: a string, or a view of its message (`messages.decode`).

Both have one character per item, and `_core` decodes both. A `memoryview` always holds base64, never data.
"""
S = TypeVar("S")
T = TypeVar("T", bound=Base64Text | None)


def decoded_bytes(base64: Base64Text) -> int:
    """Return the number of bytes that base64 decodes to, padded or not.

    Never too small, and 0 only for an empty string: callers do not decode a size of 0, and the decoder has to
    see an invalid string to reject it.
    """
    end = base64[-2:] if isinstance(base64, str) else str(base64[-2:], "latin-1")
    n_symbols = len(base64) - (2 if end == "==" else 1 if end.endswith("=") else 0)
    n_bytes = n_symbols * 3 // 4
    if n_symbols % 4 == 1:  # invalid, but the symbol counts
        n_bytes += 1
    return max(n_bytes, min(len(base64), 1))


def head_of_base64(base64: Base64Text, n_bytes: int = SNIFF_BYTES) -> bytes:
    """Decode the first `n_bytes` or a few more, by default enough to detect a format. Empty if invalid."""
    try:
        return decode_base64(base64[: (n_bytes + 2) // 3 * 4])
    except (Base64Error, UnicodeEncodeError):
        return b""


def has_long_run(text: str) -> bool:
    """Return True if `text` has 60 characters in a row that may be base64, in either alphabet or with JSON
    escapes. A regular expression would take ten times as long."""
    return _MASKED_RUN in text.encode("ascii", "replace").translate(_BASE64_MASK)


class Postponed:
    """Base of the frozen dataclasses with fields that are made when a program first reads them
    (`postpone`)."""

    __slots__ = ("_makers", "_source")
    _source: object
    _makers: Mapping[str, Callable[[Any], object]]

    if not TYPE_CHECKING:  # to mypy, every name would be an attribute

        def __getattr__(self, name: str) -> object:  # called for attributes that are not set
            try:
                make = object.__getattribute__(self, "_makers")[name]
            except (AttributeError, KeyError):
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                ) from None
            value = make(self._source)
            object.__setattr__(self, name, value)  # frozen to its users
            return value


def postpone(instance: Postponed, source: S, **makers: Callable[[S], object]) -> None:
    """Empty some fields of a new instance. The first read of such a field calls its maker with `source`.

    To compare, copy, pickle or print the instance reads all its fields.
    """
    for name in makers:
        object.__delattr__(instance, name)
    object.__setattr__(instance, "_source", source)
    object.__setattr__(instance, "_makers", makers)


def source_of(instance: Postponed) -> object:
    """Return the `source` passed to `postpone`; None if nothing was postponed."""
    return getattr(instance, "_source", None)


class Base64Holder(Postponed, Generic[T]):
    """Base of the frozen dataclasses with a field `base64`.

    If the field was set to a view (`as_string`), the view becomes a string when a program first reads it.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        if isinstance(source := self._base64, memoryview):
            postpone(self, source, base64=string_of)

    @property
    def payload(self) -> T:
        """`base64` as received: for `decode_base64`, which accepts a view."""
        source: Any = source_of(self) or self._base64
        payload: T = source
        return payload

    @property
    def _base64(self) -> Any:
        return getattr(self, "base64")  # noqa: B009 - a field of the subclass


def string_of(view: memoryview) -> str:
    """Return the base64 in a message as a string."""
    return str(view, "ascii")


def as_string(base64: Base64Text) -> str:
    """Return `base64` unchanged, but typed as a string: for the field of a `Base64Holder`, which turns a view
    into a string when it is first read."""
    return base64  # type: ignore[return-value]
