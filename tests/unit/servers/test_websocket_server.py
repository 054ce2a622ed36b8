"""Our WebSocket server against the public suite, with the SDK's client over a transport of a few lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server import Server

from playhead.testing import transports
from tests.servers.raw_websocket import as_transport
from tests.servers.served_websocket import served_websocket


@asynccontextmanager
async def with_a_plain_client(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with (
        served_websocket(server) as port,
        transports.sdk_client(as_transport(port), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
async def test_a_websocket_server_conforms(check: transports.TransportLaw, mode: str) -> None:
    await check(with_a_plain_client, mode=mode)
