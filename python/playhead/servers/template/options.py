"""What the template server can be told. Imports little, so that the command line shows its help at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playhead.limits import DEFAULT_LIMITS, Limits

Transport = Literal["ws", "http", "stdio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateServerOptions:
    """What `playhead serve template` can be told."""

    transport: Transport = "ws"
    """Both `ws` and `http` listen, and answer both at `/mcp`: the choice says which URL is printed."""
    host: str = "127.0.0.1"
    """Where it listens. Loopback unless told otherwise."""
    port: int = 8030
    """0 takes a free one."""
    token: str | None = field(default=None, repr=False)
    """What clients send as `Authorization: Bearer TOKEN`. None asks for nothing."""
    web_origins: tuple[str, ...] = ()
    """Web pages (`https://host:port`) that may connect, besides those of this machine."""
    tls_certificate: Path | None = None
    """A PEM file with the certificate and its chain: the server then speaks HTTPS and WSS."""
    tls_key: Path | None = None
    """A PEM file with the private key; None where it is in the certificate's file."""
    search_url: str | None = None
    """A search engine that answers JSON as SearXNG does, with `{query}` and, if it knows one, `{max_results}`
    in the URL. None searches the pages shipped with the package."""
    search_origins: tuple[str, ...] = ()
    """Origins (`http://host:port`) that `search_url` may reach although their address is not global."""
    page_items: int = 10
    """Items in one page of a listing. Small, so that clients meet a second page before their users do."""
    drain_seconds: float = 1.0
    """From SIGTERM to the closing of the port: `/ready` says 503, and everything else goes on, so that a load
    balancer has time to look and to send its clients elsewhere. Part of the grace of 30 s."""
    sessions: int = 1000
    """Over HTTP, in the revisions that have sessions; past it a new one gets 503."""
    limits: Limits = DEFAULT_LIMITS
