"""OAuth for HTTP servers: the SDK's flows, run apart from the requests that need their tokens.

A person is asked only while `connect` waits for it (`OAuth.answer_challenge`). In the middle of a stream, a
token that can't be refreshed any more raises `AuthorizationNeededError`.

These parts replace behaviour of the SDK (2.3). Each can go when the SDK does what is in brackets:

* `OAuth.async_auth_flow`: the SDK's providers hold a lock from before a request until its whole answer has
  been read, so that reads in flight would wait for each other (hold the lock for the token only).
* `OAuth._refresh`: the SDK refreshes a token only if it has expired by its own clock (refresh on request).
* `OAuth.answer_challenge`: the SDK forgets a refusal that no person could answer at the time, and never
  registers a client again for more scopes (remember it, and register again).
* `OAuth._send_aside`: the SDK sends metadata and token requests through the client of the MCP request, past
  any address check and limit (accept a second client for them).
* `filter_log`: the SDK logs a failed flow with a traceback that quotes token answers (log no traceback).
* `login._ChosenScopes`: the SDK replaces configured scopes by the server's (keep them).
* `FileTokens`: the SDK's storage cannot store a token's expiry and issuer (store them).
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, NoReturn

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, issuers_match

from playhead.client.oauth.tokens import Challenge, FileTokens
from playhead.client.transports.http_auth import send_whole
from playhead.client.transports.http_client import TRANSPORT_ERRORS, HttpClient, guarded_client
from playhead.client.transports.http_proxies import environment_proxies
from playhead.client.transports.tls import tls_reason
from playhead.errors import (
    AccessDeniedError,
    AuthorizationNeededError,
    ConnectionLostError,
    DeadlineError,
)
from playhead.limits import KIB, Limits
from playhead.net_guard import parse_origins

ANSWER_BYTES = 256 * KIB
"""Limits the answer to each of the flow's own requests. The metadata of an authorization server are a few
KiB, even with every optional field."""

EXPIRY_MARGIN_SECONDS: Final = 10.0
"""A token with less time left counts as expired, because it could expire before the request arrives."""

CHALLENGE_CHARS: Final = 4096
"""Limits the part of a `WWW-Authenticate` header that is saved: a URL and some scopes."""

SDK_LOGGER: Final = "mcp.client.auth.oauth2"
_OURS: Final[ContextVar[bool]] = ContextVar("playhead_oauth_flow", default=False)
"""True in a task while it runs one of our flows."""


class _WithoutTracebacks(logging.Filter):
    """Drops records with an exception that are logged inside one of our flows. All other records pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info or not _OURS.get()


@contextmanager
def filter_log() -> Iterator[None]:
    """Keep this task's failed OAuth flow out of the log: the failure is raised as our own error, with a
    reason. The filter is removed afterwards."""
    logger, without = logging.getLogger(SDK_LOGGER), _WithoutTracebacks()
    token = _OURS.set(True)
    logger.addFilter(without)
    try:
        yield
    finally:
        logger.removeFilter(without)
        _OURS.reset(token)


def origin_of(url: httpx2.URL) -> str:
    """Return `scheme://host:port` of `url`, for comparison."""
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return f"{url.scheme}://{url.host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProtectedServer:
    """The server that the tokens are for, and the rules for getting them."""

    url: httpx2.URL
    place: str
    """`url` for messages, without secrets."""
    verify: ssl.SSLContext | None
    allow_origins: tuple[str, ...]
    limits: Limits
    scopes_are_fixed: bool
    """True if the user chose the scopes: no others are ever requested."""
    secret_goes_to: str | None
    """The only issuer that the client secret may be sent to; `None` without a secret."""


class OAuth(httpx2.Auth):
    """Adds a token to each request, and gets a token if there is none or the server refuses it."""

    requires_response_body = False

    def __init__(
        self,
        provider: OAuthClientProvider,
        tokens: FileTokens,
        server: ProtectedServer,
        *,
        needs_person: bool,
    ) -> None:
        self._provider = provider
        self._context = provider.context
        self._tokens = tokens
        self._server = server
        self._needs_person = needs_person
        """True if a person has to approve the access in a browser."""
        self.person_is_there = False
        """True while a browser may be opened; set by `login.Login`."""
        self._restored = False
        """True once the saved tokens were read and no saved refusal waits for a person."""
        self._refused: str | None = None
        """The token that the server refused last."""
        self._challenge: Challenge | None = None
        """The refusal about which a person has to be asked."""
        self._flow_lock = trio.Lock()

    def __repr__(self) -> str:
        return f"OAuth({self._server.place!r})"

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Implement `httpx2.Auth`.

        Raises `AuthorizationNeededError` if a person must be asked first, `AccessDeniedError` if the flow
        failed, and `TransportError`, `LimitError` or `BlockedAddressError` for one of its own requests.
        """
        used = await self._ready(request)
        _put(request, used)
        response = yield request
        if response.status_code not in (401, 403):
            return
        if response.status_code == 403:
            token = await self._widened(request, response)
        else:
            if used is not None:
                self._refused = used
            token = await self._renewed(request, response)
        if token is not None:
            _put(request, token)
            yield request

    def _token(self) -> str | None:
        """Return the current token, unless it is known to be expired or refused."""
        context = self._context
        if context.current_tokens is None:
            return None
        expires_at = context.token_expiry_time
        if expires_at is not None and expires_at < time.time() + EXPIRY_MARGIN_SECONDS:
            return None
        token = context.current_tokens.access_token
        return None if token == self._refused else token

    async def _ready(self, request: httpx2.Request) -> str | None:
        """Return a usable token: the current one, else the saved one, else a refreshed one. `None` if there
        is none: the server then answers 401, which starts the flow."""
        if (token := self._token()) is not None:
            return token
        if self._restored and self._context.current_tokens is None:  # nothing is saved
            return None
        async with self._flow_lock:
            if (token := self._token()) is not None:  # another request has got one meanwhile
                return token
            challenge = await self._tokens.restore()
            if challenge is not None and not self._restored and self._needs_person:
                self._challenge = challenge
                raise self._needs_permission_error(challenge)
            self._restored = True
            if self._token() is None and self._context.can_refresh_token():
                await self._refresh(request)
            return self._token()

    async def _renewed(self, request: httpx2.Request, refused: httpx2.Response) -> str | None:
        """Return a token that has not been refused; `None` if the flow ends without one."""
        async with self._flow_lock:
            if (token := self._token()) is not None:
                return token
            # Another process may have refreshed it and spent the refresh token known here.
            await self._tokens.restore()
            if (token := self._token()) is not None:
                return token
            if self._context.can_refresh_token():
                await self._refresh(request)
                if (token := self._token()) is not None:
                    return token
            await self._drive(request, refused)
            return self._token()

    async def _widened(self, request: httpx2.Request, refused: httpx2.Response) -> str | None:
        """Return a token with more scopes; `None` if no other scopes can be requested."""
        async with self._flow_lock:
            if self._server.scopes_are_fixed or not self._wants_more(refused):
                return None
            await self._drive(request, refused)
            return self._token()

    def _wants_more(self, refused: httpx2.Response) -> bool:
        """Return whether `refused` names a scope that was not granted."""
        tokens = self._context.current_tokens
        granted = (tokens.scope if tokens is not None else None) or ""
        wanted = extract_scope_from_www_auth(refused) or ""
        insufficient = extract_field_from_www_auth(refused, "error") == "insufficient_scope"
        return insufficient and not set(wanted.split()) <= set(granted.split())

    async def _leave_to_person(self, refused: httpx2.Response) -> NoReturn:
        """Save the refusal for the next connection attempt, which asks a person."""
        header = refused.headers.get("www-authenticate", "")[:CHALLENGE_CHARS]
        self._challenge = Challenge(status=refused.status_code, header=header)
        await self._tokens.save_challenge(self._challenge)
        raise self._needs_permission_error(self._challenge)

    def _needs_permission_error(self, challenge: Challenge) -> AuthorizationNeededError:
        wanted = "additional access" if challenge.status == 403 else "access"
        return AuthorizationNeededError(
            f"{self._server.place} needs your permission for {wanted}; connect again to grant it in a"
            " browser",
            status=challenge.status,
        )

    async def answer_challenge(self, request: httpx2.Request) -> bool:
        """Ask the person about a saved refusal. Return False if there is none. If the person declines, the
        session goes on with the earlier access until the server refuses it again."""
        async with self._flow_lock:
            challenge, self._challenge = self._challenge, None
            if challenge is None:
                return False
            await self._tokens.save_challenge(None)
            headers = {"www-authenticate": challenge.header}
            refused = httpx2.Response(challenge.status, headers=headers, request=request)
            wanted = set((extract_scope_from_www_auth(refused) or "").split())
            client = self._context.client_info
            if client is not None and client.scope is not None and not wanted <= set(client.scope.split()):
                # It was registered for fewer scopes, and authorization servers enforce that.
                await self._tokens.forget_client()
            await self._drive(request, refused)
            return True

    async def _refresh(self, request: httpx2.Request) -> None:
        self._context.token_expiry_time = 1.0  # in 1970, so that the SDK takes the token for expired
        await self._drive(request, None)

    async def _drive(self, request: httpx2.Request, refused: httpx2.Response | None) -> None:
        """Run the SDK's flow until it would send `request`. If `refused` is given, the flow gets it as the
        answer to `request`, and runs until it would send `request` again, or ends.

        The server chooses the URLs of the other requests, for metadata, registration and tokens. Those
        outside its own origin go through the guarded client (`playhead.net_guard`), so that a server cannot
        make this machine read its private network.
        """
        if refused is not None and self._needs_person and not self.person_is_there:
            await self._leave_to_person(refused)
        server = self._server
        limits, origins = server.limits, parse_origins(server.allow_origins)
        connect = {"connect": limits.connect_seconds}
        async with (
            HttpClient(tls=server.verify, proxies=environment_proxies(), time_limits=connect) as own,
            guarded_client(allow_origins=origins, limits=limits, tls=server.verify) as guarded,
            aclosing(self._provider.async_auth_flow(request)) as flow,
        ):
            next_request = await self._step(anext(flow))
            while next_request is not None:
                if next_request is not request:
                    is_own = origin_of(next_request.url) == origin_of(server.url)
                    answer = await self._send_aside(own if is_own else guarded, next_request)
                elif refused is None:
                    return
                else:
                    answer, refused = refused, None
                next_request = await self._step(flow.asend(answer))

    async def _send_aside(self, client: HttpClient, request: httpx2.Request) -> httpx2.Response:
        """Send one of the flow's other requests, and read the whole answer. Redirects are not followed.

        Raises `TransportError` if no answer arrived, `LimitError` for a body of more than 256 KiB, and
        `BlockedAddressError` for a private address that the user did not allow.
        """
        if request.method == "POST":
            self.check_issuer()
        place = request.url.copy_with(userinfo=b"", query=None, fragment=None)
        seconds = self._server.limits.page_seconds
        with trio.move_on_after(seconds):
            try:
                return await send_whole(client, request, allowed=ANSWER_BYTES)
            except TRANSPORT_ERRORS as error:
                reason = tls_reason(error) or type(error).__name__
                raise ConnectionLostError(
                    f"no answer from {place}, which authorization needs: {reason}"
                ) from None
        raise DeadlineError(f"{place}, which authorization needs, did not answer in {seconds:g} s")

    async def _step(self, step: Awaitable[httpx2.Request]) -> httpx2.Request | None:
        try:
            with filter_log():
                return await step
        except StopAsyncIteration:
            return None
        except OAuthFlowError as error:
            self.check_issuer()
            raise self._denied(_reason(error)) from None
        except ValueError:
            # pydantic raises it for invalid metadata, which its message would quote.
            raise self._denied("the server or its authorization server sent invalid OAuth data") from None

    def check_issuer(self) -> None:
        """Raise `AccessDeniedError` if the server names an authorization server other than the one that the
        client secret belongs to."""
        expected, context = self._server.secret_goes_to, self._context
        if expected is None:
            return
        named = context.auth_server_url or (
            str(context.oauth_metadata.issuer) if context.oauth_metadata is not None else None
        )
        if named is not None and not issuers_match(named, expected):
            raise self._denied(
                f"it names {named[:200]} as its authorization server, but the client secret is sent to"
                f" {expected} only; if your client is registered there, set auth.issuer to it"
            )

    def _denied(self, why: str) -> AccessDeniedError:
        return AccessDeniedError(f"authorization for {self._server.place} failed: {why}", status=401)


def _reason(error: OAuthFlowError) -> str:
    """Return the reason and the remedy, but no text of the authorization server."""
    match error:
        case OAuthRegistrationError():
            return (
                "its authorization server registers no clients by itself; register one and set auth.client_id"
            )
        case OAuthTokenError():
            return (
                "its authorization server gave no token; check auth.client_id, auth.client_secret and"
                " auth.scopes"
            )
        case _:
            return "its OAuth metadata is missing or inconsistent; is this server protected by OAuth?"


def _put(request: httpx2.Request, token: str | None) -> None:
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"
