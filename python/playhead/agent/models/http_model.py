"""The HTTP side of a model: address, key, pooled client, and one request for each reply.

`SdkModel` sends through a provider's official SDK, which builds, signs and retries requests. `RestModel`
sends plain HTTP, each request once. Both read the reply themselves (see `http_reply`).

Use a model as a context manager to reuse its connections for every reply until the context ends. Without one,
each reply makes its own connection.

    async with AnthropicModel("claude-sonnet-5-5", api_key=key) as model:
        async with model.stream(request) as pieces:
            async for piece in pieces: ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

import httpx2

from playhead.agent.conversation import ModelRequest, Provider, ReplyPiece
from playhead.agent.models.attachments import MediaPolicy
from playhead.agent.models.http_reply import (
    ReplyDecoder,
    bound_error,
    read_failure,
    read_reply,
    redact_logged_url,
    status_error,
    transport_error,
)
from playhead.errors import ModelError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.redacted_request import redact_query

if TYPE_CHECKING:
    from types import TracebackType

ClientT = TypeVar("ClientT", bound=AbstractAsyncContextManager[Any])

NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
TIMEOUT_SECONDS: Final = 600.0
"""The longest silence, as in the providers' SDKs: models think for minutes, and a local one may have to
load."""


class HttpModel(ABC, Generic[ClientT]):
    """A `Model` over HTTP. A subclass encodes the request, sends it, and decodes the reply."""

    _provider: ClassVar[Provider]

    def __init__(
        self, model: str, *, api_key: str | None, media: MediaPolicy, timeout_seconds: float, limits: Limits
    ) -> None:
        self._model = model
        self._key = api_key
        self._media = media
        self._timeout = httpx2.Timeout(timeout_seconds, connect=limits.connect_seconds)
        self._limits = limits
        self._pooled: ClientT | None = None
        self._open: AsyncExitStack | None = None

    @property
    def provider(self) -> Provider:
        return self._provider

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        return self._model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    async def __aenter__(self) -> Self:
        if self._open is not None:
            raise UsageError(f"{self!r} is already open: enter a model's context once at a time")
        self._open = AsyncExitStack()
        self._pooled = self._make_client()
        await self._open.enter_async_context(self._pooled)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack, self._open, self._pooled = self._open, None, None
        if stack is not None:
            await stack.aclose()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request` and iterate over the pieces of the reply, `ReplyEnd` last.

        Leaving the context early, or cancelling it, closes the connection, and the provider stops writing.
        Redirects are not followed. A reply that breaks off is never requested again.

        Raises:
            UsageError: the request holds nothing to send.
            ModelError: the provider refused the request, redirected, broke off, or sent an invalid reply.
            LimitError: the reply is longer than the limits allow.
            ConnectError, ConnectionLostError, DeadlineError: the network.
        """
        body = self._encode(request)
        async with AsyncExitStack() as stack:
            client = self._pooled
            if client is None:
                client = self._make_client()
                await stack.enter_async_context(client)
            response = await self._send(stack, client, body)
            reply = read_reply(
                response, self._decoder(), provider=self._provider, limits=self._limits, key=self._key
            )
            yield await stack.enter_async_context(aclosing(reply))

    @abstractmethod
    def _encode(self, request: ModelRequest) -> dict[str, Any]: ...

    @abstractmethod
    def _decoder(self) -> ReplyDecoder: ...

    @abstractmethod
    def _make_client(self) -> ClientT: ...

    @abstractmethod
    async def _send(
        self, stack: AsyncExitStack, client: ClientT, body: dict[str, Any]
    ) -> httpx2.Response: ...


class RestModel(HttpModel[httpx2.AsyncClient]):
    """A model reached by plain HTTP at `url`. Each request is sent once."""

    def __init__(
        self,
        model: str,
        *,
        url: httpx2.URL,
        headers: Mapping[str, str],
        api_key: str | None,
        media: MediaPolicy,
        timeout_seconds: float,
        limits: Limits,
    ) -> None:
        super().__init__(model, api_key=api_key, media=media, timeout_seconds=timeout_seconds, limits=limits)
        self._url = url
        self._headers = dict(headers)

    def _make_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(timeout=self._timeout, follow_redirects=False)

    async def _send(
        self, stack: AsyncExitStack, client: httpx2.AsyncClient, body: dict[str, Any]
    ) -> httpx2.Response:
        message = client.build_request("POST", self._url, json=body, headers=self._headers)
        redact_query(message)  # the HTTP library logs URLs, and this one may hold a key or a password
        failure: Exception
        try:
            response = await client.send(message, stream=True)
        except httpx2.HTTPError as error:
            failure = transport_error(error, place=self._url.host)
        else:
            stack.push_async_callback(response.aclose)
            if response.is_success:
                return response
            failure = await read_failure(response, provider=self._provider, key=self._key)
        # Raised outside the handler: the library's own error may quote a header.
        raise failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSdk:
    """A provider's official SDK: the module, and its names for the client and the base of its errors."""

    module: str
    client: str
    error: str
    missing: str
    """The message if it isn't installed."""


class SdkModel(HttpModel[Any]):
    """A model behind its provider's official SDK, which is imported when a model is made."""

    _sdk: ClassVar[ProviderSdk]
    _label: ClassVar[str]
    _default_url: ClassVar[str]
    _default_media: ClassVar[MediaPolicy]

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        extra_body: Mapping[str, Any] = NO_FIELDS,
        media: MediaPolicy | None = None,
        max_retries: int | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """
        Args:
            model: the provider's name for it.
            api_key: never shown, logged or quoted.
            base_url: another address of the same API. Default: the provider's own, whatever the environment
                says (OpenAI's SDK still reads organization and project from there).
            extra_body: further fields of the request, as the API names them (`thinking`,
                `reasoning_effort`, …).
            media: images and audio that are sent natively; a line of text replaces the others. Default: what
                the provider documents.
            max_retries: how often a request is sent again after a lost connection or HTTP 408, 409, 429 or
                5xx, before any of the reply arrived. None: the SDK's default (2, after 0.5 to 8 s, or as
                long as the provider asks).
            timeout_seconds: the longest silence.
            limits: `connect_seconds`; `message_bytes` bounds one reply.

        Raises `UsageError` if the SDK is not installed, or `api_key` can't be sent in a header.
        """
        try:
            self._module: Any = import_module(self._sdk.module)
        except ImportError as error:
            raise UsageError(self._sdk.missing) from error
        super().__init__(
            model,
            api_key=checked_key(api_key, provider=self._label),
            media=self._default_media if media is None else media,
            timeout_seconds=timeout_seconds,
            limits=limits,
        )
        self._base_url = base_url or self._default_url
        self._extra_body = dict(extra_body)
        self._max_retries = max_retries

    @abstractmethod
    def _create(self, client: Any) -> Any:
        """The SDK's method that sends a request and streams the response."""

    def _make_client(self) -> Any:
        options = {} if self._max_retries is None else {"max_retries": self._max_retries}
        return getattr(self._module, self._sdk.client)(
            api_key=self._key,
            base_url=self._base_url,
            # A redirect would take the key's header, and the conversation, to an address nobody configured.
            http_client=self._module.DefaultAsyncHttpxClient(
                follow_redirects=False,
                event_hooks={"request": [redact_logged_url], "response": [bound_error]},
            ),
            timeout=self._timeout,
            **options,
        )

    async def _send(self, stack: AsyncExitStack, client: Any, body: dict[str, Any]) -> httpx2.Response:
        place = client.base_url.host
        failure: Exception
        try:
            answer = await stack.enter_async_context(
                self._create(client)(**body, extra_body=self._extra_body)
            )
        except self._module.APIStatusError as error:
            failure = status_error(
                error.status_code,
                error.body,
                provider=self._provider,
                place=place,
                headers=error.response.headers,
                key=self._key,
            )
        except self._module.APIConnectionError as error:
            failure = transport_error(error.__cause__, place=place)
        except getattr(self._module, self._sdk.error) as error:
            failure = ModelError(
                f"the {self._sdk.module} SDK did not send the request to {place} ({type(error).__name__})",
                provider=self._provider,
            )
        else:
            response: httpx2.Response = answer.http_response
            return response
        # Raised outside the handler: the SDK's own error quotes the provider, which may quote the key.
        raise failure


def checked_key(api_key: str, *, provider: str) -> str:
    """Return `api_key` if it can be sent in a header.

    Raises `UsageError` otherwise, without quoting it as the HTTP library would.
    """
    if not api_key:
        raise UsageError(f"expected an API key for {provider}, got an empty string")
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise UsageError(
            f"expected an API key for {provider} in printable ASCII without spaces, got other characters;"
            " check that it was copied without a line break"
        )
    return api_key


def checked_url(base_url: str, *, example: str) -> httpx2.URL:
    """Parse `base_url`. Raises `UsageError` unless it is http or https; it is not quoted whole, because it
    may hold a key."""
    expected = f"base_url: expected an http or https URL such as {example}"
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise UsageError(f"{expected}, got an invalid URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"{expected}, got one that begins with {base_url[:8]!r}")
    return url
