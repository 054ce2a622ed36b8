"""The credentials of a server: the `auth` table of its entry in a servers file, as settings.

A bearer token, a login by a person, or a program's own account. The classes omit their fields from `repr`,
and errors name keys and quote no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator

from playhead.config.document import EXPANDED, Table, Text, place, validate
from playhead.errors import ConfigError

DEFAULT_CLIENT_NAME: Final = "playhead"
T = TypeVar("T", bound=Table)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OAuthLogin:
    """Login by a person in a browser (authorization code with PKCE, RFC 7636). Its `repr` omits all
    fields."""

    token_folder: Path
    """Directory of the saved tokens, one file per server URL, readable by the user alone."""
    scopes: tuple[str, ...] | None = None
    """The exact scopes to request; `None` requests those the server names."""
    client_id: str | None = None
    """A manually registered client; `None` registers one dynamically (RFC 7591)."""
    client_secret: str | None = None
    client_name: str = DEFAULT_CLIENT_NAME
    """Name that the person reads when asked for consent."""
    redirect_port: int | None = None
    """Loopback port of the redirect; `None` picks a free one and saves it with the tokens."""
    client_metadata_url: str | None = None
    """The https URL of a document that describes this client, used as its id if the authorization server
    supports such documents (MCP 2025-11-25, "Client ID Metadata Documents"); else a client is registered."""
    issuer: str | None = None
    """The authorization server that may receive the `client_secret`; `None`: the MCP server's own origin."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientCredentials:
    """A program's own account, without a person (RFC 6749, section 4.4). Its `repr` omits all fields."""

    token_folder: Path
    client_id: str
    client_secret: str
    scopes: tuple[str, ...] | None = None
    issuer: str | None = None
    """The authorization server that may receive the secret; `None`: the MCP server's own origin."""


AuthSettings = OAuthLogin | ClientCredentials


def token_folder(environment: Mapping[str, str]) -> Path:
    """The user's data directory for tokens: `$XDG_DATA_HOME/playhead/oauth`, else under `~/.local/share`."""
    data = environment.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return Path(data) / "playhead" / "oauth"


def _http_url(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise ValueError("expected the authorization server's http(s) URL")
    return url


def _document_url(url: str) -> str:
    if not (url.startswith("https://") and url.removeprefix("https://").partition("/")[2]):
        raise ValueError("expected the https URL of a document, with a path")
    return url


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("expected a value, got an empty string")
    return text


def _port(number: int) -> int:
    if not 0 < number < 65536:
        raise ValueError(f"expected a port from 1 to 65535, got {number}")
    return number


_Required = Annotated[Text, AfterValidator(_not_empty)]
_Issuer = Annotated[Text, AfterValidator(_http_url)]


class _Bearer(Table):
    token: _Required


class _ClientCredentials(Table):
    client_id: _Required
    client_secret: _Required
    scopes: tuple[Text, ...] | None = None
    issuer: _Issuer | None = None


class _OAuth(Table):
    scopes: tuple[Text, ...] | None = None
    client_id: Text | None = None
    client_secret: Text | None = None
    client_name: Text | None = None
    client_metadata_url: Annotated[Text, AfterValidator(_document_url)] | None = None
    redirect_port: Annotated[int, AfterValidator(_port)] | None = None
    issuer: _Issuer | None = None


class _Type(Table, extra="ignore"):
    type: Annotated[Literal["bearer", "oauth", "client_credentials"], EXPANDED]


def read_auth(
    auth: Mapping[str, object],
    *,
    folder: Path,
    path: Path,
    at: tuple[str, ...],
    environment: Mapping[str, str],
) -> str | AuthSettings | None:
    """The credentials under the keys `at`: a bearer token, settings, or `None` for an empty table.

    Raises `ConfigError` with the key; no secret is quoted.
    """
    if not auth:
        return None

    def read(kind: type[T], values: Mapping[str, object]) -> T:
        return validate(kind, values, path=path, at=at, environment=environment)

    kind = read(_Type, auth).type
    values = {key: value for key, value in auth.items() if key != "type"}
    if kind == "bearer":
        return read(_Bearer, values).token
    if kind == "client_credentials":
        account = read(_ClientCredentials, values)
        return ClientCredentials(token_folder=folder, **dict(account))
    login = read(_OAuth, values)
    if login.client_secret is not None and login.client_id is None:
        raise ConfigError(f"{place(path, at)}: a client_secret needs a client_id")
    return OAuthLogin(
        token_folder=folder, **{**dict(login), "client_name": login.client_name or DEFAULT_CLIENT_NAME}
    )
