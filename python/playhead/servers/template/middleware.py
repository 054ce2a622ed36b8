"""Middleware of the SDK's server: it gives each error the code that the client's protocol version expects.

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
import traceback
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Literal

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

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
"""Matches a protocol version: `2025-11-25`, or a draft such as `2025-11-25-draft`."""


def not_found(revision: str, kind: Literal["tool", "prompt"], name: str, known: Iterable[str]) -> MCPError:
    """Return the error for an unknown tool or prompt."""
    code = INVALID_PARAMS
    if revision == FIRST_REVISION:
        code = TOOL_NOT_FOUND if kind == "tool" else PROMPT_NOT_FOUND
    return MCPError(
        code,
        f"unknown {kind} {name[:80]!r}; this server has {', '.join(known)}",
    )


def resource_not_found(revision: str, uri: str, message: str) -> MCPError:
    """Return the error for an unknown resource."""
    code = INVALID_PARAMS if revision in MODERN_PROTOCOL_VERSIONS else RESOURCE_NOT_FOUND
    return MCPError(code, message, {"uri": uri[:200]})


async def first_revision(ctx: ServerRequestContext[dict[str, Any]], call_next: CallNext) -> HandlerResult:
    """Correct the codes of errors that the SDK itself answers to clients of the first protocol version.

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
    """Answer what is wrong with invalid params, and write the traceback of a bug to stderr.

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
