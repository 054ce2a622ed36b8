"""Keep secrets out of what people share: errors, `--json`, reports and logs.

In a URL, redaction removes the user and password, query values, the fragment and every path segment that
looks random, because many servers accept a key there. Query names stay, because they identify the key. Known
secrets (values of `${NAME}`, header values, tokens) are removed from any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Final, TypeVar, cast
from urllib.parse import quote

T = TypeVar("T")

LEFT_OUT: Final = "…"
RANDOM_CHARS: Final = 20
"""A path segment of this length with characters of several classes looks random: 80 bits in hexadecimal."""
SECRET_CHARS: Final = 6
"""Shorter values are ordinary words and numbers, so redacting them would hide nothing."""
_AUTHORITY: Final = re.compile(r"(\[[^\]@/]*\]|[^:@/]*)(:\d*)?")
_SECRET_NAME: Final = re.compile("key|token|secret|pass|auth|credential|cookie|session", re.IGNORECASE)
_CLASSES: Final = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]")))


def redacted_url(url: str, secrets: Iterable[str] = ()) -> str:
    """Redact everything in `url` that may be secret. The URL need not be valid."""
    head, _, _ = redacted(url, secrets).partition("#")
    base, mark, query = head.partition("?")
    scheme, colon, rest = base.partition("://")
    if not colon:
        scheme, rest = "", base
    authority, slash, path = rest.partition("/")
    if "@" in rest and _AUTHORITY.fullmatch(authority.rpartition("@")[2]) is None:
        authority, slash, path = rest.rpartition("@")[2].partition("/")  # a password with a slash in it
    segments = (LEFT_OUT if _looks_random(segment) else segment for segment in path.split("/"))
    names = (_name(pair) for pair in query.split("&")) if query else ()
    return f"{scheme}{colon}{authority.rpartition('@')[2]}{slash}{'/'.join(segments)}{mark}{'&'.join(names)}"


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Redact `secrets` in `text`, including their percent-encoded forms."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARS:
            for form in (secret, quote(secret, safe="")):
                text = text.replace(form, LEFT_OUT)
    return text


def redacted_values(value: T, secrets: Iterable[str]) -> T:
    """Apply `redacted` to every string in a JSON value or a dataclass."""
    return cast("T", _values(value, tuple(secrets)))


def _values(value: object, secrets: tuple[str, ...]) -> object:
    match value:
        case Enum():
            return value
        case str():
            return redacted(value, secrets)
        case Mapping():
            return {_values(key, secrets): _values(each, secrets) for key, each in value.items()}
        case list():
            return [_values(each, secrets) for each in value]
        case tuple():
            return tuple(_values(each, secrets) for each in value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = (field.name for field in fields(value) if field.init)
            return replace(value, **{name: _values(getattr(value, name), secrets) for name in names})
        case _:
            return value


def is_secret(name: str, value: str) -> bool:
    """Return True if the value of an environment variable of this name may be a secret."""
    return _looks_random(value) or _SECRET_NAME.search(name) is not None


def url_secrets(url: str) -> set[str]:
    """Return the password and the query values of `url`."""
    before, _, query = url.partition("#")[0].partition("?")
    userinfo = before.partition("://")[2].rpartition("@")[0]
    return {pair.partition("=")[2] or pair for pair in query.split("&")} | {userinfo.partition(":")[2]} - {""}


def _name(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={LEFT_OUT}" if equals and not _looks_random(name) else LEFT_OUT


def _looks_random(segment: str) -> bool:
    return len(segment) >= RANDOM_CHARS and sum(bool(kind.search(segment)) for kind in _CLASSES) > 1
