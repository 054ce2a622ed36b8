"""The syntax of the strings in a block: base64, MIME types, URIs, times, `_meta` keys.

Each function says what is wrong, or None. Nothing binary is quoted. Every expression here is linear in what
it reads: the strings come from a server.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from playhead._core import decode_base64
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
"""RFC 3986: a scheme, then the characters a URI may have. Possessive: a minute less for one of 60 MiB."""
_META_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_META_KEY: Final = re.compile(
    rf"(?:{_META_LABEL}(?:\.{_META_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
)
"""MCP, "General fields: _meta": an optional prefix of labels, a slash, a name that may be empty."""
_LONG = 8192
"""A MIME type, time or key of more characters is wrong whatever it holds."""

_BASE64_KINDS = {
    "byte": "a character that base64 does not have",
    "length": "a length that is no multiple of four",
    "padding": "wrong padding",
    "last_symbol": "bits set behind the last byte",
}


def base64_problem(text: str) -> str | None:
    """Strict: RFC 4648, section 4, padded, no white space."""
    try:
        decode_base64(text)
    except Base64Error as error:
        return f"{_BASE64_KINDS.get(error.kind, error.kind)} at character {error.index} of {len(text)}"
    return None


def mime_problem(text: str) -> str | None:
    if len(text) > _LONG:
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
    """ISO 8601, a date or a date with a time; a time zone may be missing."""
    if len(text) > 64 or not text.isascii() or (len(text) > 10 and "T" not in text):
        return quoted(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return quoted(text)
    return None


def meta_key_problem(key: str) -> str | None:
    if len(key) > _LONG:
        return f"a key of {len(key)} characters"
    return None if _META_KEY.fullmatch(key) else quoted(key)


def quoted(text: str) -> str:
    """A string as a finding shows it: short, in ASCII, so that it cannot drive a terminal."""
    return ascii(text) if len(text) <= 80 else f"{text[:60]!a}… ({len(text)} characters)"


def number(value: float) -> str:
    """A number as a finding shows it: an integer of more than 4300 digits has no decimal form in Python."""
    return "a huge number" if abs(value) >= 10**39 else repr(value)
