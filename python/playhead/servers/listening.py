"""The options that all servers share: the address to listen on or to dial, and the access.

This module imports little, so that the command line shows its help at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playhead.limits import DEFAULT_LIMITS, Limits

Transport = Literal["stdio", "http", "ws"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The address of a server, and its access."""

    dial: str | None = field(default=None, repr=False)
    """A WebSocket endpoint (`wss://`) to connect to and to serve. The server then does not listen."""
    host: str = "127.0.0.1"
    """The address on which HTTP and WebSocket listen; loopback by default, because a token is optional."""
    port: int = 0
    """The port; 0 takes a free one."""
    web_origins: tuple[str, ...] = ()
    """The origins of web pages (`https://app.example.org`) to allow, in addition to the server's own."""
    token: str | None = field(default=None, repr=False)
    """The bearer token that every client must send; None requires none."""
    tls_certificate: Path | None = None
    """A PEM file with the certificate and its chain: HTTP is then HTTPS, and WebSocket is wss."""
    tls_key: Path | None = None
    """A PEM file with the private key, without a passphrase; None if it is in the certificate's file."""
    sessions: int = 1000
    """Limits the sessions over HTTP, in the protocol versions that have them. Beyond the limit, a new session
    replaces the oldest idle one, or gets 503 if none is idle."""
    limits: Limits = DEFAULT_LIMITS
