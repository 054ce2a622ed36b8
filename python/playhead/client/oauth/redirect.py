"""Where a browser comes back to after the user allowed the access: one page on the loopback (RFC 8252, 7.3).

Any program or web page on this machine can knock here. So what doesn't carry the secret `state` of the
question that was asked is turned away, and the wait goes on; nothing that came is shown in the page.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import h11
import trio
from mcp.shared.auth import AuthorizationCodeResult

from playhead.client.groups import bare
from playhead.errors import AccessDeniedError, UsageError

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
KNOCK_SECONDS: Final = 10.0
"""For one visitor to say what it wants: browsers open connections that they never use."""
HEAD_BYTES: Final = 16 * 1024
ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}", re.ASCII)

_PAGE: Final = "<!doctype html><meta charset=utf-8><title>playhead</title><p>{}"
_HEADERS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("connection", "close"),
)


Answer = AuthorizationCodeResult | AccessDeniedError


class Redirect:
    """The page while it is open. Made by `open_redirect`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}{PATH}"
        self._state: str | None = None
        self._send, self._receive = trio.open_memory_channel[Answer](1)

    def expect(self, authorization_url: str) -> None:
        """Take the answer to the question that `authorization_url` asks, and no other."""
        (self._state,) = parse_qs(urlsplit(authorization_url).query)["state"]

    async def wait(self) -> AuthorizationCodeResult:
        """The code that the browser brings. Raises `AccessDeniedError` where it brings a refusal."""
        answer = await self._receive.receive()
        if isinstance(answer, AccessDeniedError):
            raise answer
        return answer

    def _judge(self, request: h11.Request) -> tuple[int, str, Answer | None]:
        """What `request` is told, and the answer it brought where it is the one that is waited for."""
        target = urlsplit(request.target.decode("ascii", "replace"))
        if request.method != b"GET" or target.path != PATH:
            return 404, "There is nothing here.", None
        given = {name: values[0] for name, values in parse_qs(target.query).items()}
        state = given.get("state", "")
        if self._state is None or not secrets.compare_digest(state.encode(), self._state.encode()):
            return 400, "This is not the answer that playhead waits for.", None
        self._state = None
        if "code" in given:
            result = AuthorizationCodeResult(code=given["code"], state=state, iss=given.get("iss"))
            return 200, "playhead has been allowed in. You can close this window.", result
        code = given.get("error", "")
        code = code if ERROR_CODE.fullmatch(code) else "no reason given"
        refusal = AccessDeniedError(
            f"the access was not allowed in the browser ({code}); connect again to be asked again", status=401
        )
        return 200, "playhead has not been allowed in. You can close this window.", refusal

    async def _serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        answer: Answer | None = None
        with trio.move_on_after(KNOCK_SECONDS):
            try:
                async with stream:
                    while (event := connection.next_event()) is h11.NEED_DATA:
                        connection.receive_data(await stream.receive_some())
                    if isinstance(event, h11.Request):
                        status, said, answer = self._judge(event)
                        await stream.send_all(_page(connection, status, said))
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                # Whoever it was has left; an answer it brought still counts.
                pass
        if answer is not None:
            # After the page is out: whoever waits may close everything at once.
            self._send.send_nowait(answer)


def _page(connection: h11.Connection, status: int, said: str) -> bytes:
    body = _PAGE.format(said).encode()
    head = h11.Response(status_code=status, headers=[*_HEADERS, ("content-length", str(len(body)))])
    return b"".join(
        connection.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage())
    )


@asynccontextmanager
async def open_redirect(port: int, *, or_any: bool) -> AsyncIterator[Redirect]:
    """Listen on the loopback until the context is left; for 0 (and, `or_any`, a taken port) on any free one.

    Raises `UsageError` where the port can't be had.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=HOST)
    except OSError as error:
        if not or_any:
            raise UsageError(
                f"cannot listen on {HOST}:{port} for the browser to come back ({error.strerror or error});"
                " give another auth.redirect_port"
            ) from None
        listeners = await trio.open_tcp_listeners(0, host=HOST)
    redirect = Redirect(listeners[0].socket.getsockname()[1])
    with bare():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(trio.serve_listeners, redirect._serve, listeners, handler_nursery=nursery)
            )
            yield redirect
            nursery.cancel_scope.cancel()
