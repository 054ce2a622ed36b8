"""The WebSocket transport against the public suite, in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client._transport import Transport
from mcp.server import Server

from playhead.client.transports.websocket import websocket_transport
from playhead.testing import transports
from tests.servers.websocket_peer import listening, mcp_handler


@asynccontextmanager
async def over_websocket(server: Server[Any]) -> AsyncIterator[Transport]:
    async with listening(mcp_handler(server)) as url:
        yield websocket_transport(url)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("check", transports.CHECKS, ids=lambda check: check.__name__)
async def test_the_websocket_transport_conforms(check: transports.Check, mode: str) -> None:
    await check(over_websocket, mode=mode)
