"""The page on the loopback to which a browser returns with the answer of a person."""

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

from playhead.concurrency import unwrap_exception_group
from playhead.errors import AccessDeniedError, UsageError

HOST: Final = "127.0.0.1"

PATH: Final = "/callback"

VISIT_SECONDS: Final = 10.0
"""Limits the wait for a request on one connection, because browsers open connections that they never use."""

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
    """The page on the loopback to which the browser returns (RFC 8252, 7.3). Made by `open_redirect`.

    Any program or web page on this machine can send requests here. Those without the secret `state` of the
    authorization request are refused and the wait goes on; nothing received is shown in the page.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}{PATH}"
        self._state: str | None = None
        self._send, self._receive = trio.open_memory_channel[Answer](1)

    def expect(self, authorization_url: str) -> None:
        """Accept the answer to `authorization_url` and no other."""
        (self._state,) = parse_qs(urlsplit(authorization_url).query)["state"]

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the code from the browser. Raises `AccessDeniedError` for a refusal."""
        answer = await self._receive.receive()
        if isinstance(answer, AccessDeniedError):
            raise answer
        return answer

    def _judge(self, request: h11.Request) -> tuple[int, str, Answer | None]:
        """Return the status and text for `request`, and the person's answer if it is the expected one."""
        target = urlsplit(request.target.decode("ascii", "replace"))
        if request.method != b"GET" or target.path != PATH:
            return 404, "There is nothing here.", None
        parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
        state = parameters.get("state", "")
        if self._state is None or not secrets.compare_digest(state.encode(), self._state.encode()):
            return 400, "This is not the answer that playhead is waiting for.", None
        self._state = None
        if "code" in parameters:
            result = AuthorizationCodeResult(code=parameters["code"], state=state, iss=parameters.get("iss"))
            return 200, "playhead has been allowed in. You can close this window.", result
        code = parameters.get("error", "")
        code = code if ERROR_CODE.fullmatch(code) else "no reason given"
        refusal = AccessDeniedError(
            f"access was denied in the browser ({code}); connect again to be asked again", status=401
        )
        return 200, "playhead has not been allowed in. You can close this window.", refusal

    async def _serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        answer: Answer | None = None
        with trio.move_on_after(VISIT_SECONDS):
            try:
                async with stream:
                    while (event := connection.next_event()) is h11.NEED_DATA:
                        connection.receive_data(await stream.receive_some())
                    if isinstance(event, h11.Request):
                        status, text, answer = self._judge(event)
                        await stream.send_all(_page(connection, status, text))
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                # The client has left; its answer still counts.
                pass
        if answer is not None:
            # Only after the page was sent, because the waiting task may then close everything at once.
            self._send.send_nowait(answer)


def _page(connection: h11.Connection, status: int, text: str) -> bytes:
    body = _PAGE.format(text).encode()
    head = h11.Response(status_code=status, headers=[*_HEADERS, ("content-length", str(len(body)))])
    return b"".join(
        connection.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage())
    )


@asynccontextmanager
async def open_redirect(port: int, *, or_any: bool) -> AsyncIterator[Redirect]:
    """Listen on `port` of the loopback until the context is left. 0 means any free port.

    If the port is taken, listens on any free port if `or_any`, and raises `UsageError` otherwise.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=HOST)
    except OSError as error:
        if not or_any:
            raise UsageError(
                f"cannot listen on {HOST}:{port} for the browser's answer ({error.strerror or error});"
                " choose another auth.redirect_port"
            ) from None
        listeners = await trio.open_tcp_listeners(0, host=HOST)
    redirect = Redirect(listeners[0].socket.getsockname()[1])
    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(trio.serve_listeners, redirect._serve, listeners, handler_nursery=nursery)
            )
            yield redirect
            nursery.cancel_scope.cancel()
