"""An httpx2 client that cannot reach private addresses (`playhead.net_guard`)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterator
from contextlib import aclosing, contextmanager

import httpcore2
import httpx2

from playhead.errors import BlockedAddressError
from playhead.guarded_backend import AnyAddressBackend, GuardedBackend
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.net_guard import REDIRECTS, Origin, check_url
from playhead.redaction import redacted_url
from playhead.web_address import WebAddress

KEEP_ALIVE_SECONDS = 300.0
"""A page of music lasts 6 s and more: with httpx's default of 5 s each page would reconnect."""


def guarded_client(
    *,
    allow_origins: Collection[Origin] = (),
    limits: Limits = DEFAULT_LIMITS,
    ssl_context: ssl.SSLContext | None = None,
) -> httpx2.AsyncClient:
    """An HTTP client that reaches global addresses and the allowed origins, and nothing else.

    It reuses connections for 300 s, follows at most 5 redirects (each hop is checked) and requests no
    compression, because ranges count stored bytes. Use it as an async context manager: leaving it, also by a
    cancellation, closes its connections.

    Its requests raise:
        BlockedAddressError: the URL, a redirect or a resolved address may not be reached.
        httpx2.TransportError, httpx2.TooManyRedirects: as any httpx2 client.
    """
    return httpx2.AsyncClient(
        transport=GuardedTransport(allow_origins=allow_origins, ssl_context=ssl_context),
        follow_redirects=True,
        max_redirects=REDIRECTS,
        trust_env=False,
        headers={"accept-encoding": "identity", "user-agent": "playhead"},
        timeout=httpx2.Timeout(limits.page_seconds, connect=limits.connect_seconds, pool=None),
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The transport under `guarded_client`: two pools, one of which cannot reach private addresses.

    Which pool a request takes is decided by its origin; a connection of one is never used by the other.
    """

    def __init__(
        self, *, allow_origins: Collection[Origin] = (), ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._allow_origins = frozenset(allow_origins)
        self._guarded = _pool(GuardedBackend(), ssl_context)
        self._allowed = _pool(AnyAddressBackend(), ssl_context)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request. Raises as documented for the client; cancelling it closes its connection."""
        url = check_url(str(httpx2.URL(request.url)))  # a RedactedURL prints less than it requests
        pool = self._allowed if Origin.of(url) in self._allow_origins else self._guarded
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        with _as_httpx_errors(), _naming(url):
            answer = await pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        assert isinstance(answer.stream, AsyncIterable)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection of both pools."""
        await self._guarded.aclose()
        await self._allowed.aclose()


class _Body(httpx2.AsyncByteStream):
    """A response's body that raises httpcore2's errors as httpx2's."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx_errors():
            async with aclosing(self._answer.aiter_stream()) as parts:
                async for part in parts:
                    yield part

    async def aclose(self) -> None:
        with _as_httpx_errors():
            await self._answer.aclose()


def _pool(
    backend: httpcore2.AsyncNetworkBackend, ssl_context: ssl.SSLContext | None
) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(
        ssl_context=ssl_context,
        max_connections=100,
        max_keepalive_connections=20,
        keepalive_expiry=KEEP_ALIVE_SECONDS,
        network_backend=backend,
    )


@contextmanager
def _naming(url: WebAddress) -> Iterator[None]:
    # The backend only sees a host and a port; readers of the error need the URL.
    try:
        yield
    except BlockedAddressError as error:
        raise BlockedAddressError(f"{redacted_url(str(url))[:200]!r} is blocked: {error}") from None


@contextmanager
def _as_httpx_errors() -> Iterator[None]:
    try:
        yield
    except tuple(_HTTPX_ERRORS) as error:
        raise _HTTPX_ERRORS[type(error)](str(error)) from error


_HTTPX_ERRORS: dict[type[Exception], type[httpx2.TransportError]] = {
    httpcore2.ConnectTimeout: httpx2.ConnectTimeout,
    httpcore2.ReadTimeout: httpx2.ReadTimeout,
    httpcore2.WriteTimeout: httpx2.WriteTimeout,
    httpcore2.PoolTimeout: httpx2.PoolTimeout,
    httpcore2.ConnectError: httpx2.ConnectError,
    httpcore2.ReadError: httpx2.ReadError,
    httpcore2.WriteError: httpx2.WriteError,
    httpcore2.RemoteProtocolError: httpx2.RemoteProtocolError,
    httpcore2.LocalProtocolError: httpx2.LocalProtocolError,
}
