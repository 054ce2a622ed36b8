"""Streamable HTTP: a POST per message, answered with JSON or with a stream of events.

    request ──POST──▶  JSON: the answer          events: messages of the server's, and the answer among them
    tell    ──POST──▶  202
    listen  ──GET───▶  events: messages of the server's own accord (revisions with sessions)

A message that arrives on the POST of a request may answer that request and no other. A body that ends without
the answer loses the request at once. Exception: an event stream is resumed if the revision has resumption and
one of its events had an id. The differences between revisions are in the table of `protocol.revisions`.

Every byte of a JSON body is a sign of life. In the events of a POST, `protocol.inbox` decides which bytes
are; the server's own stream gives none. Reading and writing have no time limit here: deadlines are the
session's.
"""

from __future__ import annotations

import base64
import codecs
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from playhead.client.transports.carrier import Carrier, Receiver
from playhead.client.transports.http_client import (
    TRANSPORT_ERRORS,
    Headers,
    HttpClient,
    HttpRequest,
    HttpResponse,
)
from playhead.client.transports.http_errors import (
    check_status,
    connection_error,
    place_of,
    unanswered,
    unfollowed,
    unnamed_refusal,
)
from playhead.client.transports.http_proxies import environment_proxies
from playhead.errors import ConnectionLostError, HttpStatusError, LimitError, PlayheadError
from playhead.limits import KIB, Limits
from playhead.protocol.event_stream import EventStream
from playhead.protocol.exchange import Outgoing, SignOfLife
from playhead.protocol.inbox import Inbox
from playhead.web_address import WebAddress

if TYPE_CHECKING:
    import httpx2

COURTESY_SECONDS: Final = 2.0
"""Limits the time of the DELETE that ends a session, because a silent server must not delay the close."""
NOTIFICATION_SECONDS: Final = 10.0
STREAM_SECONDS: Final = 1.0
"""Limits the first call's wait for the server's own stream, which was requested after the handshake. Most
servers have answered by then; a server that answers only with its first event costs this second once."""
RECONNECT_SECONDS: Final = 1.0
"""The wait before a stream is opened again, unless the server sets another with `retry`."""
TRIES: Final = 2
"""The failed attempts in a row after which a stream is given up."""
ERROR_BODY_BYTES: Final = 64 * KIB

_SESSION_ID: Final = "mcp-session-id"
_POST_HEADERS: Final = [
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
]
_GET_HEADERS: Final = [(b"accept", b"text/event-stream"), (b"cache-control", b"no-store")]


class HttpCarrier(Carrier):
    """A Streamable HTTP endpoint."""

    repeat_via = "request"

    def __init__(
        self,
        url: str,
        *,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
        tls: ssl.SSLContext | None = None,
        wait_for_stream: bool = False,
    ) -> None:
        """
        Args:
            headers: sent with every request, and never shown. `auth` is not shown either.
            auth: any `httpx2.Auth`, such as the SDK's OAuth providers.
            tls: replaces the default context.
            wait_for_stream: make the first call wait, at most `STREAM_SECONDS`, until the server's own stream
                is open. While it is not, some servers drop their questions to the user, and the call never
                ends.

        Raises `ConfigError` for a proxy in the environment that cannot be used.
        """
        address = WebAddress.parse(url)
        self._url = replace(address, userinfo="", fragment=None)
        self._place = place_of(url)
        self._limits = limits
        self._headers: Headers = [
            (name.lower().encode(), value.encode()) for name, value in (headers or {}).items()
        ]
        if auth is None and address.credentials is not None:
            credentials = base64.b64encode(":".join(address.credentials).encode())
            self._headers = [pair for pair in self._headers if pair[0] != b"authorization"]
            self._headers.append((b"authorization", b"Basic " + credentials))
        self._client = HttpClient(
            tls=tls,
            auth=auth,
            proxies=environment_proxies(),
            time_limits={"connect": limits.connect_seconds},
            body_bytes=limits.message_bytes,
        )
        self._session_id: bytes | None = None
        self._stream_tried = trio.Event()
        """Set once the server's own stream is open or refused."""
        if not wait_for_stream:
            self._stream_tried.set()
        self._receiver: Receiver
        self._nursery: trio.Nursery

    # --- the carrier's interface ---------------------------------------------------------------------

    @property
    def closing_cancels(self) -> bool:
        return self._receiver.exchange.revision.closing_cancels

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[None]:
        """Open without sending anything. At the end of the block, end the session on the server (within 2 s),
        unless cancelled."""
        self._receiver = receiver
        async with self._client, trio.open_nursery() as self._nursery:
            try:
                yield
            finally:
                receiver.lost(ConnectionLostError(f"the connection to {self._place} was closed"))
                await self._end_session()
                self._nursery.cancel_scope.cancel()

    async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
        if outgoing.method == "tools/call" and not self._stream_tried.is_set():
            with trio.move_on_after(STREAM_SECONDS):
                await self._stream_tried.wait()
            self._stream_tried.set()
        try:
            response = await self._client.send(self._message(outgoing.data, outgoing, is_fresh=is_repeat))
            try:
                await self._take_answer(response, outgoing)
            except BaseException:  # a cancellation too: the answer holds a connection
                await response.aclose()
                raise
        except (*TRANSPORT_ERRORS, OSError) as error:
            raise connection_error(error, str(self._url)) from error

    async def tell(self, data: bytes, *, given_up: Outgoing | None = None) -> None:
        await self._send_unawaited(self._message(data, None), seconds=NOTIFICATION_SECONDS)

    async def listen(self) -> None:
        events = EventStream(max_bytes=self._limits.message_bytes)
        tries = 0
        while self._session_id is not None and tries < TRIES:
            tries += 1
            with suppress(*TRANSPORT_ERRORS, OSError, PlayheadError):
                response = await self._client.send(self._stream(events.last_event_id))
                try:
                    if response.status == 405:
                        break
                    if _is_event_stream(response):
                        self._stream_tried.set()
                        tries = 0
                        await self._receive_events(response, events, None)
                finally:
                    await response.aclose()
            self._stream_tried.set()
            await trio.sleep(_pause(events))
        self._stream_tried.set()

    # --- requests ------------------------------------------------------------------------------------

    def _message(self, data: bytes, outgoing: Outgoing | None, *, is_fresh: bool = False) -> HttpRequest:
        headers = [*self._headers, *_POST_HEADERS, *self._revision_headers(outgoing)]
        return HttpRequest(method="POST", url=self._url, headers=headers, content=data, is_fresh=is_fresh)

    def _stream(self, last_event_id: bytes) -> HttpRequest:
        resumed = [(b"last-event-id", last_event_id)] if last_event_id else []
        headers = [*self._headers, *_GET_HEADERS, *self._revision_headers(None), *resumed]
        return HttpRequest(method="GET", url=self._url, headers=headers)

    def _revision_headers(self, outgoing: Outgoing | None) -> Headers:
        headers = self._receiver.exchange.headers(outgoing)
        if self._session_id is not None:
            headers.append((_SESSION_ID.encode(), self._session_id))
        return headers

    async def _end_session(self) -> None:
        if self._session_id is None:
            return
        headers = [*self._headers, *self._revision_headers(None)]
        request = HttpRequest(method="DELETE", url=self._url, headers=headers)
        await self._send_unawaited(request, seconds=COURTESY_SECONDS)

    async def _send_unawaited(self, request: HttpRequest, *, seconds: float) -> None:
        """Send a request whose answer nobody waits for; failures are not reported."""
        with trio.move_on_after(seconds), suppress(*TRANSPORT_ERRORS, OSError, PlayheadError):
            await (await self._client.send(request)).drain()

    # --- answers -------------------------------------------------------------------------------------

    async def _take_answer(self, response: HttpResponse, outgoing: Outgoing) -> None:
        """Hand the answer to the receiver, and close `response`. Raises a `PlayheadError` without one."""
        if response.status >= 300:
            await self._take_refusal(response, outgoing)
            return
        if outgoing.method == "initialize" and _SESSION_ID in response.headers:
            self._session_id = response.headers[_SESSION_ID].encode("latin-1")
        if response.status == 202:
            raise HttpStatusError(
                f"expected {self._place} to answer {outgoing.method}, got HTTP 202, which promises no answer;"
                " report it to the author of the server",
                status=response.status,
            )
        if _is_event_stream(response):
            await self._take_events(response, outgoing)
            return
        kind = response.content_type
        if kind != "application/json" and not kind.endswith("+json"):
            raise HttpStatusError(
                f"{self._place} answered {outgoing.method} with HTTP {response.status} and"
                f" {kind or 'no content type'} instead of JSON: is it an MCP endpoint?",
                status=response.status,
            )
        sign = [SignOfLife(outgoing.id)]
        content = await response.read(self._limits.message_bytes, touched=lambda: self._receiver.take(sign))
        await response.aclose()
        # RFC 8259, section 8.1: a receiver may ignore a byte order mark.
        self._take_body(content.removeprefix(codecs.BOM_UTF8), outgoing.id, status=response.status)

    def _is_answered(self, id: int | str) -> bool:
        return not self._receiver.exchange.awaits(str(id))

    def _take_body(self, content: bytes, id: int | str, *, status: int) -> None:
        self._receiver.take(self._receiver.exchange.receive(content, only=id))
        if not self._is_answered(id):
            raise unanswered(content, id, self._limits, place=self._place, status=status)

    async def _take_refusal(self, response: HttpResponse, outgoing: Outgoing) -> None:
        if "location" in response.headers:
            raise unfollowed(response.location, status=response.status, place=self._place)
        content = b""
        with suppress(LimitError):  # the status says enough: a gateway's page may be of any length
            content = (await response.read(ERROR_BODY_BYTES)).removeprefix(codecs.BOM_UTF8)
        await response.aclose()
        check_status(
            response.status,
            response.reason,
            response.headers,
            content,
            place=self._place,
            in_session=self._session_id is not None,
            now=time.time(),
        )
        unnamed = unnamed_refusal(content, method=outgoing.method, server=self._place)
        if unnamed is not None:
            raise unnamed
        self._take_body(content, outgoing.id, status=response.status)

    # --- event streams -------------------------------------------------------------------------------

    async def _take_events(self, response: HttpResponse, outgoing: Outgoing) -> None:
        """Receive messages until the request is answered, also on the streams that resume this one."""
        events = EventStream(max_bytes=self._limits.message_bytes)
        failure = f"the event stream from {self._place} ended without an answer"
        current: HttpResponse | None = response
        tries = 0
        while current is not None:
            resumed_from = events.last_event_id
            try:
                await self._receive_events(current, events, outgoing)
            except TRANSPORT_ERRORS as error:
                failure = (
                    f"the event stream from {self._place} broke before the answer ({type(error).__name__})"
                )
            except BaseException:  # a cancellation too: the stream holds a connection
                await current.aclose()
                raise
            if self._is_answered(outgoing.id):
                # Only the end of the body is left, and the caller need not wait for it.
                self._nursery.start_soon(current.drain)
                return
            await current.aclose()
            if events.last_event_id != resumed_from:
                tries = 0
            current = None
            while current is None and tries < TRIES and self._may_resume(events):
                tries += 1
                current = await self._resume(events)
        raise ConnectionLostError(failure)

    def _may_resume(self, events: EventStream) -> bool:
        return self._receiver.exchange.revision.has_resumption and events.last_event_id != b""

    async def _resume(self, events: EventStream) -> HttpResponse | None:
        """Open the stream again after its last event; None if the server answers with something else."""
        await trio.sleep(_pause(events))
        with suppress(*TRANSPORT_ERRORS, OSError):
            response = await self._client.send(self._stream(events.last_event_id))
            if _is_event_stream(response):
                return response
            await response.drain()
        return None

    async def _receive_events(
        self, response: HttpResponse, events: EventStream, outgoing: Outgoing | None
    ) -> None:
        """Pass on the messages of one stream until it ends or `outgoing` is answered. Without `outgoing` it
        is the server's own stream."""
        only = None if outgoing is None else outgoing.id
        events.restart()
        inbox = Inbox(self._receiver.exchange, self._limits, events, only=only)
        while chunk := await response.receive():
            if only is None:
                self._receiver.take(each for each in inbox.receive(chunk) if not isinstance(each, SignOfLife))
            else:
                self._receiver.take(inbox.receive(chunk))
            if inbox.failure is not None:
                raise inbox.failure
            if only is not None and self._is_answered(only):
                return


def _is_event_stream(response: HttpResponse) -> bool:
    return response.status < 300 and response.content_type == "text/event-stream"


def _pause(events: EventStream) -> float:
    return RECONNECT_SECONDS if events.retry_seconds is None else events.retry_seconds
