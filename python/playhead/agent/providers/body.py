"""The bytes of an answer over HTTP, and how they are left in the middle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx2
import trio

from playhead.agent.providers.failures import transport_error
from playhead.client.transports.quiet_url import quiet
from playhead.limits import KIB

ERROR_BODY_BYTES: Final = 64 * KIB
"""How much of an error's body is read: its message is in the first few hundred."""
DRAIN_BYTES: Final = 64 * KIB
DRAIN_SECONDS: Final = 0.1
"""As in OpenAI's own SDK: after `[DONE]` only the closing chunk is due, and with it read, the connection
serves the next round too."""


class Body:
    """The bytes of `response`, decoded; close it in every case.

    The HTTP library's generators lie within each other, and one of them does not close the next: trio would
    find that at garbage collection. So what is left early is closed below first, and then read to its (now
    near) end, which ends all of them.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.place = response.request.url.host
        self.complete = False
        """Set it where nothing that counts can follow; the connection is then kept, if it can be."""
        self._response = response
        self._chunks = response.aiter_bytes()
        self._over = False

    async def receive_some(self) -> bytes | None:
        """The next bytes; None at the end.

        Raises `ConnectionLostError` or `DeadlineError` where they don't come.
        """
        try:
            chunk = await anext(self._chunks, None)
        except httpx2.HTTPError as error:
            self._over = True
            raise transport_error(error, place=self.place) from error
        except BaseException:  # cancelled too: a generator that was left can't be asked again
            self._over = True
            raise
        self._over = chunk is None
        return chunk

    async def aclose(self) -> None:
        """Let the connection go. When cancelled, it is closed."""
        try:
            if self.complete and not self._over:
                with trio.move_on_after(DRAIN_SECONDS):
                    await self._discard(DRAIN_BYTES)
            if not self._over:
                await self._response.aclose()
                await self._discard(None)
        finally:
            await self._response.aclose()
            await self._chunks.aclose()

    async def _discard(self, most_bytes: int | None) -> None:
        got = 0
        while not self._over and (most_bytes is None or got < most_bytes):
            try:
                chunk = await anext(self._chunks, None)
            except (httpx2.HTTPError, httpx2.StreamError):
                chunk = None  # closed, as it was meant to be
            except BaseException:  # as in `receive_some`
                self._over = True
                raise
            self._over = chunk is None
            got += len(chunk or b"")


async def quiet_address(request: httpx2.Request) -> None:
    """A hook for the HTTP client of an SDK: what it logs is the address without a password or a query."""
    quiet(request, b"")


async def bound_error(response: httpx2.Response) -> None:
    """A hook for the HTTP client of an SDK, which reads an error's body whole, however long, and passes on
    what goes wrong there: `response`, where it is no success, gets a body that ends after `ERROR_BODY_BYTES`
    or where the connection breaks. The status is known; the message is only said better with its body.
    """
    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Beginning(response.stream)


class _Beginning(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ERROR_BODY_BYTES
        chunks = aiter(self._stream)
        try:
            while left > 0 and (chunk := await anext(chunks, None)) is not None:
                yield chunk[:left]
                left -= len(chunk)
            await self._stream.aclose()
            while await anext(chunks, None) is not None:
                pass  # closed: near its end, which ends the library's generators too (see `Body`)
        except (httpx2.HTTPError, httpx2.StreamError):
            pass

    async def aclose(self) -> None:
        await self._stream.aclose()
