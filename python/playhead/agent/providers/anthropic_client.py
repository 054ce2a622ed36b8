"""Anthropic's models through the official SDK, which builds the requests, signs them and tries again.

Its streams are read here, not there (see `reading`). Needs the extra `anthropic`; the SDK is imported when a
model is made, never with this module.

Use a model as a context manager: its connections are then kept from one round to the next, and closed at the
end. Without that, each reply makes a connection of its own.

    async with AnthropicModel("claude-sonnet-5-5", api_key=key) as model:
        async with model.stream(request) as pieces:
            async for piece in pieces: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import httpx2

from playhead.agent.conversation import ModelRequest, Provider
from playhead.agent.model import ReplyPiece
from playhead.agent.providers.anthropic import Decoder, encode
from playhead.agent.providers.body import bound_error, quiet_address
from playhead.agent.providers.failures import status_error, transport_error
from playhead.agent.providers.kept import KeepsClient
from playhead.agent.providers.keys import checked_key
from playhead.agent.providers.media import ANTHROPIC, MediaPolicy
from playhead.agent.providers.reading import read_reply
from playhead.errors import ModelError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

ANTHROPIC_URL: Final = "https://api.anthropic.com"
_NO_EXTRAS: Final[Mapping[str, Any]] = MappingProxyType({})


class AnthropicModel(KeepsClient["AsyncAnthropic"]):
    """A model behind Anthropic's Messages API."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        extra_body: Mapping[str, Any] = _NO_EXTRAS,
        media: MediaPolicy = ANTHROPIC,
        max_retries: int | None = None,
        timeout_seconds: float = 600.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """
        Args:
            model: its name at Anthropic.
            api_key: never shown, logged or quoted.
            base_url: another address of the same API. Default `https://api.anthropic.com`, whatever the
                environment says.
            extra_body: more fields of the request, as the API names them (`thinking`, …).
            media: which images are sent natively; a line of text stands where one is not.
            max_retries: how often a request is sent again after a lost connection or HTTP 408, 409, 429 or
                5xx, before any of the reply came. None: the SDK's default (2, after 0.5 to 8 s, or as long as
                the provider asks). A reply that breaks off in the middle is never asked for again.
            timeout_seconds: the longest silence. 600 as in the SDK: models think for minutes.
            limits: `connect_seconds`; `message_bytes` bounds one reply.

        Raises `UsageError` where the SDK is not installed, or `api_key` can't be sent.
        """
        super().__init__(model)
        self._sdk = _import_sdk()
        self._key = checked_key(api_key, provider="Anthropic")
        self._base_url = base_url or ANTHROPIC_URL
        self._extra_body = dict(extra_body)
        self._media = media
        self._max_retries = max_retries
        self._timeout_seconds = timeout_seconds
        self._limits = limits

    @property
    def provider(self) -> Provider:
        return "anthropic"

    def __repr__(self) -> str:
        return f"AnthropicModel({self._model!r})"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request`; iterating gives its pieces, `ReplyEnd` last.

        Leaving the context early, or being cancelled, closes the connection: the provider stops writing.

        Raises:
            UsageError: the request holds nothing that could be sent.
            ModelError: the provider refuses the request, breaks off, or answers nonsense.
            LimitError: the reply is longer than the limits allow.
            ConnectError, ConnectionLostError, DeadlineError: the network.
        """
        body = encode(request, model=self._model, media=self._media)
        async with AsyncExitStack() as stack:
            client = await self._client(stack)
            response = await self._send(stack, client, body)
            reply = read_reply(response, Decoder(), provider="anthropic", limits=self._limits, key=self._key)
            yield await stack.enter_async_context(aclosing(reply))

    async def _send(
        self, stack: AsyncExitStack, client: AsyncAnthropic, body: dict[str, Any]
    ) -> httpx2.Response:
        place = client.base_url.host
        create: Any = client.messages.with_streaming_response.create
        try:
            answer = await stack.enter_async_context(create(**body, extra_body=self._extra_body))
        except self._sdk.APIStatusError as error:
            failure: Exception = status_error(
                error.status_code,
                error.body,
                provider="anthropic",
                place=place,
                headers=error.response.headers,
                key=self._key,
            )
        except self._sdk.APIConnectionError as error:
            failure = transport_error(error.__cause__, place=place)
        except self._sdk.AnthropicError as error:
            failure = ModelError(
                f"the anthropic SDK did not send the request to {place} ({type(error).__name__})",
                provider="anthropic",
            )
        else:
            response: httpx2.Response = answer.http_response
            return response
        # Outside of the handler: the SDK's own error quotes the provider, who may quote the key.
        raise failure

    def _make_client(self) -> AsyncAnthropic:
        options: dict[str, Any] = {
            "timeout": httpx2.Timeout(self._timeout_seconds, connect=self._limits.connect_seconds)
        }
        if self._max_retries is not None:
            options["max_retries"] = self._max_retries
        client: AsyncAnthropic = self._sdk.AsyncAnthropic(
            api_key=self._key,
            base_url=self._base_url,
            # A redirect would take the key's header, and the conversation, to an address that nobody named.
            http_client=self._sdk.DefaultAsyncHttpxClient(
                follow_redirects=False, event_hooks={"request": [quiet_address], "response": [bound_error]}
            ),
            **options,
        )
        return client


def _import_sdk() -> ModuleType:
    try:
        import anthropic
    except ImportError as error:
        raise UsageError(
            "models of Anthropic need its SDK, which is not installed: pip install 'playhead[anthropic]'"
        ) from error
    return anthropic
