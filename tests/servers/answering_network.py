"""A network for `HttpClient` on which a function answers each request: no socket, no name, no certificate.

Requests and responses are httpx2's, which are easy to write; a response's body may be an async iterator.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any

import h11
import httpcore2
import httpx2

from playhead.client.transports.http_client import HttpClient
from playhead.net_guard import check_url
from playhead.web_address import WebAddress

Answer = Callable[[httpx2.Request], httpx2.Response]


class AnsweringNetwork(httpcore2.AsyncNetworkBackend):
    """Opens connections to the origin of `url`, each of which is answered by `answer`."""

    def __init__(self, url: WebAddress, answer: Answer) -> None:
        self._url = url
        self._answer = answer

    async def connect_tcp(self, *_where: Any, **_how: Any) -> httpcore2.AsyncNetworkStream:
        return _Connection(self._url, self._answer)


class _Connection(httpcore2.AsyncNetworkStream):
    def __init__(self, url: WebAddress, answer: Answer) -> None:
        self._url = url
        self._answer = answer
        self._http = h11.Connection(h11.SERVER)
        self._ready = b""
        self._head: h11.Request | None = None
        self._body: AsyncIterator[bytes] | None = None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if buffer:  # none would be the end of the connection
            self._http.receive_data(buffer)
        while isinstance(event := self._http.next_event(), h11.Event):
            match event:
                case h11.Request():
                    self._head = event
                case h11.EndOfMessage():
                    self._begin()
                    return

    def _begin(self) -> None:
        assert self._head is not None
        url = str(self._url).removesuffix(self._url.target) + self._head.target.decode()
        headers = list(self._head.headers)
        response = self._answer(httpx2.Request(self._head.method.decode(), url, headers=headers))
        kept = [pair for pair in response.headers.raw if pair[0].lower() != b"transfer-encoding"]
        if not any(name.lower() == b"content-length" for name, _value in kept):
            kept.append((b"transfer-encoding", b"chunked"))
        kept.append((b"connection", b"close"))  # one request per connection is all that a test needs
        self._ready = self._http.send(h11.Response(status_code=response.status_code, headers=kept)) or b""
        assert isinstance(response.stream, AsyncIterable)
        self._body = aiter(response.stream)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if not self._ready and self._body is not None:
            async for chunk in self._body:
                self._ready = self._http.send(h11.Data(data=chunk)) or b""
                break
            else:
                self._body = None
                self._ready = self._http.send(h11.EndOfMessage()) or b""
        ready, self._ready = self._ready, b""
        return ready

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        return self

    async def aclose(self) -> None:
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()


def answering_client(answer: Answer) -> HttpClient:
    """A client of a network on which `answer` answers every request, whatever its origin."""

    def network_for(url: WebAddress) -> httpcore2.AsyncNetworkBackend:
        return AnsweringNetwork(check_url(url), answer)

    return HttpClient(network_for=network_for, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
