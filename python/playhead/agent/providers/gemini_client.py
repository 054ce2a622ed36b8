"""Google's Gemini over HTTP: its official SDK runs under asyncio only. Needs no extra.

Use a model as a context manager: its connections are then kept from one round to the next, and closed at the
end. Without that, each reply makes a connection of its own.

    async with GeminiModel("gemini-flash-latest", api_key=key) as model:
        async with model.stream(request) as pieces:
            async for piece in pieces: ...
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import httpx2

from playhead.agent.conversation import ModelRequest, Provider
from playhead.agent.model import ReplyPiece
from playhead.agent.providers.failures import transport_error
from playhead.agent.providers.gemini import Decoder, encode
from playhead.agent.providers.kept import KeepsClient
from playhead.agent.providers.keys import checked_key
from playhead.agent.providers.media import GEMINI, MediaPolicy
from playhead.agent.providers.reading import failure_of, read_reply
from playhead.client.transports.quiet_url import quiet
from playhead.errors import TransportError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits

GEMINI_URL: Final = "https://generativelanguage.googleapis.com/v1beta"
_NO_EXTRAS: Final[Mapping[str, Any]] = MappingProxyType({})


class GeminiModel(KeepsClient[httpx2.AsyncClient]):
    """A model behind Gemini's `streamGenerateContent`."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        extra_body: Mapping[str, Any] = _NO_EXTRAS,
        media: MediaPolicy = GEMINI,
        timeout_seconds: float = 600.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """
        Args:
            model: its name at Google, with or without `models/`.
            api_key: sent in a header, never in the address; never shown, logged or quoted.
            base_url: another address of the same API, with its version. Default
                `https://generativelanguage.googleapis.com/v1beta`.
            extra_body: more fields of the request, as the API names them
                (`{"generationConfig": {"thinkingConfig": …}}`); objects are merged with ours.
            media: which images and sounds are sent natively; a line of text stands where one is not.
            timeout_seconds: the longest silence. 600 as in the other SDKs: models think for minutes.
            limits: `connect_seconds`; `message_bytes` bounds one reply.

        Raises `UsageError` where `api_key` can't be sent, or `base_url` is no http or https address.
        """
        super().__init__(model)
        self._key = checked_key(api_key, provider="Gemini")
        self._url = _endpoint(base_url or GEMINI_URL, model)
        self._extra_body = dict(extra_body)
        self._media = media
        self._timeout = httpx2.Timeout(timeout_seconds, connect=limits.connect_seconds)
        self._limits = limits

    @property
    def provider(self) -> Provider:
        return "gemini"

    def __repr__(self) -> str:
        return f"GeminiModel({self._model!r})"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request`; iterating gives its pieces, `ReplyEnd` last.

        Leaving the context early, or being cancelled, closes the connection: the provider stops writing.
        Nothing is sent twice, and redirects are not followed.

        Raises:
            UsageError: the request holds nothing that could be sent.
            ModelError: the provider refuses the request, breaks off, or answers nonsense.
            LimitError: the reply is longer than the limits allow.
            ConnectError, ConnectionLostError, DeadlineError: the network.
        """
        body = _merged(encode(request, model=self._model, media=self._media), self._extra_body)
        async with AsyncExitStack() as stack:
            client = await self._client(stack)
            response = await self._send(client, body)
            stack.push_async_callback(response.aclose)
            if not response.is_success:
                raise await failure_of(response, provider="gemini", key=self._key)
            # Ids of ours have to differ from those of every other reply.
            decoder = Decoder(call_prefix=f"call-{secrets.token_hex(8)}")
            reply = read_reply(response, decoder, provider="gemini", limits=self._limits, key=self._key)
            yield await stack.enter_async_context(aclosing(reply))

    async def _send(self, client: httpx2.AsyncClient, body: Mapping[str, Any]) -> httpx2.Response:
        message = client.build_request("POST", self._url, json=body, headers={"x-goog-api-key": self._key})
        quiet(message, b"")  # the HTTP library logs addresses, and this one may hold a password
        failure: TransportError
        try:
            return await client.send(message, stream=True)
        except httpx2.HTTPError as error:
            failure = transport_error(error, place=self._url.host)
        # Outside of the handler: the library's own error may quote a header.
        raise failure

    def _make_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=self._timeout, follow_redirects=False)


def _endpoint(base_url: str, model: str) -> httpx2.URL:
    expected = f"base_url: expected an http or https address such as {GEMINI_URL}"
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise UsageError(f"{expected}, got none") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"{expected}, got one that begins with {base_url[:8]!r}")
    name = quote(model if "/" in model else f"models/{model}")
    return url.copy_with(
        raw_path=f"{url.path.rstrip('/')}/{name}:streamGenerateContent?alt=sse".encode("ascii")
    )


def _merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(body)
    for key, value in extra.items():
        ours = merged.get(key)
        merged[key] = {**ours, **value} if isinstance(ours, Mapping) and isinstance(value, Mapping) else value
    return merged
