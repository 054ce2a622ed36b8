"""The WebSocket transport against the public suite, in both eras, with our own server and with another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client._transport import Transport
from mcp.server import Server

from playhead.client.transports.websocket import websocket_transport
from playhead.testing import transports
from tests.servers.served_websocket import served_websocket
from tests.servers.websocket_peer import listening, mcp_handler


@asynccontextmanager
async def with_another_library(server: Server[Any]) -> AsyncIterator[Transport]:
    async with listening(mcp_handler(server)) as url:
        yield websocket_transport(url)


@asynccontextmanager
async def with_our_server(server: Server[Any]) -> AsyncIterator[Transport]:
    async with served_websocket(server) as port:
        yield websocket_transport(f"ws://127.0.0.1:{port}/mcp")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "factory", [with_another_library, with_our_server], ids=lambda factory: factory.__name__
)
async def test_the_websocket_transport_conforms(
    factory: transports.Factory, check: transports.TransportLaw, mode: str
) -> None:
    await check(factory, mode=mode)
