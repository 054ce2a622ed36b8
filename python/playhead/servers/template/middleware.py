"""Middleware of the SDK's server: the error code that the client's protocol version expects, and metrics.

Metrics are in Prometheus' text format. Every label has a bounded set of values, so a client cannot add time
series by inventing methods or tools. The codes:

| fault | 2024-11-05 | until 2025-11-25 | 2026-07-28 |
|---|---|---|---|
| `protocolVersion` is not a version at all (not a date) | -32000 | -32000 | - |
| a method of the protocol whose capability this server lacks | -32001 | -32601 | -32601 |
| unknown resource | -32002 | -32002 | -32602 |
| unknown tool | -32003 | -32602 | -32602 |
| unknown prompt | -32004 | -32602 | -32602 |
| the `MCP-…` headers contradict the body (HTTP) | - | - | -32020 |
| the client lacks a capability that the request needs | - | - | -32021 |
| `protocolVersion` in `_meta` is not served | - | - | -32022 |

The codes of the first column are the template's own: that version defined only -32002, and JSON-RPC leaves
-32000 to -32099 to the server. During the handshake no version is agreed on yet, so -32000 is the same for
all; an unknown date is negotiated, as each version requires. JSON-RPC's own codes (-32700, -32600 to -32603)
have their usual meaning in every version.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final, Literal

import trio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from playhead.escaping import escape

FIRST_REVISION: Final = "2024-11-05"

INVALID_MCP_VERSION: Final = -32000
UNKNOWN_CAPABILITY: Final = -32001
RESOURCE_NOT_FOUND: Final = -32002
TOOL_NOT_FOUND: Final = -32003
PROMPT_NOT_FOUND: Final = -32004

OPTIONAL_METHODS: Final = {
    "completion/complete": "completions",
    "logging/setLevel": "logging",
    "resources/subscribe": "resources.subscribe",
    "resources/unsubscribe": "resources.subscribe",
}
"""The methods of the protocol that this server lacks, each with the capability that would announce it."""

_REVISION: Final = re.compile(r"\d{4}-\d{2}-\d{2}(-.+)?")
"""The form of a protocol version: `2025-11-25`, or a draft such as `2025-11-25-draft`."""


def not_found(revision: str, kind: Literal["tool", "prompt"], name: str, known: Iterable[str]) -> MCPError:
    """Return the error for an unknown tool or prompt."""
    first = TOOL_NOT_FOUND if kind == "tool" else PROMPT_NOT_FOUND
    return MCPError(
        first if revision == FIRST_REVISION else INVALID_PARAMS,
        f"unknown {kind} {name[:80]!r}; this server has {', '.join(known)}",
    )


def resource_not_found(revision: str, uri: str, message: str) -> MCPError:
    """Return the error for an unknown resource."""
    code = INVALID_PARAMS if revision in MODERN_PROTOCOL_VERSIONS else RESOURCE_NOT_FOUND
    return MCPError(code, message, {"uri": uri[:200]})


async def first_revision(ctx: ServerRequestContext[dict[str, Any]], call_next: CallNext) -> HandlerResult:
    """Correct the codes of errors that the SDK itself answers, as middleware of its server.

    It also accepts the bare name `initialized` of a notification, as early clients send it.
    """
    if ctx.method == "initialize":
        _check_version(ctx)
    if ctx.request_id is None and ctx.method == "initialized":
        ctx = replace(ctx, method="notifications/initialized")
    try:
        return await call_next(ctx)
    except MCPError as error:
        capability = OPTIONAL_METHODS.get(ctx.method)
        if capability is None or error.code != METHOD_NOT_FOUND or ctx.protocol_version != FIRST_REVISION:
            raise
        raise MCPError(
            UNKNOWN_CAPABILITY,
            f"{ctx.method} needs the capability {capability}, which this server does not have",
            {"capability": capability},
        ) from None


async def explain_errors(ctx: ServerRequestContext[dict[str, Any]], call_next: CallNext) -> HandlerResult:
    """Report the fault of invalid params, and write the traceback of a bug to stderr, as middleware of the
    SDK's server.

    The SDK alone answers `Invalid request parameters` and, in the versions with a handshake, a bug with code
    0 and the exception's own text.
    """
    try:
        return await call_next(ctx)
    except MCPError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(key)[:80] for key in first["loc"]) or "params"
        raise MCPError(INVALID_PARAMS, f"{ctx.method[:80]}: {where}: {first['msg']}") from None
    except Exception as error:  # a bug of a tool, whatever it raises, costs one request
        sys.stderr.write(escape("".join(traceback.format_exception(error))))
        raise MCPError(
            INTERNAL_ERROR, "the server failed at this request; its stderr has the traceback"
        ) from error


def _check_version(ctx: ServerRequestContext[dict[str, Any]]) -> None:
    revision = (ctx.params or {}).get("protocolVersion")
    if isinstance(revision, str) and not _REVISION.fullmatch(revision):
        raise MCPError(
            INVALID_MCP_VERSION,
            f"protocolVersion: expected a date such as {FIRST_REVISION}, got {revision[:40]!r}",
            {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": revision[:40]},
        )


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
"""Bounds in seconds. Most answers take a millisecond, a search by a real engine some seconds."""


class Metrics:
    """The counters of one server, in a registry of their own: two servers share nothing."""

    def __init__(self, tools: Collection[str], *, clock: Callable[[], float] = time.perf_counter) -> None:
        """`tools` are counted by name; every other name counts as `other`."""
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
                self._tool_calls.labels(self._tool(ctx), _of_call(outcome, result)).inc()
        return result

    def count_connections(self, app: ASGIApp) -> ASGIApp:
        """Wrap `app` so that its open WebSocket connections are counted."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "websocket":
                await app(scope, receive, send)
                return
            with self._connections.track_inprogress():
                await app(scope, receive, send)

        return counted

    def _tool(self, ctx: ServerRequestContext[dict[str, Any]]) -> str:
        name = (ctx.params or {}).get("name")
        return name if isinstance(name, str) and name in self._tools else OTHER


def _of_call(outcome: str, result: HandlerResult) -> str:
    if outcome == "ok":
        return "failed" if isinstance(result, dict) and result.get("isError") else "ok"
    return "cancelled" if outcome == "cancelled" else "refused"
