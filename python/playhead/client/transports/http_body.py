"""Bodies of HTTP answers, watched while they arrive: how much, whether still, and whether whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import httpx2
import trio

from playhead.client.transports.event_values import EventValues
from playhead.errors import ConnectionLostError, LimitError, PlayheadError
from playhead.limits import KIB, Limits

DRAIN_BYTES: Final = 64 * KIB
DRAIN_SECONDS: Final = 0.5
"""After the answer only the closing chunk is due. A server that keeps the stream open costs a connection."""


async def read_at_most(response: httpx2.Response, allowed: int, *, touched: Callable[[], None]) -> bytes:
    """The whole body. Raises `LimitError` as soon as more than `allowed` bytes came or are announced."""
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > allowed:
        raise _too_big(allowed, int(announced))
    chunks: list[bytes] = []
    got = 0
    async with aclosing(_chunks_of(response)) as arriving:
        async for chunk in arriving:
            touched()
            got += len(chunk)
            if got > allowed:
                raise _too_big(allowed, got)
            chunks.append(chunk)
    return b"".join(chunks)


def _chunks_of(response: httpx2.Response) -> AsyncGenerator[bytes]:
    # A generator: it must be closed where it was left early.
    return response.aiter_raw()


def _too_big(allowed: int, got: int) -> LimitError:
    return LimitError(
        f"an answer over HTTP is longer than {allowed} bytes (at least {got}); ask for smaller pages,"
        " or raise Limits.message_bytes",
        limit="message_bytes",
        allowed=allowed,
        got=got,
    )


class WatchedBody(httpx2.AsyncByteStream):
    """An event stream's bytes on their way to the SDK, which closes it at the answer.

    Closing there leaves the last chunk unread, and the connection can't be used again: one TCP connection
    a page (605 reads: 609 connections). So `aclose` reads the little that is left first.
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
        """`drains` says whether the stream ends by itself soon after it was left."""
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
                    # The SDK's own kind of error for an event that cannot be had: it gives the stream up.
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
        """Close the connection under a reader that still waits: for it the stream breaks off."""
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
                # The answer is here already; only the connection is lost.
                return
