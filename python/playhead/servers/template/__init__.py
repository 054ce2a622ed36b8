"""The template server: a small MCP server with one of everything, to copy from.

Read it in this order:

* `tools/` has one file per tool: its definition (a `types.Tool`), and one function that answers. Their shared
  code is in `tools/__init__.py`. `all_tools` in `serve.py` lists them; a new tool is a file and a line there.
* `resources.py` has what a client can read, and `prompts.py` what a person can pick.
* `handlers.py` answers the requests for all of them through the SDK's `Server`; `pager.py` cuts listings.
* `endpoints.py` puts that server behind HTTP and WebSocket, with the endpoints for operators.
* `serve.py` runs it.
* `middleware.py` chooses the error code that the client's protocol version expects.
* `metrics.py` counts requests.
* `schema.json` and `openapi.yaml` describe the messages for others; `documents.py` checks messages against
  the former.

This module has the server's options. It imports little, so that the command line shows its help at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from playhead.servers.listening import ListenOptions, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateServerOptions(ListenOptions):
    """The options of `playhead serve template`."""

    transport: Transport = "ws"
    """Selects the transport and the printed URL. With `ws` and with `http`, `/mcp` answers both WebSocket and
    HTTP."""
    port: int = 8030
    search_url: str | None = None
    """The URL of a search engine that answers JSON as SearXNG does, with `{query}` and, if supported,
    `{max_results}`. None searches the pages shipped with the package."""
    search_origins: tuple[str, ...] = ()
    """The origins (`http://host:port`) that `search_url` may reach even if their address is not global."""
    page_items: int = 10
    """The items per page of a listing. Few, so that developers of clients meet a second page before users
    do."""
    drain_seconds: float = 1.0
    """The time from SIGTERM to the closing of the port, part of the grace of 30 s. Meanwhile `/ready` answers
    503 and everything else goes on, so that a load balancer can send its clients elsewhere."""
