"""The credentials of a server: the `auth` table of its entry in a servers file, as settings.

A bearer token, a login by a person, or a program's own account. The classes omit their fields from `repr`,
and errors name keys and quote no secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_CLIENT_NAME: Final = "playhead"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OAuthLogin:
    """Login by a person in a browser (authorization code with PKCE, RFC 7636)."""

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
    """A program's own account, without a person (RFC 6749, section 4.4)."""

    token_folder: Path
    client_id: str
    client_secret: str
    scopes: tuple[str, ...] | None = None
    issuer: str | None = None
    """The authorization server that may receive the secret; `None`: the MCP server's own origin."""


AuthSettings = OAuthLogin | ClientCredentials
