"""The requests this package sends itself, in the shapes the SDK lets through unchanged."""

from __future__ import annotations

import copy
from collections.abc import Mapping
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


class RawRequest(Request[dict[str, Any] | None, str]):
    """Any method with any parameters, sent exactly as they were given.

    A stock request is dumped without its nulls: `{"arguments": {"city": null}}` would lose its argument.
    """

    @classmethod
    def of(cls, method: str, params: Mapping[str, Any] | None) -> RawRequest:
        return cls(method=method, params=None if params is None else dict(params))

    def model_dump(self, **_how: Any) -> dict[str, Any]:
        """What the SDK sends. A copy: the SDK writes its `_meta` into it."""
        given = {"method": self.method}
        return given if self.params is None else given | {"params": copy.deepcopy(self.params)}
