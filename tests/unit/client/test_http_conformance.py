"""Streamable HTTP against the public transport suite: both forms of answer, both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client._transport import Transport
from mcp.server import Server

from playhead.client.transports.http import http_transport
from playhead.limits import DEFAULT_LIMITS
from playhead.testing import transports
from tests.servers.counted_http import counted_http

pytestmark = pytest.mark.filterwarnings(
    # The SDK leaves an event stream at the answer; the libraries' inner generators go to trio's collector.
    "ignore:Async generator 'httpcore2:ResourceWarning",
    "ignore:Async generator 'httpx2:ResourceWarning",
)


def over_http(*, json_response: bool) -> transports.Factory:
    @asynccontextmanager
    async def connected(server: Server[Any]) -> AsyncIterator[Transport]:
        async with counted_http(server, json_response=json_response) as served:
            yield http_transport(served.url, limits=DEFAULT_LIMITS)

    return connected


def cases() -> list[tuple[transports.TransportLaw, bool, str]]:
    """All, but one that no client can pass: in the newest revision a request is cancelled by closing its
    connection, which the SDK's server does not notice while it prepares an answer in JSON."""
    return [
        (check, json_response, mode)
        for check in transports.TRANSPORT_LAWS
        for json_response in (True, False)
        for mode in ("auto", "legacy")
        if (check, json_response, mode)
        != (transports.a_cancelled_request_is_cancelled_at_the_server, True, "auto")
    ]


@pytest.mark.requirement("MCP-08")
@pytest.mark.parametrize(
    ("check", "json_response", "mode"),
    cases(),
    ids=lambda value: getattr(value, "__name__", {True: "json", False: "sse"}.get(value, value)),
)
async def test_http_conforms(check: transports.TransportLaw, json_response: bool, mode: str) -> None:
    await check(over_http(json_response=json_response), mode=mode)
