"""Read a reply from an HTTP response: its bytes, its events, the provider's decoder, and every way to fail.

The official SDKs send the requests, but their streams are not used: those are nested generators, which trio
can't close when a reply is abandoned midway, and their event decoder has no bound.

Errors are in this package's tree and hold no keys. An HTTP status instead of a reply is a `ModelError`,
whatever the status: the provider answered. A failed connection is a `TransportError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx2
import trio

from playhead.agent.conversation import Provider, ReplyPiece
from playhead.agent.models.json_fields import parse_event, shortened
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ModelError,
    TransportError,
)
from playhead.limits import DEFAULT_LIMITS, KIB, Limits
from playhead.redacted_request import redact_query

_KEYS: Final = re.compile(
    r"\b(?:sk|pk|gsk|xai)[-_][^\s\"',;]{6,}|\bAIza[\w-]{6,}|\bBearer\s+\S+", re.IGNORECASE
)
"""Strings that look like a key: providers quote one (or its ends) when they refuse it."""


def status_error(
    status: int,
    body: object,
    *,
    provider: Provider,
    place: str,
    headers: Mapping[str, str],
    key: str | None = None,
) -> ModelError:
    """Make the error for an HTTP status other than success.

    Args:
        body: the parsed JSON, or its text.
        place: the host that answered.
        headers: of the answer.
        key: never quoted.
    """
    said = redact_keys(_said(body), key)
    quoted = f": {shortened(said)}" if said else ""
    wait = _wait_seconds(headers)
    match status:
        case 401 | 403:
            # The provider is not quoted here: it might quote the key.
            text = f"{place} refused the key (HTTP {status}); use one that has access to this model"
        case 404:
            text = f"{place} does not know this model or URL (HTTP 404){quoted}; check model and base_url"
        case 413:
            text = f"{place} refused a request of this size (HTTP 413){quoted}; send a shorter conversation"
        case 429:
            until = "" if wait is None else f"; retry after {wait:g} s"
            text = f"{place} refused the request for now (HTTP 429){quoted}{until}"
        case _ if 300 <= status < 400:
            text = (
                f"{place} redirects (HTTP {status}), which is not followed: the key would be sent along;"
                " set base_url to the new address if you trust it"
            )
        case _ if status >= 500:
            text = f"{place} failed (HTTP {status}){quoted}; try again later"
        case _:
            text = f"{place} refused the request (HTTP {status}){quoted}"
    return ModelError(text, provider=provider, status=status, retry_after_seconds=wait)


def transport_error(error: BaseException | None, *, place: str) -> TransportError:
    """Make the error for a missing or incomplete response; it never quotes the HTTP library."""
    kind = type(error).__name__
    match error:
        case httpx2.ConnectTimeout() | httpx2.ConnectError():
            return ConnectError(f"could not connect to {place} ({kind}); check base_url and the network")
        case httpx2.TimeoutException():
            return DeadlineError(
                f"{place} sent nothing for too long ({kind}); raise timeout_seconds, or retry"
            )
        case _:
            return ConnectionLostError(
                f"the connection to {place} failed before the reply was complete ({kind})"
            )


def redact_keys(text: str, key: str | None) -> str:
    """Remove `key` from `text`, and anything that looks like one."""
    if key:
        text = text.replace(key, "[key]")
    return _KEYS.sub("[key]", text)


def parsed_body(content: bytes) -> object:
    """Parse the body of an error: JSON, or plain text otherwise."""
    text = content.decode("utf-8", errors="replace")
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return parsed


def _said(body: object) -> str:
    """Find the message in `{"error": {"message"}}`, `{"message"}`, `{"error": "…"}`, or plain text."""
    while isinstance(body, Mapping):
        body = body.get("error") or body.get("message") or body.get("detail")
    text = body if isinstance(body, str) else ""
    return "" if text.lstrip().startswith("<") else " ".join(text.split())  # an HTML page says nothing


def _wait_seconds(headers: Mapping[str, str]) -> float | None:
    asked = headers.get("retry-after", "").strip()
    # The other form, a date, would need a clock.
    return float(asked) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", asked) else None


ERROR_BODY_BYTES: Final = 64 * KIB
"""The part of an error's body that is read: the message is in the first few hundred bytes."""
DRAIN_BYTES: Final = 64 * KIB
DRAIN_SECONDS: Final = 0.1
"""As in OpenAI's own SDK: after `[DONE]` only the closing chunk is due; once it is read, the connection can
be reused for the next round."""


class Body:
    """The decoded bytes of `response`; close it in every case.

    The HTTP library nests generators, and one of them doesn't close the next: trio would notice at garbage
    collection. So a response that is left early is closed at the bottom first, and then read to its (now
    near) end, which ends all of them.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.place = response.request.url.host
        self.complete = False
        """Set it once nothing relevant can follow; the connection is then reused if possible."""
        self._response = response
        self._chunks = response.aiter_bytes()
        self._over = False

    async def receive_some(self) -> bytes | None:
        """Return the next bytes; None at the end.

        Raises `ConnectionLostError` or `DeadlineError` if the connection fails.
        """
        try:
            chunk = await anext(self._chunks, None)
        except httpx2.HTTPError as error:
            self._over = True
            raise transport_error(error, place=self.place) from error
        except BaseException:  # including cancellation: an abandoned generator can't be resumed
            self._over = True
            raise
        self._over = chunk is None
        return chunk

    async def aclose(self) -> None:
        """Release the connection. After cancellation it is closed."""
        try:
            if self.complete and not self._over:
                with trio.move_on_after(DRAIN_SECONDS):
                    await self._discard(DRAIN_BYTES)
            if not self._over:
                await self._response.aclose()
                await self._discard(None)
        finally:
            await self._response.aclose()
            await self._chunks.aclose()

    async def _discard(self, most_bytes: int | None) -> None:
        got = 0
        while not self._over and (most_bytes is None or got < most_bytes):
            try:
                chunk = await anext(self._chunks, None)
            except (httpx2.HTTPError, httpx2.StreamError):
                chunk = None  # closed, as intended
            except BaseException:  # as in `receive_some`
                self._over = True
                raise
            self._over = chunk is None
            got += len(chunk or b"")


async def redact_logged_url(request: httpx2.Request) -> None:
    """A hook for an SDK's HTTP client: it logs the URL without password and query."""
    redact_query(request)


async def bound_error(response: httpx2.Response) -> None:
    """A hook for an SDK's HTTP client, which reads the whole body of an error, however long, and raises what
    fails there. An unsuccessful `response` gets a body that ends after `ERROR_BODY_BYTES`, or where the
    connection breaks. The status is known; the body only improves the message.
    """
    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Beginning(response.stream)


class _Beginning(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ERROR_BODY_BYTES
        chunks = aiter(self._stream)
        try:
            while left > 0 and (chunk := await anext(chunks, None)) is not None:
                yield chunk[:left]
                left -= len(chunk)
            await self._stream.aclose()
            while await anext(chunks, None) is not None:
                pass  # closed: near its end, which ends the library's generators too (see `Body`)
        except (httpx2.HTTPError, httpx2.StreamError):
            pass

    async def aclose(self) -> None:
        await self._stream.aclose()


_NO_STREAM: Final = frozenset({"application/json", "text/html"})


class ReplyDecoder(Protocol):
    """Decodes a provider's events into pieces."""

    @property
    def ended(self) -> bool:
        """The reply is complete, so the stream may end."""
        ...

    @property
    def complete(self) -> bool:
        """Nothing relevant can follow, so the end of the stream need not be awaited."""
        ...

    def feed(self, event: Mapping[str, Any], /) -> list[ReplyPiece]: ...
    def finish(self) -> list[ReplyPiece]: ...


async def read_reply(
    response: httpx2.Response,
    decoder: ReplyDecoder,
    *,
    provider: Provider,
    limits: Limits,
    key: str | None = None,
) -> AsyncGenerator[ReplyPiece]:
    """Yield the pieces of the reply in a successful `response`; its body is closed at the end.

    Close the generator when leaving it early. No error quotes `key`.

    Raises:
        ModelError: the provider broke the reply off, or sent an invalid one.
        LimitError: one event, or the reply, is longer than `limits.message_bytes`.
        ConnectionLostError, DeadlineError: the reply is incomplete.
    """
    place = response.request.url.host
    if _content_type(response) in _NO_STREAM:
        raise await read_failure(response, provider=provider, key=key)
    events = EventDecoder(max_bytes=limits.message_bytes)
    got = 0
    async with aclosing(Body(response)) as body:
        while (chunk := await body.receive_some()) is not None:
            got += len(chunk)
            if got > limits.message_bytes:
                raise LimitError(
                    f"expected a reply of at most {limits.message_bytes} bytes from {place} (limit"
                    f" message_bytes), got {got} or more; raise Limits.message_bytes if you trust it",
                    limit="message_bytes",
                    allowed=limits.message_bytes,
                    got=got,
                )
            for event in events.feed(chunk):
                done = event.data.strip() == "[DONE]"
                if not done:
                    for piece in decoder.feed(parse_event(event.data, provider=provider, limits=limits)):
                        yield piece
                if done or decoder.complete:
                    body.complete = True
                    for piece in decoder.finish():
                        yield piece
                    return
        if not decoder.ended:
            raise ConnectionLostError(
                f"the stream from {place} ended before the reply was complete: its last event is missing"
            )
        for piece in decoder.finish():
            yield piece


async def read_failure(
    response: httpx2.Response, *, provider: Provider, key: str | None = None
) -> ModelError:
    """Make the error for a response that is not a stream; reads the beginning of its body."""
    place = response.request.url.host
    body = parsed_body(await _beginning(response))
    # Some gateways report failures with HTTP 200.
    if not response.is_success or (isinstance(body, Mapping) and body.get("error")):
        return status_error(
            response.status_code, body, provider=provider, place=place, headers=response.headers, key=key
        )
    return ModelError(
        f"expected a stream (text/event-stream) from {place}, got {_content_type(response)}; check that"
        " base_url leads to an API that streams",
        provider=provider,
        status=response.status_code,
    )


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _beginning(response: httpx2.Response) -> bytes:
    found = b""
    async with aclosing(Body(response)) as body:
        # The status is known; the body only improves the message.
        with suppress(TransportError):
            while len(found) < ERROR_BODY_BYTES and (chunk := await body.receive_some()) is not None:
                found += chunk
    return found[:ERROR_BODY_BYTES]


# --- server-sent events ------------------------------------------------------------------------------------

# Section 9.2.6 of the WHATWG's HTML standard. Bytes go in with `feed`, whole events come out; any chunking of
# the same bytes gives the same events. Each byte is looked at once. A line ends with CR, LF or both; a byte
# order mark at the very beginning is ignored; lines that begin with a colon are comments; a blank line ends
# an event; an event cut off by the end of the stream is dropped. `id` and `retry` serve reconnection, which
# no model's stream supports, and are dropped too.
#
# A peer can make this hold at most one event of `max_bytes`. The SDKs' own decoders have no bound.

_LINE_END = re.compile(rb"[\r\n]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event. `data` is its data lines, joined by newlines; `event` is its type, "" if it has none."""

    data: str
    event: str = ""


class EventDecoder:
    """Splits the bytes of a `text/event-stream` into events. No clock, no stream.

    Args:
        max_bytes: the longest event, including all its lines (`limits.message_bytes`).
    """

    def __init__(self, *, max_bytes: int = DEFAULT_LIMITS.message_bytes) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[str] = []
        self._event = ""
        self._held_bytes = 0
        """The size of the current event, without the unfinished line."""
        self._skip_newline = False
        """The last byte was a CR: a following LF belongs to it."""
        self._at_start = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take a chunk, and return the events that it completes.

        Raises `LimitError` (`limit` is `"message_bytes"`) if an event is longer than allowed; nothing can be
        fed after that.
        """
        events: list[ServerEvent] = []
        start = 0
        for match in _LINE_END.finditer(chunk):
            end = match.start()
            if self._skip_newline and end == start and chunk[end] == 0x0A:
                self._skip_newline = False
                start = end + 1
                continue
            self._take(chunk[start:end])
            self._skip_newline = chunk[end] == 0x0D
            start = end + 1
            event = self._end_line()
            if event is not None:
                events.append(event)
        if start < len(chunk):
            self._skip_newline = False
            self._take(chunk[start:])
        return events

    def _take(self, part: bytes) -> None:
        self._line += part
        got = self._held_bytes + len(self._line)
        if got > self._max_bytes:
            self._line = bytearray()
            self._data = []
            raise LimitError(
                f"expected an event of at most {self._max_bytes} bytes in the stream (limit message_bytes),"
                f" got {got} or more; raise Limits.message_bytes if you trust the provider",
                limit="message_bytes",
                allowed=self._max_bytes,
                got=got,
            )

    def _end_line(self) -> ServerEvent | None:
        raw = bytes(self._line)
        self._line = bytearray()
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        if not raw:
            return self._end_event()
        # An invalid byte becomes U+FFFD, as the standard says: the JSON around it can still be read.
        name, _, value = raw.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
                # Plus one per line, or a flood of empty lines would cost nothing.
                self._held_bytes += len(raw) + 1
            case "event":
                self._event = value
            case _:
                pass  # comments (no name), id, retry, and undefined fields
        return None

    def _end_event(self) -> ServerEvent | None:
        data, event = self._data, self._event
        self._data, self._event, self._held_bytes = [], "", 0
        return ServerEvent(data="\n".join(data), event=event) if data else None
