"""Streamable HTTP: the SDK's transport over an HTTP client that keeps failures where they belong.

The SDK runs every POST as a task of one group, so an exception from one of them cancels the whole client.
`OneRequestClient` therefore turns whatever goes wrong with a request into an HTTP response with a JSON-RPC
error in it, and tells the observer the real reason. Redirects, sessions, eras and event streams stay the
SDK's.

What else is set, and why:

* HTTP/1.1 only: with HTTP/2, batches of eight pages stalled 14 s in 2 of 60 runs;
* connections are kept 300 s: a page lasts 6.4 s at 128 kbit/s; after the default of 5 s each would reconnect;
* `accept-encoding: identity`: base64 of compressed audio does not compress further, and a limit on the bytes
  that come in is then a limit on the bytes held;
* no read timeout: deadlines are the session's, and run from the last byte of each answer.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx2
import trio
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, RequestId

from playhead.client.groups import bare
from playhead.client.transports.http_answers import check_answer, check_status, place_of
from playhead.client.transports.http_body import WatchedBody, read_at_most
from playhead.client.transports.quiet_url import quiet
from playhead.client.transports.tls_errors import tls_reason
from playhead.errors import (
    AccessDeniedError,
    ConnectionLostError,
    LimitError,
    PlayheadError,
    ProtocolError,
    SessionLostError,
)
from playhead.limits import KIB, Limits

KEEP_ALIVE_SECONDS: Final = 300.0
CONNECTIONS: Final = 64
"""Reads in flight are at most 16; the rest is for hedges, cancellations and the server's own stream."""
COURTESY_SECONDS: Final = 2.0
"""For what nobody waits for: a cancellation, the goodbye. A silent server must not hold up the close."""
HEARING_SECONDS: Final = 1.0
"""How long the first call waits for the server's own stream. It was asked for with the handshake, so that a
server that has one has answered by then; one that answers only with its first event costs this, once."""
ERROR_BODY_BYTES: Final = 64 * KIB


class Observer(Protocol):
    """Who is told about each request's answer (client.link.Link)."""

    def touch(self, request_id: RequestId) -> None: ...
    def fail(self, request_id: RequestId, error: PlayheadError) -> None: ...


class NobodyWatching:
    """The observer of a transport that is used by itself."""

    def touch(self, request_id: RequestId) -> None: ...
    def fail(self, request_id: RequestId, error: PlayheadError) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How to reach an endpoint. Nothing in here is ever shown."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    """Any `httpx2.Auth`: the SDK's OAuth providers are ones."""
    verify: ssl.SSLContext | bool = True
    """TLS: `False` accepts any certificate; a context carries own authorities and a client certificate."""
    hears_questions: bool = False
    """Whether the first call waits, `HEARING_SECONDS` at most, until the server's own stream is open. What a
    server asks before that, it asks nobody: some drop it, and the call waits for an answer in vain."""


@asynccontextmanager
async def http_transport(
    url: str,
    *,
    limits: Limits,
    options: HttpOptions | None = None,
    observer: Observer | None = None,
) -> AsyncIterator[tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]]:
    """Message streams to the Streamable HTTP endpoint at `url`.

    Nothing is sent before the first message. A failed request fails alone: its JSON-RPC id gets an error
    and `observer.fail` the reason. Leaving the context says goodbye to the server (2 s at most) and closes
    all connections; when cancelled it only closes them.
    """
    options = options or HttpOptions()
    parsed = httpx2.URL(url)
    auth = options.auth
    if auth is None and parsed.userinfo:
        # Out of the URL, so that no log line of the HTTP libraries can show it.
        auth = httpx2.BasicAuth(parsed.username, parsed.password)
    # The query may be a key: the SDK, which logs its endpoint, is given the URL without.
    endpoint = str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
    # The SDK's and trio's groups wrap what the body raises; the body's own error must come out as it is.
    with bare(deep=True):
        async with trio.open_nursery() as nursery:
            client = OneRequestClient(
                limits=limits,
                observer=observer or NobodyWatching(),
                nursery=nursery,
                options=options,
                auth=auth,
                query=parsed.query,
            )
            async with (
                client,
                streamable_http_client(
                    endpoint, http_client=client, max_sse_event_size=limits.message_bytes
                ) as streams,
            ):
                yield streams
            nursery.cancel_scope.cancel()


class OneRequestClient(httpx2.AsyncClient):
    """An HTTP client whose `send` gives a response whatever happens.

    Responses that are JSON are read whole here, so that a connection that breaks in the middle of a body
    is noticed here too, and not inside the SDK.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        observer: Observer,
        nursery: trio.Nursery,
        options: HttpOptions,
        auth: httpx2.Auth | None,
        query: bytes,
    ) -> None:
        super().__init__(
            auth=auth,
            headers={**options.headers, "accept-encoding": "identity"},
            verify=options.verify,
            http2=False,
            timeout=httpx2.Timeout(limits.page_seconds, connect=limits.connect_seconds, read=None),
            limits=httpx2.Limits(
                max_connections=CONNECTIONS,
                max_keepalive_connections=CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
            ),
        )
        self._limits_of_session = limits
        self._observer = observer
        self._nursery = nursery
        self._query = query
        self._due: dict[RequestId, Due] = {}
        self._hears_questions = options.hears_questions
        self._hearing: trio.Event | None = None
        """Set once the server's own stream is open, or known not to be; None where there will be none."""

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        quiet(request, self._query)
        await request.aread()  # the body of a redirected request is a stream of the first one's
        call = Call.of(request)
        if call.method == "notifications/cancelled":
            # The SDK awaits notifications in its write loop: a server that is slow to take this one would
            # hold up every request after it.
            self._nursery.start_soon(self._cancel, request, how, call.cancels)
            return httpx2.Response(202, request=request)
        if call.request_id is None and request.method != "GET":
            request.extensions = {**request.extensions, "timeout": _bounded(COURTESY_SECONDS * 5)}
        if request.method == "DELETE":
            request.extensions = {**request.extensions, "timeout": _bounded(COURTESY_SECONDS)}
        if call.method == "tools/call" and self._hearing is not None:
            with trio.move_on_after(HEARING_SECONDS):
                await self._hearing.wait()
            self._hearing.set()
        try:
            if call.request_id is not None:
                return await self._answered(request, how, call, call.request_id)
            response = await super().send(request, **how)
            if request.method == "GET" and response.status_code < 300:
                return self._listening(response)
            if request.method == "POST" and response.next_request is None:
                response = await _read_off(response)
        except (httpx2.RequestError, OAuthFlowError, OSError, PlayheadError) as error:
            return self._failed(request, call, _as_ours(error, request))
        finally:
            if request.method == "GET" and self._hearing is not None:
                self._hearing.set()
        return response

    async def _answered(
        self, request: httpx2.Request, how: dict[str, Any], call: Call, request_id: RequestId
    ) -> httpx2.Response:
        due = self._due[request_id] = Due()
        response: httpx2.Response | None = None
        try:
            with due.scope:
                arriving = await super().send(request, **how)
                self._observer.touch(request_id)
                if call.method == "initialize" and "mcp-session-id" in arriving.headers:
                    # The SDK asks for the server's own stream next, and only in a session.
                    self._hearing = trio.Event() if self._hears_questions else None
                response = await self._answer(arriving, call, request_id, due)
        finally:
            if due.body is None:
                self._forget(request_id)
        if response is None:
            raise ConnectionLostError(
                f"{call.method} was cancelled, and {place_of(str(request.url))} kept silent"
            )
        return response

    def _forget(self, request_id: RequestId) -> None:
        due = self._due.pop(request_id, None)
        if due is not None:
            due.over.set()

    async def _cancel(
        self, request: httpx2.Request, how: dict[str, Any], request_id: RequestId | None
    ) -> None:
        """Tell the server, and close what it does not end by itself.

        Revisions with a handshake leave the POST of a cancelled request open: a server that loses 64 answers
        would have taken all the connections there are.
        """
        request.extensions = {**request.extensions, "timeout": _bounded(COURTESY_SECONDS)}
        with trio.move_on_after(COURTESY_SECONDS):
            # Nobody waits for it: the request it cancels has been given up already.
            with suppress(httpx2.RequestError, OAuthFlowError, OSError, LimitError):
                await _read_off(await super().send(request, **how))
        due = self._due.get(request_id) if request_id is not None else None
        if due is None:
            return
        with trio.move_on_after(COURTESY_SECONDS):
            await due.over.wait()
            return
        due.scope.cancel()
        if due.body is not None:
            await due.body.abandon()

    async def _answer(
        self, response: httpx2.Response, call: Call, request_id: RequestId, due: Due
    ) -> httpx2.Response:
        """The response as the SDK may have it. Raises what is wrong with it."""
        if response.next_request is not None:
            return response
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code < 300 and kind == "text/event-stream":
            due.body = WatchedBody(
                response,
                touched=lambda: self._observer.touch(request_id),
                broken=lambda why: self._observer.fail(request_id, why),
                closed=lambda: self._forget(request_id),
                place=place_of(str(response.request.url)),
                limits=self._limits_of_session,
            )
            return _with_body(response, due.body)
        allowed = self._limits_of_session.message_bytes if response.status_code < 300 else ERROR_BODY_BYTES
        try:
            content = await read_at_most(response, allowed, touched=lambda: self._observer.touch(request_id))
        finally:
            await response.aclose()
        if response.status_code >= 300:
            check_status(response, content)
        elif kind != "application/json":
            raise ProtocolError(
                f"{place_of(str(response.request.url))} answered {call.method} with HTTP"
                f" {response.status_code} and {kind or 'no content type'} in place of JSON: is it an MCP"
                " endpoint?"
            )
        else:
            check_answer(
                content, request_id, self._limits_of_session, place=place_of(str(response.request.url))
            )
        headers = [
            (name, value)
            for name, value in response.headers.raw
            if name.lower() not in (b"content-length", b"transfer-encoding", b"content-encoding")
        ]
        return httpx2.Response(
            response.status_code, headers=headers, content=content, request=response.request
        )

    def _listening(self, response: httpx2.Response) -> httpx2.Response:
        """The server's own stream of events, which no request waits for."""
        body = WatchedBody(
            response,
            touched=lambda: None,
            broken=lambda _why: None,
            closed=lambda: None,
            place=place_of(str(response.request.url)),
            limits=self._limits_of_session,
            drains=False,
        )
        return _with_body(response, body)

    def _failed(self, request: httpx2.Request, call: Call, error: PlayheadError) -> httpx2.Response:
        if call.request_id is not None:
            self._observer.fail(call.request_id, error)
        code = INVALID_REQUEST if isinstance(error, SessionLostError) else INTERNAL_ERROR
        body = {
            "jsonrpc": "2.0",
            "id": call.request_id,
            "error": {"code": code, "message": f"{type(error).__name__}: {error}"},
        }
        return httpx2.Response(503, json=body, request=request)


@dataclass(slots=True, eq=False)
class Due:
    """An answer that has not come whole."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around the request until there is a response for the SDK."""
    body: WatchedBody | None = None
    """The event stream that the SDK reads then."""
    over: trio.Event = field(default_factory=trio.Event)


@dataclass(frozen=True, slots=True)
class Call:
    """What a POST carries: the method, and the id where an answer is due."""

    method: str
    request_id: RequestId | None
    cancels: RequestId | None = None
    """The request that a `notifications/cancelled` is about."""

    @classmethod
    def of(cls, request: httpx2.Request) -> Call:
        if request.method != "POST":
            return cls(request.method, None)
        message = json.loads(request.content)
        method = message.get("method")
        return cls(
            method if isinstance(method, str) else "response",
            message.get("id") if method is not None else None,
            message["params"]["requestId"] if method == "notifications/cancelled" else None,
        )


def _with_body(response: httpx2.Response, body: WatchedBody) -> httpx2.Response:
    return httpx2.Response(
        response.status_code, headers=response.headers, stream=body, request=response.request
    )


async def _read_off(response: httpx2.Response) -> httpx2.Response:
    """The answer to a notification. The SDK doesn't read it, and an unread answer costs its connection."""
    try:
        await read_at_most(response, ERROR_BODY_BYTES, touched=lambda: None)
    finally:
        await response.aclose()
    return httpx2.Response(response.status_code, request=response.request)


def _bounded(seconds: float) -> dict[str, float | None]:
    return httpx2.Timeout(seconds).as_dict()


def _as_ours(error: Exception, request: httpx2.Request) -> PlayheadError:
    place = place_of(str(request.url))
    if isinstance(error, PlayheadError):
        return error
    if isinstance(error, OAuthFlowError):
        # The flow's own words can hold what the authorization server sent; the kind is enough.
        return AccessDeniedError(f"authorization for {place} failed: {type(error).__name__}", status=401)
    # No text of the libraries': an illegal header is quoted there with its value.
    kind = type(error).__name__
    if (reason := tls_reason(error)) is not None:
        return ConnectionLostError(f"no connection to {place}: {reason}")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return ConnectionLostError(f"no connection to {place} ({kind}): is the server running there?")
    # Since TLS 1.3 a refused client certificate shows at the first read, often without a word.
    hint = "; does the server want a client certificate (tls.certificate)?" if _read_on_tls(error) else ""
    return ConnectionLostError(f"the connection to {place} failed before the answer was whole ({kind}){hint}")


def _read_on_tls(error: Exception) -> bool:
    return isinstance(error, httpx2.ReadError) and error.request.url.scheme == "https"
