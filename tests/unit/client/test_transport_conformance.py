"""The stdio and in-process carriers against the public suite, and the SDK's client as its oracle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client._memory import InMemoryTransport
from mcp.server import Server

from playhead.client.transports.in_process import InProcessCarrier
from playhead.client.transports.stdio import StdioCarrier
from playhead.limits import DEFAULT_LIMITS
from playhead.testing import transports
from tests.servers.relayed_stdio import relayed_stdio


@asynccontextmanager
async def sdk_in_process(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with transports.sdk_client(InMemoryTransport(server), mode=mode) as client:
        yield client


@asynccontextmanager
async def in_process(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with transports.carrier_client(InProcessCarrier(server), mode=mode) as client:
        yield client


@asynccontextmanager
async def over_stdio(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with relayed_stdio(server) as command:
        carrier = StdioCarrier(command, limits=DEFAULT_LIMITS)
        async with transports.carrier_client(carrier, mode=mode) as client:
            yield client


@pytest.mark.requirement("MCP-06", "MCP-12")
@pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    "factory", [sdk_in_process, in_process, over_stdio], ids=lambda factory: factory.__name__
)
async def test_a_client_conforms(
    factory: transports.Factory, check: transports.TransportLaw, mode: str
) -> None:
    await check(factory, mode=mode)
