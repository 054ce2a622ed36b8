"""OpenAI's models through the official SDK, which builds the requests, signs them and tries again.

Its streams are read here, not there (see `reading`). Needs the extra `openai`; the SDK is imported when a
model is made, never with this module.

Use a model as a context manager: its connections are then kept from one round to the next, and closed at the
end. Without that, each reply makes a connection of its own.

    async with OpenAIChatModel("gpt-5.2", api_key=key) as model:
        async with model.stream(request) as pieces:
            async for piece in pieces: ...
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import httpx2

from playhead.agent.conversation import ModelRequest, Provider
from playhead.agent.model import ReplyPiece
from playhead.agent.providers import openai_chat, openai_responses
from playhead.agent.providers.body import bound_error, quiet_address
from playhead.agent.providers.failures import status_error, transport_error
from playhead.agent.providers.kept import KeepsClient
from playhead.agent.providers.keys import checked_key
from playhead.agent.providers.reading import ReplyDecoder, read_reply
from playhead.errors import ModelError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_URL: Final = "https://api.openai.com/v1"
_NO_EXTRAS: Final[Mapping[str, Any]] = MappingProxyType({})


class _OpenAIModel(KeepsClient["AsyncOpenAI"]):
    _provider: ClassVar[Provider]

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        extra_body: Mapping[str, Any] = _NO_EXTRAS,
        max_retries: int | None = None,
        timeout_seconds: float = 600.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """
        Args:
            model: its name at OpenAI.
            api_key: never shown, logged or quoted.
            base_url: another address of the same API. Default `https://api.openai.com/v1`, whatever the
                environment says; organization and project are taken from there by the SDK.
            extra_body: more fields of the request, as the API names them (`reasoning_effort`, …).
            max_retries: how often a request is sent again after a lost connection or HTTP 408, 409, 429 or
                5xx, before any of the reply came. None: the SDK's default (2, after 0.5 to 8 s, or as long as
                the provider asks). A reply that breaks off in the middle is never asked for again.
            timeout_seconds: the longest silence. 600 as in the SDK: models think for minutes.
            limits: `connect_seconds`; `message_bytes` bounds one reply.

        Raises `UsageError` where the SDK is not installed, or `api_key` can be none.
        """
        super().__init__(model)
        self._sdk = _import_sdk()
        self._key = checked_key(api_key, provider=self._provider)
        self._base_url = base_url or OPENAI_URL
        self._extra_body = dict(extra_body)
        self._max_retries = max_retries
        self._timeout_seconds = timeout_seconds
        self._limits = limits

    @property
    def provider(self) -> Provider:
        return self._provider

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request`; iterating gives the reply's pieces, `ReplyEnd` last.

        Leaving the context early, or being cancelled, closes the connection: the provider stops writing.

        Raises:
            ModelError: the provider refuses the request, breaks off, or answers nonsense.
            LimitError: the reply is longer than the limits allow.
            ConnectError, ConnectionLostError, DeadlineError: the network.
        """
        async with AsyncExitStack() as stack:
            client = await self._client(stack)
            response = await self._send(stack, client, request)
            reply = read_reply(
                response, self._decoder(), provider=self._provider, limits=self._limits, key=self._key
            )
            yield await stack.enter_async_context(aclosing(reply))

    @abstractmethod
    def _request(self, client: AsyncOpenAI, request: ModelRequest) -> AbstractAsyncContextManager[Any]: ...

    @abstractmethod
    def _decoder(self) -> ReplyDecoder: ...

    async def _send(
        self, stack: AsyncExitStack, client: AsyncOpenAI, request: ModelRequest
    ) -> httpx2.Response:
        place = client.base_url.host
        try:
            answer = await stack.enter_async_context(self._request(client, request))
        except self._sdk.APIStatusError as error:
            failure: Exception = status_error(
                error.status_code,
                error.body,
                provider=self._provider,
                place=place,
                headers=error.response.headers,
                key=self._key,
            )
        except self._sdk.APIConnectionError as error:
            failure = transport_error(error.__cause__, place=place)
        except self._sdk.OpenAIError as error:
            failure = ModelError(
                f"the openai SDK did not send the request to {place} ({type(error).__name__})",
                provider=self._provider,
            )
        else:
            response: httpx2.Response = answer.http_response
            return response
        # Outside of the handler: the SDK's own error quotes the provider, who may quote the key.
        raise failure

    def _make_client(self) -> AsyncOpenAI:
        options: dict[str, Any] = {
            "timeout": httpx2.Timeout(self._timeout_seconds, connect=self._limits.connect_seconds)
        }
        if self._max_retries is not None:
            options["max_retries"] = self._max_retries
        client: AsyncOpenAI = self._sdk.AsyncOpenAI(
            api_key=self._key,
            base_url=self._base_url,
            # A redirect would take the conversation, if not the key, to an address that nobody named.
            http_client=self._sdk.DefaultAsyncHttpxClient(
                follow_redirects=False, event_hooks={"request": [quiet_address], "response": [bound_error]}
            ),
            **options,
        )
        return client


class OpenAIChatModel(_OpenAIModel):
    """A model behind OpenAI's Chat Completions."""

    _provider = "openai"

    def _request(self, client: AsyncOpenAI, request: ModelRequest) -> AbstractAsyncContextManager[Any]:
        body = openai_chat.encode(request, model=self._model)
        create: Any = client.chat.completions.with_streaming_response.create
        context: AbstractAsyncContextManager[Any] = create(**body, extra_body=self._extra_body)
        return context

    def _decoder(self) -> ReplyDecoder:
        return openai_chat.Decoder(seed=secrets.token_hex(8))


class OpenAIResponsesModel(_OpenAIModel):
    """A model behind OpenAI's Responses. Nothing is stored there: each request has the whole conversation."""

    _provider = "openai-responses"

    def _request(self, client: AsyncOpenAI, request: ModelRequest) -> AbstractAsyncContextManager[Any]:
        body = openai_responses.encode(request, model=self._model)
        create: Any = client.responses.with_streaming_response.create
        context: AbstractAsyncContextManager[Any] = create(**body, extra_body=self._extra_body)
        return context

    def _decoder(self) -> ReplyDecoder:
        return openai_responses.Decoder()


def _import_sdk() -> ModuleType:
    try:
        import openai
    except ImportError as error:
        raise UsageError(
            "models of OpenAI need its SDK, which is not installed: pip install 'playhead[openai]', or use"
            " CompatibleModel, which needs none"
        ) from error
    return openai
