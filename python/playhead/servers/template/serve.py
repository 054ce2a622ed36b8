"""Run the template server: over WebSocket and HTTP with the endpoints for operators, over stdio, or in
process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import trio
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from playhead.errors import UsageError
from playhead.net_guard import guarded_client, parse_origins
from playhead.servers.access import Access
from playhead.servers.http import DEFAULT_OPTIONS, base_url, bind, serve_app, tls_context
from playhead.servers.messages import OnlyMessages
from playhead.servers.serving import Shutdown
from playhead.servers.stdio import serve_stdio
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.metrics import CONTENT_TYPE, Metrics
from playhead.servers.template.prompts import all_prompts
from playhead.servers.template.resources import Resources, ShippedPages
from playhead.servers.template.server import DESCRIPTION, NAME, Pager, TemplateServer, all_tools
from playhead.servers.template.tools.knowledge_graph import KnowledgeGraph
from playhead.servers.template.tools.web_search import Engine
from playhead.servers.websocket import websocket_routes


async def serve(
    options: TemplateServerOptions,
    *,
    shutdown: Shutdown | None = None,
    task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until stdin ends (stdio), until a requested shutdown is complete, or until cancelled.

    Over a network one line with the server's URL goes to stderr, and the URL is the task status; over stdio
    nothing is written but MCP messages, and the task status is None. Cancelled, it closes every connection at
    once.

    Once the shutdown is requested, `/ready` answers 503; after `drain_seconds` the port is closed, and the
    requests that are still in flight have the rest of the grace to finish.

    Args:
        options: what to serve, and where.
        shutdown: requested by the caller; None makes one that SIGTERM requests, in the main thread only.

    Raises:
        UsageError: the server cannot listen on the address, or a certificate, token, origin or search URL is
            invalid.
    """
    if options.transport == "stdio":
        async with open_template_server(options) as server:
            await serve_stdio(server, limits=options.limits, task_status=task_status)
        return
    if options.tls_key is not None and options.tls_certificate is None:
        raise UsageError("got a TLS key without its certificate; give both")
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
    """The template server as an SDK server: to connect to in process, or to run over streams.

    The transport options are ignored. Leaving the context closes the connections to the search engine.

    Raises:
        UsageError: the search URL or an origin is invalid.
    """
    async with _parts(options if options is not None else TemplateServerOptions()) as (server, _):
        yield server


@asynccontextmanager
async def _parts(options: TemplateServerOptions) -> AsyncIterator[tuple[Server[dict[str, Any]], Metrics]]:
    # The user's mistakes are found before anything is opened.
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
        parts = TemplateServer(
            tools=tools,
            resources=resources,
            prompts=all_prompts(pages),
            pager=Pager(items=options.page_items),
        )
        yield parts.server(metrics), metrics


ENDPOINTS: Final[Mapping[str, str]] = {
    "mcp": "/mcp",
    "health": "/health",
    "ready": "/ready",
    "metrics": "/metrics",
}
WITHOUT_TOKEN: Final = (ENDPOINTS["health"], ENDPOINTS["ready"])
"""A monitor does not need a secret."""


def template_app(
    server: Server[Any],
    *,
    metrics: Metrics,
    options: TemplateServerOptions,
    shutdown: Shutdown,
) -> ASGIApp:
    """The ASGI application: every endpoint, behind the checks of Host, Origin and token.

    The uptime begins with this call, which needs a running trio.

    Raises:
        UsageError: a web origin or the token is invalid.
    """
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    # Both at one path: a route of Starlette's answers either HTTP or WebSocket.
    over_http = server.streamable_http_app(
        streamable_http_path=ENDPOINTS["mcp"],
        json_response=True,
        max_request_body_size=DEFAULT_OPTIONS.body_bytes,
        max_sessions=options.sessions,
        # `access` checks every endpoint alike.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    over_websocket = websocket_routes(server, ENDPOINTS["mcp"])
    app = Starlette(
        routes=[*over_http.routes, *_routes(server, metrics, shutdown), *over_websocket],
        middleware=[Middleware(metrics.count_connections), Middleware(OnlyMessages, path=ENDPOINTS["mcp"])],
        lifespan=over_http.router.lifespan_context,
    )
    return access.protect(app, without_token=WITHOUT_TOKEN)


def _routes(server: Server[Any], metrics: Metrics, shutdown: Shutdown) -> list[Route]:
    """The endpoints for operators. openapi.yaml describes their answers."""
    began = trio.current_time()
    identity = {"name": NAME, "version": version("playhead")}

    async def about(request: Request) -> Response:
        return JSONResponse(
            {
                **identity,
                "description": DESCRIPTION,
                "endpoints": dict(ENDPOINTS),
                "protocol_version": MODERN_PROTOCOL_VERSIONS[-1],
                "protocol_versions": [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS],
            }
        )

    async def health(request: Request) -> Response:
        capabilities = server.get_capabilities()
        return JSONResponse(
            {
                "status": "healthy",  # 200 also while it shuts down: the process is alive
                **identity,
                "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "uptime": round(trio.current_time() - began, 3),
                "capabilities": capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
            }
        )

    async def ready(request: Request) -> Response:
        if shutdown.requested.is_set():
            return JSONResponse({"status": "shutting_down"}, status_code=503)
        return JSONResponse({"status": "ready"})

    async def count(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return [
        Route("/", about, methods=["GET"]),
        Route(ENDPOINTS["health"], health, methods=["GET"]),
        Route(ENDPOINTS["ready"], ready, methods=["GET"]),
        Route(ENDPOINTS["metrics"], count, methods=["GET"]),
    ]
