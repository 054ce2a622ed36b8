"""The network backends of an HTTP client: one for checked addresses only, one for any.

httpcore2 opens its sockets through a backend, so a pool on `GuardedBackend` cannot reach anything else.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2
import trio

from playhead.concurrency import close_if_cancelled
from playhead.limits import MIB
from playhead.net_guard import resolve

READ_BYTES = MIB
"""Most bytes of one read from a socket."""


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


class AnyAddressBackend(httpcore2.TrioBackend):
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


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens sockets to checked addresses only. The base class refuses Unix sockets."""

    def __init__(self) -> None:
        self._open = AnyAddressBackend()

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
