"""The metrics of the template server, in Prometheus' text format.

Every label has a bounded set of values, so a client cannot add time series by inventing methods or tools.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Final

import trio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import ASGIApp, Receive, Scope, Send

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
METHODS: Final = frozenset(
    {
        "initialize",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/call",
        "tools/list",
    }
)
OTHER: Final = "other"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The bounds of the latency histogram in seconds. Most answers take a millisecond, a search by a real engine
some seconds."""


class Metrics:
    """The counters of one server, in a registry of their own: two servers share nothing."""

    def __init__(self, tools: Collection[str], *, clock: Callable[[], float] = time.perf_counter) -> None:
        """`tools` are count_connection by name; every other name counts as `other`."""
        self._tools = frozenset(tools)
        self._clock = clock
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "mcp_requests",
            "Requests by outcome: ok, cancelled, or the code of the JSON-RPC error.",
            ["method", "outcome"],
            registry=self._registry,
        )
        self._tool_calls = Counter(
            "mcp_tool_calls",
            "Tool calls by outcome: ok, failed (isError), refused (a JSON-RPC error), cancelled.",
            ["tool", "outcome"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "mcp_request_duration_seconds",
            "Time from the request to its answer, without the network.",
            ["method"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._connections = Gauge("mcp_connections", "Open WebSocket connections.", registry=self._registry)

    def text(self) -> bytes:
        """Return the text of `/metrics`."""
        return generate_latest(self._registry)

    async def middleware(
        self, ctx: ServerRequestContext[dict[str, Any]], call_next: CallNext
    ) -> HandlerResult:
        """Time and count each request, but no notifications, as middleware of the SDK's server."""
        if ctx.request_id is None:
            return await call_next(ctx)
        began, outcome, result = self._clock(), str(INTERNAL_ERROR), None
        try:
            result = await call_next(ctx)
            outcome = "ok"
        except MCPError as error:
            outcome = str(error.error.code)
            raise
        except trio.Cancelled:
            outcome = "cancelled"
            raise
        finally:
            method = ctx.method if ctx.method in METHODS else OTHER
            self._requests.labels(method, outcome).inc()
            self._latency.labels(method).observe(self._clock() - began)
            if method == "tools/call":
                self._tool_calls.labels(self._tool_label(ctx), _call_outcome(outcome, result)).inc()
        return result

    def count_connections(self, app: ASGIApp) -> ASGIApp:
        """Wrap `app` so that its open WebSocket connections are count_connection."""

        async def count_connection(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "websocket":
                await app(scope, receive, send)
                return
            with self._connections.track_inprogress():
                await app(scope, receive, send)

        return count_connection

    def _tool_label(self, ctx: ServerRequestContext[dict[str, Any]]) -> str:
        name = (ctx.params or {}).get("name")
        return name if isinstance(name, str) and name in self._tools else OTHER


def _call_outcome(outcome: str, result: HandlerResult) -> str:
    """Return the outcome of a tool call whose request has this outcome."""
    if outcome == "ok":
        return "failed" if isinstance(result, dict) and result.get("isError") else "ok"
    return "cancelled" if outcome == "cancelled" else "refused"
