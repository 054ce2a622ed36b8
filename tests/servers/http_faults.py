"""Faults below JSON-RPC: a 503 in place of an answer, or a connection cut in the middle of one.

An ASGI wrapper does them, so that the server under it stays the SDK's. It counts the POSTs whose body
asks for `resources/read`; the `nth` of them is hit, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

UNAVAILABLE = b"the origin is away for a moment\n"


class ConnectionCut(Exception):  # noqa: N818 - not an error of the server: the fault it is there to make
    """Leaves the application in the middle of a body; the server then closes the connection."""


@dataclass(slots=True, kw_only=True)
class FaultyApp:
    """`fault` is `"unavailable"` (503) or `"cut"` (half the body, then the connection closes)."""

    app: App
    fault: str
    nth: int = 5
    reads: int = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body = await self._body(receive)
        self.reads += b"resources/read" in body
        if b"resources/read" not in body or self.reads != self.nth:
            await self.app(scope, _replay(body, receive), send)
        elif self.fault == "unavailable":
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": UNAVAILABLE})
        else:
            await self.app(scope, _replay(body, receive), _cut(send))

    async def _body(self, receive: Receive) -> bytes:
        parts = []
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    replayed = False

    async def replaying() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replaying


def _cut(send: Send) -> Send:
    async def cutting(message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] == "http.response.body" and len(body) > 1024:
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            raise ConnectionCut
        await send(message)

    return cutting
