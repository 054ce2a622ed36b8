"""`build_oauth`: an `OAuth` from the settings of a servers file."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull

from playhead.client.oauth import ShowUrl
from playhead.client.oauth.flow import OAuth, ProtectedServer
from playhead.client.oauth.login import Login, metadata_with_scopes, open_browser
from playhead.client.oauth.tokens import FileTokens, token_file
from playhead.config.auth import AuthSettings, ClientCredentials
from playhead.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EndpointCredentials:
    """The credentials of an endpoint."""

    auth: OAuth
    """Adds a token to each request."""
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
    """Return the credentials for the server at `url` (`place` in messages). The tokens are saved in the
    user's directory.

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
            metadata = provider.context.client_metadata
            provider.context.client_metadata = metadata_with_scopes(metadata, settings.scopes)
        tokens.serve(provider.context)
        return EndpointCredentials(auth=OAuth(provider, tokens, server, needs_person=False), authorize=None)
    login = Login(settings, server, path, headers=headers, show_url=show_url or open_browser)
    return EndpointCredentials(auth=login.auth, authorize=login.authorize)
