"""The example audio server: it finds music, links to it, and reads it in ranges. Its options are here.

`audio_server.py` runs it, or opens it in this process. This module imports little, so that the command line
shows its help at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from playhead.limits import DEFAULT_LIMITS, Limits

Transport = Literal["stdio", "http", "ws"]
MixerKind = Literal["memory", "system"]

DEFAULT_META_KEY: Final = "playhead/range"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioServerOptions:
    """The options of `playhead serve audio`."""

    transport: Transport = "stdio"
    dial: str | None = field(default=None, repr=False)
    """A WebSocket endpoint (`wss://`) to connect to and to serve at; nothing listens then."""
    host: str = "127.0.0.1"
    """The address on which HTTP and WebSocket listen; loopback by default, as there may be no
    authentication."""
    port: int = 3001
    """0 takes a free port."""
    web_origins: tuple[str, ...] = ()
    """Origins of web pages (`https://app.example.org`) that are allowed; the server's own always are."""
    token: str | None = field(default=None, repr=False)
    """The bearer token that every client must send; None requires none."""
    tls_certificate: Path | None = None
    """PEM; with it HTTP is HTTPS, and WebSocket is wss."""
    tls_key: Path | None = None
    """PEM, without a passphrase; None if it is in the certificate's file."""
    library: Path | None = None
    """A directory of music; None is the piece shipped with the package."""
    state_directory: Path | None = None
    """Has the key of the user's links, which then work after a restart and in other processes; None: they end
    with this process."""
    allow_origins: tuple[str, ...] = ()
    """Origins (`http://host:port`) that may be read even if their address is not global."""
    mixer: MixerKind = "system"
    mixer_environment: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment of the system's mixer commands; None is this process's own."""
    meta_key: str = DEFAULT_META_KEY
    """The key of `_meta` under which a read may give its range."""
    origin_seconds: float = 10.0
    """Silence allowed to an origin; twice this and a second stay below a client's 30 s for a page."""
    sessions: int = 1000
    """Over HTTP, in the protocol versions that have sessions. A newcomer past it takes the place of the
    oldest idle session, and gets 503 if none is idle."""
    limits: Limits = DEFAULT_LIMITS
