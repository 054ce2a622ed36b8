"""Every carrier against the public suite, in both protocol versions, and the SDK's client as its oracle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from typing import Any

import pytest
from mcp.client._memory import InMemoryTransport
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server

from playhead.client.transports.carrier import Carrier
from playhead.client.transports.http import HttpCarrier
from playhead.client.transports.in_process import InProcessCarrier
from playhead.client.transports.sdk_websocket import websocket_transport
from playhead.client.transports.stdio import StdioCarrier
from playhead.client.transports.websocket import WebSocketCarrier
from playhead.limits import DEFAULT_LIMITS
from playhead.testing import transports
from tests.servers.counted_http import counted_http
from tests.servers.relayed_stdio import relayed_stdio
from tests.servers.served_websocket import served_websocket
from tests.servers.websocket_peer import listening, mcp_handler

pytestmark = pytest.mark.filterwarnings(
    # The SDK leaves an event stream at the answer; the libraries' inner generators go to trio's collector.
    "ignore:Async generator 'httpcore2:ResourceWarning",
    "ignore:Async generator 'httpx2:ResourceWarning",
)

CLIENTS = (
    *("in process", "in process, the SDK's", "stdio"),
    *("http json", "http json, the SDK's", "http events", "http events, the SDK's"),
    *("websocket of another library", "our websocket", "websocket, the SDK's"),
)
IMPOSSIBLE = {
    # In the newest revision a request is cancelled by closing its connection, which the SDK's server does not
    # notice while it prepares an answer in JSON.
    (transports.a_cancelled_request_is_cancelled_at_the_server, "http json", "auto"),
    (transports.a_cancelled_request_is_cancelled_at_the_server, "http json, the SDK's", "auto"),
    # The SDK's client does not receive events of 8 MiB.
    (transports.a_big_answer_arrives_whole, "http events, the SDK's", "auto"),
    (transports.a_big_answer_arrives_whole, "http events, the SDK's", "legacy"),
}


def connecting(client: str) -> transports.Factory:
    @asynccontextmanager
    async def connected(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
        carrier: Carrier
        theirs: Any
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            match client.removesuffix(", the SDK's"):
                case "in process":
                    carrier, theirs = InProcessCarrier(server), InMemoryTransport(server)
                case "stdio":
                    command = await enter(relayed_stdio(server))
                    carrier, theirs = StdioCarrier(command, limits=DEFAULT_LIMITS), None
                case "http json" | "http events" as form:
                    url = (await enter(counted_http(server, json_response=form == "http json"))).url
                    carrier, theirs = HttpCarrier(url, limits=DEFAULT_LIMITS), streamable_http_client(url)
                case "our websocket":
                    port = await enter(served_websocket(server))
                    carrier, theirs = WebSocketCarrier(f"ws://127.0.0.1:{port}/mcp"), None
                case _:
                    url = await enter(listening(mcp_handler(server)))
                    carrier, theirs = WebSocketCarrier(url), websocket_transport(url)
            if client.endswith(", the SDK's"):
                yield await enter(transports.sdk_client(theirs, mode=mode))
            else:
                yield await enter(transports.carrier_client(carrier, mode=mode))

    return connected


CASES = [
    case for case in product(transports.TRANSPORT_LAWS, CLIENTS, ("auto", "legacy")) if case not in IMPOSSIBLE
]


@pytest.mark.requirement("MCP-06", "MCP-08", "MCP-12")
@pytest.mark.parametrize(
    ("check", "client", "mode"), CASES, ids=lambda value: getattr(value, "__name__", value)
)
async def test_a_client_conforms(check: transports.TransportLaw, client: str, mode: str) -> None:
    await check(connecting(client), mode=mode)
