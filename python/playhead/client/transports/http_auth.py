"""Drive an `httpx2.Auth` over our client: its flow sees httpx2's requests and responses, made here only.

`httpx2.Auth` is the interface that programs, the SDK's OAuth providers and signers of single requests have in
common. This is the one place where the client loads httpx2, and it does so for those who bring an `Auth`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx2

from playhead.client.transports.http_client import (
    Headers,
    HttpClient,
    HttpRequest,
    HttpResponse,
    within_origin,
)
from playhead.client.transports.http_errors import place_of
from playhead.errors import AccessDeniedError
from playhead.web_address import WebAddress


async def send_authorized(
    client: HttpClient, auth: httpx2.Auth, request: HttpRequest, *, allowed: int
) -> HttpResponse:
    """Send `request`, and the requests that the flow makes before and after it. Return the last answer.

    `allowed` is the longest body that a flow may read. Raises as `HttpClient.send_once`, `AccessDeniedError`
    for a failed flow of the SDK's, and what another flow raises. Cancelled: both are closed.
    """
    try:
        return await _run(client, auth, request, allowed)
    except (httpx2.RequestError, _oauth_error()) as error:
        # Not the flow's own text, which may quote the authorization server; its type is enough.
        place, kind = place_of(str(request.url)), type(error).__name__
        raise AccessDeniedError(f"authorization for {place} failed: {kind}", status=401) from error


def _oauth_error() -> type[Exception]:
    """Return the error class of the SDK's flows or, if they are not loaded, one that is never raised."""
    module = sys.modules.get("mcp.client.auth")
    return httpx2.RequestError if module is None else module.OAuthFlowError


async def _run(client: HttpClient, auth: httpx2.Auth, request: HttpRequest, allowed: int) -> HttpResponse:
    shown = httpx2.Request(request.method, str(request.url), headers=request.headers, content=request.content)
    async with aclosing(auth.async_auth_flow(shown)) as flow:
        theirs = await anext(flow)
        while True:
            response = await client.send_once(await as_ours(theirs))
            try:
                answer = _as_httpx2(response, theirs, allowed)
                try:
                    theirs = await flow.asend(answer)
                except StopAsyncIteration:
                    return response
            except BaseException:  # the flow's, or a cancellation: the answer holds a connection
                await response.aclose()
                raise
            await response.drain()


async def send_whole(client: HttpClient, theirs: httpx2.Request, *, allowed: int) -> httpx2.Response:
    """Send a request that a flow has made, and read the answer, of at most `allowed` bytes.

    Redirects are not followed. Raises as `HttpClient.send_once` and `HttpResponse.read`.
    """
    response = await client.send_once(await as_ours(theirs))
    try:
        answer = _as_httpx2(response, theirs, allowed)
        await answer.aread()
        return answer
    finally:
        await response.aclose()


async def as_ours(theirs: httpx2.Request) -> HttpRequest:
    """Convert a request of httpx2's to one of ours."""
    # A flow may have made this request itself, with a body that has not been read.
    content = await theirs.aread()
    return HttpRequest(
        method=theirs.method,
        url=WebAddress.parse(str(httpx2.URL(theirs.url))),  # a URL may print less than it requests
        headers=_without(theirs.headers.raw, b"host", b"content-length", b"transfer-encoding"),
        content=content,
    )


def _as_httpx2(response: HttpResponse, theirs: httpx2.Request, allowed: int) -> httpx2.Response:
    headers = _without(response.raw_headers, b"content-encoding", b"content-length", b"transfer-encoding")
    answer = httpx2.Response(
        response.status, headers=headers, stream=_Body(response, allowed), request=theirs
    )
    to = response.location
    following = within_origin(response.request, response, to) if to is not None else None
    if following is not None:
        # As httpx2's client does, for flows that follow redirects themselves: the SDK's providers do.
        answer.next_request = httpx2.Request(
            theirs.method, str(following.url), headers=theirs.headers, content=following.content
        )
    return answer


def _without(headers: Headers, *names: bytes) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in names]


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, for a flow that reads it. `HttpResponse.receive` returns it again afterwards."""

    def __init__(self, response: HttpResponse, allowed: int) -> None:
        self._response = response
        self._allowed = allowed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield await self._response.read_ahead(self._allowed)
