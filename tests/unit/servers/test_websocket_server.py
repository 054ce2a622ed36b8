"""Our WebSocket server against the public transport suite, with our client and with one of a few lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Transport
from mcp.server import Server

from playhead.client.transports.websocket import WebSocketCarrier
from playhead.testing import transports
from tests.servers.raw_websocket import as_transport
from tests.servers.served_websocket import served_websocket


@asynccontextmanager
async def with_a_plain_client(server: Server[Any]) -> AsyncIterator[Transport]:
    async with served_websocket(server) as port:
        yield as_transport(port)


@asynccontextmanager
async def with_our_client(server: Server[Any]) -> AsyncIterator[WebSocketCarrier]:
    async with served_websocket(server) as port:
        yield WebSocketCarrier(f"ws://127.0.0.1:{port}/mcp")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("factory", [with_a_plain_client, with_our_client], ids=lambda one: one.__name__)
@pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
async def test_a_websocket_server_conforms(
    check: transports.TransportLaw, factory: transports.Factory, mode: str
) -> None:
    await check(factory, mode=mode)
