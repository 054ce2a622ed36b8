"""Read a reply from an HTTP response: its bytes and events, with the provider's decoder, and its errors.

Errors are `PlayheadError`s and hold no keys. If the provider answers with an error status, that is a
`ModelError`, whatever the status. A failed connection is a `TransportError`.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

import httpx2
import trio

from playhead.agent.conversation import Provider, ReplyPiece
from playhead.agent.models.json_fields import parse_event
from playhead.client.transports.tls import tls_reason
from playhead.content.audio import split_mime
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ModelError,
    TransportError,
)
from playhead.escaping import shortened
from playhead.limits import KIB, Limits
from playhead.protocol.event_stream import EventStream
from playhead.protocol.framing import Line
from playhead.retry import retry_after_seconds

_KEY_PATTERN: Final = re.compile(
    r"\b(?:sk|pk|gsk|xai)[-_][^\s\"',;]{6,}|\bAIza[\w-]{6,}|\bBearer\s+\S+", re.IGNORECASE
)
"""Matches strings that look like a key. A provider that refuses a key may quote it, or its ends."""


def transport_error(error: BaseException | None, *, place: str) -> TransportError:
    """Make the error for a missing or incomplete response. It never quotes the HTTP library's error."""
    kind = type(error).__name__
    match error:
        case httpx2.ConnectTimeout() | httpx2.ConnectError():
            reason = tls_reason(error, has_entry=False) or f"{kind}; check base_url and the network"
            return ConnectError(f"could not connect to {place}: {reason}")
        case httpx2.TimeoutException():
            return DeadlineError(
                f"{place} sent nothing for too long ({kind}); raise timeout_seconds, or retry"
            )
        case _:
            return ConnectionLostError(
                f"the connection to {place} failed before the reply was complete ({kind})"
            )


def redact_keys(text: str, key: str | None) -> str:
    """Remove `key` from `text`, and anything that looks like a key."""
    if key:
        text = text.replace(key, "[key]")
    return _KEY_PATTERN.sub("[key]", text)


def _message_in(body: object) -> str:
    """Find the message in `{"error": {"message"}}`, `{"message"}`, `{"error": "…"}`, or plain text."""
    while isinstance(body, Mapping):
        body = body.get("error") or body.get("message") or body.get("detail")
    text = body if isinstance(body, str) else ""
    is_page = text.lstrip().startswith("<")  # HTML would fill a message and explain nothing
    return "" if is_page else " ".join(text.split())


ERROR_BODY_BYTES: Final = 64 * KIB
"""Limits the bytes to read of an error's body. The message is in the first few hundred."""
DRAIN_BYTES: Final = 64 * KIB
DRAIN_SECONDS: Final = 0.1
"""Limits the wait for the closing chunk, the only data that may follow `[DONE]`. After that chunk, the next
request can reuse the connection. OpenAI's own SDK does the same."""


class Body:
    """The decoded bytes of `response`. Close it in every case.

    The HTTP library nests generators, and one of them doesn't close the next, about which trio would complain
    at garbage collection. Reading to the end ends all generators. So `aclose` closes a response that was left
    early, and then reads to its end, which is near after the closing.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.place = response.request.url.host
        self.complete = False
        """True once nothing relevant can follow, so that the connection may be reused."""
        self._response = response
        self._chunks = response.aiter_bytes()
        self._is_at_end = False

    async def receive_some(self) -> bytes | None:
        """Return the next bytes; None at the end.

        Raises `ConnectionLostError` or `DeadlineError` if the connection fails.
        """
        try:
            chunk = await anext(self._chunks, None)
        except httpx2.HTTPError as error:
            self._is_at_end = True
            raise transport_error(error, place=self.place) from error
        except BaseException:  # after a cancellation, too, the generator can't be resumed
            self._is_at_end = True
            raise
        self._is_at_end = chunk is None
        return chunk

    async def aclose(self) -> None:
        """Release the connection, or close it after a cancellation."""
        try:
            if self.complete and not self._is_at_end:
                with trio.move_on_after(DRAIN_SECONDS):
                    await self._read_and_discard(DRAIN_BYTES)
            if not self._is_at_end:
                await self._response.aclose()
                await self._read_and_discard(None)
        finally:
            await self._response.aclose()
            await self._chunks.aclose()

    async def _read_and_discard(self, most_bytes: int | None) -> None:
        received_bytes = 0
        while not self._is_at_end and (most_bytes is None or received_bytes < most_bytes):
            try:
                chunk = await anext(self._chunks, None)
            except (httpx2.HTTPError, httpx2.StreamError):
                chunk = None  # closed, as intended
            except BaseException:  # as in `receive_some`
                self._is_at_end = True
                raise
            self._is_at_end = chunk is None
            received_bytes += len(chunk or b"")


_NOT_STREAM_TYPES: Final = frozenset({"application/json", "text/html"})


class ReplyDecoder(ABC):
    """Decodes the events of one reply, in order. No clock, no stream.

    Both methods raise `ModelError` if the provider reports an error or sends invalid events; the reply is
    then lost. A decoder ignores unknown events, because the APIs grow.
    """

    ended = False
    """True once the reply is complete, so that the stream may end."""
    complete = False
    """True once nothing relevant can follow, so that the end of the stream need not be awaited."""

    @abstractmethod
    def feed(self, event: Mapping[str, Any]) -> list[ReplyPiece]:
        """Take an event, and return the pieces that it completes; often none."""

    @abstractmethod
    def finish(self) -> list[ReplyPiece]:
        """Return the last pieces; call it once, after the last event."""


async def read_reply(
    response: httpx2.Response,
    decoder: ReplyDecoder,
    *,
    provider: Provider,
    limits: Limits,
    key: str | None = None,
) -> AsyncGenerator[ReplyPiece]:
    """Yield the pieces of the reply in a successful `response`, and close its body at the end.

    Close the generator if you leave it early. No error quotes `key`.

    Raises:
        ModelError: the provider broke the reply off, or sent an invalid one.
        LimitError: the reply is longer than `limits.message_bytes`.
        ConnectionLostError, DeadlineError: the reply is incomplete.
    """
    place = response.request.url.host
    if _content_type(response) in _NOT_STREAM_TYPES:
        raise await read_failure(response, provider=provider, key=key)
    events = EventStream(max_bytes=limits.message_bytes, every_type=True)
    received_bytes = 0
    async with aclosing(Body(response)) as body:
        while (chunk := await body.receive_some()) is not None:
            received_bytes += len(chunk)
            if received_bytes > limits.message_bytes:
                raise LimitError(
                    f"expected a reply of at most {limits.message_bytes} bytes from {place} (limit"
                    f" message_bytes), got {received_bytes} or more",
                    advice="raise Limits.message_bytes if you trust it",
                    limit="message_bytes",
                    allowed=limits.message_bytes,
                    got=received_bytes,
                )
            events.feed(chunk)
            while (event := events.next_event()) is not None:
                if not isinstance(event, Line):
                    continue  # the notice of a long event, whose `Line` follows when it is complete
                # As the standard says, an invalid byte becomes U+FFFD, so that the JSON around it is
                # readable.
                data = event.data.decode("utf-8", errors="replace")
                done = data.strip() == "[DONE]"
                if not done:
                    for piece in decoder.feed(parse_event(data, provider=provider, limits=limits)):
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
    """Read the beginning of a response that is not a stream, and make the error about it, which never quotes
    `key`."""
    place, status = response.request.url.host, response.status_code
    text = (await _read_beginning(response)).decode("utf-8", errors="replace")
    body: Any = text
    with suppress(ValueError, RecursionError):
        body = json.loads(text)
    # Some gateways send an error with HTTP 200, in the body.
    if response.is_success and not (isinstance(body, Mapping) and body.get("error")):
        return ModelError(
            f"expected a stream (text/event-stream) from {place}, got {_content_type(response)}; check that"
            " base_url leads to an API that streams",
            provider=provider,
            status=status,
        )
    message = redact_keys(_message_in(body), key)
    quoted = f": {shortened(message)}" if message else ""
    wait = retry_after_seconds(response.headers, now=time.time())
    match status:
        case 401 | 403:
            # Do not quote the provider here, because it might quote the key.
            summary = f"{place} refused the key (HTTP {status}); use one that has access to this model"
        case 404:
            summary = f"{place} does not know this model or URL (HTTP 404){quoted}; check model and base_url"
        case 413:
            summary = (
                f"{place} refused a request of this size (HTTP 413){quoted}; send a shorter conversation"
            )
        case 429:
            until = "" if wait is None else f"; retry after {wait:g} s"
            summary = f"{place} refused the request for now (HTTP 429){quoted}{until}"
        case _ if 300 <= status < 400:
            summary = (
                f"{place} redirects (HTTP {status}), which is not followed: the key would be sent along;"
                " set base_url to the new address if you trust it"
            )
        case _ if status >= 500:
            summary = f"{place} failed (HTTP {status}){quoted}; try again later"
        case _:
            summary = f"{place} refused the request (HTTP {status}){quoted}"
    return ModelError(summary, provider=provider, status=status, retry_after_seconds=wait)


def _content_type(response: httpx2.Response) -> str:
    return split_mime(response.headers.get("content-type", ""))[0]


async def _read_beginning(response: httpx2.Response) -> bytes:
    beginning = b""
    async with aclosing(Body(response)) as body:
        # A broken connection does not matter, because the body only improves the message.
        with suppress(TransportError):
            while len(beginning) < ERROR_BODY_BYTES and (chunk := await body.receive_some()) is not None:
                beginning += chunk
    return beginning[:ERROR_BODY_BYTES]
