"""The authorization of a server by a person in a browser."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl, PrivateAttr

from playhead.client.oauth import ShowUrl
from playhead.client.oauth.flow import OAuth, ProtectedServer
from playhead.client.oauth.redirect import Redirect, open_redirect
from playhead.client.oauth.tokens import FileTokens
from playhead.client.transports.http_auth import as_ours
from playhead.client.transports.http_client import TRANSPORT_ERRORS, HttpClient
from playhead.client.transports.http_proxies import environment_proxies
from playhead.client.transports.tls import tls_reason
from playhead.config.auth import OAuthLogin
from playhead.errors import AccessDeniedError, ConnectionLostError, DeadlineError

GRANTS = ["authorization_code", "refresh_token"]


class _ChosenScopes(OAuthClientMetadata):
    """Client metadata that keeps the user's scopes, which the SDK would replace by the server's."""

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


def metadata_with_scopes(base: OAuthClientMetadata, scopes: tuple[str, ...] | None) -> _ChosenScopes:
    metadata = _ChosenScopes.model_validate(base.model_dump())
    if scopes is not None:
        metadata.choose(scopes)
    return metadata


class Login:
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
        # The real redirect URL is set by `_use_redirect`, because the port is known only while we listen.
        nowhere = OAuthClientMetadata(
            redirect_uris=[AnyUrl("http://127.0.0.1/callback")],
            client_name=settings.client_name,
            grant_types=GRANTS,
            token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
        )
        self._tokens = FileTokens(path, client=_registered(settings, nowhere))
        self._provider = OAuthClientProvider(
            server.place,
            metadata_with_scopes(nowhere, settings.scopes),
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
        """Return the port with which the client was registered, or 0. Servers compare redirect URLs."""
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
        """Send a request that the server refuses without a token, so that `OAuth` gets one.

        If the server has refused an earlier request, ask the person about that one instead. Some servers let
        everybody connect and refuse the next requests, or need more scopes for one tool.
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
        # Before a person types a password there.
        self.auth.check_issuer()
        self._redirect.expect(url)
        await self._show_url(url)

    async def _wait(self) -> AuthorizationCodeResult:
        assert self._redirect is not None
        return await self._redirect.wait()


def _registered(settings: OAuthLogin, metadata: OAuthClientMetadata) -> OAuthClientInformationFull | None:
    """Return the client that the user registered by hand, if any."""
    if settings.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        redirect_uris=metadata.redirect_uris,
        grant_types=GRANTS,
        token_endpoint_auth_method=metadata.token_endpoint_auth_method,
    )
