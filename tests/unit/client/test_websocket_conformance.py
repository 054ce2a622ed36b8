"""Clients over a WebSocket against the public suite, in both protocol versions: ours with our server and with
an independent one, and the SDK's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server import Server

from playhead.client.transports.sdk_websocket import websocket_transport
from playhead.client.transports.websocket import WebSocketCarrier
from playhead.testing import transports
from tests.servers.served_websocket import served_websocket
from tests.servers.websocket_peer import listening, mcp_handler


@asynccontextmanager
async def with_another_library(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with (
        listening(mcp_handler(server)) as url,
        transports.carrier_client(WebSocketCarrier(url), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def with_our_server(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with served_websocket(server) as port:
        carrier = WebSocketCarrier(f"ws://127.0.0.1:{port}/mcp")
        async with transports.carrier_client(carrier, mode=mode) as client:
            yield client


@asynccontextmanager
async def of_the_sdk(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with (
        listening(mcp_handler(server)) as url,
        transports.sdk_client(websocket_transport(url), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "factory", [with_another_library, with_our_server, of_the_sdk], ids=lambda factory: factory.__name__
)
async def test_a_client_over_a_websocket_conforms(
    factory: transports.Factory, check: transports.TransportLaw, mode: str
) -> None:
    await check(factory, mode=mode)
