"""The HTTP and WebSocket endpoints of the template server: MCP itself, and those for its operators."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import trio
from mcp.server import Server
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from playhead.servers.access import Access
from playhead.servers.http_sessions import streamable_http_app
from playhead.servers.serving import Shutdown
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.handlers import DESCRIPTION, NAME
from playhead.servers.template.metrics import CONTENT_TYPE, Metrics
from playhead.servers.websocket import websocket_routes

ENDPOINTS: Final[Mapping[str, str]] = {
    "mcp": "/mcp",
    "health": "/health",
    "ready": "/ready",
    "metrics": "/metrics",
}
WITHOUT_TOKEN: Final = (ENDPOINTS["health"], ENDPOINTS["ready"])
"""The endpoints that answer without the token, so that a monitor needs no secret."""


def template_app(
    server: Server[Any],
    *,
    metrics: Metrics,
    options: TemplateServerOptions,
    shutdown: Shutdown,
) -> ASGIApp:
    """Return the ASGI application with every endpoint, behind the checks of Host, Origin and token.

    The uptime in /health counts from this call. Call it inside a trio run, whose clock it reads.

    Raises:
        UsageError: a web origin or the token is invalid.
    """
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    # MCP has two routes at one path, because a route of Starlette answers either HTTP or WebSocket.
    over_http = streamable_http_app(server, ENDPOINTS["mcp"], sessions=options.sessions)
    over_websocket = websocket_routes(server, ENDPOINTS["mcp"])
    app = Starlette(
        routes=[*over_http.routes, *_operator_routes(server, metrics, shutdown), *over_websocket],
        middleware=[Middleware(metrics.count_connections), *over_http.user_middleware],
        lifespan=over_http.router.lifespan_context,
    )
    return access.protect(app, without_token=WITHOUT_TOKEN)


def _operator_routes(server: Server[Any], metrics: Metrics, shutdown: Shutdown) -> list[Route]:
    """Return the routes for operators: about, health, ready and metrics. openapi.yaml has their answers."""
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
                "status": "healthy",  # also during a shutdown, because the process is alive
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

    async def show_metrics(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return [
        Route("/", about, methods=["GET"]),
        Route(ENDPOINTS["health"], health, methods=["GET"]),
        Route(ENDPOINTS["ready"], ready, methods=["GET"]),
        Route(ENDPOINTS["metrics"], show_metrics, methods=["GET"]),
    ]
