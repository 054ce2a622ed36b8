"""Requests that are cancelled at the moment at which their connection opens: the pool must not keep it.

httpcore2 2.16 loses a connection that is cancelled there. Reads of a stream that seeks are cancelled at any
moment, so the pool of a long session would fill with connections that nobody uses, and every read would wait.
"""

from __future__ import annotations

import gc
import ssl
from pathlib import Path
from typing import Any

import httpcore2
import pytest
import trio
import trustme
from httpcore2._backends.trio import TrioStream
from starlette.responses import PlainTextResponse

from playhead.client.transports.http_client import HttpClient, HttpRequest
from playhead.client.transports.http_network import guarded_network
from playhead.net_guard import parse_origins
from playhead.servers.http import base_url, tls_context
from playhead.web_address import WebAddress
from tests.servers.loopback import app_server

SECONDS = 10.0
"""For an answer on loopback; a request without a connection waits for ever."""


def client_of_a_session(url: str, trusted: ssl.SSLContext) -> HttpClient:
    return HttpClient(tls=trusted, connections=2)


def client_of_downloads(url: str, trusted: ssl.SSLContext) -> HttpClient:
    return HttpClient(tls=trusted, connections=2, network_for=guarded_network(parse_origins([url])))


class CancelAtOpening:
    """Cancels `scope` when the network has opened a connection, before the request is sent on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.scope: trio.CancelScope | None = None
        self._open: Any = getattr(owner, name)

        async def opened(*where: Any, **how: Any) -> httpcore2.AsyncNetworkStream:
            stream: httpcore2.AsyncNetworkStream = await self._open(*where, **how)
            if self.scope is not None:
                self.scope.cancel()
            return stream

        monkeypatch.setattr(owner, name, opened)


@pytest.mark.parametrize(
    ("secure", "opening"),
    [
        (False, (httpcore2.TrioBackend, "connect_tcp")),
        (True, (httpcore2.TrioBackend, "connect_tcp")),
        (True, (TrioStream, "start_tls")),
    ],
    ids=["plain", "before tls", "after tls"],
)
@pytest.mark.parametrize("make_client", [client_of_a_session, client_of_downloads])
async def test_requests_cancelled_as_their_connections_open_leave_the_pool_as_it_was(
    make_client: Any,
    secure: bool,
    opening: tuple[type, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    at_opening = CancelAtOpening(monkeypatch, *opening)
    tls = tls_context(tmp_path / "server.pem") if secure else None
    async with app_server(PlainTextResponse("here"), tls=tls) as sock:
        url = base_url(sock, scheme="https" if secure else "http")
        request = HttpRequest(method="GET", url=WebAddress.parse(url))
        async with make_client(url, trusted) as client:
            for _ in range(3):
                with trio.CancelScope() as at_opening.scope:
                    await client.send(request)
                assert at_opening.scope.cancelled_caught
            at_opening.scope = None
            with trio.fail_after(SECONDS):
                response = await client.send(request)
                assert await response.read(100) == b"here"
                await response.aclose()
        gc.collect()  # a socket that nobody closed warns
