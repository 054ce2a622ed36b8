"""The opening of a WebSocket: TCP, TLS, and the upgrade of RFC 6455, section 4.1."""

from __future__ import annotations

import base64
import math
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.client import responses
from typing import TYPE_CHECKING

import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from playhead.client.transports.http_errors import place_of, unreachable
from playhead.client.transports.tls import default_tls_context, tls_reason
from playhead.errors import AccessDeniedError, ConfigError, ConnectError, UpgradeRefusedError, UsageError
from playhead.limits import KIB, Limits
from playhead.web_address import WebAddress

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions:
    """Settings of a WebSocket endpoint. None of them is ever shown."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with the upgrade. Servers that guard against web pages may require an `Origin`."""
    auth: httpx2.Auth | None = field(default=None, repr=False)
    """Any `httpx2.Auth` that needs no second request; one that contacts another server is a `ConfigError`."""
    verify: ssl.SSLContext | None = None
    """TLS: authorities and client certificate; None for the system's authorities."""
    subprotocols: tuple[str, ...] = ("mcp",)
    """The subprotocols to offer. None is required, because existing servers choose none."""
    ping_seconds: float = 20.0
    """The silence after which the server is pinged. Proxies drop a connection after a silence of 30 to 60
    s."""
    pong_seconds: float = 60.0
    """The longest silence after a ping while no request is in flight. A request has its own deadline, because
    servers that handle one message at a time answer no ping while a tool runs."""


RECEIVE_BYTES = 64 * KIB
"""The largest read of the socket. Larger ones retain megabytes per stream, for the same CPU time."""

_OF_THE_HANDSHAKE = ("host", "connection", "upgrade")


@asynccontextmanager
async def opened(
    url: str, limits: Limits, options: WebSocketOptions
) -> AsyncIterator[tuple[trio.abc.Stream, str | None, bytes]]:
    """Open a connection, and give its stream, the server's choice of subprotocol, and the frames that arrived
    with the upgrade. Leaving closes the stream without a close frame.

    Raises `ConnectError` if the server can't be reached, TLS failed, the answer is invalid or
    `Limits.connect_seconds` have passed, its subclass `UpgradeRefusedError` for an HTTP status,
    `AccessDeniedError` for 401 and 403, `UsageError` for an invalid URL or headers that can't be sent, and
    `ConfigError` if `auth` needs more than one request.
    """
    try:
        address = WebAddress.parse(url)
    except ValueError as error:
        raise UsageError(f"expected the URL of a WebSocket server: {error}") from None
    with trio.move_on_after(limits.connect_seconds) as scope:
        stream = await open_stream(address, verify=options.verify)
        try:
            subprotocol, received = await upgrade(stream, address, options)
            scope.deadline = math.inf
            yield stream, subprotocol, received
        finally:
            await trio.aclose_forcefully(stream)
    if scope.cancelled_caught:
        raise ConnectError(
            f"{place_of(url)} did not open a WebSocket in {limits.connect_seconds:g} s"
            " (Limits.connect_seconds)"
        )


async def open_stream(url: WebAddress, *, verify: ssl.SSLContext | None) -> trio.abc.Stream:
    """Connect, with TLS for `wss`. Cancelled, it leaves nothing open."""
    place = place_of(str(url))
    try:
        plain = await trio.open_tcp_stream(url.host, url.effective_port)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label of the name is too long for DNS
        raise ConnectError(unreachable(place, error)) from error
    if url.scheme != "wss":
        return plain
    context = verify or default_tls_context()
    stream = trio.SSLStream(plain, context, server_hostname=url.host, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException as error:  # cancelled too: the socket would stay open
        await trio.aclose_forcefully(stream)
        if isinstance(error, trio.BrokenResourceError):
            reason = tls_reason(error) or "it ended the connection in the TLS handshake"
            raise ConnectError(f"could not connect to {place}: {reason}") from error
        raise
    return stream


async def upgrade(
    stream: trio.abc.Stream, url: WebAddress, options: WebSocketOptions
) -> tuple[str | None, bytes]:
    """Upgrade `stream` to a WebSocket."""
    place = place_of(str(url))
    headers = dict(options.headers)
    for name, value in (await _credentials(options.auth, url, place)).items():
        for other in [other for other in headers if other.lower() == name.lower()]:
            del headers[other]  # replaced, as over HTTP
        headers[name] = value
    for name in headers:
        if name.lower() in _OF_THE_HANDSHAKE or name.lower().startswith("sec-websocket-"):
            raise UsageError(f"the header {name!r} belongs to the WebSocket handshake and can't be set")
    connection = WSConnection(ConnectionType.CLIENT)
    try:
        opening = connection.send(
            Request(
                host=url.host_and_port,
                target=url.target,
                subprotocols=list(options.subprotocols),
                extra_headers=[(name.encode("ascii"), value.encode()) for name, value in headers.items()],
            )
        )
    except (LocalProtocolError, h11.LocalProtocolError, UnicodeError):
        # Not the library's text: it quotes the value.
        raise UsageError(f"expected valid HTTP headers for {place}, got an invalid name or value") from None
    try:
        await stream.send_all(opening)
        while chunk := await stream.receive_some(RECEIVE_BYTES):
            end = 0
            while end < len(chunk):  # line by line: what follows the last one are frames
                start, end = end, chunk.find(b"\n", end) + 1 or len(chunk)
                connection.receive_data(bytes(chunk[start:end]))
                for event in connection.events():
                    match event:
                        case AcceptConnection():
                            return event.subprotocol, bytes(chunk[end:])
                        case RejectConnection():
                            raise _refused(event.status_code, place)
                        case _:
                            break
    except trio.BrokenResourceError:
        pass  # reported below, like an end without an answer
    except RemoteProtocolError as error:
        raise ConnectError(
            f"{place} did not accept the WebSocket upgrade (invalid answer): is it a WebSocket endpoint?"
        ) from error
    secure = url.scheme == "wss"
    hint = "does it require a client certificate (tls.certificate)?" if secure else "does it require wss:?"
    raise ConnectError(f"{place} ended the connection before it answered the WebSocket upgrade; {hint}")


def _refused(status: int, place: str) -> AccessDeniedError | UpgradeRefusedError:
    answer = f"HTTP {status} {responses.get(status, '')}".rstrip()
    if status in (401, 403):
        return AccessDeniedError(
            f"{place} refused access with {answer}: set valid credentials under `headers` or `auth`; some"
            " servers require an `Origin` header, and some answer a wrong path like this",
            status=status,
        )
    return UpgradeRefusedError(
        f"{place} did not accept the WebSocket upgrade ({answer}): is the path correct, and does it speak"
        " WebSocket?",
        status=status,
    )


async def _credentials(auth: httpx2.Auth | None, url: WebAddress, place: str) -> dict[str, str]:
    """Return the headers that `auth`, or the user and password in the URL, add to the upgrade."""
    if auth is None:
        if url.credentials is None:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(":".join(url.credentials).encode()).decode()}
    import httpx2

    scheme = "https" if url.scheme == "wss" else "http"
    bare = httpx2.Request("GET", f"{scheme}://{url.host_and_port}{url.target}")
    over_http, before = bare.url, set(bare.headers.raw)
    flow = auth.async_auth_flow(bare)
    try:
        request = await anext(flow)
    finally:
        await flow.aclose()
    if request.url != over_http:
        raise ConfigError(
            f"{place}: expected `auth` to need no other server for a WebSocket; set a bearer token or a"
            " header"
        )
    return {
        name.decode("ascii"): value.decode("latin-1")
        for name, value in request.headers.raw
        if (name, value) not in before
    }
