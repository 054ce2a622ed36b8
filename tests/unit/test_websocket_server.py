"""Our WebSocket server against the public transport suite, with a client of a few lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Transport
from mcp.server import Server

from playhead.testing import transports
from tests.servers.raw_websocket import as_transport
from tests.servers.served_websocket import served_websocket


@asynccontextmanager
async def over_websocket(server: Server[Any]) -> AsyncIterator[Transport]:
    async with served_websocket(server) as port:
        yield as_transport(port)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("check", transports.CHECKS, ids=lambda check: check.__name__)
async def test_a_websocket_server_conforms(check: transports.Check, mode: str) -> None:
    await check(over_websocket, mode=mode)
