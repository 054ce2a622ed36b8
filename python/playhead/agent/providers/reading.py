"""A reply read from the bytes of an HTTP answer: events, their JSON, a provider's decoder, and the ends.

The official SDKs send the requests, but their streams are not used: those are generators within generators,
which trio cannot close where a reply is left in the middle, and their event decoder has no bound.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol

import httpx2

from playhead.agent.conversation import Provider
from playhead.agent.model import ReplyPiece
from playhead.agent.providers.body import ERROR_BODY_BYTES, Body
from playhead.agent.providers.failures import parsed_body, status_error
from playhead.agent.providers.sse import EventDecoder
from playhead.agent.providers.wire_json import parse_event
from playhead.errors import ConnectionLostError, LimitError, ModelError, TransportError
from playhead.limits import Limits

_NO_STREAM: Final = frozenset({"application/json", "text/html"})


class ReplyDecoder(Protocol):
    """What puts a provider's events together."""

    @property
    def ended(self) -> bool:
        """Whether the reply is whole, so that the stream may end."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing that counts can follow, so that nobody has to wait for the stream's end."""
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
    """The pieces of the reply in `response`, whose status is a success; its body is closed at the end.

    Close the generator where it is left early. No error quotes `key`.

    Raises:
        ModelError: the provider breaks the reply off, or sends what is no such reply.
        LimitError: one event, or the reply, is longer than `limits.message_bytes`.
        ConnectionLostError, DeadlineError: the reply did not come whole.
    """
    place = response.request.url.host
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _NO_STREAM:
        raise await _no_stream(response, kind, provider=provider, key=key)
    events = EventDecoder(max_bytes=limits.message_bytes)
    got = 0
    async with aclosing(Body(response)) as body:
        while (chunk := await body.receive_some()) is not None:
            got += len(chunk)
            if got > limits.message_bytes:
                raise LimitError(
                    f"expected a reply of at most {limits.message_bytes} bytes from {place} (limit"
                    f" message_bytes), got {got} or more; raise Limits.message_bytes, if you trust it",
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
                f"the stream from {place} ended before the reply was whole: its last event has not come"
            )
        for piece in decoder.finish():
            yield piece


async def failure_of(response: httpx2.Response, *, provider: Provider, key: str | None = None) -> ModelError:
    """The error that an answer without success stands for; reads its body, and not far."""
    return status_error(
        response.status_code,
        parsed_body(await _beginning(response)),
        provider=provider,
        place=response.request.url.host,
        headers=response.headers,
        key=key,
    )


async def _no_stream(
    response: httpx2.Response, kind: str, *, provider: Provider, key: str | None
) -> ModelError:
    body = parsed_body(await _beginning(response))
    if isinstance(body, Mapping) and body.get("error"):
        # Some gateways report their failures with HTTP 200.
        return status_error(
            response.status_code,
            body,
            provider=provider,
            place=response.request.url.host,
            headers=response.headers,
            key=key,
        )
    return ModelError(
        f"expected a stream (text/event-stream) from {response.request.url.host}, got {kind}: does base_url"
        " lead to an API that streams?",
        provider=provider,
        status=response.status_code,
    )


async def _beginning(response: httpx2.Response) -> bytes:
    found = b""
    async with aclosing(Body(response)) as body:
        # The status is known; the message is only said better with its body.
        with suppress(TransportError):
            while len(found) < ERROR_BODY_BYTES and (chunk := await body.receive_some()) is not None:
                found += chunk
    return found[:ERROR_BODY_BYTES]
