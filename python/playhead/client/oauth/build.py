"""From the settings of a servers file to an `OAuth`, and to the moment when a person is asked."""

from __future__ import annotations

import ssl
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl, PrivateAttr

from playhead.client.oauth.flow import OAuth, Server
from playhead.client.oauth.redirect import Redirect, open_redirect
from playhead.client.oauth.tokens import FileTokens, token_file
from playhead.client.transports.quiet_url import quiet
from playhead.config.auth import AuthSettings, ClientCredentials, OAuthLogin
from playhead.errors import AccessDeniedError, ConnectionLostError, DeadlineError
from playhead.limits import Limits

ShowUrl = Callable[[str], Awaitable[None]]
"""Leads the user's browser to a URL, or tells the user to. What it raises ends the connecting."""

GRANTS = ["authorization_code", "refresh_token"]


class _Metadata(OAuthClientMetadata):
    """What a client says of itself, with the scopes that the user chose, if any.

    The SDK puts the scopes that the server names in place of those it was given.
    """

    _chosen: bool = PrivateAttr(default=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "scope" or not self._chosen:
            super().__setattr__(name, value)

    def choose(self, scopes: tuple[str, ...]) -> None:
        self.scope = " ".join(scopes)
        self._chosen = True


async def open_browser(url: str) -> None:
    """Lead the user's own browser to `url`. Raises `AccessDeniedError` where there is none."""
    if not await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True):
        raise AccessDeniedError(
            "the server wants you to allow the access in a browser, and none could be opened; pass"
            " playhead.connect(show_url=…) and open the URL it is given",
            status=401,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Access:
    """What an endpoint's requests and its connecting need."""

    auth: OAuth
    authorize: Callable[[], Awaitable[None]] | None
    """Asks the person; `None` where nobody is to be asked. Raises `AccessDeniedError`, `UsageError` (the port
    is taken) or `TransportError`. Cancelling it closes the port; nothing is kept."""


def build_oauth(
    settings: AuthSettings,
    *,
    url: str,
    place: str,
    headers: Mapping[str, str],
    verify: ssl.SSLContext | bool,
    allow_origins: tuple[str, ...],
    limits: Limits,
    show_url: ShowUrl | None,
) -> Access:
    """An `OAuth` for the server at `url` (`place` in messages), with its tokens in the user's folder.

    `show_url` leads the person to the page where the access is allowed (default: opens a browser).
    """
    parsed = httpx2.URL(url)
    origin = str(parsed.copy_with(userinfo=b"", raw_path=b"/", fragment=None))
    server = Server(
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
        return Access(auth=OAuth(provider, tokens, server, needs_person=False), authorize=None)
    login = _Login(settings, server, path, headers=headers, show_url=show_url or open_browser)
    return Access(auth=login.auth, authorize=login.authorize)


def _metadata(given: OAuthClientMetadata, scopes: tuple[str, ...] | None) -> _Metadata:
    metadata = _Metadata.model_validate(given.model_dump())
    if scopes is not None:
        metadata.choose(scopes)
    return metadata


class _Login:
    """One server's authorization by a person."""

    def __init__(
        self,
        settings: OAuthLogin,
        server: Server,
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
        # Known by its port only when somebody listens there.
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
        """Ask the person, and keep the tokens. See `Access.authorize`."""
        seconds = self._server.limits.authorization_seconds
        with trio.move_on_after(seconds):
            port = self._settings.redirect_port or await self._earlier_port()
            async with open_redirect(port, or_any=self._settings.redirect_port is None) as redirect:
                await self._come_back_to(redirect)
                self._redirect, self.auth.person_is_there = redirect, True
                try:
                    await self._knock()
                finally:
                    self._redirect, self.auth.person_is_there = None, False
            return
        raise DeadlineError(
            f"nobody allowed the access to {self._server.place} in {seconds:g} s; connect again to be asked"
            " again (Limits.authorization_seconds)"
        )

    async def _earlier_port(self) -> int:
        """The port that the client was registered with, where there is one: servers compare redirect URLs."""
        client = (await self._tokens.load()).client
        uris = (client.redirect_uris or []) if client is not None else []
        return (uris[0].port or 0) if uris else 0

    async def _come_back_to(self, redirect: Redirect) -> None:
        context = self._provider.context
        context.client_metadata.redirect_uris = [AnyUrl(redirect.url)]
        client = (await self._tokens.load()).client
        if client is not None and AnyUrl(redirect.url) not in (client.redirect_uris or []):
            await self._tokens.forget_client()

    async def _knock(self) -> None:
        """Send the server something that it refuses without a token; `OAuth` does the rest.

        Where it has refused a request already, that is answered instead: some servers let everybody in, and
        refuse what comes after, or want more to be allowed for one tool.
        """
        message = {"jsonrpc": "2.0", "id": "authorization", "method": "ping"}
        accepted = {"accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(verify=self._server.verify) as client:
            request = client.build_request(
                "POST", self._server.url, json=message, headers={**self._headers, **accepted}
            )
            quiet(request, b"")
            if await self.auth.answer_challenge(request):
                return
            try:
                response = await client.send(request, auth=self.auth, stream=True)
            except httpx2.RequestError as error:
                raise ConnectionLostError(
                    f"no answer from {self._server.place} ({type(error).__name__}) while authorizing"
                ) from None
            await response.aclose()
        if response.status_code == 401:
            raise AccessDeniedError(
                f"{self._server.place} refuses the token that its authorization server gave; check"
                " auth.scopes",
                status=401,
            )

    async def _show(self, url: str) -> None:
        assert self._redirect is not None
        # Before a person types a password there.
        self.auth.check_issuer()
        self._redirect.expect(url)
        await self._show_url(url)

    async def _wait(self) -> AuthorizationCodeResult:
        assert self._redirect is not None
        return await self._redirect.wait()


def _registered(settings: OAuthLogin, metadata: OAuthClientMetadata) -> OAuthClientInformationFull | None:
    """The client that the user registered by hand."""
    if settings.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        redirect_uris=metadata.redirect_uris,
        grant_types=GRANTS,
        token_endpoint_auth_method=metadata.token_endpoint_auth_method,
    )
