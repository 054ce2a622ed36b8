"""An HTTP origin on bare trio sockets, so that a test sees each request's head and each connection's end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from tests.servers.loopback import tcp_server

Handler = Callable[["RawOrigin", trio.SocketStream, bytes], Awaitable[None]]


class RawOrigin:
    """`heads` has every request's head; `asked` and `closed` are set by the first request and first end."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.heads: list[bytes] = []
        self.connections = 0
        self._news = trio.lowlevel.ParkingLot()
        self.asked = trio.Event()
        self.closed = trio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            while (head := await self._head(stream)) is not None:
                self.heads.append(head)
                self.asked.set()
                self._news.unpark_all()
                await self._handler(self, stream, head)
        except trio.BrokenResourceError:
            pass  # the peer cut the connection: what some tests wait for
        finally:
            self.closed.set()
            await trio.aclose_forcefully(stream)

    async def wait_requests(self, count: int) -> None:
        while len(self.heads) < count:
            await self._news.park()

    async def _head(self, stream: trio.SocketStream) -> bytes | None:
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = await stream.receive_some()
            if not chunk:
                return None
            head += chunk
        return head


def bounds(head: bytes) -> tuple[int, int]:
    """The half-open range that a request's head asks for."""
    found = re.search(rb"(?im)^range: bytes=(\d+)-(\d+)\r$", head)
    assert found is not None, head
    return int(found[1]), int(found[2]) + 1


async def answer(stream: trio.SocketStream, status: str, body: bytes = b"", *headers: str) -> None:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    await stream.send_all("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


async def answer_range(stream: trio.SocketStream, head: bytes, whole: bytes, *headers: str) -> None:
    """Answer with the range of `whole` that the request asks for; 416 past its end."""
    start, end = bounds(head)
    if part := whole[start:end]:
        place = f"content-range: bytes {start}-{start + len(part) - 1}/{len(whole)}"
        await answer(stream, "206 Partial Content", part, place, *headers)
    else:
        await answer(stream, "416 Range Not Satisfiable", b"", f"content-range: bytes */{len(whole)}")


def ignores_ranges(body: bytes) -> Handler:
    """Answers 200 with the whole body, whatever was asked."""

    async def handle(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        await answer(stream, "200 OK", body, "content-type: audio/mpeg")

    return handle


async def says_nothing(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
    """Takes the request and waits for the peer to go away."""
    assert not await stream.receive_some()
    raise trio.BrokenResourceError


@asynccontextmanager
async def raw_origin(handler: Handler) -> AsyncIterator[RawOrigin]:
    origin = RawOrigin(handler)
    async with tcp_server(origin.serve) as origin.port:
        yield origin
