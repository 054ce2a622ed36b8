"""Sockets for HTTP: few calls per request, and closed whatever happens as they open.

`GuardedNetwork` reaches global addresses only (`playhead.net_guard`). A name is resolved once, all of its
addresses are checked, and the connection goes to a checked one, never to a second lookup, which a hostile
name server could answer differently.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import httpcore2
import trio

from playhead.errors import BlockedAddressError
from playhead.limits import KIB
from playhead.net_guard import Origin, check_url, resolve
from playhead.redaction import redacted_url
from playhead.web_address import WebAddress

READ_BYTES: Final = 64 * KIB
"""The largest read of a socket. With 256 KiB, and the parser's copies of them, a stream holds 3 to 5 MiB."""

ICY_REASON: Final = "ICY"
_ICY: Final = b"ICY 200"
_ICY_AS_HTTP: Final = b"HTTP/1.0 200 ICY"
"""The status line of SHOUTcast servers, `ICY 200 OK`, as the HTTP that its answer is otherwise: h11 refuses
it."""

NetworkFor = Callable[[WebAddress], httpcore2.AsyncNetworkBackend]
"""The network for a request. Called for each, also on a connection that is open; raises to refuse it."""


class Network(httpcore2.TrioBackend):
    """Opens sockets to any address."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore2's interface)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return SocketStream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class GuardedNetwork(Network):
    """Opens sockets to checked addresses."""

    def __init__(self, url: WebAddress) -> None:
        """`url` is for messages."""
        self._url = url

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore2's interface)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        deadline = trio.current_time() + (float("inf") if timeout is None else timeout)
        try:
            with trio.fail_at(deadline):
                addresses = await resolve(host, port)
        except BlockedAddressError as error:
            shown = redacted_url(str(self._url))[:200]
            permission = ("allow_origins", str(Origin.of(self._url)))
            raise BlockedAddressError(f"{shown!r} is blocked: {error}", permission=permission) from None
        except trio.TooSlowError as error:
            raise httpcore2.ConnectTimeout(f"{host!r} was not resolved within {timeout:g} s") from error
        except OSError as error:
            raise httpcore2.ConnectError(f"{host!r} does not resolve: {error}") from error
        failure: Exception = httpcore2.ConnectError(f"{host!r} has no address")
        for tried, address in enumerate(addresses):
            # An address that drops packets must leave time for the others.
            share = (deadline - trio.current_time()) / (len(addresses) - tried)
            try:
                return await super().connect_tcp(
                    str(address), port, max(share, 0.0), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure


def open_network() -> NetworkFor:
    """Reach any address. For URLs that the user chose."""
    network = Network()
    return lambda _url: network


def guarded_network(allow_origins: Collection[Origin]) -> NetworkFor:
    """Reach global addresses, and `allow_origins` at any address. For URLs that servers chose.

    Refuses a URL with `BlockedAddressError`. A connection serves one origin, so that one which was opened to
    a private address is never used for another.
    """
    allowed, network = frozenset(allow_origins), Network()

    def network_for(url: WebAddress) -> httpcore2.AsyncNetworkBackend:
        return network if Origin.of(check_url(str(url))) in allowed else GuardedNetwork(url)

    return network_for


class SocketStream(httpcore2.AsyncNetworkStream):
    """A connection that sends the head of a request together with its body.

    The head waits for the next write, which is empty for a request without a body, or for a read.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._head = b""
        self._awaits_status = False
        self._socket: trio.socket.SocketType = stream.get_extra_info("socket")
        self._readable: select.poll | None = None
        if hasattr(select, "poll"):
            self._readable = select.poll()
            self._readable.register(self._socket.fileno(), select.POLLIN)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 (httpcore2's interface)
        if self._head:
            await self.write(b"", timeout)
        if self._awaits_status:
            self._awaits_status = False
            first = await self.read(max_bytes, timeout)
            while first and len(first) < len(_ICY) and _ICY.startswith(first):
                more = await self.read(max_bytes, timeout)
                if not more:
                    break
                first += more
            return first.replace(_ICY, _ICY_AS_HTTP, 1) if first.startswith(_ICY) else first
        # Past the library's stream, which sets up a deadline and a table of errors for each call.
        try:
            if timeout is None:
                return await self._socket.recv(min(max_bytes, READ_BYTES))
            with trio.fail_after(timeout):
                return await self._socket.recv(min(max_bytes, READ_BYTES))
        except trio.TooSlowError as error:
            raise httpcore2.ReadTimeout(f"nothing arrived within {timeout:g} s") from error
        except (OSError, trio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 (httpcore2's interface)
        if self._head:
            buffer, self._head = self._head + buffer, b""
        elif buffer.endswith(b"\r\n\r\n"):
            self._head, self._awaits_status = bytes(buffer), True
            return
        if timeout is not None:
            await self._stream.write(buffer, timeout)
            return
        try:
            rest = memoryview(buffer)
            while rest:
                rest = rest[await self._socket.send(rest) :]
        except (OSError, trio.ClosedResourceError) as error:
            raise httpcore2.WriteError(str(error)) from error

    async def aclose(self) -> None:
        self._readable = None  # another connection may get the same descriptor soon
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore2's interface)
    ) -> httpcore2.AsyncNetworkStream:
        # The stream of the library from here on: a TLS record is 16 KiB, so no read is larger; and the reason
        # of a refused certificate arrives between the head and the body.
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:  # a cancellation too: the socket would stay open
            with trio.CancelScope(shield=True):
                await self.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and self._readable is not None:
            return bool(self._readable.poll(0))  # the one system call for a connection that is reused
        return self._stream.get_extra_info(info)
