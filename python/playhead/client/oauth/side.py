"""The requests an OAuth flow makes for itself: metadata, registration, tokens.

Their URLs are chosen by the server, so those that lead away from its own origin go through the guarded
client (`playhead.net_guard`): a server must not make this machine read its private network. Answers are
small, or refused.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import trio

from playhead.client.transports.http_body import read_at_most
from playhead.errors import ConnectionLostError, DeadlineError
from playhead.limits import KIB, Limits
from playhead.net_guard import GuardedTransport, Origin, parse_origins

ANSWER_BYTES = 256 * KIB
"""Authorization server metadata with every optional field is a few KiB."""

FRAMING = (b"content-length", b"transfer-encoding")


class SideRequests:
    """Made by `open_side`."""

    def __init__(self, own: httpx2.AsyncClient, guarded: httpx2.AsyncClient, *, origin: str, limits: Limits):
        self._own = own
        self._guarded = guarded
        self._origin = origin
        self._limits = limits

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, read whole. Redirects are not followed here.

        Raises `TransportError` where none came, `LimitError` for a body past 256 KiB, `BlockedAddressError`
        for a private address that the user did not allow.
        """
        limits = self._limits
        request.headers["accept-encoding"] = "identity"
        timeout = httpx2.Timeout(limits.page_seconds, connect=limits.connect_seconds)
        request.extensions = {**request.extensions, "timeout": timeout.as_dict()}
        client = self._own if origin_of(request.url) == self._origin else self._guarded
        place = request.url.copy_with(userinfo=b"", query=None, fragment=None)
        with trio.move_on_after(limits.page_seconds):
            try:
                response = await client.send(request, stream=True, auth=None, follow_redirects=False)
                try:
                    body = await read_at_most(response, ANSWER_BYTES, touched=lambda: None)
                finally:
                    await response.aclose()
            except httpx2.RequestError as error:
                raise ConnectionLostError(
                    f"no answer from {place}, which the authorization needs ({type(error).__name__})"
                ) from None
            headers = [(name, value) for name, value in response.headers.raw if name.lower() not in FRAMING]
            whole = httpx2.Response(response.status_code, headers=headers, content=body, request=request)
            # Where a redirect leads was worked out by the client; the SDK follows it within the origin.
            whole.next_request = response.next_request
            return whole
        raise DeadlineError(
            f"{place}, which the authorization needs, gave no answer in {limits.page_seconds:g} s"
        )


def origin_of(url: httpx2.URL) -> str:
    """`scheme://host:port` of `url`, for comparison."""
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return f"{url.scheme}://{url.host}:{port}"


@asynccontextmanager
async def open_side(
    url: httpx2.URL, *, verify: ssl.SSLContext | bool, allow_origins: Collection[str], limits: Limits
) -> AsyncIterator[SideRequests]:
    """Clients for one flow for the server at `url`; its own origin is reached as the user configured it."""
    context = verify if isinstance(verify, ssl.SSLContext) else None
    if verify is False:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    allowed: frozenset[Origin] = parse_origins(allow_origins)
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(httpx2.AsyncClient(verify=verify))
        guarded = await stack.enter_async_context(
            httpx2.AsyncClient(
                transport=GuardedTransport(allow_origins=allowed, ssl_context=context), trust_env=False
            )
        )
        yield SideRequests(own, guarded, origin=origin_of(url), limits=limits)
