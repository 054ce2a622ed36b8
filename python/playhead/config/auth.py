"""The `auth` of a server entry: which credentials, as data. `client.auth` turns it into requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playhead.config.fields import Fields
from playhead.errors import ConfigError

TYPES: Final = ("bearer", "oauth", "client_credentials")
DEFAULT_CLIENT_NAME: Final = "playhead"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OAuthLogin:
    """A person allows it in a browser (authorization code with PKCE, RFC 7636). Its `repr` shows nothing."""

    token_folder: Path
    """Where tokens are kept, one file a server URL, readable by the user alone."""
    scopes: tuple[str, ...] | None = None
    """Exactly what is asked for; `None` asks for what the server names."""
    client_id: str | None = None
    """A client registered by hand; `None` registers one dynamically (RFC 7591)."""
    client_secret: str | None = None
    client_name: str = DEFAULT_CLIENT_NAME
    """What the person reads when asked for consent."""
    redirect_port: int | None = None
    """The loopback port the browser comes back to; `None` takes a free one and keeps it with the tokens."""
    client_metadata_url: str | None = None
    """An https URL at which a document says who this client is: its id, where the authorization server takes
    such documents (MCP 2025-11-25, "Client ID Metadata Documents"); elsewhere a client is registered."""
    issuer: str | None = None
    """The authorization server that a `client_secret` may be sent to; `None`: the MCP server's own origin."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientCredentials:
    """A program's own account, without a person (RFC 6749, section 4.4). Its `repr` shows nothing."""

    token_folder: Path
    client_id: str
    client_secret: str
    scopes: tuple[str, ...] | None = None
    issuer: str | None = None
    """The authorization server the secret may be sent to; `None`: the MCP server's own origin."""


AuthSettings = OAuthLogin | ClientCredentials


def token_folder(environment: Mapping[str, str]) -> Path:
    """The user's data folder for tokens: `$XDG_DATA_HOME/playhead/oauth`, else under `~/.local/share`."""
    data = environment.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return Path(data) / "playhead" / "oauth"


def read_auth(auth: Fields, *, folder: Path) -> str | AuthSettings | None:
    """The entry's credentials: a bearer token, settings, or `None` where the table is empty.

    Raises `ConfigError` naming the key; no value of it is quoted.
    """
    if not auth.names():
        return None
    match auth.choice("type", TYPES):
        case "bearer":
            auth.only("type", "token")
            return _required(auth, "token")
        case "client_credentials":
            auth.only("type", "client_id", "client_secret", "scopes", "issuer")
            return ClientCredentials(
                token_folder=folder,
                client_id=_required(auth, "client_id"),
                client_secret=_required(auth, "client_secret"),
                scopes=auth.items("scopes"),
                issuer=_issuer(auth),
            )
        case "oauth":
            return _oauth(auth, folder)
        case _:
            raise ConfigError(f"{auth.where}: the key 'type' is missing; known are {', '.join(TYPES)}")


def _oauth(auth: Fields, folder: Path) -> OAuthLogin:
    auth.only(
        "type",
        "scopes",
        "client_id",
        "client_secret",
        "client_name",
        "client_metadata_url",
        "redirect_port",
        "issuer",
    )
    secret = auth.text("client_secret")
    if secret is not None and auth.text("client_id") is None:
        raise ConfigError(f"{auth.where}: a client_secret needs its client_id beside it")
    port = auth.whole("redirect_port")
    if port is not None and port > 65535:
        raise ConfigError(f"{auth.where}.redirect_port: expected a port from 1 to 65535, came {port}")
    return OAuthLogin(
        token_folder=folder,
        scopes=auth.items("scopes"),
        client_id=auth.text("client_id"),
        client_secret=secret,
        client_name=auth.text("client_name") or DEFAULT_CLIENT_NAME,
        client_metadata_url=_metadata_url(auth),
        redirect_port=port,
        issuer=_issuer(auth),
    )


def _required(auth: Fields, name: str) -> str:
    value = auth.text(name)
    if not value:
        raise ConfigError(f"{auth.where}: the key {name!r} is missing or empty")
    return value


def _metadata_url(auth: Fields) -> str | None:
    url = auth.text("client_metadata_url")
    if url is not None and not (
        url.startswith("https://") and url.removeprefix("https://").partition("/")[2]
    ):
        raise ConfigError(
            f"{auth.where}.client_metadata_url: expected an https URL with a path, where the document is"
        )
    return url


def _issuer(auth: Fields) -> str | None:
    issuer = auth.text("issuer")
    if issuer is not None and not issuer.startswith(("https://", "http://")):
        raise ConfigError(f"{auth.where}.issuer: expected the authorization server's http(s) URL")
    return issuer
