"""An HTTP/1.1 server on loopback that answers each request as a test says, byte by byte where it wants to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
import trio

from tests.servers.loopback import tcp_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, whole."""

    target: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(slots=True)
class Answering:
    """The means to answer one request."""

    asked: Asked
    stream: trio.SocketStream
    hung_up: trio.Event = field(default_factory=trio.Event)
    """Set when the client closes the connection."""

    async def whole(
        self, body: bytes, *, status: int = 200, kind: str = "application/json", headers: str = ""
    ) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        await self.stream.send_all(head.encode() + body)

    async def begin(self) -> None:
        await self.stream.send_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        await self.stream.send_all(b"0\r\n\r\n")

    async def events(self, events: Sequence[dict[str, Any]]) -> None:
        await self.streamed(b"".join(sse(event) for event in events))

    async def streamed(self, wire: bytes) -> None:
        """A whole stream, in pieces of 7 bytes: nothing may depend on how it is cut."""
        await self.begin()
        for start in range(0, len(wire), 7):
            await self.send(wire[start : start + 7])
        await self.end()


Answer = Callable[[Answering], Awaitable[None]]


def sse(event: dict[str, Any]) -> bytes:
    """One event as both APIs write it; Anthropic's have a type, Gemini's don't."""
    name = f"event: {event['type']}\r\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\r\n\r\n".encode()


@asynccontextmanager
async def scripted_http(*answers: Answer) -> AsyncIterator[tuple[str, list[Asked]]]:
    """Serve `answers`, one for each request in turn, and give the address and the requests that came.

    A request beyond them, and one that is not HTTP, fails the test.
    """
    asked: list[Asked] = []
    left = list(answers)

    async def serve(stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        async with stream:
            while (request := await _next_request(connection, stream)) is not None:
                asked.append(request)
                answering = Answering(request, stream)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_answer, left.pop(0), answering, nursery.cancel_scope)
                    nursery.start_soon(_watch, answering)
                if answering.hung_up.is_set():
                    return
                # The answer was written by hand: a new state reads the next request.
                connection = h11.Connection(h11.SERVER)

    async with tcp_server(serve) as port:
        yield f"http://127.0.0.1:{port}", asked


async def _answer(answer: Answer, answering: Answering, scope: trio.CancelScope) -> None:
    try:
        await answer(answering)
    except trio.BrokenResourceError:
        await answering.hung_up.wait()
    scope.cancel()


async def _watch(answering: Answering) -> None:
    """A client that waits for its answer sends nothing: what comes is its hanging up."""
    with suppress(trio.BrokenResourceError):
        await answering.stream.receive_some()
    answering.hung_up.set()


async def _next_request(connection: h11.Connection, stream: trio.SocketStream) -> Asked | None:
    request: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            try:
                connection.receive_data(await stream.receive_some())
            except trio.BrokenResourceError:
                return None
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            headers = {name.decode().lower(): value.decode() for name, value in request.headers}
            return Asked(target=request.target.decode(), headers=headers, body=json.loads(body))
        else:
            return None
