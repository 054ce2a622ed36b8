"""The body of a request, whole and in time before the application sees the request."""

from __future__ import annotations

import trio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playhead.servers.http_connection import HttpOptions


class WholeBody:
    """ASGI middleware: 413 to a body too long, 408 to one too slow, and the connection closes.

    Without it a body that drips in holds its request for ever; and an application that answers without
    reading would leave hypercorn's task waiting to hand over the rest.
    """

    def __init__(self, app: ASGIApp, options: HttpOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        options = self._options
        body = bytearray()
        whole = False
        with trio.move_on_after(options.body_seconds) as reading:
            while not whole and len(body) <= options.body_bytes:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                body += message.get("body", b"")
                whole = not message.get("more_body", False)
        if reading.cancelled_caught:
            await refuse(408, f"the body was not whole after {options.body_seconds:g} s")(
                scope, receive, send
            )
        elif len(body) > options.body_bytes:
            await refuse(413, f"the body has more than {options.body_bytes} bytes")(scope, receive, send)
        else:
            await self._app(scope, whole_then(bytes(body), receive), send)


def refuse(status: int, why: str) -> PlainTextResponse:
    """An answer after which the connection is of no use, since what follows on it is the rest of the body."""
    return PlainTextResponse(why, status_code=status, headers={"connection": "close"})


def whole_then(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body in one message, and then what comes after it."""
    held: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return held.pop() if held else await receive()

    return replay
