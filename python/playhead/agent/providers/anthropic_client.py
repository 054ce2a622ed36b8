"""Claude through the official `anthropic` SDK: connections, retries and headers are its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from playhead.agent.conversation import ModelRequest, Provider
from playhead.agent.model import ReplyPiece
from playhead.agent.providers import streaming
from playhead.agent.providers.anthropic import Decoder, encode
from playhead.agent.providers.media import ANTHROPIC, MediaPolicy
from playhead.errors import ClosedError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

BASE_URL: Final = "https://api.anthropic.com"
RETRIES: Final = 2
"""The SDK's own default. It tries again before a reply begins, never within one."""


class AnthropicModel:
    """A model of Anthropic's. Use it as an async context manager, which holds the connections.

        async with AnthropicModel("claude-sonnet-4-5", api_key=key) as model:
            async with model.stream(request) as reply:
                async for piece in reply: ...

    Args:
        model: The model's name.
        api_key: Never read from the environment here, and in no message of an error.
        base_url: Another place that speaks the same API.
        max_retries: Tries after a refusal that may pass (429, 5xx, 529) or a lost connection.
        silence_seconds: The longest time in which nothing comes.
        limits: `message_bytes` bounds a reply, `connect_seconds` the connecting.
        media: Which images go to the model.

    Raises:
        UsageError: `api_key` or `base_url` is malformed; or on entering: the SDK is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str = BASE_URL,
        max_retries: int = RETRIES,
        silence_seconds: float = streaming.SILENCE_SECONDS,
        limits: Limits = DEFAULT_LIMITS,
        media: MediaPolicy = ANTHROPIC,
    ) -> None:
        streaming.check_key(api_key, "anthropic")
        self._model = model
        self._api_key = api_key
        self._base_url = streaming.check_url(base_url)
        self._max_retries = max_retries
        self._silence_seconds = silence_seconds
        self._limits = limits
        self._media = media
        self._client: AsyncAnthropic | None = None

    @property
    def provider(self) -> Provider:
        return "anthropic"

    @property
    def name(self) -> str:
        return self._model

    async def __aenter__(self) -> Self:
        try:
            from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
        except ImportError as error:
            raise UsageError(
                "the anthropic SDK is not installed: pip install 'playhead[anthropic]'"
            ) from error
        timeout = streaming.timeout(self._silence_seconds, self._limits)
        self._client = AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=self._max_retries,
            timeout=timeout,
            # A redirect would take the key's header to wherever it leads.
            http_client=DefaultAsyncHttpxClient(follow_redirects=False, timeout=timeout),
        )
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the connections, also when cancelled."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request`; iterating gives the reply's pieces, `ReplyEnd` last.

        Leaving the context early, also by cancellation, closes the HTTP response: the model stops.

        Raises:
            UsageError: the request holds nothing to answer.
            ClosedError: the model's own context isn't entered (yours).
            ModelError: Anthropic refused (`status`), or what came is no reply.
            LimitError: the reply is larger than the limits allow.
            TransportError: nothing came, or not all.
        """
        client = self._client
        if client is None:
            raise ClosedError("AnthropicModel holds connections: enter it with `async with` before streaming")
        import anthropic

        body = encode(request, model=self._model, media=self._media)
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    client.messages.with_streaming_response.create(**body)
                )
            except anthropic.APIStatusError as error:
                raise streaming.refusal(
                    "anthropic",
                    error.status_code,
                    told=f"{error.type or ''} {error.api_message or error.message}".strip(),
                    api_key=self._api_key,
                    retry_after_seconds=streaming.seconds_in(error.response.headers.get("retry-after")),
                ) from None
            except anthropic.APIConnectionError as error:
                raise streaming.told(error.__cause__, "anthropic") from None
            pieces = streaming.pieces_of(
                response.http_response, Decoder(), provider="anthropic", limits=self._limits
            )
            yield await stack.enter_async_context(aclosing(pieces))
