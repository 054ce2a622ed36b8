"""Drive an `httpx2.Auth` over our client: its flow sees httpx2's requests and responses, made here only.

`httpx2.Auth` is the interface that programs, the SDK's OAuth providers and signers of single requests have in
common. This is the one place where the client loads httpx2, and it does so for those who bring an `Auth`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import httpx2

from playhead.client.transports.http_client import (
    Headers,
    HttpClient,
    HttpRequest,
    HttpResponse,
    within_origin,
)
from playhead.web_address import WebAddress


async def send_authorized(
    client: HttpClient, auth: httpx2.Auth, request: HttpRequest, *, allowed: int
) -> HttpResponse:
    """Send `request`, and whatever the flow asks for before and after it. Returns the last answer.

    `allowed` is the longest body that a flow may read. Raises what the flow raises, and as
    `HttpClient.send_once`. Cancelled: the flow and its answer are closed.
    """
    shown = httpx2.Request(request.method, str(request.url), headers=request.headers, content=request.content)
    async with aclosing(auth.async_auth_flow(shown)) as flow:
        asked = await anext(flow)
        while True:
            sent = await _as_ours(asked, request)
            response = await client.send_once(sent)
            try:
                answer = _as_httpx2(response, asked, allowed)
                try:
                    asked = await flow.asend(answer)
                except StopAsyncIteration:
                    return response
            except BaseException:
                await response.aclose()
                raise
            await response.drain()


async def _as_ours(asked: httpx2.Request, first: HttpRequest) -> HttpRequest:
    # A flow may have made this request itself, with a body that has not been read.
    content = await asked.aread()
    return replace(
        first,
        method=asked.method,
        url=WebAddress.parse(str(httpx2.URL(asked.url))),  # a URL may print less than it requests
        headers=_without(asked.headers.raw, b"host", b"content-length", b"transfer-encoding"),
        content=content,
    )


def _as_httpx2(response: HttpResponse, asked: httpx2.Request, allowed: int) -> httpx2.Response:
    headers = _without(response.raw_headers, b"content-encoding", b"content-length", b"transfer-encoding")
    answer = httpx2.Response(response.status, headers=headers, stream=_Body(response, allowed), request=asked)
    to = response.location
    following = within_origin(response.request, response, to) if to is not None else None
    if following is not None:
        # As httpx2's client does, for flows that follow redirects themselves: the SDK's providers do.
        answer.next_request = httpx2.Request(
            asked.method, str(following.url), headers=asked.headers, content=following.content
        )
    return answer


def _without(headers: Headers, *names: bytes) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in names]


class _Body(httpx2.AsyncByteStream):
    """The body of an answer for a flow that reads it. The answer has it afterwards, too."""

    def __init__(self, response: HttpResponse, allowed: int) -> None:
        self._response = response
        self._allowed = allowed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield await self._response.read_ahead(self._allowed)
