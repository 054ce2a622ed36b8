"""Files that a server authorises out of band (SEP-2631, a draft).

The server names a file in a result, `files/authorizeDownload` returns a URL for it, and that URL expires.
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
_OURS: Final = frozenset(
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
"""Headers that a server cannot set for us: they describe the connection, or the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """The place from which a resource is read. URL and headers are secrets: they alone give access."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    expires_at: float | None = None
    """Time of day in seconds since 1970."""
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
    """Return the origin of a server that the user named by URL: its files may be there, at any address."""
    if server_url is None:
        return frozenset()
    scheme, colon, rest = server_url.partition("://")
    scheme = {"ws": "http", "wss": "https"}.get(scheme.lower(), scheme)
    try:
        return frozenset({Origin.of(check_url(f"{scheme}{colon}{rest}"))})
    except BlockedAddressError:
        return frozenset()  # reached by a form of address that no link may have


def web_origins(config: ServerConfig) -> frozenset[Origin]:
    """Return the origins whose files are read at any address: allowed ones, and that of the server's URL."""
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
    found: dict[str, str] = {}
    for name, value in raw.items():
        is_text = isinstance(name, str) and isinstance(value, str)
        if not is_text or not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise ProtocolError(
                f"{server}: expected printable header names and values of a download, got another value for"
                f" {name[:50]!r}"
            )
        if name.lower() not in _OURS:
            found[name.lower()] = value
    return found


def _time(raw: object) -> float | None:
    """Return the time; None for one that cannot be read, since the origin decides in any case."""
    try:
        return datetime.fromisoformat(raw).timestamp() if isinstance(raw, str) else None
    except (ValueError, OverflowError):
        return None
