"""Streamable HTTP: the SDK's transport over an HTTP client in which a request fails alone.

The SDK runs every POST as a task of one group, so an exception from one of them cancels the whole client.
`FailureIsolatingClient` therefore turns any failure of a request into an HTTP response with a JSON-RPC error,
and reports the real reason to the observer. Redirects, sessions, protocol versions and event streams remain
with the SDK.

Settings and their reasons:

* HTTP/1.1 only: with HTTP/2, batches of eight pages stalled 14 s in 2 of 60 runs;
* connections are reused for 300 s: a page lasts 6.4 s at 128 kbit/s, and with the default of 5 s each page
  would reconnect;
* `accept-encoding: identity`: base64 of compressed audio does not compress further, and a limit on the bytes
  received is then a limit on the bytes held;
* no timeout for reading or for a free connection: deadlines belong to the session and run from the last byte
  of each answer.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import httpx2
import trio
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, JSONRPCMessage, JSONRPCResponse, RequestId

from playhead.client.transports.http_direct import HttpDirect
from playhead.client.transports.outcomes import BegunAnswer
from playhead.client.transports.sdk_http_bodies import WatchedBody, read_at_most, widen
from playhead.client.transports.sdk_http_errors import (
    check_answer,
    check_status,
    connection_error,
    parse_answer,
    place_of,
)
from playhead.concurrency import unwrap_exception_group
from playhead.errors import (
    AccessDeniedError,
    ConnectionLostError,
    LimitError,
    PlayheadError,
    ProtocolError,
    SessionLostError,
)
from playhead.limits import KIB, Limits
from playhead.protocol import sdk_messages as messages
from playhead.redacted_request import redact_query
from playhead.sdk_internals import ReadStream, WriteStream

KEEP_ALIVE_SECONDS: Final = 300.0
CONNECTIONS: Final = 64
"""At most 16 reads are in flight; the rest is for hedges, cancellations and the server's own stream."""
COURTESY_SECONDS: Final = 2.0
"""For requests that nobody waits for (cancellation, DELETE): a silent server must not delay the close."""
STREAM_SECONDS: Final = 1.0
"""Limit of the first call's wait for the server's own stream. It was requested after the handshake, so a
server that has one has answered by now; one that answers only with its first event costs this once."""
ERROR_BODY_BYTES: Final = 64 * KIB


class Observer(Protocol):
    """Notified about the answer to each request (`session.response_tap.ResponseTap`)."""

    def touch(self, request_id: RequestId) -> None: ...
    def fail(self, request_id: RequestId, error: PlayheadError) -> None: ...
    def takes(self, request_id: RequestId) -> bool: ...
    def take(self, answer: JSONRPCResponse) -> JSONRPCMessage: ...
    def begun(self, request_id: RequestId, *, keep: bool = False) -> BegunAnswer | None: ...


class NullObserver:
    """The observer of a transport used on its own."""

    def touch(self, request_id: RequestId) -> None: ...
    def fail(self, request_id: RequestId, error: PlayheadError) -> None: ...

    def takes(self, request_id: RequestId) -> bool:
        return False

    def take(self, answer: JSONRPCResponse) -> JSONRPCMessage:
        return answer

    def begun(self, request_id: RequestId, *, keep: bool = False) -> BegunAnswer | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Settings of an endpoint. None of them is ever shown."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    """Any `httpx2.Auth`, such as the SDK's OAuth providers."""
    verify: ssl.SSLContext | bool = True
    """TLS: `False` accepts any certificate; a context has its own authorities and client certificate."""
    wait_for_stream: bool = False
    """Make the first call wait, at most `STREAM_SECONDS`, until the server's own stream is open. Without it
    some servers drop their questions to the user, and the call waits for an answer in vain."""


@asynccontextmanager
async def http_transport(
    url: str,
    *,
    limits: Limits,
    options: HttpOptions | None = None,
    observer: Observer | None = None,
    direct: HttpDirect | None = None,
) -> AsyncIterator[tuple[ReadStream, WriteStream]]:
    """Open message streams to the Streamable HTTP endpoint at `url`.

    Nothing is sent before the first message. A failed request fails alone: its JSON-RPC id gets an error and
    `observer.fail` the reason. `direct` sends its requests on this transport's connections. Leaving the
    context ends the session on the server (2 s at most) and closes all connections; cancelled, it only closes
    them.
    """
    options = options or HttpOptions()
    parsed = httpx2.URL(url)
    auth = options.auth
    if auth is None and parsed.userinfo:
        # Removed from the URL, so that the HTTP libraries cannot log it.
        auth = httpx2.BasicAuth(parsed.username, parsed.password)
    # The query may be a key: the SDK, which logs its endpoint, gets the URL without it.
    endpoint = str(parsed.copy_with(userinfo=b"", query=None, fragment=None))
    # The groups of the SDK and trio wrap what the body raises; its own error must be raised as it is.
    with unwrap_exception_group(deep=True):
        async with trio.open_nursery() as nursery:
            client = FailureIsolatingClient(
                limits=limits,
                observer=observer or NullObserver(),
                nursery=nursery,
                options=options,
                auth=auth,
                query=parsed.query,
                direct=direct,
            )
            async with (
                client,
                streamable_http_client(
                    endpoint, http_client=client, max_sse_event_size=limits.message_bytes
                ) as streams,
            ):
                try:
                    yield streams
                finally:
                    if direct is not None:
                        direct.close()
            nursery.cancel_scope.cancel()


class FailureIsolatingClient(httpx2.AsyncClient):
    """An HTTP client whose `send` returns a response whatever happens.

    JSON responses are read whole here, so that a connection that breaks in the middle of a body is noticed
    here and not inside the SDK.
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
        direct: HttpDirect | None,
    ) -> None:
        super().__init__(
            auth=auth,
            headers={**options.headers, "accept-encoding": "identity"},
            verify=options.verify,
            http2=False,
            timeout=httpx2.Timeout(limits.page_seconds, connect=limits.connect_seconds, read=None, pool=None),
            limits=httpx2.Limits(
                max_connections=CONNECTIONS,
                max_keepalive_connections=CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
            ),
        )
        for transport in (self._transport, *self._mounts.values()):
            widen(transport)
        self._limits_of_session = limits
        self._observer = observer
        self._nursery = nursery
        self._query = query
        self._direct = direct
        if direct is not None:
            direct.bind(self, cancel=self._cancel_direct, before_call=self._own_stream_tried)
        self._due: dict[RequestId, AnswerDue] = {}
        self._wait_for_stream = options.wait_for_stream
        self._stream_open: trio.Event | None = None
        """Set once the server's own stream is open or refused; None if it will not be opened."""

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        redact_query(request, self._query)
        await request.aread()  # a redirected request reads its body from the first one
        call = PostedMessage.of(request)
        if call.method == "notifications/cancelled":
            # The SDK awaits notifications in its write loop: a server slow to accept this one would delay
            # every request after it.
            if call.cancels is not None and (begun := self._observer.begun(call.cancels, keep=True)):
                await begun.abandon()  # which cancels it with the id that it has on the wire
                return httpx2.Response(202, request=request)
            self._nursery.start_soon(self._cancel, self._as_sent(request, call), how, call.cancels)
            return httpx2.Response(202, request=request)
        if call.request_id is None and request.method != "GET":
            request.extensions = {**request.extensions, "timeout": _bounded(COURTESY_SECONDS * 5)}
        if request.method == "DELETE":
            request.extensions = {**request.extensions, "timeout": _bounded(COURTESY_SECONDS)}
        if call.method == "tools/call":
            await self._own_stream_tried()
        try:
            if call.request_id is not None:
                return await self._answered(request, how, call, call.request_id)
            response = await super().send(request, **how)
            if request.method == "GET" and response.status_code < 300:
                return self._own_stream(response)
            if request.method == "POST" and response.next_request is None:
                response = await _read_off(response)
        except (httpx2.RequestError, _oauth_error(), OSError, PlayheadError) as error:
            return self._failed(request, call, _as_ours(error, str(request.url)))
        finally:
            if request.method == "GET" and self._stream_open is not None:
                self._stream_open.set()
        return response

    async def _own_stream_tried(self) -> None:
        """Wait, before a call, until the server's own stream is open or refused (`wait_for_stream`)."""
        if self._stream_open is not None:
            with trio.move_on_after(STREAM_SECONDS):
                await self._stream_open.wait()
            self._stream_open.set()

    async def _answered(
        self, request: httpx2.Request, how: dict[str, Any], call: PostedMessage, request_id: RequestId
    ) -> httpx2.Response:
        begun = self._observer.begun(request_id)
        due = self._due[request_id] = AnswerDue(sent_as=request_id if begun is None else begun.request_id)
        response: httpx2.Response | None = None
        try:
            with due.scope:
                arriving = await super().send(request, **how) if begun is None else begun.take()
                if arriving is None:
                    raise ConnectionLostError(f"{call.method} was cancelled before its answer was complete")
                self._observer.touch(request_id)
                if call.method == "initialize" and "mcp-session-id" in arriving.headers:
                    # The SDK requests the server's own stream next, and only in a session.
                    self._stream_open = trio.Event() if self._wait_for_stream else None
                response = await self._answer(arriving, call, request_id, due)
                if self._direct is not None:
                    self._direct.learn(arriving, method=call.method)
        finally:
            if due.body is None:
                self._forget(request_id)
        if response is None:
            raise ConnectionLostError(
                f"{call.method} was cancelled, and {place_of(str(request.url))} sent no answer"
            )
        return response

    def _forget(self, request_id: RequestId) -> None:
        due = self._due.pop(request_id, None)
        if due is not None:
            due.over.set()

    async def _cancel(
        self, request: httpx2.Request, how: dict[str, Any], request_id: RequestId | None
    ) -> None:
        """Send the cancellation, and close the request's connection if the server does not end its answer.

        Revisions with a handshake leave the POST of a cancelled request open: a server that loses 64 answers
        would use up all connections.
        """
        request.extensions = {**request.extensions, "timeout": _bounded(COURTESY_SECONDS)}
        with trio.move_on_after(COURTESY_SECONDS):
            # Nobody waits for it: the request that it cancels has been given up already.
            with suppress(httpx2.RequestError, _oauth_error(), OSError, LimitError):
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

    def _as_sent(self, request: httpx2.Request, call: PostedMessage) -> httpx2.Request:
        """The cancellation with the id that its request has on the wire."""
        due = self._due.get(call.cancels) if call.cancels is not None else None
        if due is None or due.sent_as == call.cancels:
            return request
        headers = [pair for pair in request.headers.raw if pair[0].lower() != b"content-length"]
        content = messages.encode(messages.cancellation(due.sent_as))
        assert isinstance(content, bytes)
        return self.build_request("POST", request.url, headers=headers, content=content)

    def _cancel_direct(self, request: httpx2.Request) -> None:
        """Send the cancellation of a direct request in the background."""
        self._nursery.start_soon(self._cancel, request, {"stream": True}, None)

    async def _answer(
        self, response: httpx2.Response, call: PostedMessage, request_id: RequestId, due: AnswerDue
    ) -> httpx2.Response:
        """The response in a form for the SDK. Raises the error that it stands for, if any."""
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
            check_status(response, content, now=time.time())
            kind = "application/json"  # checked; the SDK takes an error from no other content type
        elif kind != "application/json":
            raise ProtocolError(
                f"{place_of(str(response.request.url))} answered {call.method} with HTTP"
                f" {response.status_code} and {kind or 'no content type'} instead of JSON: is it an MCP"
                " endpoint?"
            )
        elif self._observer.takes(request_id):
            content = self._without_result(content, request_id, response.request.url)
        else:
            check_answer(content, request_id, self._limits_of_session, url=response.request.url)
        headers = [
            (name, value)
            for name, value in response.headers.raw
            if name.lower()
            not in (b"content-type", b"content-length", b"transfer-encoding", b"content-encoding")
        ]
        headers.append((b"content-type", kind.encode()))
        return httpx2.Response(
            response.status_code, headers=headers, content=content, request=response.request
        )

    def _without_result(self, content: bytes, request_id: RequestId, url: httpx2.URL) -> bytes:
        """Hand the result in `content` to the observer; return the answer that the SDK reads in its place.

        A large result is parsed once, and the SDK validates a few hundred bytes.
        """
        answer = parse_answer(content, request_id, self._limits_of_session, url=url)
        if not isinstance(answer, JSONRPCResponse):
            return content  # an error, which is small
        stand_in = messages.encode(self._observer.take(answer))
        assert isinstance(stand_in, bytes)
        return stand_in

    def _own_stream(self, response: httpx2.Response) -> httpx2.Response:
        """The server's own event stream, which no request waits for."""
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

    def _failed(self, request: httpx2.Request, call: PostedMessage, error: PlayheadError) -> httpx2.Response:
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
class AnswerDue:
    """An answer that is not complete yet."""

    sent_as: RequestId
    """The id on the wire: another one for an answer to a direct request."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around the request until there is a response for the SDK."""
    body: WatchedBody | None = None
    """The event stream that the SDK reads then."""
    over: trio.Event = field(default_factory=trio.Event)


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """The method of a POSTed message, and its id if an answer is due."""

    method: str
    request_id: RequestId | None
    cancels: RequestId | None = None
    """The id that a `notifications/cancelled` names."""

    @classmethod
    def of(cls, request: httpx2.Request) -> PostedMessage:
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
    """Read the answer to a notification. The SDK does not, and an unread answer costs its connection."""
    try:
        await read_at_most(response, ERROR_BODY_BYTES, touched=lambda: None)
    finally:
        await response.aclose()
    return httpx2.Response(response.status_code, request=response.request)


def _oauth_error() -> type[Exception]:
    """The SDK's `OAuthFlowError`; a class that nobody raises as long as the SDK's OAuth is not loaded."""
    module = sys.modules.get("mcp.client.auth")
    return _NoOAuthError if module is None else module.OAuthFlowError


class _NoOAuthError(Exception): ...


def _bounded(seconds: float) -> dict[str, float | None]:
    return httpx2.Timeout(seconds).as_dict()


def _as_ours(error: Exception, url: str) -> PlayheadError:
    if isinstance(error, PlayheadError):
        return error
    if isinstance(error, _oauth_error()):
        # The flow's own text may quote the authorization server; its type is enough.
        return AccessDeniedError(
            f"authorization for {place_of(url)} failed: {type(error).__name__}", status=401
        )
    return connection_error(error, url)
