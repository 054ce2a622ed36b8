"""Any server that speaks OpenAI's Chat Completions, over plain HTTP and without an SDK.

Ollama, vLLM, llama.cpp, LM Studio, OpenRouter, Groq, Mistral, DeepSeek and others. A request is sent once:
what a server of one's own does under load is not known here.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

import httpx2

from playhead.agent.conversation import ModelRequest, Provider
from playhead.agent.model import ReplyPiece
from playhead.agent.providers import openai_chat
from playhead.agent.providers.failures import transport_error
from playhead.agent.providers.kept import KeepsClient
from playhead.agent.providers.keys import checked_key
from playhead.agent.providers.media import OPENAI, MediaPolicy
from playhead.agent.providers.reading import failure_of, read_reply
from playhead.client.transports.quiet_url import quiet
from playhead.errors import UsageError
from playhead.limits import DEFAULT_LIMITS, Limits

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class CompatibleModel(KeepsClient[httpx2.AsyncClient]):
    """A model behind an OpenAI-compatible address.

    As a context manager it keeps its connections from one round to the next; without that, each reply makes a
    connection of its own.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] = _NOTHING,
        extra_body: Mapping[str, Any] = _NOTHING,
        max_tokens_field: openai_chat.MaxTokensField = "max_tokens",
        media: MediaPolicy = OPENAI,
        timeout_seconds: float = 600.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """
        Args:
            model: its name at the server.
            base_url: what comes before `/chat/completions`: `http://localhost:11434/v1`. A query is kept.
            api_key: sent as `Authorization: Bearer …`. None: not sent, as for a server of one's own.
            headers: more of them. They are never shown, as the key is not.
            extra_body: more fields of the request; None as a value leaves a field out
                (`{"stream_options": None}` for a server that refuses it).
            max_tokens_field: what the server calls the longest reply. The old name: all know it but OpenAI.
            media: what the model takes natively; `TEXT_ONLY` for one that neither sees nor hears.
            timeout_seconds: the longest silence. 600 as in OpenAI's own SDK: a model may think for minutes,
                and a local one may have to be loaded first.
            limits: `connect_seconds`; `message_bytes` bounds one reply.

        Raises `UsageError` where `base_url` is no http or https address, or `api_key` can be none.
        """
        super().__init__(model)
        self._url = _endpoint(base_url)
        self._key = None if api_key is None else checked_key(api_key, provider=self._url.host)
        self._headers = dict(headers)
        if self._key is not None:
            self._headers["authorization"] = f"Bearer {self._key}"
        self._extra_body = dict(extra_body)
        self._max_tokens_field = max_tokens_field
        self._media = media
        self._timeout = httpx2.Timeout(timeout_seconds, connect=limits.connect_seconds)
        self._limits = limits

    @property
    def provider(self) -> Provider:
        return "openai"

    def __repr__(self) -> str:
        return f"CompatibleModel({self._model!r}, base_url={self._url.host!r})"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request`; iterating gives the reply's pieces, `ReplyEnd` last.

        Leaving the context early, or being cancelled, closes the connection: the server stops writing.
        Redirects are not followed.

        Raises:
            ModelError: the server refuses the request, redirects, breaks off, or answers nonsense.
            LimitError: the reply is longer than the limits allow.
            ConnectError, ConnectionLostError, DeadlineError: the network.
        """
        async with AsyncExitStack() as stack:
            client = await self._client(stack)
            response = await self._send(client, request)
            stack.push_async_callback(response.aclose)
            if not response.is_success:
                raise await failure_of(response, provider=self.provider, key=self._key)
            decoder = openai_chat.Decoder(seed=secrets.token_hex(8))
            reply = read_reply(response, decoder, provider=self.provider, limits=self._limits, key=self._key)
            yield await stack.enter_async_context(aclosing(reply))

    async def _send(self, client: httpx2.AsyncClient, request: ModelRequest) -> httpx2.Response:
        body = openai_chat.encode(
            request, model=self._model, max_tokens_field=self._max_tokens_field, media=self._media
        )
        body = {name: value for name, value in {**body, **self._extra_body}.items() if value is not None}
        message = client.build_request("POST", self._url, json=body, headers=self._headers)
        quiet(message, b"")  # the query may be a key, and the HTTP library logs addresses
        try:
            return await client.send(message, stream=True, follow_redirects=False)
        except httpx2.HTTPError as error:
            raise transport_error(error, place=self._url.host) from error

    def _make_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=self._timeout, follow_redirects=False)


def _endpoint(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise UsageError(
            "base_url: expected an address such as http://localhost:11434/v1, got none"
        ) from None
    if url.scheme not in ("http", "https") or not url.host:
        # Not quoted whole: there may be a key in it.
        raise UsageError(
            "base_url: expected an http or https address such as http://localhost:11434/v1, got one that"
            f" begins with {base_url[:8]!r}"
        )
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.copy_with(path=f"{path}/chat/completions")
