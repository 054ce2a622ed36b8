"""A model over HTTP: its address, key and pooled client, and the request for each reply.

The model of each provider is an `HttpModel` with its own address, encoder and decoder; `http_reply` reads the
answer. It does not use the provider's SDK, which takes seconds to import, and whose streams (nested
generators) trio can't close when a program leaves a reply midway.

Use a model as a context manager to reuse its connections for all replies. Otherwise each reply opens its own
connection.

    async with AnthropicModel("claude-sonnet-5-5", api_key=key) as model:
        async with model.stream(request) as pieces:
            async for piece in pieces: ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from random import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import httpx2
import trio

from playhead.agent.conversation import ModelRequest, Provider, ReplyPiece
from playhead.agent.models.attachments import MediaPolicy
from playhead.agent.models.http_reply import ReplyDecoder, read_failure, read_reply, transport_error
from playhead.agent.models.json_fields import sendable
from playhead.client.transports.tls import default_tls_context
from playhead.errors import ConnectionLostError, ModelError, PlayheadError, UsageError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.redacted_request import redact_query
from playhead.retry import is_retryable

if TYPE_CHECKING:
    from types import TracebackType

NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})
TIMEOUT_SECONDS: Final = 600.0
"""Limits the silence of a provider, as in the providers' SDKs. Models think for minutes, and a local server
may have to load one."""
MAX_RETRIES: Final = 2
"""Limits the retries. The number and the delays are those of the SDKs of OpenAI and Anthropic."""
FIRST_DELAY_SECONDS: Final = 0.5
LONGEST_DELAY_SECONDS: Final = 8.0
LONGEST_RETRY_AFTER_SECONDS: Final = 60.0
"""Limits the wait that a provider may request. If it requests a longer one, the request fails at once,
because the turn would seem to hang."""


class HttpModel(ABC):
    """A `Model` over HTTP. A subclass has the address, encodes requests and decodes replies."""

    _provider: ClassVar[Provider]
    _default_url: ClassVar[str]
    _path: ClassVar[str]
    """The path below the base URL."""
    _default_media: ClassVar[MediaPolicy]
    _needs_key: ClassVar[bool] = True
    _key_header: ClassVar[str] = "authorization"
    _key_prefix: ClassVar[str] = "Bearer "
    _fixed_headers: ClassVar[Mapping[str, str]] = NO_FIELDS

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        headers: Mapping[str, str] = NO_FIELDS,
        extra_body: Mapping[str, Any] = NO_FIELDS,
        media: MediaPolicy | None = None,
        max_retries: int = MAX_RETRIES,
        timeout_seconds: float = TIMEOUT_SECONDS,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """
        Args:
            model: the provider's name for it.
            api_key: a key for a header. It is never shown, logged or quoted.
            base_url: another address of the same API, which may have a query. Default: the provider's own,
                whatever the environment says.
            headers: further headers (`OpenAI-Organization`, `anthropic-beta`, …). Like the key, they are
                never shown.
            extra_body: further fields of the request, as the API names them (`thinking`,
                `reasoning_effort`, …). An object is merged with the encoded one; None removes the field.
            media: images and audio to send natively; a line of text replaces any others. Default: those that
                the provider documents.
            max_retries: the number of times to send a request again after a lost connection or HTTP 408, 425,
                429 or 5xx (Anthropic's 529 too), before any part of the reply has arrived. The wait is the
                provider's `Retry-After`, if any, and 0.5 to 8 s otherwise; with a `Retry-After` of more than
                60 s, the request fails at once. Default 2, as in the providers' SDKs.
            timeout_seconds: the longest silence.
            limits: `connect_seconds`; `message_bytes` bounds one reply.

        Raises `UsageError` if `api_key` can't be sent in a header, or `base_url` is not an http(s) URL.
        """
        self._model = model
        address = self._default_url if base_url is None else base_url
        self._url = self._request_url(checked_url(address, example=self._default_url))
        self._key = checked_key(api_key, provider=self._url.host) if self._needs_key else api_key
        self._headers = httpx2.Headers(self._fixed_headers)
        self._headers.update(headers)
        if self._key:
            self._headers[self._key_header] = f"{self._key_prefix}{self._key}"
        self._extra_body = dict(extra_body)
        self._media = self._default_media if media is None else media
        self._max_retries = max_retries
        self._timeout = httpx2.Timeout(timeout_seconds, connect=limits.connect_seconds)
        self._limits = limits
        self._pooled: httpx2.AsyncClient | None = None

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
        if self._pooled is not None:
            raise UsageError(f"{self!r} is already open: enter a model's context once at a time")
        self._pooled = await self._client().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        client, self._pooled = self._pooled, None
        if client is not None:
            await client.__aexit__()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Send `request` and iterate over the pieces of the reply, `ReplyEnd` last.

        To leave the context early, or to cancel it, closes the connection, and the provider stops writing.
        This follows no redirects, and never requests a reply again that broke off.

        Raises:
            UsageError: the request holds nothing to send.
            ModelError: the provider refused the request, redirected, broke off, or sent an invalid reply.
            LimitError: the reply is longer than the limits allow.
            ConnectError, ConnectionLostError, DeadlineError: the network.
        """
        body = self._encode(request)
        for name, value in self._extra_body.items():
            encoded = body.pop(name, None)
            if isinstance(encoded, Mapping) and isinstance(value, Mapping):
                body[name] = {**encoded, **value}
            elif value is not None:
                body[name] = value
        body = sendable(body)
        async with AsyncExitStack() as stack:
            client = self._pooled
            if client is None:
                client = await stack.enter_async_context(self._client())
            response = await self._send(client, body)
            stack.push_async_callback(response.aclose)
            reply = read_reply(
                response, self._decoder(), provider=self._provider, limits=self._limits, key=self._key
            )
            yield await stack.enter_async_context(aclosing(reply))

    @abstractmethod
    def _encode(self, request: ModelRequest) -> dict[str, Any]: ...

    @abstractmethod
    def _decoder(self) -> ReplyDecoder: ...

    def _request_url(self, base: httpx2.URL) -> httpx2.URL:
        """Return the URL that requests go to; `base` may be that URL already."""
        return base.copy_with(path=base.path.rstrip("/").removesuffix(self._path) + self._path)

    def _client(self) -> httpx2.AsyncClient:
        # A redirect would send the key and the conversation to an address that nobody has configured.
        # The context is shared: loading the authorities takes 25 ms, per reply if it is not entered.
        verify = default_tls_context()
        return httpx2.AsyncClient(verify=verify, timeout=self._timeout, follow_redirects=False)

    async def _send(self, client: httpx2.AsyncClient, body: dict[str, Any]) -> httpx2.Response:
        """Return the successful response. Its body is not read yet."""
        message = client.build_request("POST", self._url, json=body, headers=self._headers)
        redact_query(message)  # the HTTP library logs URLs, and this one may hold a key or a password
        retries = 0
        while True:
            failure: PlayheadError
            try:
                response = await client.send(message, stream=True)
            except httpx2.HTTPError as error:
                failure = transport_error(error, place=self._url.host)
            else:
                if response.is_success:
                    return response
                failure = await read_failure(response, provider=self._provider, key=self._key)
            delay = retry_delay_seconds(failure, retries)
            if delay is None or retries >= self._max_retries:
                break
            await trio.sleep(delay)
            retries += 1
        # Raised outside the handler, so that its context is not the library's error, which may quote a
        # header.
        raise failure


def retry_delay_seconds(failure: PlayheadError, retries: int) -> float | None:
    """Return the wait before another attempt at a failed request; None if that would not help.

    `failure` occurred before any part of the reply had arrived; `retries` is the number of earlier retries.
    After a failure to connect it returns None, because the address may be wrong, and the user waits.
    """
    match failure:
        case ModelError(status=int(status), retry_after_seconds=wait) if is_retryable(status):
            if wait is not None:
                return wait if wait <= LONGEST_RETRY_AFTER_SECONDS else None
        case ConnectionLostError():
            pass
        case _:
            return None
    # A random part of up to a quarter is subtracted, so that clients refused together don't retry together.
    delay: float = min(FIRST_DELAY_SECONDS * 2**retries, LONGEST_DELAY_SECONDS)
    return delay * (1 - random() / 4)


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
    """Parse `base_url`. Raises `UsageError` unless it is http or https. The error does not quote the whole
    URL, which may hold a key."""
    expected = f"base_url: expected an http or https URL such as {example}"
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise UsageError(f"{expected}, got an invalid URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"{expected}, got one that begins with {base_url[:8]!r}")
    return url
