"""Gemini over plain HTTP: its SDK runs under asyncio only."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2

from playhead.agent.conversation import ModelRequest, Provider
from playhead.agent.model import ReplyPiece
from playhead.agent.providers import streaming
from playhead.agent.providers.fields import mapping_at, mappings_at, text_at
from playhead.agent.providers.gemini import Decoder, encode
from playhead.agent.providers.media import GEMINI, MediaPolicy
from playhead.errors import ClosedError, ModelError
from playhead.limits import DEFAULT_LIMITS, KIB, Limits

BASE_URL: Final = "https://generativelanguage.googleapis.com/v1beta"
_ERROR_BYTES: Final = 64 * KIB
"""How much of an error's body is read."""


class GeminiModel:
    """A model of Google's. Use it as an async context manager, which holds the connections.

        async with GeminiModel("gemini-flash-latest", api_key=key) as model:
            async with model.stream(request) as reply:
                async for piece in reply: ...

    Args:
        model: The model's name, with or without `models/`.
        api_key: Sent in a header, never in a URL; never read from the environment here, and in no message
            of an error.
        base_url: Another place that speaks the same API, with its version: `https://host/v1beta`.
        silence_seconds: The longest time in which nothing comes.
        limits: `message_bytes` bounds a reply, `connect_seconds` the connecting.
        media: Which images and sounds go to the model.

    Raises:
        UsageError: `api_key` or `base_url` is malformed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str = BASE_URL,
        silence_seconds: float = streaming.SILENCE_SECONDS,
        limits: Limits = DEFAULT_LIMITS,
        media: MediaPolicy = GEMINI,
    ) -> None:
        streaming.check_key(api_key, "gemini")
        self._model = model
        self._api_key = api_key
        path = model if "/" in model else f"models/{model}"
        self._url = f"{streaming.check_url(base_url)}/{quote(path)}:streamGenerateContent?alt=sse"
        self._silence_seconds = silence_seconds
        self._limits = limits
        self._media = media
        self._client: httpx2.AsyncClient | None = None

    @property
    def provider(self) -> Provider:
        return "gemini"

    @property
    def name(self) -> str:
        return self._model

    async def __aenter__(self) -> Self:
        # No redirects: one would take the key's header to wherever it leads.
        self._client = httpx2.AsyncClient(
            headers={"x-goog-api-key": self._api_key, "user-agent": "playhead"},
            timeout=streaming.timeout(self._silence_seconds, self._limits),
            follow_redirects=False,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections, also when cancelled."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request`; iterating gives the reply's pieces, `ReplyEnd` last.

        Leaving the context early, also by cancellation, closes the HTTP response: the model stops.

        Raises:
            UsageError: the request holds nothing to answer.
            ClosedError: the model's own context isn't entered (yours).
            ModelError: Gemini refused (`status`), or what came is no reply.
            LimitError: the reply is larger than the limits allow.
            TransportError: nothing came, or not all.
        """
        client = self._client
        if client is None:
            raise ClosedError("GeminiModel holds connections: enter it with `async with` before streaming")
        body = encode(request, model=self._model, media=self._media)
        # Ids of ours have to differ from those of every other reply.
        decoder = Decoder(call_prefix=f"call-{uuid.uuid4().hex[:12]}")
        async with AsyncExitStack() as stack:
            with streaming.http_errors("gemini"):
                response = await stack.enter_async_context(client.stream("POST", self._url, json=body))
                if response.status_code != 200:
                    raise await self._refused(response)
            pieces = streaming.pieces_of(response, decoder, provider="gemini", limits=self._limits)
            yield await stack.enter_async_context(aclosing(pieces))

    async def _refused(self, response: httpx2.Response) -> ModelError:
        body = bytearray()
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > _ERROR_BYTES:
                    break
        error = _error_in(bytes(body[:_ERROR_BYTES]))
        told = f"{text_at(error, 'status')} {text_at(error, 'message')}".strip()
        return streaming.refusal(
            "gemini",
            response.status_code,
            told=told or bytes(body[:200]).decode("utf-8", "replace"),
            api_key=self._api_key,
            retry_after_seconds=_retry_after(error, response.headers.get("retry-after")),
        )


def _error_in(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, list) and found:
        found = found[0]  # how a stream's endpoint tells of it without alt=sse
    return mapping_at(found, "error") if isinstance(found, dict) else {}


def _retry_after(error: Mapping[str, Any], header: str | None) -> float | None:
    """What Google's `RetryInfo` says (`"37s"`), else the header."""
    for detail in mappings_at(error, "details"):
        if (seconds := streaming.seconds_in(text_at(detail, "retryDelay").removesuffix("s"))) is not None:
            return seconds
    return streaming.seconds_in(header)
