"""Direct requests over HTTP: a POST on the pool of connections under the session's own client.

httpx2 and the SDK cost three times as much as the connection and the page. What they do for a request is to
authorise it, to follow redirects, to keep cookies and to read event streams. None of it is done here: the
headers are those of the last request that they sent and that was answered with JSON, and whatever is not a
plain 200 with JSON is left to them (`Declined`). They then authorise again, or find out that the session is
lost, and the next direct request has the new headers.

A read that was declined is sent again. A call is not, unless the server has refused to run it (a redirect, or
credentials that the client can renew): its answer goes to the session as it arrives (`BegunAnswer`).

The pool is httpx2's own, an attribute that it does not document: until it lends its connections. Without it,
or with credentials that may be different for each request, everything is declined.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

import httpcore2
import httpx2
import trio
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from playhead.client.transports.outcomes import BegunAnswer, Declined, PendingRequest
from playhead.client.transports.sdk_http_bodies import gather
from playhead.client.transports.sdk_http_errors import connection_error, parse_answer
from playhead.errors import PlayheadError, UsageError
from playhead.limits import Limits
from playhead.protocol import sdk_messages as messages

VERSION_HEADER: Final = "mcp-protocol-version"
_OF_ONE_REQUEST: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"mcp-method", b"mcp-name", VERSION_HEADER.encode()}
)
"""Headers that are not taken over from an earlier request, as those that begin with `mcp-param-`."""
_CONSTANT_CREDENTIALS: Final = (b"basic ", b"bearer ")
"""Schemes whose header is the same for each request; digests and signatures are of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address and the headers of direct requests, as an answered request of the session's shows them."""

    url: httpx2.URL
    target: httpcore2.URL
    headers: tuple[tuple[bytes, bytes], ...]
    pool: httpcore2.AsyncConnectionPool


class HttpDirect:
    """The direct requests of one HTTP transport, which binds it and lets it learn from its answers."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._client: httpx2.AsyncClient
        self._cancel: Callable[[httpx2.Request], None]
        self._endpoint: Endpoint | Declined = Declined(
            reason="no answer of the server has shown yet how it answers"
        )
        self._session_id: str | None = None
        self._streamed: set[str] = set()
        """Methods whose last answer was an event stream; other methods say nothing about them."""
        self._timeout = {
            "connect": limits.connect_seconds,
            "write": limits.page_seconds,
            "read": None,
            "pool": None,
        }

    def bind(
        self,
        client: httpx2.AsyncClient,
        *,
        cancel: Callable[[httpx2.Request], None],
        before_call: Callable[[], Awaitable[None]],
    ) -> None:
        """Use the connections of `client`.

        `cancel` sends a notification in the background; `before_call` is awaited before each tool call.
        """
        self._client = client
        self._cancel = cancel
        self._before_call = before_call

    def close(self) -> None:
        """Decline what is still sent, and cancel nothing on the wire any more: the connections are closed."""
        self._endpoint = Declined(reason="the connection was closed")
        self._cancel = lambda _request: None

    def learn(self, response: httpx2.Response, *, method: str) -> None:
        """Take over the headers of a `method` of the session's that was answered with `response`."""
        request = response.request
        if (session_id := response.headers.get(MCP_SESSION_ID)) is not None:
            self._session_id = session_id
        url = request.url
        pool = getattr(self._client._transport_for_url(url), "_pool", None)
        is_json = _is_json(response.headers.get("content-type", ""))
        if is_json:
            self._streamed.discard(method)
        else:
            self._streamed.add(method)
        if any(earlier.is_redirect for earlier in response.history):
            self._endpoint = Declined(reason="the endpoint redirects")
        elif not is_json:
            self._endpoint = _STREAMS
        elif not _is_constant(request):
            self._endpoint = Declined(reason="the credentials may be different for each request")
        elif not isinstance(pool, httpcore2.AsyncConnectionPool):
            self._endpoint = Declined(reason="the HTTP library lends no connections")
        else:
            self._endpoint = self._endpoint_of(request, pool)

    def _endpoint_of(self, request: httpx2.Request, pool: httpcore2.AsyncConnectionPool) -> Endpoint:
        headers = [
            (name, value)
            for name, value in request.headers.raw
            if (lower := name.lower()) not in _OF_ONE_REQUEST and not lower.startswith(b"mcp-param-")
        ]
        if self._session_id is not None and MCP_SESSION_ID not in request.headers:
            headers.append((MCP_SESSION_ID.encode(), self._session_id.encode()))
        url, known = request.url, self._endpoint
        if isinstance(known, Endpoint) and (known.headers, known.url) == (tuple(headers), url):
            return known
        return Endpoint(
            url=url,
            target=httpcore2.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=tuple(headers),
            pool=pool,
        )

    async def send(
        self, request: JSONRPCRequest, *, headers: Mapping[str, str], pending: PendingRequest
    ) -> JSONRPCResponse | JSONRPCError | Declined:
        """See `DirectRequests`."""
        if request.method == "tools/call":
            await self._before_call()
        endpoint = self._endpoint
        if isinstance(endpoint, Declined):
            return endpoint
        if request.method in self._streamed:
            return _STREAMS
        body = messages.encode(request)
        if isinstance(body, UsageError):
            return messages.error_answer(request.id, body)
        post = httpcore2.Request(
            "POST",
            endpoint.target,
            headers=[
                *endpoint.headers,
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
                (b"content-length", b"%d" % len(body)),
            ],
            content=body,
            extensions={"timeout": self._timeout},
        )
        try:
            return await self._answer(endpoint, post, request, headers, pending)
        except trio.Cancelled:
            self._cancel_on_the_wire(endpoint, request.id, headers)
            raise
        except PlayheadError as error:
            pending.failure = error
        except (*_TRANSPORT_ERRORS, OSError) as error:
            pending.failure = connection_error(error, str(endpoint.url))
        return messages.error_answer(request.id, pending.failure)

    async def _answer(
        self,
        endpoint: Endpoint,
        post: httpcore2.Request,
        request: JSONRPCRequest,
        headers: Mapping[str, str],
        pending: PendingRequest,
    ) -> JSONRPCResponse | JSONRPCError | Declined:
        def touched() -> None:
            pending.touched = trio.current_time()

        sent_at = trio.current_time()
        response = await endpoint.pool.handle_async_request(post)
        is_left_open = False
        try:
            touched()
            if any(name.lower() == b"set-cookie" for name, _value in response.headers):
                self._take_cookies(endpoint, response)
            told = {name.lower(): value.decode("latin-1") for name, value in response.headers}
            is_call = request.method == "tools/call"
            if (reason := _not_plain(response.status, told, is_call=is_call)) is not None:
                if not is_call or self._was_refused(response.status, told):
                    return Declined(reason=reason)
                begun = BegunAnswer(
                    request_id=request.id,
                    response=httpx2.Response(
                        response.status,
                        headers=response.headers,
                        stream=_ArrivingBody(response),
                        extensions=response.extensions,
                        request=httpx2.Request("POST", endpoint.url, headers=post.headers),
                    ),
                    sent_at=sent_at,
                    cancel=partial(self._cancel_on_the_wire, endpoint, request.id, headers),
                )
                is_left_open = True
                return Declined(reason=reason, begun=begun)
            stream = response.aiter_stream()
            async with aclosing(stream):
                content = await gather(
                    stream,
                    self._limits.message_bytes,
                    announced=told.get(b"content-length", ""),
                    touched=touched,
                )
        finally:
            if not is_left_open:
                await response.aclose()
        return parse_answer(content, request.id, self._limits, url=endpoint.url)

    def _was_refused(self, status: int, headers: Mapping[bytes, str]) -> bool:
        """True if the server has not run the request, and the client may do better with the next."""
        if status in (401, 403):
            return not isinstance(self._client.auth, httpx2.BasicAuth | None)
        return 300 <= status < 400 and b"location" in headers

    def _take_cookies(self, endpoint: Endpoint, response: httpcore2.Response) -> None:
        """Leave cookies to the client: the next request of the session's shows what it makes of them."""
        request = httpx2.Request("POST", endpoint.url)
        self._client.cookies.extract_cookies(
            httpx2.Response(response.status, headers=response.headers, request=request)
        )
        self._endpoint = Declined(reason="the server has set a cookie")

    def _cancel_on_the_wire(
        self, endpoint: Endpoint, request_id: str | int, headers: Mapping[str, str]
    ) -> None:
        """Closing the connection cancels a request since revision 2026-07-28; before, a notification does."""
        if headers.get(VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS:
            return
        body = messages.encode(messages.cancellation(request_id))
        assert isinstance(body, bytes)
        more = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._cancel(
            self._client.build_request("POST", endpoint.url, headers=[*endpoint.headers, *more], content=body)
        )


class _ArrivingBody(httpx2.AsyncByteStream):
    """The body of a response of httpcore2's, with the errors of httpx2."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_stream():
                yield chunk
        except _TRANSPORT_ERRORS as error:
            kind: type[httpx2.TransportError] = getattr(httpx2, type(error).__name__, httpx2.ReadError)
            raise kind(str(error)) from error

    async def aclose(self) -> None:
        await self._response.aclose()


_TRANSPORT_ERRORS: Final = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProxyError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)


_STREAMS: Final = Declined(reason="the server answers with event streams")


def _is_constant(request: httpx2.Request) -> bool:
    """True if the credentials in `request` serve for other requests too."""
    return all(
        value.lower().startswith(_CONSTANT_CREDENTIALS)
        for name, value in request.headers.raw
        if name.lower() == b"authorization"
    )


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _not_plain(status: int, headers: Mapping[bytes, str], *, is_call: bool) -> str | None:
    """Why an answer is left to httpx2 and the SDK; None if it is a plain one.

    They take a call's JSON as it is, whatever its status below 300 and its encoding.
    """
    if status != 200 and not (is_call and 200 < status < 300):
        return f"HTTP {status}"
    if not _is_json(kind := headers.get(b"content-type", "")):
        return f"the content type {kind[:80]!r}"
    if headers.get(b"content-encoding", "identity").lower() != "identity" and not is_call:
        return "an encoded body"
    return None
