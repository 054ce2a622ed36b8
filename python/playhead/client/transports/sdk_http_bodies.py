"""Bodies of HTTP answers: read whole within a limit, or watched on their way to the SDK.

`WideBackend` is the network under both. The HTTP library reads 64 KiB at a time, and passes each of them
through its pool, its parser and their generators, which costs as much as the bytes do; a page of 1 MiB is 22
of them.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final

import httpcore2
import httpx2
import trio

from playhead._core import MessageBuffer
from playhead.concurrency import close_if_cancelled
from playhead.errors import ConnectionLostError, LimitError, PlayheadError
from playhead.limits import KIB, Limits
from playhead.protocol.framing import EventValues

DRAIN_BYTES: Final = 64 * KIB
DRAIN_SECONDS: Final = 0.5
"""Only the closing chunk follows the answer. A server that keeps the stream open costs a connection."""


READ_BYTES: Final = 256 * KIB
"""The largest read of a socket, as of a WebSocket's."""


def widen(transport: httpx2.AsyncBaseTransport | None) -> None:
    """Let the connections of `transport` read `READ_BYTES` at a time.

    httpx2 makes the pool and takes no network for it, so the pool's own attribute is replaced. A transport
    without it (another library, a test) stays as it is.
    """
    pool = getattr(transport, "_pool", None)
    network = getattr(pool, "_network_backend", None)
    if pool is not None and isinstance(network, httpcore2.AsyncNetworkBackend):
        pool._network_backend = WideBackend(network)


class WideBackend(httpcore2.AsyncNetworkBackend):
    """The connections of another backend, as `WideStream`s."""

    def __init__(self, network: httpcore2.AsyncNetworkBackend) -> None:
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore2's interface)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        return await close_if_cancelled(WideStream(stream))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore2's interface)
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._network.connect_unix_socket(path, timeout, socket_options)
        return await close_if_cancelled(WideStream(stream))

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class WideStream(httpcore2.AsyncNetworkStream):
    """A connection that reads much at once, and sends the head of a request together with its body.

    The head waits for the next write, which is empty for a request without a body, or for a read.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._head = b""
        socket = stream.get_extra_info("socket")
        self._socket = socket if isinstance(socket, trio.socket.SocketType) else None
        self._readable: select.poll | None = None
        if self._socket is not None and hasattr(select, "poll"):
            self._readable = select.poll()
            self._readable.register(self._socket.fileno(), select.POLLIN)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 (httpcore2's interface)
        if self._head:
            await self.write(b"", timeout)
        max_bytes = max(max_bytes, READ_BYTES)
        if self._socket is None or timeout is not None:
            return await self._stream.read(max_bytes, timeout)
        try:
            return await self._socket.recv(max_bytes)
        except (OSError, trio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 (httpcore2's interface)
        if self._head:
            buffer, self._head = self._head + buffer, b""
        elif buffer.endswith(b"\r\n\r\n"):
            self._head = bytes(buffer)
            return
        if buffer:
            await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        self._readable = None  # its number may be another connection's soon
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore2's interface)
    ) -> httpcore2.AsyncNetworkStream:
        # A TLS record is 16 KiB, so nothing is read at once; and the reason of a refused certificate arrives
        # between the head and the body.
        return await close_if_cancelled(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and self._readable is not None:
            return bool(self._readable.poll(0))  # asked for each idle connection, for each request
        return self._stream.get_extra_info(info)


async def read_at_most(response: httpx2.Response, allowed: int, *, touched: Callable[[], None]) -> bytes:
    """Read the whole body. Raises `LimitError` once more than `allowed` bytes are announced or received."""
    async with aclosing(_chunks_of(response)) as arriving:
        announced = response.headers.get("content-length", "")
        return await gather(arriving, allowed, announced=announced, touched=touched)


async def gather(
    arriving: AsyncIterable[bytes], allowed: int, *, announced: str, touched: Callable[[], None]
) -> bytes:
    """Join the chunks of a body whose `content-length` is `announced`. Raises as `read_at_most`.

    A long body is never held twice.
    """
    expected = int(announced) if announced.isdecimal() else 0
    if expected > allowed:
        raise _too_big(allowed, expected)
    whole = b""
    buffer: MessageBuffer | None = None
    got = 0
    async for chunk in arriving:
        touched()
        got += len(chunk)
        if got > allowed:
            raise _too_big(allowed, got)
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


def _chunks_of(response: httpx2.Response) -> AsyncGenerator[bytes]:
    # A generator: it must be closed if it is left early.
    return response.aiter_raw()


def _too_big(allowed: int, got: int) -> LimitError:
    return LimitError(
        f"expected an HTTP answer of at most {allowed} bytes, got at least {got}; ask for smaller pages, or"
        " raise Limits.message_bytes",
        limit="message_bytes",
        allowed=allowed,
        got=got,
    )


class WatchedBody(httpx2.AsyncByteStream):
    """The bytes of an event stream on their way to the SDK, which closes it at the answer.

    Closing there leaves the last chunk unread and the connection unusable: one TCP connection per page
    (605 reads: 609 connections). So `aclose` first reads the little that is left.
    """

    def __init__(
        self,
        response: httpx2.Response,
        *,
        touched: Callable[[], None],
        broken: Callable[[PlayheadError], None],
        closed: Callable[[], None],
        place: str,
        limits: Limits,
        drains: bool = True,
    ) -> None:
        """`drains`: the stream ends by itself soon after it was left."""
        self._response = response
        self._chunks = _chunks_of(response)
        self._touched = touched
        self._broken = broken
        self._closed = closed
        self._place = place
        self._values = EventValues()
        self._allowed_values = limits.json_values
        self._over = not drains

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                self._touched()
                self._values.feed(chunk)
                if self._values.most > self._allowed_values:
                    self._over = True
                    self._broken(self._too_many())
                    # The SDK's own error for an unusable event: it gives up the stream.
                    raise httpx2.SSEError("an event holds too many values")
                yield chunk
        except httpx2.TransportError as error:
            self._over = True
            self._broken(
                ConnectionLostError(
                    f"the event stream from {self._place} broke before the answer ({type(error).__name__})"
                )
            )
            raise
        self._over = True
        self._broken(ConnectionLostError(f"the event stream from {self._place} ended without an answer"))

    async def aclose(self) -> None:
        try:
            if not self._over:
                await self._drain()
        finally:
            self._closed()
            await self._chunks.aclose()
            await self._response.aclose()

    def _too_many(self) -> LimitError:
        return LimitError(
            f"expected an event of at most {self._allowed_values} values from {self._place} (limit"
            f" json_values), got {self._values.most} or more; ask for smaller pages, or raise the limit",
            limit="json_values",
            allowed=self._allowed_values,
            got=self._values.most,
        )

    async def abandon(self) -> None:
        """Close the connection under a waiting reader, for whom the stream breaks off."""
        self._over = True  # there is nothing to drain
        await self._response.aclose()

    async def _drain(self) -> None:
        left = DRAIN_BYTES
        with trio.move_on_after(DRAIN_SECONDS):
            try:
                async for chunk in self._chunks:
                    left -= len(chunk)
                    if left < 0:
                        return
            except httpx2.TransportError:
                # The answer has been read; only the connection is lost.
                return
