"""Downloads of files over HTTP that an MCP server authorises (SEP-2631, a draft).

A result names a file, and the server answers `files/authorizeDownload` with a URL for it, which expires.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from playhead.errors import BlockedAddressError, ProtocolError
from playhead.net_guard import Origin, check_url, parse_origins

if TYPE_CHECKING:
    from playhead.config.servers import ServerConfig
    from playhead.content.types import FileValue

AUTHORIZE_METHOD: Final = "files/authorizeDownload"

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]{0,8192}", re.ASCII)
_CLIENT_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "if-range",
        "range",
        "te",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that the server may not set, because they describe the connection or the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """The URL and headers with which a file is read. Both are secrets, because they are enough to get
    access."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    expires_at: float | None = None
    """The time in seconds since 1970."""
    file: FileValue | None = None
    """The file as the server describes it with the URL."""

    @property
    def has_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= time.time()


def offers_downloads(handshake: Mapping[str, Any] | None) -> bool:
    """Return whether the server declares that it authorises downloads."""
    capabilities = (handshake or {}).get("capabilities")
    files = capabilities.get("files") if isinstance(capabilities, dict) else None
    return isinstance(files, dict) and files.get("download") is True


def own_origin(server_url: str | None) -> frozenset[Origin]:
    """Return the origin of a server's URL, from which its files may be read even at a private address. The
    user configured it."""
    if server_url is None:
        return frozenset()
    scheme, colon, rest = server_url.partition("://")
    scheme = {"ws": "http", "wss": "https"}.get(scheme.lower(), scheme)
    try:
        return frozenset({Origin.of(check_url(f"{scheme}{colon}{rest}"))})
    except BlockedAddressError:
        return frozenset()  # the form of its address is not allowed in links


def web_origins(config: ServerConfig) -> frozenset[Origin]:
    """Return the origins that may have a private address: `allow_origins`, and the server's own."""
    return parse_origins(config.allow_origins) | own_origin(config.url)


def download_from(result: Mapping[str, object], *, uri: str, server: str) -> Download:
    """Read the result of `files/authorizeDownload`. Raises `ProtocolError` if it cannot be used."""
    raw = result.get("download")
    if not isinstance(raw, dict) or not isinstance(url := raw.get("url"), str):
        raise ProtocolError(
            f"{server}: expected a download with a url from {AUTHORIZE_METHOD}, got"
            f" {', '.join(map(str, result)) or 'nothing'}"
        )
    for name, expected in (("transport", ("https", "http")), ("method", ("GET",))):
        if raw.get(name, expected[0]) not in expected:
            raise ProtocolError(
                f"{server}: expected a download with the {name} {expected[0]!r} from {AUTHORIZE_METHOD}, got"
                f" {str(raw[name])[:50]!r}"
            )
    from playhead.content.mending import file_value  # the SDK's types

    return Download(
        url=url,
        headers=_headers(raw.get("headers"), server=server),
        expires_at=_time(raw.get("expiresAt")),
        file=file_value(result.get("file"), uri=uri),
    )


def _headers(raw: object, *, server: str) -> dict[str, str]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ProtocolError(f"{server}: expected headers of a download as an object, got another value")
    headers: dict[str, str] = {}
    for name, value in raw.items():
        is_text = isinstance(name, str) and isinstance(value, str)
        if not is_text or not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise ProtocolError(
                f"{server}: expected printable header names and values of a download, got another value for"
                f" {name[:50]!r}"
            )
        if name.lower() not in _CLIENT_HEADERS:
            headers[name.lower()] = value
    return headers


def _time(raw: object) -> float | None:
    """Return the time; None if it is invalid, which is harmless because the origin refuses an expired URL."""
    try:
        return datetime.fromisoformat(raw).timestamp() if isinstance(raw, str) else None
    except (ValueError, OverflowError):
        return None
