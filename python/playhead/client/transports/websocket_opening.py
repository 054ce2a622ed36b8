"""From a URL to an open WebSocket: TCP, TLS, and the upgrade of RFC 6455, section 4.1."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.client import responses

import h11
import httpx2
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from playhead.client.transports.http_answers import place_of
from playhead.client.transports.tls_errors import tls_reason
from playhead.errors import AccessDeniedError, ConfigError, ConnectError, UpgradeRefusedError, UsageError
from playhead.limits import KIB

RECEIVE_BYTES = 256 * KIB
"""One read of the socket. A page of 1 MiB in one frame costs 1.1 ms so, 1.8 ms with 64 KiB, 5.2 with 4."""

_OF_THE_HANDSHAKE = ("host", "connection", "upgrade")


async def open_stream(url: httpx2.URL, *, verify: ssl.SSLContext | bool) -> trio.abc.Stream:
    """A connection to where `url` leads, with TLS where it is `wss`.

    Raises `ConnectError`, with the reason where TLS failed. Cancelled, it leaves nothing open.
    """
    secure = url.scheme == "wss"
    place = place_of(str(url))
    try:
        plain = await trio.open_tcp_stream(url.host, url.port or (443 if secure else 80))
    except (OSError, UnicodeError) as error:  # a part of the name is too long for DNS
        raise ConnectError(f"no connection to {place} ({error}): is the server running there?") from error
    if not secure:
        return plain
    context = verify if isinstance(verify, ssl.SSLContext) else httpx2.create_ssl_context(verify=verify)
    stream = trio.SSLStream(plain, context, server_hostname=url.host, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException as error:  # cancelled, too: a socket that nobody has would stay open
        await trio.aclose_forcefully(stream)
        if isinstance(error, trio.BrokenResourceError):
            reason = tls_reason(error) or "it ended the connection in the TLS handshake"
            raise ConnectError(f"no connection to {place}: {reason}") from error
        raise
    return stream


async def upgrade(
    stream: trio.abc.Stream,
    url: httpx2.URL,
    *,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    subprotocols: tuple[str, ...],
) -> tuple[WSConnection, str | None]:
    """Ask for a WebSocket on `stream`; gives it, and the subprotocol, once the server has agreed.

    A subprotocol is offered, not demanded: a server may choose none. Raises `AccessDeniedError` for HTTP 401
    and 403, `UpgradeRefusedError` for any other HTTP answer, `ConnectError` for what is no answer, and
    `UsageError` for headers that can't be sent.
    """
    place = place_of(str(url))
    connection = WSConnection(ConnectionType.CLIENT)
    sent = httpx2.Headers(headers)
    if auth is not None:  # in place of a header of that name, as over HTTP
        sent.update(await _credentials(auth, url, place))
    for name in sent:
        if name.lower() in _OF_THE_HANDSHAKE or name.lower().startswith("sec-websocket-"):
            raise UsageError(f"the header {name!r} belongs to the WebSocket handshake and can't be set")
    request = Request(
        host=url.netloc.decode("ascii"),
        target=url.raw_path.decode("ascii"),
        subprotocols=list(subprotocols),
        extra_headers=sent.raw,
    )
    try:
        opening = connection.send(request)
    except (LocalProtocolError, h11.LocalProtocolError):
        # Not the library's words: they quote the value.
        raise UsageError(f"expected headers that HTTP allows for {place}, got one that it doesn't") from None
    try:
        await stream.send_all(opening)
        while chunk := await stream.receive_some(RECEIVE_BYTES):
            connection.receive_data(bytes(chunk))
            for event in connection.events():
                match event:
                    case AcceptConnection():
                        # Frames that came with it stay in there, unparsed.
                        return connection, event.subprotocol
                    case RejectConnection():
                        raise _refused(event.status_code, place)
                    case _:
                        break
    except trio.BrokenResourceError:
        pass  # said below, as when it ends without a word
    except RemoteProtocolError as error:
        raise ConnectError(
            f"expected {place} to open a WebSocket, got an answer that is none: is it a WebSocket endpoint?"
        ) from error
    secure = url.scheme == "wss"
    hint = "does the server want a client certificate (tls.certificate)?" if secure else "does it want wss:?"
    raise ConnectError(f"{place} ended the connection before it answered the request for a WebSocket; {hint}")


def _refused(status: int, place: str) -> AccessDeniedError | UpgradeRefusedError:
    said = f"HTTP {status} {responses.get(status, '')}".rstrip()
    if status in (401, 403):
        return AccessDeniedError(
            f"{place} refused access with {said}: give (other) credentials under `headers` or `auth`; some"
            " servers want an `Origin` among the headers, and some answer a wrong path like this",
            status=status,
        )
    return UpgradeRefusedError(
        f"expected {place} to open a WebSocket, got {said}: is the path right, and does it speak WebSocket?",
        status=status,
    )


async def _credentials(auth: httpx2.Auth, url: httpx2.URL, place: str) -> dict[str, str]:
    """The headers that `auth` puts on its first request. There is one request here, and no second."""
    over_http = url.copy_with(scheme="https" if url.scheme == "wss" else "http", userinfo=b"")
    bare = httpx2.Request("GET", over_http)
    before = set(bare.headers.raw)
    flow = auth.async_auth_flow(bare)
    try:
        request = await anext(flow)
    finally:
        await flow.aclose()
    if request.url != over_http:
        raise ConfigError(
            f"{place}: this `auth` has to ask another server first, and that is not done for a WebSocket;"
            " give a bearer token, or a header"
        )
    return {
        name.decode("ascii"): value.decode("latin-1")
        for name, value in request.headers.raw
        if (name, value) not in before
    }
