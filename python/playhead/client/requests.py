"""The requests this package sends itself, in the shapes the SDK lets through unchanged."""

from __future__ import annotations

from typing import Any, Literal

from mcp_types import ReadResourceRequestParams, Request


class RangedReadParams(ReadResourceRequestParams):
    """`resources/read` with the `arguments` that carry a range (not in any MCP revision)."""

    arguments: dict[str, Any] | None = None


class RangedReadRequest(Request[RangedReadParams, Literal["resources/read"]]):
    """Declared anew because a params subclass inside the stock request is dumped by its declared type:
    `arguments` would be dropped without a word."""

    method: Literal["resources/read"] = "resources/read"
    params: RangedReadParams
