"""A provider's HTTP stream as pieces of a reply, and what HTTP does to it as our errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Final, Protocol

import httpx2

from playhead.agent.model import ReplyPiece
from playhead.agent.providers.sse import EventDecoder
from playhead.agent.providers.wire_json import parse_event
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ModelError,
    TransportError,
    UsageError,
)
from playhead.limits import Limits

SILENCE_SECONDS: Final = 300.0
"""How long a provider may send nothing: a model that thinks may take minutes before its first word, and not
every provider sends pings."""


class StreamDecoder(Protocol):
    """The codecs' decoders."""

    def feed(self, event: Mapping[str, Any]) -> list[ReplyPiece]: ...
    def finish(self) -> list[ReplyPiece]: ...


async def pieces_of(
    response: httpx2.Response, decoder: StreamDecoder, *, provider: str, limits: Limits
) -> AsyncGenerator[ReplyPiece]:
    """The pieces of one reply, from the events of `response`. Its caller closes `response`.

    Raises:
        ModelError: what came is no stream of this provider's, or tells of an error.
        LimitError: the reply, or its JSON, is larger than `limits` allows (`message_bytes`, `json_…`).
        TransportError: the stream broke off, or was silent for too long.
    """
    events = EventDecoder(max_bytes=limits.message_bytes)
    got = 0
    # Generators that are left to the garbage collector are closed nobody knows when.
    async with aclosing(response.aiter_bytes()) as body, aclosing(_told(body, provider)) as chunks:
        async for chunk in chunks:
            got += len(chunk)
            if got > limits.message_bytes:
                raise LimitError(
                    f"expected a reply of at most {limits.message_bytes} bytes from {provider} (limit"
                    f" message_bytes), got {got} or more",
                    limit="message_bytes",
                    allowed=limits.message_bytes,
                    got=got,
                )
            for event in events.feed(chunk):
                for piece in decoder.feed(parse_event(event.data, provider=provider, limits=limits)):
                    yield piece
    for piece in decoder.finish():
        yield piece


async def _told(body: AsyncIterator[bytes], provider: str) -> AsyncGenerator[bytes]:
    """`body`, with what breaks while reading it told as ours; what its consumer raises is not touched."""
    while True:
        with http_errors(provider):
            try:
                chunk = await anext(body)
            except StopAsyncIteration:
                return
        yield chunk


@contextmanager
def http_errors(provider: str) -> Iterator[None]:
    """Tell what httpx2 raises as ours. Not chained: an error about a header quotes it, and one is the key."""
    try:
        yield
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise told(error, provider) from None


def told(error: BaseException | None, provider: str) -> TransportError | ModelError:
    """What httpx2 raised, as one of ours."""
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return ConnectError(
                f"no connection to {provider}: {str(error) or 'timed out'}; is its base_url right?"
            )
        case httpx2.TimeoutException():
            return DeadlineError(f"{provider} sent nothing for too long: expected the next part of a reply")
        case httpx2.LocalProtocolError():
            return ConnectError(
                f"the request to {provider} could not be written: is its key or base_url malformed?"
            )
        case httpx2.DecodingError():
            return ModelError(
                f"{provider} sent a body that its content-encoding can't decode", provider=provider
            )
        case _:
            return ConnectionLostError(f"the connection to {provider} ended before its reply did")


def check_key(api_key: str, provider: str) -> None:
    """Raises `UsageError` where `api_key` can't be sent in a header; the message doesn't quote it."""
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise UsageError(
            f"expected {provider}'s API key as printable ASCII without spaces, came"
            f" {'none' if not api_key else 'something else'}: was it copied whole, without a line's end?"
        )


def check_url(base_url: str) -> str:
    """`base_url` without a slash at its end. Raises `UsageError` where it is no http or https URL."""
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise UsageError(f"expected a base_url like https://host/path, came {base_url!r} ({error})") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"expected a base_url like https://host/path, came {base_url!r}")
    return base_url.rstrip("/")


def timeout(silence_seconds: float, limits: Limits) -> httpx2.Timeout:
    return httpx2.Timeout(silence_seconds, connect=limits.connect_seconds, pool=None)


def refusal(
    provider: str,
    status: int,
    *,
    told: str,
    api_key: str,
    retry_after_seconds: float | None = None,
) -> ModelError:
    """An HTTP status in place of a reply. `told` is the provider's words, which may quote the key."""
    words = told.replace(api_key, "(the key)")[:2000]
    hint = {
        401: "; check the API key",
        403: "; check the API key and what it may use",
        404: "; check the model's name and base_url",
        413: "; the conversation is too long",
    }.get(status, "; try again later" if status == 429 or status >= 500 else "")
    wait = f" ({retry_after_seconds:g} s)" if retry_after_seconds is not None else ""
    return ModelError(
        f"expected a reply from {provider}, came HTTP {status}: {words}{hint}{wait}",
        provider=provider,
        status=status,
        retry_after_seconds=retry_after_seconds,
    )


def seconds_in(header: str | None) -> float | None:
    """A `retry-after` in seconds; None where it is a date, or nothing."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None
