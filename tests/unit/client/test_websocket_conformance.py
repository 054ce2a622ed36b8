"""The WebSocket carrier against the public suite, in both protocol versions, with our server and another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server import Server

from playhead.client.transports.websocket import WebSocketCarrier
from playhead.testing import transports
from tests.servers.served_websocket import served_websocket
from tests.servers.websocket_peer import listening, mcp_handler


@asynccontextmanager
async def with_another_library(server: Server[Any]) -> AsyncIterator[WebSocketCarrier]:
    async with listening(mcp_handler(server)) as url:
        yield WebSocketCarrier(url)


@asynccontextmanager
async def with_our_server(server: Server[Any]) -> AsyncIterator[WebSocketCarrier]:
    async with served_websocket(server) as port:
        yield WebSocketCarrier(f"ws://127.0.0.1:{port}/mcp")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "factory", [with_another_library, with_our_server], ids=lambda factory: factory.__name__
)
async def test_the_websocket_carrier_conforms(
    factory: transports.Factory, check: transports.TransportLaw, mode: str
) -> None:
    await check(factory, mode=mode)
