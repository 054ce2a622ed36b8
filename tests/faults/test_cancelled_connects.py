"""Requests that are cancelled at the moment at which their connection opens: the pool must not keep it.

httpcore2 2.16 enters the connection in its pool first. Reads of a stream that seeks are cancelled at any
moment, so the pool of a long session would fill with connections that nobody uses, and every read would wait.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpcore2
import httpx2
import pytest
import trio
import trustme
from httpcore2._backends.trio import TrioStream
from starlette.responses import PlainTextResponse

from playhead.client.transports.http_bodies import widen
from playhead.net_guard import GuardedTransport, parse_origins
from playhead.servers.http import base_url, bind, serve_app, tls_context

SECONDS = 10.0
"""For an answer on loopback; a request without a connection waits for ever."""


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    sock = bind("127.0.0.1", 0)
    url = base_url(sock, scheme="http" if tls is None else "https")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_app, PlainTextResponse("here"), sock, tls=tls))
        yield url
        nursery.cancel_scope.cancel()


def client_of_a_session(url: str, trusted: ssl.SSLContext) -> tuple[httpx2.AsyncClient, int]:
    """The client, and the connections that its pool has."""
    transport = httpx2.AsyncHTTPTransport(verify=trusted, limits=httpx2.Limits(max_connections=2))
    widen(transport)
    return httpx2.AsyncClient(transport=transport, trust_env=False), 2


def client_of_downloads(url: str, trusted: ssl.SSLContext) -> tuple[httpx2.AsyncClient, int]:
    transport = GuardedTransport(allow_origins=parse_origins([url]), ssl_context=trusted)
    return httpx2.AsyncClient(transport=transport, trust_env=False), 100


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


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("make_client", [client_of_a_session, client_of_downloads])
async def test_requests_cancelled_as_their_connections_open_leave_the_pool_as_it_was(
    make_client: Any, secure: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    opening = (TrioStream, "start_tls") if secure else (httpcore2.TrioBackend, "connect_tcp")
    at_opening = CancelAtOpening(monkeypatch, *opening)
    async with serving(tls_context(tmp_path / "server.pem") if secure else None) as url:
        client, connections = make_client(url, trusted)
        async with client:
            for _ in range(connections):
                with trio.CancelScope() as at_opening.scope:
                    await client.get(url)
                assert at_opening.scope.cancelled_caught
            at_opening.scope = None
            with trio.fail_after(SECONDS):
                assert (await client.get(url)).text == "here"
