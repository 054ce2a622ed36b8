"""The SDK's OAuth flows, made fit for many requests at once.

The SDK's providers hold a lock from before a request until its whole answer has been read: reads in flight
would wait for each other, and answers would get past every limit. So a request only takes the token with it,
and the SDK's flow runs apart from it, one at a time, and only to get a token.

A person is asked only while `connect` waits for it (`OAuth.ask`), never in the middle of a stream: there, a
token that can't be refreshed any more is an `AuthorizationNeededError`.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NoReturn

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, issuers_match

from playhead.client.oauth.quiet import quiet_flow
from playhead.client.oauth.side import ANSWER_BYTES, SideRequests, open_side
from playhead.client.oauth.tokens import Challenge, FileTokens
from playhead.errors import AccessDeniedError, AuthorizationNeededError, LimitError
from playhead.limits import Limits

EXPIRY_MARGIN_SECONDS: Final = 10.0
"""A token that is about to expire would do so on its way, and fail a page for nothing."""

CHALLENGE_CHARS: Final = 4096
"""Of a `WWW-Authenticate` that is kept: a URL and some scopes."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Server:
    """The server that tokens are for, and what may be done to get them."""

    url: httpx2.URL
    place: str
    """`url` without anything secret, for messages."""
    verify: ssl.SSLContext | bool
    allow_origins: tuple[str, ...]
    limits: Limits
    scopes_are_fixed: bool
    """Whether the user chose the scopes: then no others are ever asked for."""
    secret_goes_to: str | None
    """The one issuer that a client secret may be sent to; `None` where there is no secret."""


class OAuth(httpx2.Auth):
    """Puts a token on each request, and gets one when there is none or the server refuses it."""

    requires_response_body = False

    def __init__(
        self, provider: OAuthClientProvider, tokens: FileTokens, server: Server, *, needs_person: bool
    ) -> None:
        self._provider = provider
        self._context = provider.context
        self._tokens = tokens
        self._server = server
        self._needs_person = needs_person
        self.person_is_there = False
        """Whether a browser may be opened now (`build.Login` sets it)."""
        self._restored = False
        self._refused: str | None = None
        self._challenge: Challenge | None = None
        """What a person is to be asked for."""
        self._turn = trio.Lock()

    def __repr__(self) -> str:
        return f"OAuth({self._server.place!r})"

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """`httpx2.Auth`'s. Raises `AccessDeniedError`, and what `SideRequests.send` does."""
        used = await self._ready(request)
        _put(request, used)
        response = yield request
        if response.status_code not in (401, 403):
            return
        # httpx2 reads it before it sends the next request.
        response.stream = _AtMost(response.stream)
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
        """The token in hand, if it is still good as far as is known."""
        context = self._context
        expires_at = context.token_expiry_time
        if context.current_tokens is None or (
            expires_at is not None and expires_at < time.time() + EXPIRY_MARGIN_SECONDS
        ):
            return None
        token = context.current_tokens.access_token
        return token if token != self._refused else None

    async def _ready(self, request: httpx2.Request) -> str | None:
        token = self._token()
        if token is not None or (self._restored and self._context.current_tokens is None):
            return token
        async with self._turn:
            if self._token() is None:
                challenge = await self._tokens.restore()
                if challenge is not None and not self._restored and self._needs_person:
                    self._challenge = challenge
                    raise self._asking(challenge)
                self._restored = True
                if self._token() is None and self._context.can_refresh_token():
                    await self._refresh(request)
            return self._token()

    async def _renewed(self, request: httpx2.Request, refused: httpx2.Response) -> str | None:
        """A token that was not refused yet; `None` where the flow ends without one."""
        async with self._turn:
            if (token := self._token()) is not None:
                return token
            # Another process may have refreshed it, and spent the refresh token that is known here.
            await self._tokens.restore()
            if (token := self._token()) is not None:
                return token
            if self._context.can_refresh_token():
                await self._refresh(request)
                if (token := self._token()) is not None:
                    return token
            if self._needs_person and not self.person_is_there:
                await self._leave_to_person(refused)
            await self._drive(request, refused)
            return self._token()

    async def _widened(self, request: httpx2.Request, refused: httpx2.Response) -> str | None:
        """A token that allows more; `None` where there is nothing more to ask for."""
        async with self._turn:
            if self._server.scopes_are_fixed or not self._wants_more(refused):
                return None
            if self._needs_person and not self.person_is_there:
                await self._leave_to_person(refused)
            await self._drive(request, refused)
            return self._token()

    def _wants_more(self, refused: httpx2.Response) -> bool:
        """Whether asking for the scope that `refused` names can change anything."""
        tokens = self._context.current_tokens
        granted = (tokens.scope if tokens is not None else None) or ""
        wanted = extract_scope_from_www_auth(refused) or ""
        insufficient = extract_field_from_www_auth(refused, "error") == "insufficient_scope"
        return insufficient and not set(wanted.split()) <= set(granted.split())

    async def _leave_to_person(self, refused: httpx2.Response) -> NoReturn:
        """Keep the refusal for the next connecting, which asks."""
        header = refused.headers.get("www-authenticate", "")[:CHALLENGE_CHARS]
        self._challenge = Challenge(status=refused.status_code, header=header)
        await self._tokens.keep_challenge(self._challenge)
        raise self._asking(self._challenge)

    def _asking(self, challenge: Challenge) -> AuthorizationNeededError:
        more = " more than before" if challenge.status == 403 else " the access"
        return AuthorizationNeededError(
            f"{self._server.place} wants to know that you allow{more}: connect (again) to be asked in a"
            " browser",
            status=challenge.status,
        )

    async def answer_challenge(self, request: httpx2.Request) -> bool:
        """Have the person asked for what was refused before; false where nothing was. Whoever says no goes
        on with what was allowed before, until the server refuses that again."""
        async with self._turn:
            challenge, self._challenge = self._challenge, None
            if challenge is None:
                return False
            await self._tokens.keep_challenge(None)
            headers = {"www-authenticate": challenge.header}
            refused = httpx2.Response(challenge.status, headers=headers, request=request)
            wanted = set((extract_scope_from_www_auth(refused) or "").split())
            client = self._context.client_info
            if client is not None and client.scope is not None and not wanted <= set(client.scope.split()):
                # It was registered for less, and authorization servers hold it to that.
                await self._tokens.forget_client()
            await self._drive(request, refused)
            return True

    async def _refresh(self, request: httpx2.Request) -> None:
        # The SDK refreshes what has expired by its own reckoning; one second into the epoch has.
        self._context.token_expiry_time = 1.0
        await self._drive(request, None)

    async def _drive(self, request: httpx2.Request, refused: httpx2.Response | None) -> None:
        """Run the SDK's flow up to where it would send `request`; `refused` leads it on once from there."""
        server = self._server
        async with (
            open_side(
                server.url, verify=server.verify, allow_origins=server.allow_origins, limits=server.limits
            ) as side,
            aclosing(self._provider.async_auth_flow(request)) as flow,
        ):
            asked = await self._step(anext(flow))
            while asked is not None:
                if asked is not request:
                    answer = await self._ask_aside(side, asked)
                elif refused is None:
                    return
                else:
                    answer, refused = refused, None
                asked = await self._step(flow.asend(answer))

    async def _ask_aside(self, side: SideRequests, asked: httpx2.Request) -> httpx2.Response:
        if asked.method == "POST":
            self.check_issuer()
        return await side.send(asked)

    async def _step(self, step: Awaitable[httpx2.Request]) -> httpx2.Request | None:
        try:
            with quiet_flow():
                return await step
        except StopAsyncIteration:
            return None
        except OAuthFlowError as error:
            self.check_issuer()
            raise self._denied(_reason(error)) from None
        except ValueError:
            # pydantic's: metadata that is none. Its text quotes what came.
            raise self._denied(
                "what the server or its authorization server sent can't be understood"
            ) from None

    def check_issuer(self) -> None:
        """Raise `AccessDeniedError` where the server names another authorization server than the one that the
        client secret belongs to."""
        expected, context = self._server.secret_goes_to, self._context
        if expected is None:
            return
        named = context.auth_server_url or (
            str(context.oauth_metadata.issuer) if context.oauth_metadata is not None else None
        )
        if named is not None and not issuers_match(named, expected):
            raise self._denied(
                f"it names {named[:200]} as its authorization server, but the client secret is only sent to"
                f" {expected}; if that is where your client is registered, set auth.issuer to it"
            )

    def _denied(self, why: str) -> AccessDeniedError:
        return AccessDeniedError(f"authorization for {self._server.place} failed: {why}", status=401)


def _reason(error: OAuthFlowError) -> str:
    """Why, and what to do. Not the error's own text, which can hold what the authorization server sent."""
    match error:
        case OAuthRegistrationError():
            return "its authorization server registers no clients; register one there and set auth.client_id"
        case OAuthTokenError():
            return "its authorization server gave no token; check auth.client_id, client_secret and scopes"
        case _:
            return "its OAuth metadata is missing or contradicts itself; is this server protected by OAuth?"


def _put(request: httpx2.Request, token: str | None) -> None:
    if token is not None:
        request.headers["Authorization"] = f"Bearer {token}"


class _AtMost(httpx2.AsyncByteStream):
    """The body of a refusal, which nobody reads for its own sake."""

    def __init__(self, inner: httpx2.SyncByteStream | httpx2.AsyncByteStream) -> None:
        assert isinstance(inner, httpx2.AsyncByteStream)
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        got = 0
        async for chunk in self._inner:
            got += len(chunk)
            if got > ANSWER_BYTES:
                raise LimitError(
                    f"an HTTP 401 with a body of more than {ANSWER_BYTES} bytes",
                    limit="message_bytes",
                    allowed=ANSWER_BYTES,
                    got=got,
                )
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
