"""The template server: a small MCP server with one of everything, to copy from. Its options are here.

Read it in this order:

* `tools/` has one file per tool: its definition (a `types.Tool`), and one function that answers. What they
  share is in `tools/__init__.py`. `serve.py` lists them all: a new one is a file and a line.
* `resources.py` and `prompts.py`: what a client can read, and what a person can pick.
* `serve.py` gives all of it to the SDK's `Server`, and puts that behind HTTP and WebSocket, with the
  endpoints for operators.
* `middleware.py` chooses the error code that the client's protocol version expects, and counts requests.
* `schema.json` and `openapi.yaml` describe the messages for others; `documents.py` applies them.

This module imports little, so that the command line shows its help at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playhead.limits import DEFAULT_LIMITS, Limits

Transport = Literal["ws", "http", "stdio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateServerOptions:
    """The options of `playhead serve template`."""

    transport: Transport = "ws"
    """With `ws` as with `http`, `/mcp` answers WebSocket and HTTP; the choice decides which URL is
    printed."""
    dial: str | None = field(default=None, repr=False)
    """A WebSocket endpoint (`wss://`) to connect to and to serve at; nothing listens then."""
    host: str = "127.0.0.1"
    """The address on which it listens; loopback by default."""
    port: int = 8030
    """0 takes a free port."""
    token: str | None = field(default=None, repr=False)
    """The token that clients must send as `Authorization: Bearer TOKEN`; None requires none."""
    web_origins: tuple[str, ...] = ()
    """Origins of web pages (`https://host:port`) that are allowed, in addition to those of this machine."""
    tls_certificate: Path | None = None
    """A PEM file with the certificate and its chain: the server then speaks HTTPS and WSS."""
    tls_key: Path | None = None
    """A PEM file with the private key; None if it is in the certificate's file."""
    search_url: str | None = None
    """A search engine that answers JSON as SearXNG does, with `{query}` and, if supported, `{max_results}` in
    the URL. None searches the pages shipped with the package."""
    search_origins: tuple[str, ...] = ()
    """Origins (`http://host:port`) that `search_url` may reach even if their address is not global."""
    page_items: int = 10
    """Items in one page of a listing. Few, so that developers of clients meet a second page before users
    do."""
    drain_seconds: float = 1.0
    """From SIGTERM to the closing of the port: `/ready` answers 503 and everything else goes on, so that a
    load balancer has time to notice and to send its clients elsewhere. Part of the grace of 30 s."""
    sessions: int = 1000
    """Over HTTP, in the protocol versions that have sessions; see `AudioServerOptions`."""
    limits: Limits = DEFAULT_LIMITS
