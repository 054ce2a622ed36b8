"""What the audio server can be told. Imports little, so that the command line can show its help at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from playhead.limits import DEFAULT_LIMITS, Limits

Transport = Literal["stdio", "http", "ws"]
MixerKind = Literal["memory", "system"]

DEFAULT_META_KEY: Final = "playhead/range"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioServerOptions:
    """What `playhead serve audio` can be told."""

    transport: Transport = "stdio"
    host: str = "127.0.0.1"
    """Where HTTP and WebSocket listen. Loopback unless told otherwise: there may be no authentication."""
    port: int = 3001
    """0 takes a free one."""
    web_origins: tuple[str, ...] = ()
    """Pages of these origins (`https://app.example.org`) may ask; a server's own always may."""
    token: str | None = field(default=None, repr=False)
    """A bearer token that every client must show."""
    tls_certificate: Path | None = None
    """PEM; with it HTTP is HTTPS, and WebSocket is wss."""
    tls_key: Path | None = None
    """PEM, without a passphrase; None where it is in the certificate's file."""
    library: Path | None = None
    """A folder of music; None is the piece shipped with the package."""
    allow_origins: tuple[str, ...] = ()
    """Origins (`http://host:port`) that may be read although their address is not global."""
    mixer: MixerKind = "system"
    meta_key: str = DEFAULT_META_KEY
    """The key of `_meta` under which a read may say its range."""
    origin_seconds: float = 10.0
    """How long an origin may be silent; twice this and a second stay below a client's 30 s for a page."""
    sessions: int = 1000
    """Over HTTP, in the versions of the protocol that have sessions; past it a new one gets 503. The SDK ends
    a session that was not used for half an hour: seldom is music paused for longer."""
    limits: Limits = DEFAULT_LIMITS
