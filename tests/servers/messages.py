"""JSON-RPC messages as a client without a library writes them."""

from __future__ import annotations

from typing import Any


def request(method: str, *, id: object = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({"params": params} if params else {})


def initialize(
    version: str = "2025-06-18", *, id: object = 1, name: str = "test", **capabilities: Any
) -> dict[str, Any]:
    client = {"name": name, "version": "1"}
    return request("initialize", id=id, protocolVersion=version, capabilities=capabilities, clientInfo=client)
