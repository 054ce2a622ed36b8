"""Streamable HTTP against the public suite: both forms of answer and protocol versions, our client and the
SDK's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server

from playhead.client.transports.http import HttpCarrier
from playhead.limits import DEFAULT_LIMITS
from playhead.testing import transports
from tests.servers.counted_http import counted_http

pytestmark = pytest.mark.filterwarnings(
    # The SDK leaves an event stream at the answer; the libraries' inner generators go to trio's collector.
    "ignore:Async generator 'httpcore2:ResourceWarning",
    "ignore:Async generator 'httpx2:ResourceWarning",
)


def over_http(*, json_response: bool, is_ours: bool) -> transports.Factory:
    @asynccontextmanager
    async def connected(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
        async with counted_http(server, json_response=json_response) as served:
            if is_ours:
                carrier = HttpCarrier(served.url, limits=DEFAULT_LIMITS)
                making = transports.carrier_client(carrier, mode=mode)
            else:
                making = transports.sdk_client(streamable_http_client(served.url), mode=mode)
            async with making as client:
                yield client

    return connected


def cases() -> list[tuple[transports.TransportLaw, str, bool, str]]:
    """All, but those that no client can pass: in the newest revision a request is cancelled by closing its
    connection, which the SDK's server does not notice while it prepares an answer in JSON. The SDK's client
    does not receive events of 8 MiB."""
    return [
        (check, client, json_response, mode)
        for check in transports.TRANSPORT_LAWS
        for client in ("ours", "sdk")
        for json_response in (True, False)
        for mode in ("auto", "legacy")
        if (check, json_response, mode)
        != (transports.a_cancelled_request_is_cancelled_at_the_server, True, "auto")
        and (check, client, json_response) != (transports.a_big_answer_arrives_whole, "sdk", False)
    ]


@pytest.mark.requirement("MCP-08")
@pytest.mark.parametrize(
    ("check", "client", "json_response", "mode"),
    cases(),
    ids=lambda value: getattr(value, "__name__", {True: "json", False: "sse"}.get(value, value)),
)
async def test_a_client_over_http_conforms(
    check: transports.TransportLaw, client: str, json_response: bool, mode: str
) -> None:
    await check(over_http(json_response=json_response, is_ours=client == "ours"), mode=mode)
