"""Runs the template server: over WebSocket and HTTP, over stdio, or in this process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from mcp.server import Server

from playhead.errors import UsageError
from playhead.net_guard import guarded_client, parse_origins
from playhead.servers.http import base_url, bind, serve_app
from playhead.servers.shutdown import Shutdown
from playhead.servers.stdio import serve_stdio
from playhead.servers.template.app import ENDPOINTS, template_app
from playhead.servers.template.metrics import Metrics
from playhead.servers.template.options import TemplateServerOptions
from playhead.servers.template.pages import Graph, Pages
from playhead.servers.template.paging import Pager
from playhead.servers.template.prompts import all_prompts
from playhead.servers.template.resources import Resources
from playhead.servers.template.server import TemplateServer
from playhead.servers.template.tools import all_tools
from playhead.servers.template.tools.web_search import Engine
from playhead.servers.tls import tls_context


async def serve(
    options: TemplateServerOptions,
    *,
    shutdown: Shutdown | None = None,
    task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until stdin ends (stdio), until a shutdown is requested and done, or until it is cancelled.

    Over a network one line with the server's URL goes to stderr, and the URL is the task status; over stdio
    nothing is written but MCP messages, and the task status is None. Cancelled, it closes every connection at
    once.

    Once the shutdown is requested, `/ready` answers 503; after `drain_seconds` the port is closed, and the
    requests that are still in flight have the rest of the grace to finish.

    Args:
        options: what to serve, and where.
        shutdown: requested by the caller; None makes one that SIGTERM requests, which works in the main
            thread only.

    Raises:
        UsageError: an address that cannot be listened on; a certificate, token, origin or search URL that is
            none.
    """
    if options.transport == "stdio":
        async with open_template_server(options) as server:
            await serve_stdio(server, limits=options.limits, task_status=task_status)
        return
    if options.tls_key is not None and options.tls_certificate is None:
        raise UsageError("a TLS key was given without its certificate; give both")
    tls = None
    if options.tls_certificate is not None:
        tls = await trio.to_thread.run_sync(tls_context, options.tls_certificate, options.tls_key)
    with bind(options.host, options.port) as sock:
        url = base_url(sock, scheme="http" if tls is None else "https") + ENDPOINTS["mcp"]
        if options.transport == "ws":
            url = "ws" + url.removeprefix("http")
        async with _parts(options) as (server, metrics):
            asked = shutdown if shutdown is not None else Shutdown()
            closing = Shutdown(grace_seconds=max(0.0, asked.grace_seconds - options.drain_seconds))
            app = template_app(server, metrics=metrics, options=options, shutdown=asked)
            async with trio.open_nursery() as nursery:
                if shutdown is None:
                    await nursery.start(asked.listen)
                await nursery.start(partial(serve_app, app, sock, tls=tls, shutdown=closing))
                nursery.start_soon(_drain, asked, closing, options.drain_seconds)
                sys.stderr.write(f"playhead template server: {url}\n")
                sys.stderr.flush()
                task_status.started(url)


async def _drain(asked: Shutdown, closing: Shutdown, seconds: float) -> None:
    await asked.requested.wait()
    await trio.sleep(seconds)
    closing.request()


@asynccontextmanager
async def open_template_server(
    options: TemplateServerOptions | None = None,
) -> AsyncIterator[Server[dict[str, Any]]]:
    """The template server as an SDK server: to connect to in this process, or to run over streams.

    The transport options are not looked at. Leaving the context closes the connections to the search engine.

    Raises:
        UsageError: a search URL or an origin that is none.
    """
    async with _parts(options if options is not None else TemplateServerOptions()) as (server, _):
        yield server


@asynccontextmanager
async def _parts(options: TemplateServerOptions) -> AsyncIterator[tuple[Server[dict[str, Any]], Metrics]]:
    # What the user may have got wrong is checked before anything is opened.
    origins = parse_origins(options.search_origins)
    if options.search_url is not None and "{query}" not in options.search_url:
        raise UsageError(
            "expected {query} in the URL of the search engine, "
            "like https://search.example.org/search?format=json&q={query}"
        )
    pages, graph = await trio.to_thread.run_sync(lambda: (Pages.load(), Graph.load()))
    resources = await trio.to_thread.run_sync(Resources.load, pages)
    async with guarded_client(allow_origins=origins, limits=options.limits) as client:
        engine = None if options.search_url is None else Engine(url=options.search_url, client=client)
        tools = all_tools(pages, graph, engine)
        metrics = Metrics(tools)
        parts = TemplateServer(
            tools=tools,
            resources=resources,
            prompts=all_prompts(pages),
            pager=Pager(items=options.page_items),
        )
        yield parts.server(metrics), metrics
