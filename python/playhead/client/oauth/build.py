"""Build an `OAuth` from the settings of a servers file, and ask a person for access in a browser."""

from __future__ import annotations

import re
import secrets
import ssl
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import h11
import httpx2
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl, PrivateAttr

from playhead.client.oauth import ShowUrl
from playhead.client.oauth.flow import OAuth, ProtectedServer
from playhead.client.oauth.tokens import FileTokens, token_file
from playhead.client.transports.http_auth import as_ours
from playhead.client.transports.http_client import TRANSPORT_ERRORS, HttpClient
from playhead.client.transports.http_proxies import environment_proxies
from playhead.client.transports.tls import tls_reason
from playhead.concurrency import unwrap_exception_group
from playhead.config.auth import AuthSettings, ClientCredentials, OAuthLogin
from playhead.errors import AccessDeniedError, ConnectionLostError, DeadlineError, UsageError
from playhead.limits import Limits

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
VISIT_SECONDS: Final = 10.0
"""Limits the wait for a request on one connection: browsers open connections that they never use."""
HEAD_BYTES: Final = 16 * 1024
ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}", re.ASCII)

_PAGE: Final = "<!doctype html><meta charset=utf-8><title>playhead</title><p>{}"
_HEADERS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("connection", "close"),
)


Answer = AuthorizationCodeResult | AccessDeniedError


class Redirect:
    """The page on the loopback to which the browser returns (RFC 8252, 7.3). Made by `open_redirect`.

    Any program or web page on this machine can send requests here. Those without the secret `state` of the
    authorization request are refused and the wait goes on; nothing received is shown in the page.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}{PATH}"
        self._state: str | None = None
        self._send, self._receive = trio.open_memory_channel[Answer](1)

    def expect(self, authorization_url: str) -> None:
        """Accept the answer to `authorization_url` and no other."""
        (self._state,) = parse_qs(urlsplit(authorization_url).query)["state"]

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the code from the browser. Raises `AccessDeniedError` for a refusal."""
        answer = await self._receive.receive()
        if isinstance(answer, AccessDeniedError):
            raise answer
        return answer

    def _judge(self, request: h11.Request) -> tuple[int, str, Answer | None]:
        """The status and text for `request`, and its answer if it is the expected one."""
        target = urlsplit(request.target.decode("ascii", "replace"))
        if request.method != b"GET" or target.path != PATH:
            return 404, "There is nothing here.", None
        parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
        state = parameters.get("state", "")
        if self._state is None or not secrets.compare_digest(state.encode(), self._state.encode()):
            return 400, "This is not the answer that playhead is waiting for.", None
        self._state = None
        if "code" in parameters:
            result = AuthorizationCodeResult(code=parameters["code"], state=state, iss=parameters.get("iss"))
            return 200, "playhead has been allowed in. You can close this window.", result
        code = parameters.get("error", "")
        code = code if ERROR_CODE.fullmatch(code) else "no reason given"
        refusal = AccessDeniedError(
            f"access was denied in the browser ({code}); connect again to be asked again", status=401
        )
        return 200, "playhead has not been allowed in. You can close this window.", refusal

    async def _serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        answer: Answer | None = None
        with trio.move_on_after(VISIT_SECONDS):
            try:
                async with stream:
                    while (event := connection.next_event()) is h11.NEED_DATA:
                        connection.receive_data(await stream.receive_some())
                    if isinstance(event, h11.Request):
                        status, text, answer = self._judge(event)
                        await stream.send_all(_page(connection, status, text))
            except (h11.RemoteProtocolError, trio.BrokenResourceError):
                # The client has left; its answer still counts.
                pass
        if answer is not None:
            # After the page is sent: the waiting task may close everything at once.
            self._send.send_nowait(answer)


def _page(connection: h11.Connection, status: int, text: str) -> bytes:
    body = _PAGE.format(text).encode()
    head = h11.Response(status_code=status, headers=[*_HEADERS, ("content-length", str(len(body)))])
    return b"".join(
        connection.send(event) or b"" for event in (head, h11.Data(data=body), h11.EndOfMessage())
    )


@asynccontextmanager
async def open_redirect(port: int, *, or_any: bool) -> AsyncIterator[Redirect]:
    """Listen on the loopback until the context is left; on any free port for 0, and for a taken one if
    `or_any`.

    Raises `UsageError` if the port is taken.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=HOST)
    except OSError as error:
        if not or_any:
            raise UsageError(
                f"cannot listen on {HOST}:{port} for the browser's answer ({error.strerror or error});"
                " choose another auth.redirect_port"
            ) from None
        listeners = await trio.open_tcp_listeners(0, host=HOST)
    redirect = Redirect(listeners[0].socket.getsockname()[1])
    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(trio.serve_listeners, redirect._serve, listeners, handler_nursery=nursery)
            )
            yield redirect
            nursery.cancel_scope.cancel()


GRANTS = ["authorization_code", "refresh_token"]


class _ChosenScopes(OAuthClientMetadata):
    """Client metadata that keeps the scopes that the user chose, if any.

    The SDK replaces configured scopes by the server's.
    """

    _chosen: bool = PrivateAttr(default=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "scope" or not self._chosen:
            super().__setattr__(name, value)

    def choose(self, scopes: tuple[str, ...]) -> None:
        self.scope = " ".join(scopes)
        self._chosen = True


async def open_browser(url: str) -> None:
    """Open `url` in the user's browser. Raises `AccessDeniedError` if none could be opened."""
    if not await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True):
        raise AccessDeniedError(
            "the server needs your permission in a browser, and none could be opened; pass"
            " playhead.connect(show_url=…) and open the URL that it receives",
            status=401,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EndpointCredentials:
    """The credentials of an endpoint: for its requests, and for connecting to it."""

    auth: OAuth
    authorize: Callable[[], Awaitable[None]] | None
    """Asks the person; `None` if nobody has to be asked. Raises `AccessDeniedError`, `UsageError` (the port
    is taken) or `TransportError`. Cancelling it closes the port; nothing is saved."""


def build_oauth(
    settings: AuthSettings,
    *,
    url: str,
    place: str,
    headers: Mapping[str, str],
    verify: ssl.SSLContext | None,
    allow_origins: tuple[str, ...],
    limits: Limits,
    show_url: ShowUrl | None,
) -> EndpointCredentials:
    """An `OAuth` for the server at `url` (`place` in messages), with its tokens in the user's directory.

    `show_url` leads the person to the page that grants access (default: opens a browser).
    """
    parsed = httpx2.URL(url)
    origin = str(parsed.copy_with(userinfo=b"", raw_path=b"/", fragment=None))
    server = ProtectedServer(
        url=parsed,
        place=place,
        verify=verify,
        allow_origins=allow_origins,
        limits=limits,
        scopes_are_fixed=settings.scopes is not None,
        secret_goes_to=(settings.issuer or origin) if settings.client_secret is not None else None,
    )
    account = f"{type(settings).__name__} {settings.client_id or ''}"
    path = token_file(settings.token_folder, url=url, account=account)
    if isinstance(settings, ClientCredentials):
        fixed = OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            grant_types=["client_credentials"],
            token_endpoint_auth_method="client_secret_basic",
        )
        tokens = FileTokens(path, client=fixed)
        provider: OAuthClientProvider = ClientCredentialsOAuthProvider(
            place,
            tokens,
            settings.client_id,
            settings.client_secret,
            scope=" ".join(settings.scopes) if settings.scopes is not None else None,
            issuer=settings.issuer or origin,
        )
        if settings.scopes is not None:
            provider.context.client_metadata = _metadata(provider.context.client_metadata, settings.scopes)
        tokens.serve(provider.context)
        return EndpointCredentials(auth=OAuth(provider, tokens, server, needs_person=False), authorize=None)
    login = _Login(settings, server, path, headers=headers, show_url=show_url or open_browser)
    return EndpointCredentials(auth=login.auth, authorize=login.authorize)


def _metadata(base: OAuthClientMetadata, scopes: tuple[str, ...] | None) -> _ChosenScopes:
    metadata = _ChosenScopes.model_validate(base.model_dump())
    if scopes is not None:
        metadata.choose(scopes)
    return metadata


class _Login:
    """The authorization of one server by a person."""

    def __init__(
        self,
        settings: OAuthLogin,
        server: ProtectedServer,
        path: Path,
        *,
        headers: Mapping[str, str],
        show_url: ShowUrl,
    ) -> None:
        self._settings = settings
        self._server = server
        self._headers = headers
        self._show_url = show_url
        self._redirect: Redirect | None = None
        # The port is known only while we listen.
        nowhere = OAuthClientMetadata(
            redirect_uris=[AnyUrl("http://127.0.0.1/callback")],
            client_name=settings.client_name,
            grant_types=GRANTS,
            token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
        )
        self._tokens = FileTokens(path, client=_registered(settings, nowhere))
        self._provider = OAuthClientProvider(
            server.place,
            _metadata(nowhere, settings.scopes),
            self._tokens,
            redirect_handler=self._show,
            callback_handler=self._wait,
            client_metadata_url=settings.client_metadata_url,
        )
        self._tokens.serve(self._provider.context)
        self.auth = OAuth(self._provider, self._tokens, server, needs_person=True)

    async def authorize(self) -> None:
        """Ask the person and save the tokens. See `EndpointCredentials.authorize`."""
        seconds = self._server.limits.authorization_seconds
        with trio.move_on_after(seconds):
            port = self._settings.redirect_port or await self._earlier_port()
            async with open_redirect(port, or_any=self._settings.redirect_port is None) as redirect:
                await self._use_redirect(redirect)
                self._redirect, self.auth.person_is_there = redirect, True
                try:
                    await self._provoke_refusal()
                finally:
                    self._redirect, self.auth.person_is_there = None, False
            return
        raise DeadlineError(
            f"nobody granted access to {self._server.place} in {seconds:g} s (Limits.authorization_seconds);"
            " connect again to be asked again"
        )

    async def _earlier_port(self) -> int:
        """The port that the client was registered with, or 0: servers compare redirect URLs."""
        client = (await self._tokens.load()).client
        uris = (client.redirect_uris or []) if client is not None else []
        return (uris[0].port or 0) if uris else 0

    async def _use_redirect(self, redirect: Redirect) -> None:
        context = self._provider.context
        context.client_metadata.redirect_uris = [AnyUrl(redirect.url)]
        client = (await self._tokens.load()).client
        if client is not None and AnyUrl(redirect.url) not in (client.redirect_uris or []):
            await self._tokens.forget_client()

    async def _provoke_refusal(self) -> None:
        """Send a request that the server refuses without a token; `OAuth` does the rest.

        A request that was refused earlier is settled instead: some servers let everybody connect and refuse
        the next requests, or need more scopes for one tool.
        """
        server = self._server
        message = {"jsonrpc": "2.0", "id": "authorization", "method": "ping"}
        headers = {**self._headers, "accept": "application/json, text/event-stream"}
        request = httpx2.Request("POST", server.url, json=message, headers=headers)
        if await self.auth.answer_challenge(request):
            return
        async with HttpClient(
            tls=server.verify,
            auth=self.auth,
            proxies=environment_proxies(),
            time_limits={"connect": server.limits.connect_seconds},
        ) as client:
            try:
                response = await client.send(await as_ours(request))
            except TRANSPORT_ERRORS as error:
                reason = tls_reason(error) or type(error).__name__
                raise ConnectionLostError(
                    f"no answer from {server.place} while authorizing: {reason}"
                ) from None
            await response.aclose()
        if response.status == 401:
            raise AccessDeniedError(
                f"{server.place} refused the token that its authorization server issued; check auth.scopes",
                status=401,
            )

    async def _show(self, url: str) -> None:
        assert self._redirect is not None
        # Checked before a person types a password there.
        self.auth.check_issuer()
        self._redirect.expect(url)
        await self._show_url(url)

    async def _wait(self) -> AuthorizationCodeResult:
        assert self._redirect is not None
        return await self._redirect.wait()


def _registered(settings: OAuthLogin, metadata: OAuthClientMetadata) -> OAuthClientInformationFull | None:
    """The client that the user registered by hand, if any."""
    if settings.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        redirect_uris=metadata.redirect_uris,
        grant_types=GRANTS,
        token_endpoint_auth_method=metadata.token_endpoint_auth_method,
    )
