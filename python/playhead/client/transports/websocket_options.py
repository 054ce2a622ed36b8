"""How a WebSocket server is reached, and what a connection to it has done."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2

from playhead.client.transports.inbox import InboxStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions:
    """How to reach a WebSocket endpoint. Nothing in here is ever shown."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with the upgrade. `Origin` is one: servers that guard against web pages may want it."""
    auth: httpx2.Auth | None = field(default=None, repr=False)
    """Any `httpx2.Auth` that needs no second request. What has to ask another server is a `ConfigError`."""
    verify: ssl.SSLContext | bool = True
    """TLS: `False` accepts any certificate; a context carries own authorities and a client certificate."""
    subprotocols: tuple[str, ...] = ("mcp",)
    """Offered, not demanded: servers in the field choose none."""
    ping_seconds: float = 20.0
    """After so much silence the server is pinged: below the 30 to 60 s after which proxies drop a silent
    connection."""
    pong_seconds: float = 60.0
    """How long it may then stay silent: as long as a tool call by default. Servers that answer in series
    answer no ping while a tool runs, and must not be cut off before the call's own deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketStatistics:
    """What one WebSocket transport has done so far, in bytes and messages."""

    sent_bytes: int
    """With the frames' headers."""
    sent_messages: int
    pings: int
    """Pings sent."""
    binary_messages: int
    """Messages that were ignored because they were no text."""
    subprotocol: str | None
    """What the server chose."""
    received: InboxStatistics
