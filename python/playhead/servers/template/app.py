"""The template server over HTTP: `/mcp` for MCP, and beside it what operators ask of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
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

from playhead.servers.access import Access
from playhead.servers.http import DEFAULT_OPTIONS
from playhead.servers.http_messages import OnlyMessages
from playhead.servers.shutdown import Shutdown
from playhead.servers.template.endpoints import About, Health, Ready
from playhead.servers.template.metrics import CONTENT_TYPE, Metrics
from playhead.servers.template.options import TemplateServerOptions
from playhead.servers.template.server import DESCRIPTION, NAME
from playhead.servers.websocket import websocket_routes

ENDPOINTS: Final[Mapping[str, str]] = {
    "mcp": "/mcp",
    "health": "/health",
    "ready": "/ready",
    "metrics": "/metrics",
}
WITHOUT_TOKEN: Final = (ENDPOINTS["health"], ENDPOINTS["ready"])
"""So that whoever watches the process needs no secret."""


def template_app(
    server: Server[Any],
    *,
    metrics: Metrics,
    options: TemplateServerOptions,
    shutdown: Shutdown,
) -> ASGIApp:
    """The ASGI application: every endpoint, behind the checks of Host, Origin and token.

    The uptime begins with this call, which wants a running trio.

    Raises:
        UsageError: a web origin or the token is none.
    """
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    # Both speak MCP at one path: a route of Starlette's answers either HTTP or WebSocket.
    over_http = server.streamable_http_app(
        streamable_http_path=ENDPOINTS["mcp"],
        json_response=True,
        max_request_body_size=DEFAULT_OPTIONS.body_bytes,
        max_sessions=options.sessions,
        # `access` has checked already, the same for every endpoint.
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
    began = trio.current_time()
    ours = version("playhead")

    async def about(request: Request) -> Response:
        return JSONResponse(
            asdict(
                About(
                    name=NAME,
                    version=ours,
                    description=DESCRIPTION,
                    endpoints=dict(ENDPOINTS),
                    protocol_version=MODERN_PROTOCOL_VERSIONS[-1],
                    protocol_versions=[*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS],
                )
            )
        )

    async def health(request: Request) -> Response:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        capabilities = server.get_capabilities()
        return JSONResponse(
            asdict(
                Health(
                    status="healthy",
                    name=NAME,
                    version=ours,
                    time=now,
                    uptime=round(trio.current_time() - began, 3),
                    capabilities=capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
                )
            )
        )

    async def ready(request: Request) -> Response:
        if shutdown.requested.is_set():
            return JSONResponse(asdict(Ready(status="shutting_down")), status_code=503)
        return JSONResponse(asdict(Ready(status="ready")))

    async def count(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return [
        Route("/", about, methods=["GET"]),
        Route(ENDPOINTS["health"], health, methods=["GET"]),
        Route(ENDPOINTS["ready"], ready, methods=["GET"]),
        Route(ENDPOINTS["metrics"], count, methods=["GET"]),
    ]
