"""One HTTP/1.1 client: requests over a pool of `httpcore2`'s public connections.

Sessions use it, and so do requests outside of MCP: pages of files, playlists, tokens of OAuth. It sends a
request and returns the head of the answer, with the body still arriving. Callers limit the silence.

* HTTP/1.1 only: with HTTP/2, batches of eight pages stalled 14 s in 2 of 60 runs.
* Connections are reused for 300 s: a page lasts 6.4 s at 128 kbit/s, and a shorter time would reconnect for
  each page. The newest is reused first, and asked once, by one `poll`, whether the server has closed it.
* The pool is our own. The library's pool checks every connection several times per request, and leaks a
  connection whose request is cancelled while it opens.
* `accept-encoding: identity`, because base64 of compressed audio does not compress further. An answer that is
  compressed nevertheless is decoded (`content_encoding.Decoder`).

It raises the errors of `httpcore2` (`TRANSPORT_ERRORS`), because their meaning depends on the request.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import httpcore2
import trio

from playhead._core import MessageBuffer
from playhead.client.transports.content_encoding import Decoder, decoder_for
from playhead.client.transports.http_network import NetworkFor, guarded_network, open_network
from playhead.client.transports.http_proxies import NO_PROXIES, Proxies
from playhead.client.transports.tls import default_tls_context
from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, KIB, Limits
from playhead.net_guard import Origin
from playhead.web_address import WebAddress

if TYPE_CHECKING:
    import httpx2

    from playhead.client.transports.http_cookies import Cookies

KEEP_ALIVE_SECONDS: Final = 300.0
CONNECTIONS: Final = 64
"""Limits the open connections. 16 reads in flight, hedges, cancellations and the server's own stream need
fewer."""
REDIRECTS: Final = 20
"""Limits the redirects to follow per request, as browsers do (Fetch, section 4.4)."""
DRAIN_BYTES: Final = 64 * KIB
DRAIN_SECONDS: Final = 0.5
"""Limit the rest of an unneeded body that is read in order to reuse its connection."""
FOLLOWED: Final = frozenset({301, 302, 303, 307, 308})
KEEPS_METHOD: Final = frozenset({307, 308})

TRANSPORT_ERRORS: Final = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProxyError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)

Headers = list[tuple[bytes, bytes]]
_DEFAULT_HEADERS: Final = (
    (b"accept", b"*/*"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"playhead"),
)
TimeLimits = Mapping[str, float | None]
"""Seconds for `connect`, `write` and `read` (each read of the answer); None, or left out: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request, without the headers that only describe the connection. Never shown: it may hold secrets."""

    method: str
    url: WebAddress = field(repr=False)
    headers: Headers = field(default_factory=list, repr=False)
    content: bytes = field(default=b"", repr=False)
    is_fresh: bool = False
    """True to open a new connection for it, and close the idle ones, because all of them may be dead."""


class HttpResponse:
    """The head of an answer whose body is still arriving. Close it with `aclose`."""

    def __init__(
        self,
        request: HttpRequest,
        response: httpcore2.Response,
        *,
        connection: httpcore2.AsyncConnectionInterface,
        give_back: Callable[[httpcore2.AsyncConnectionInterface], Awaitable[None]],
    ) -> None:
        self.request = request
        self.status = response.status
        self.reason = bytes(response.extensions.get("reason_phrase", b"")).decode("ascii", "replace")
        self.raw_headers: Headers = response.headers
        self.headers: dict[str, str] = {}
        """The values by name in lower case; repeated ones are joined with a comma."""
        for raw_name, raw_value in response.headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self._response = response
        self._connection = connection
        self._give_back = give_back
        assert hasattr(response.stream, "__aiter__")
        self._chunks = cast("AsyncGenerator[bytes]", response.stream.__aiter__())
        self._decoder: Decoder | None = decoder_for(self.headers.get("content-encoding", ""))
        self._ahead = b""
        self._is_closed = False

    @property
    def content_type(self) -> str:
        """The media type, without its parameters and in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def location(self) -> WebAddress | None:
        """The address that a redirect leads to; None for another answer, or an invalid address."""
        if self.status not in FOLLOWED or "location" not in self.headers:
            return None
        try:
            return self.request.url.join(self.headers["location"])
        except ValueError:
            return None

    async def receive(self) -> bytes:
        """Return the next bytes of the body, decoded; empty at its end. Raises one of `TRANSPORT_ERRORS`."""
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        decoder = self._decoder
        while decoder is None or not (piece := decoder.next_piece()):
            try:
                chunk = await self._chunks.__anext__()
            except StopAsyncIteration:
                if decoder is not None:
                    decoder.end()
                return b""
            if decoder is None:
                return chunk
            decoder.feed(chunk)
        return piece

    async def read(self, allowed: int, *, touched: Callable[[], None] = lambda: None) -> bytes:
        """Return the rest of the body. `touched` is called for each piece. A long body is never in memory
        twice.

        Raises `LimitError` once more than `allowed` bytes are announced or received, encoded or not, and as
        `receive`.
        """
        announced = self.headers.get("content-length", "")
        expected = int(announced) if announced.isdecimal() else 0
        if expected > allowed:
            raise _too_big(allowed, expected)
        whole = b""
        buffer: MessageBuffer | None = None
        got = 0
        while chunk := await self.receive():
            touched()
            got += len(chunk)
            encoded = 0 if self._decoder is None else self._decoder.raw_bytes
            if max(got, encoded) > allowed:
                raise _too_big(allowed, max(got, encoded))
            if buffer is not None:
                buffer.write(chunk)
            elif not whole:
                whole = chunk
            else:
                buffer = MessageBuffer(expected)
                buffer.write(whole)
                buffer.write(chunk)
                whole = b""
        return whole if buffer is None else buffer.take()

    async def read_ahead(self, allowed: int) -> bytes:
        """Return the rest of the body, and let `receive` return it again. Raises as `read`."""
        self._ahead = await self.read(allowed)
        return self._ahead

    async def drain(self) -> None:
        """Read the short rest of an unneeded body, and close the answer.

        If it were closed unread, its connection could not be reused. With servers that answer in event
        streams that cost a TCP connection per page (605 reads: 609 connections).
        """
        left = DRAIN_BYTES
        try:
            with trio.move_on_after(DRAIN_SECONDS):
                while left > 0 and (chunk := await self.receive()):
                    left -= len(chunk)
        except TRANSPORT_ERRORS:
            pass  # only the connection is lost
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the answer, and its connection too if the body has not ended. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._chunks.aclose()
            await self._response.aclose()
        except BaseException:  # also a cancellation, after which the socket would stay open
            with trio.CancelScope(shield=True):
                await self._connection.aclose()
            raise
        finally:
            await self._give_back(self._connection)


Redirector = Callable[[HttpRequest, HttpResponse, WebAddress], HttpRequest | None]
"""The request that follows a redirect to an address; None if it is not followed. May raise."""


def within_origin(request: HttpRequest, response: HttpResponse, to: WebAddress) -> HttpRequest | None:
    """Follow redirects within the request's origin, or from http to https on the default ports.

    Headers, credentials and body were meant for this origin. A request other than GET follows only 307 and
    308, which keep the method. A URL with another user name is not followed.
    """
    was = request.url
    if request.method != "GET" and response.status not in KEEPS_METHOD:
        return None
    if to.userinfo and to.userinfo != was.userinfo:
        return None
    is_same = (to.scheme, to.host, to.port) == (was.scheme, was.host, was.port)
    is_upgrade = (was.scheme, to.scheme) == ("http", "https") and (to.host, to.port, was.port) == (
        was.host,
        None,
        None,
    )
    # The query may be a key. A redirect without a query keeps it.
    return replace(request, url=replace(to, query=to.query or was.query)) if is_same or is_upgrade else None


def anywhere(request: HttpRequest, response: HttpResponse, to: WebAddress) -> HttpRequest | None:
    """Follow every redirect of a GET. Use it with a network that checks each address."""
    return replace(request, url=to)


class HttpClient:
    """A pool of connections, and the cookies of its servers.

    Use it as a context manager. Leaving it closes the connections that are not in use.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        auth: httpx2.Auth | None = None,
        proxies: Proxies = NO_PROXIES,
        network_for: NetworkFor | None = None,
        connections: int = CONNECTIONS,
        time_limits: TimeLimits | None = None,
        body_bytes: int = DEFAULT_LIMITS.message_bytes,
    ) -> None:
        """`tls` defaults to the system's authorities, loaded with the first request to an `https` URL.

        `network_for` decides which addresses are reached (default: any); with a guarded one use no `proxies`,
        which would resolve the names in our place. `body_bytes` is the longest answer that `auth` may read.
        """
        self._tls = tls
        self._auth = auth
        self._proxies = proxies
        self._network_for = network_for or open_network()
        self._connections = connections
        self._time_limits = time_limits or {}
        self._body_bytes = body_bytes
        self._slots = trio.Semaphore(connections)
        self._idle: list[httpcore2.AsyncConnectionInterface] = []
        """The idle connections, the newest last."""
        self._cookies: Cookies | None = None
        """None until a server sets one."""
        self._is_closed = False

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections that are not in use, and the others when their answers are closed."""
        self._is_closed = True
        await self._close_idle()

    async def _close_idle(self) -> None:
        with trio.CancelScope(shield=True):
            while self._idle:
                await self._idle.pop().aclose()

    async def send(
        self, request: HttpRequest, *, redirect: Redirector = within_origin, redirects: int = REDIRECTS
    ) -> HttpResponse:
        """Send `request`, follow at most `redirects` redirects, and return the head of the answer.

        A redirect that is not followed is returned as it is. Raises one of `TRANSPORT_ERRORS`, and the errors
        of the authorization and of `redirect`. Cancelled: the connection is closed.
        """
        while True:
            response = await self._send_authorized(request)
            to = response.location
            try:
                following = redirect(request, response, to) if to is not None and redirects else None
            except BaseException:  # whatever `redirect` raises: the answer holds a connection
                await response.aclose()
                raise
            if following is None:
                return response
            await response.drain()
            redirects -= 1
            request = following

    async def _send_authorized(self, request: HttpRequest) -> HttpResponse:
        if self._auth is None:
            return await self.send_once(request)
        # Imported here, because only an `httpx2.Auth` needs httpx2.
        from playhead.client.transports.http_auth import send_authorized

        return await send_authorized(self, self._auth, request, allowed=self._body_bytes)

    async def send_once(self, request: HttpRequest) -> HttpResponse:
        """Send `request` as it is, with cookies: no redirects, no authorization."""
        url = request.url
        network = self._network_for(url)
        given = {name.lower() for name, _value in request.headers}
        headers = [
            (b"host", url.host_and_port.encode("ascii")),
            *(pair for pair in _DEFAULT_HEADERS if pair[0] not in given),
            *request.headers,
            *(() if self._cookies is None else self._cookies.headers_for(url, request.headers)),
        ]
        if request.content or request.method == "POST":
            headers.append((b"content-length", b"%d" % len(request.content)))
        sent = httpcore2.Request(
            request.method,
            httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
            headers=headers,
            content=request.content,
            extensions={"timeout": self._time_limits},
        )
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            await self._slots.acquire()
        connection: httpcore2.AsyncConnectionInterface | None = None
        try:
            if request.is_fresh:
                await self._close_idle()
            else:
                connection = await self._reusable(sent.url.origin)
            connection = connection or self._new(url, sent.url.origin, network)
            received = await connection.handle_async_request(sent)
            response = HttpResponse(request, received, connection=connection, give_back=self._give_back)
            if "set-cookie" in response.headers:
                self._take_cookies(response)
        except BaseException:  # a cancellation too
            # Closed here, because a connection that is cancelled while it opens does not close itself.
            if connection is not None:
                with trio.CancelScope(shield=True):
                    await connection.aclose()
            self._slots.release()
            raise
        return response

    def _take_cookies(self, response: HttpResponse) -> None:
        if self._cookies is None:
            # The standard library's jar is loaded with the first cookie.
            from playhead.client.transports.http_cookies import Cookies

            self._cookies = Cookies()
        self._cookies.extract(response.request.url, response.raw_headers)

    async def _reusable(self, origin: httpcore2.Origin) -> httpcore2.AsyncConnectionInterface | None:
        """Return the newest idle connection to `origin`, taken out of the pool."""
        for connection in reversed(self._idle):
            if connection.can_handle_request(origin):
                self._idle.remove(connection)
                if connection.is_available() and not connection.has_expired():
                    return connection
                await connection.aclose()
        busy = self._connections - self._slots.value
        while self._idle and busy + len(self._idle) > self._connections:
            await self._idle.pop(0).aclose()  # another origin's
        return None

    def _new(
        self, url: WebAddress, origin: httpcore2.Origin, network: httpcore2.AsyncNetworkBackend
    ) -> httpcore2.AsyncConnectionInterface:
        tls = self._tls
        if tls is None and url.scheme == "https":
            tls = default_tls_context()
        settings: dict[str, Any] = {
            "ssl_context": tls,
            "keepalive_expiry": KEEP_ALIVE_SECONDS,
            "network_backend": network,
        }
        proxy = self._proxies.proxy_for(url)
        if proxy is None:
            return httpcore2.AsyncHTTPConnection(origin, **settings)
        return proxy.connection(origin, **settings)

    async def _give_back(self, connection: httpcore2.AsyncConnectionInterface) -> None:
        self._slots.release()
        if connection.is_idle():
            self._idle.append(connection)
            if self._is_closed:
                await self.aclose()


def guarded_client(
    *,
    allow_origins: Collection[Origin] = (),
    limits: Limits = DEFAULT_LIMITS,
    tls: ssl.SSLContext | None = None,
) -> HttpClient:
    """Return a client that reaches global addresses and the allowed origins only.

    Its requests and redirects raise `BlockedAddressError` for a URL or an address that may not be reached
    (`playhead.net_guard`). Proxies of the environment are not used.
    """
    seconds = limits.page_seconds
    return HttpClient(
        tls=tls,
        network_for=guarded_network(allow_origins),
        time_limits={"connect": limits.connect_seconds, "write": seconds, "read": seconds},
    )


def _too_big(allowed: int, got: int) -> LimitError:
    return LimitError(
        f"expected an HTTP answer of at most {allowed} bytes, got at least {got}; ask for smaller pages",
        advice="raise Limits.message_bytes if you trust the server",
        limit="message_bytes",
        allowed=allowed,
        got=got,
    )
