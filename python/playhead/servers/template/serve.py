"""The template server: its handlers, over WebSocket and HTTP with the endpoints for operators, over stdio, or
in process."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any, Final, TypeVar

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from playhead.client.transports.http_client import guarded_client
from playhead.content.revisions import downgrade
from playhead.errors import PlayheadError, UsageError
from playhead.net_guard import parse_origins
from playhead.servers.access import Access
from playhead.servers.dial import dial
from playhead.servers.http import base_url, bind, serve_app, tls_context
from playhead.servers.http_sessions import streamable_http_app
from playhead.servers.serving import Shutdown
from playhead.servers.stdio import serve_stdio
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.metrics import CONTENT_TYPE, Metrics
from playhead.servers.template.middleware import explain_errors, first_revision, not_found
from playhead.servers.template.prompts import TemplatePrompt, all_prompts
from playhead.servers.template.resources import Resources, ShippedPages
from playhead.servers.template.tools import TemplateTool, checked_arguments, failed
from playhead.servers.template.tools.calculator import CALCULATOR
from playhead.servers.template.tools.document_analyzer import document_analyzer
from playhead.servers.template.tools.knowledge_graph import KnowledgeGraph, knowledge_graph
from playhead.servers.template.tools.web_search import Engine, web_search
from playhead.servers.websocket import websocket_endpoint, websocket_routes

NAME: Final = "playhead-template"
DESCRIPTION: Final = "A small MCP server with one of everything, to copy from: tools, resources and prompts."


async def serve(
    options: TemplateServerOptions,
    *,
    shutdown: Shutdown | None = None,
    task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until stdin ends (stdio), until a requested shutdown is complete, or until cancelled.

    Over a network one line with the server's URL goes to stderr, and the URL is the task status; over stdio
    nothing is written but MCP messages, and the task status is None, as for `dial`. Cancelled, it closes
    every connection at once.

    Once the shutdown is requested, `/ready` answers 503; after `drain_seconds` the port is closed, and the
    requests that are still in flight have the rest of the grace to finish.

    Args:
        options: what to serve, and where.
        shutdown: requested by the caller; None makes one that SIGTERM requests, in the main thread only.

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
    await draining.requested.wait()
    await trio.sleep(seconds)
    closing.request()


@asynccontextmanager
async def open_template_server(
    options: TemplateServerOptions | None = None,
) -> AsyncIterator[Server[dict[str, Any]]]:
    """Open the template server as an SDK server: to connect to in process, or to run over streams.

    The transport options are ignored. Leaving the context closes the connections to the search engine.

    Raises:
        UsageError: the search URL or an origin is invalid.
    """
    async with _open_server(options if options is not None else TemplateServerOptions()) as (server, _):
        yield server


@asynccontextmanager
async def _open_server(
    options: TemplateServerOptions,
) -> AsyncIterator[tuple[Server[dict[str, Any]], Metrics]]:
    """Open the SDK server and its metrics, with the client of the search engine."""
    # The user's mistakes are reported before anything is opened.
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


ENDPOINTS: Final[Mapping[str, str]] = {
    "mcp": "/mcp",
    "health": "/health",
    "ready": "/ready",
    "metrics": "/metrics",
}
WITHOUT_TOKEN: Final = (ENDPOINTS["health"], ENDPOINTS["ready"])
"""The endpoints for monitors, which need no secret."""


def template_app(
    server: Server[Any],
    *,
    metrics: Metrics,
    options: TemplateServerOptions,
    shutdown: Shutdown,
) -> ASGIApp:
    """Return the ASGI application: every endpoint, behind the checks of Host, Origin and token.

    The uptime counts from this call, which needs a running trio.

    Raises:
        UsageError: a web origin or the token is invalid.
    """
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    # Both have the same path, because a route of Starlette answers either HTTP or WebSocket.
    over_http = streamable_http_app(server, ENDPOINTS["mcp"], sessions=options.sessions)
    over_websocket = websocket_routes(server, ENDPOINTS["mcp"])
    app = Starlette(
        routes=[*over_http.routes, *_routes(server, metrics, shutdown), *over_websocket],
        middleware=[Middleware(metrics.count_connections), *over_http.user_middleware],
        lifespan=over_http.router.lifespan_context,
    )
    return access.protect(app, without_token=WITHOUT_TOKEN)


def _routes(server: Server[Any], metrics: Metrics, shutdown: Shutdown) -> list[Route]:
    """Return the endpoints for operators. openapi.yaml describes their answers."""
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

    async def show_metrics(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return [
        Route("/", about, methods=["GET"]),
        Route(ENDPOINTS["health"], health, methods=["GET"]),
        Route(ENDPOINTS["ready"], ready, methods=["GET"]),
        Route(ENDPOINTS["metrics"], show_metrics, methods=["GET"]),
    ]


# --- the handlers ----------------------------------------------------------------------------------------


_Context = ServerRequestContext[dict[str, Any]]
_PageParams = PaginatedRequestParams | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateServer:
    """The handlers and what they use. They have no state, so any number of clients may share them."""

    tools: Mapping[str, TemplateTool]
    resources: Resources
    prompts: Mapping[str, TemplatePrompt]
    pager: Pager

    def server(self, metrics: Metrics) -> Server[dict[str, Any]]:
        """Return a server of the SDK, for any transport; `metrics` counts its requests."""
        server = Server(
            NAME,
            version=version("playhead"),
            title="Template server",
            description=DESCRIPTION,
            instructions="Look up facts with web_search and knowledge_graph, and calculate with calculator.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        server.middleware += [metrics.middleware, explain_errors, first_revision]
        return server

    async def _list_tools(self, context: _Context, params: _PageParams) -> types.ListToolsResult:
        definitions = [tool.definition for tool in self.tools.values()]
        tools, cursor = self.pager.page("tools", definitions, params)
        return types.ListToolsResult(tools=tools, next_cursor=cursor)

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self.tools.get(params.name)
        if tool is None:
            raise not_found(context.protocol_version, "tool", params.name, self.tools)
        try:
            arguments = checked_arguments(tool.definition.input_schema, params.arguments or {})
            result = await tool.run(arguments)
        except PlayheadError as error:
            return failed(str(error))
        return downgrade(result, context.protocol_version)

    async def _list_resources(self, context: _Context, params: _PageParams) -> types.ListResourcesResult:
        resources, cursor = self.pager.page("resources", self.resources.listed(), params)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def _list_templates(
        self, context: _Context, params: _PageParams
    ) -> types.ListResourceTemplatesResult:
        templates, cursor = self.pager.page("templates", self.resources.templates(), params)
        return types.ListResourceTemplatesResult(resource_templates=templates, next_cursor=cursor)

    async def _read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return self.resources.read(context.params or {}, context.protocol_version)

    async def _list_prompts(self, context: _Context, params: _PageParams) -> types.ListPromptsResult:
        definitions = [prompt.definition for prompt in self.prompts.values()]
        prompts, cursor = self.pager.page("prompts", definitions, params)
        return types.ListPromptsResult(prompts=prompts, next_cursor=cursor)

    async def _get_prompt(
        self, context: _Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        prompt = self.prompts.get(params.name)
        if prompt is None:
            raise not_found(context.protocol_version, "prompt", params.name, self.prompts)
        return prompt.get(params.arguments or {})


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """Cuts listings into pages. Listings do not change while the server runs, so a cursor stays valid."""

    items: int
    """The number of items on a page."""

    def page(
        self, listing: str, everything: Sequence[_Item], params: _PageParams
    ) -> tuple[list[_Item], str | None]:
        """Return a page of the listing of this name, and the cursor of the next page.

        Raises `MCPError` (-32602) for a cursor that this listing did not return.
        """
        start = 0
        if params is not None and params.cursor is not None:
            start = _offset(listing, params.cursor)
            if start % self.items or not 0 < start < len(everything):
                raise _unknown(params.cursor)
        end = start + self.items
        return list(everything[start:end]), _cursor(listing, end) if end < len(everything) else None


def _cursor(listing: str, offset: int) -> str:
    return base64.urlsafe_b64encode(f"{listing}:{offset}".encode()).decode()


def _offset(listing: str, cursor: str) -> int:
    try:
        name, _, offset = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(":")
    except (binascii.Error, ValueError):
        raise _unknown(cursor) from None
    if name != listing or not offset.isdecimal() or len(offset) > 9:
        raise _unknown(cursor)
    return int(offset)


def _unknown(cursor: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"unknown cursor {cursor[:80]!r}; start again without a cursor")


def all_tools(pages: ShippedPages, graph: KnowledgeGraph, engine: Engine | None) -> dict[str, TemplateTool]:
    """Return every tool by its name, in the order of the listing."""
    tools = (CALCULATOR, web_search(pages, engine), document_analyzer(pages), knowledge_graph(graph))
    return {tool.name: tool for tool in tools}
