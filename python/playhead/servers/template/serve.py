"""`serve` runs the template server over HTTP, WebSocket or stdio; `open_template_server`, in process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from mcp.server import Server

from playhead.client.transports.http_client import guarded_client
from playhead.errors import UsageError
from playhead.net_guard import parse_origins
from playhead.servers.dial import dial
from playhead.servers.http import base_url, bind, serve_app, tls_context
from playhead.servers.serving import Shutdown
from playhead.servers.stdio import serve_stdio
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.endpoints import ENDPOINTS, template_app
from playhead.servers.template.handlers import TemplateServer
from playhead.servers.template.metrics import Metrics
from playhead.servers.template.pager import Pager
from playhead.servers.template.prompts import all_prompts
from playhead.servers.template.resources import Resources, ShippedPages
from playhead.servers.template.tools import TemplateTool
from playhead.servers.template.tools.calculator import CALCULATOR
from playhead.servers.template.tools.document_analyzer import document_analyzer
from playhead.servers.template.tools.knowledge_graph import KnowledgeGraph, knowledge_graph
from playhead.servers.template.tools.web_search import Engine, web_search
from playhead.servers.websocket import websocket_endpoint


async def serve(
    options: TemplateServerOptions,
    *,
    shutdown: Shutdown | None = None,
    task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until stdin ends (stdio), until a requested shutdown is complete, or until cancelled.

    Over a network, one line with the server's URL goes to stderr, and the URL is the task status. Over stdio,
    only MCP messages are written, and the task status is None; so it is with `options.dial`. Cancellation
    closes every connection at once.

    Once the shutdown is requested, `/ready` answers 503; after `drain_seconds` the port is closed, and the
    requests that are still in flight have the rest of the grace to finish.

    Args:
        options: the server's features and its transport.
        shutdown: the caller requests it. By default SIGTERM does, if this is the main thread.

    Raises:
        UsageError: the server cannot listen on the address, or a certificate, token, origin or search URL is
            invalid.
        ConnectError: the endpoint of `options.dial` refuses this server.
    """
    if options.dial is not None:
        async with open_template_server(options) as server:
            endpoint = websocket_endpoint(server)
            await dial(endpoint, options.dial, name="playhead template server", task_status=task_status)
        return
    if options.transport == "stdio":
        async with open_template_server(options) as server:
            await serve_stdio(server, limits=options.limits, task_status=task_status)
        return
    tls = tls_context(options.tls_certificate, options.tls_key)
    with bind(options.host, options.port) as sock:
        url = base_url(sock, scheme="http" if tls is None else "https") + ENDPOINTS["mcp"]
        if options.transport == "ws":
            url = "ws" + url.removeprefix("http")
        async with _open_server(options) as (server, metrics):
            # `draining` makes /ready answer 503; `closing`, requested `drain_seconds` later, closes the port.
            draining = shutdown if shutdown is not None else Shutdown()
            closing = Shutdown(grace_seconds=max(0.0, draining.grace_seconds - options.drain_seconds))
            app = template_app(server, metrics=metrics, options=options, shutdown=draining)
            async with trio.open_nursery() as nursery:
                if shutdown is None:
                    await nursery.start(draining.listen)
                await nursery.start(partial(serve_app, app, sock, tls=tls, shutdown=closing))
                nursery.start_soon(_drain, draining, closing, options.drain_seconds)
                sys.stderr.write(f"playhead template server: {url}\n")
                sys.stderr.flush()
                task_status.started(url)


async def _drain(draining: Shutdown, closing: Shutdown, seconds: float) -> None:
    """Request `closing` this many seconds after `draining` was requested."""
    await draining.requested.wait()
    await trio.sleep(seconds)
    closing.request()


@asynccontextmanager
async def open_template_server(
    options: TemplateServerOptions | None = None,
) -> AsyncIterator[Server[dict[str, Any]]]:
    """Open the template server as an SDK server, to connect to in process or to run over streams.

    The transport options are ignored. The end of the context closes the connections to the search engine.

    Raises:
        UsageError: the search URL or an origin is invalid.
    """
    async with _open_server(options if options is not None else TemplateServerOptions()) as (server, _):
        yield server


@asynccontextmanager
async def _open_server(
    options: TemplateServerOptions,
) -> AsyncIterator[tuple[Server[dict[str, Any]], Metrics]]:
    """Open the SDK server and its metrics, with the HTTP client of its search engine."""
    # Check the options before anything is opened.
    origins = parse_origins(options.search_origins)
    if options.search_url is not None and "{query}" not in options.search_url:
        raise UsageError(
            "expected {query} in the URL of the search engine, "
            "like https://search.example.org/search?format=json&q={query}"
        )
    pages, graph = await trio.to_thread.run_sync(lambda: (ShippedPages.load(), KnowledgeGraph.load()))
    resources = await trio.to_thread.run_sync(Resources.load, pages)
    async with guarded_client(allow_origins=origins, limits=options.limits) as client:
        engine = None if options.search_url is None else Engine(url=options.search_url, client=client)
        tools = all_tools(pages, graph, engine)
        metrics = Metrics(tools)
        handlers = TemplateServer(
            tools=tools,
            resources=resources,
            prompts=all_prompts(pages),
            pager=Pager(items=options.page_items),
        )
        yield handlers.server(metrics), metrics


def all_tools(pages: ShippedPages, graph: KnowledgeGraph, engine: Engine | None) -> dict[str, TemplateTool]:
    """Return every tool by its name, in the order of the listing."""
    tools = (CALCULATOR, web_search(pages, engine), document_analyzer(pages), knowledge_graph(graph))
    return {tool.name: tool for tool in tools}
