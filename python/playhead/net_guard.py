"""Guard against server-side request forgery: fetch URLs chosen by others from public addresses only.

A tool argument, a link in a result or a redirect must not make this process read the private network. So:

* URLs are `http` or `https`, without a user name, control characters, or a number that merely resolves to an
  address (`127.1`, `0x7f000001`): `check_url`;
* a name is resolved once, all of its addresses must be global, and the connection goes to the checked
  address, never to a second lookup (which a hostile name server could answer differently): `_GuardedBackend`,
  the only way for the guarded connection pool to open a socket;
* a redirect is a new request through the same transport, so each hop is checked again;
* an origin that the user allowed (exact scheme, host and port) is reached at any address.

The Host header and the TLS server name keep the name from the URL. Proxies from the environment are not used:
they would resolve the name in our place. `RedactedURL` keeps the secrets of a URL out of the logs of httpx2.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpcore2
import httpx2
import trio

from playhead.concurrency import close_if_cancelled
from playhead.errors import BlockedAddressError, UsageError
from playhead.limits import DEFAULT_LIMITS, MIB, Limits
from playhead.redaction import redacted_url

__all__ = [
    "GuardedTransport",
    "Origin",
    "check_url",
    "guarded_client",
    "parse_origins",
    "why_not_global",
]


_DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.ASCII)
# A last label that is a number makes a host an IPv4 address, whatever its form (WHATWG, "ends in a number").
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.ASCII)
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Scheme, host and port: the unit that a user allows."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx2.URL) -> Origin:
        """The origin of a checked URL."""
        port = url.port or _DEFAULT_PORTS[url.scheme]
        return cls(scheme=url.scheme, host=url.raw_host.decode("ascii"), port=port)

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Parse `http://host:port` (the port is optional), as a person writes an allowed origin.

        Raises:
            UsageError: `text` is not an origin, or has a path, a query or a fragment.
        """
        url = check_url(text)
        if url.raw_path not in (b"", b"/") or url.fragment:
            raise UsageError(f"expected an origin like http://host:port, without a path; got {text!r}")
        return cls.of(url)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_origins(texts: Iterable[str]) -> frozenset[Origin]:
    """Parse several origins; see `Origin.parse`."""
    return frozenset(Origin.parse(text) for text in texts)


def check_url(url: str | httpx2.URL) -> httpx2.URL:
    """Parse a URL strictly. The address behind its host is not checked here.

    Raises:
        BlockedAddressError: not http or https, a user name, a control character or space, a missing or
            malformed host or port, an address in a form other than four decimal numbers or IPv6.
    """
    text = str(url)
    if _UNPRINTABLE.search(text) or "\\" in text:
        _refuse(text, "it contains a space, a backslash, a control character or a non-ASCII character")
    try:
        parsed = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        _refuse(text, str(error))
    if parsed.scheme not in _DEFAULT_PORTS:
        _refuse(text, f"expected http or https, got {parsed.scheme or 'a relative URL'!r}")
    if parsed.userinfo or "@" in text.split("//", 1)[-1].split("/", 1)[0]:
        _refuse(text, "it contains a user name or password")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        _refuse(text, f"port {parsed.port} is out of range")
    host = parsed.raw_host.decode("ascii")  # `URL.host` would decode a punycode name
    if ":" in host:
        if not _is_literal(host) or "%" in host:
            _refuse(text, f"its host {host!r} is not an IPv6 address without a zone")
    elif _NUMERIC.fullmatch(host):
        if not _is_literal(host):
            _refuse(text, f"its host {host!r} is a disguised address; write it as four decimal numbers")
    elif not _NAME.fullmatch(host):
        _refuse(text, f"its host {host!r} is not a valid host name")
    return parsed


def _refuse(url: str, reason: str) -> NoReturn:
    raise BlockedAddressError(
        f"will not fetch {redacted_url(url)[:200]!r}: {reason}. Expected an http or https URL of a public"
        " host, or of an origin that you have allowed"
    )


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


# --- addresses ----------------------------------------------------------------------------------------------

_IPV4_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


def why_not_global(address: Address) -> str | None:
    """The reason why an address may not be reached; None if it may.

    An IPv6 address that stands for an IPv4 address (mapped, compatible, 6to4, NAT64, Teredo) is checked as
    both: a gateway would forward the connection to the IPv4 address.
    """
    if address.is_multicast:
        return "is a multicast address"
    if isinstance(address, IPv6Address):
        for embedded in _embedded(address):
            if (reason := why_not_global(embedded)) is not None:
                return f"stands for {embedded}, which {reason}"
        if address.ipv4_mapped is not None or address in _NAT64:
            return None
        if address.is_site_local:
            return "is not a global address"
    if not address.is_global or address.is_reserved:
        return "is a loopback address" if address.is_loopback else "is not a global address"
    return None


def is_loopback(url: str) -> bool:
    """Tell if the host of `url` is this machine, by its name or number alone: no lookup."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def resolve(host: str, port: int) -> list[Address]:
    """Resolve a host once and return its addresses, all of them checked.

    Raises:
        BlockedAddressError: one of the addresses may not be reached. One is enough: a name that mixes
            global and private addresses has no legitimate use here.
        OSError: the name does not resolve.
    """
    found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))
    for address in addresses:
        if (reason := why_not_global(address)) is not None:
            where = f"{host!r} resolves to {address}" if str(address) != host else str(address)
            raise BlockedAddressError(
                f"will not connect to {where} (port {port}): it {reason}, and the URL was not chosen by you. "
                f"Allow the origin http://{_bracketed(host)}:{port} (or https://) if you trust it"
            )
    return addresses


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
        yield IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# --- the HTTP client ----------------------------------------------------------------------------------------


REDIRECTS = 5
"""Redirects followed per request; the limits of browsers and curl (20, 50) exceed what media need."""

READ_BYTES = MIB
"""Most bytes of one read from a socket."""

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
        self._guarded = _pool(_GuardedBackend(), ssl_context)
        self._allowed = _pool(_AnyAddressBackend(), ssl_context)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request. Raises as documented for the client; cancelling it closes its connection."""
        url = check_url(httpx2.URL(request.url))  # a RedactedURL prints less than it requests
        pool = self._allowed if Origin.of(url) in self._allow_origins else self._guarded
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        with _as_httpx_errors(), _naming(url):
            answer = await pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
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


class _BulkStream(httpcore2.AsyncNetworkStream):
    """A connection that is read in large pieces.

    httpcore reads 64 KiB at a time. Each piece passes the event loop and four layers of Python, which takes
    most of the time of a download: 32 MiB cost half the CPU time in pieces of up to 1 MiB.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._inner.read(max(max_bytes, READ_BYTES), timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return await close_if_cancelled(_BulkStream(stream))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _AnyAddressBackend(httpcore2.TrioBackend):
    """Opens sockets to any address."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2 names it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        return await close_if_cancelled(_BulkStream(stream))


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens sockets to checked addresses only. The base class refuses Unix sockets."""

    def __init__(self) -> None:
        self._open = _AnyAddressBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2 names it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        deadline = trio.current_time() + (float("inf") if timeout is None else timeout)
        try:
            with trio.fail_at(deadline):
                addresses = await resolve(host, port)
        except trio.TooSlowError as error:
            raise httpcore2.ConnectTimeout(f"{host!r} was not resolved within {timeout:g} s") from error
        except OSError as error:
            raise httpcore2.ConnectError(f"{host!r} does not resolve: {error}") from error
        failure: Exception = httpcore2.ConnectError(f"{host!r} has no address")
        for tried, address in enumerate(addresses):
            # An address that drops packets must leave time for the others.
            share = (deadline - trio.current_time()) / (len(addresses) - tried)
            try:
                return await self._open.connect_tcp(
                    str(address), port, max(share, 0.0), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


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
def _naming(url: httpx2.URL) -> Iterator[None]:
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


# --- logs ---------------------------------------------------------------------------------------------------


class RedactedURL(httpx2.URL):
    """A URL that is requested in full and printed without its secrets (`redaction.redacted_url`).

    httpx2 logs `str(request.url)` of every request at INFO, and many servers take a key in the query. The
    request itself is made from the URL's parts, so only the printed form differs; no logger has to be
    configured.
    """

    def __str__(self) -> str:
        return redacted_url(str(httpx2.URL(self)))

    def join(self, url: httpx2.URL | str) -> httpx2.URL:
        """Resolve a redirect against the whole URL: httpx2 would take what is printed."""
        return httpx2.URL(self).join(url)

    def __repr__(self) -> str:
        return f"RedactedURL({str(self)!r})"


def redact_query(request: httpx2.Request, query: bytes = b"") -> None:
    """Hide the query of `request`, and add `query` if it has none: the SDK gets the URL without it.

    A redirect within the origin passes through here again and keeps the query.
    """
    parts: dict[str, Any] = {"query": request.url.query or query} if request.url.query or query else {}
    request.url = RedactedURL(request.url, **parts)
