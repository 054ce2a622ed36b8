"""The settings in the `auth` table of a server's entry: a login by a person, or a program's own account.

A bearer token needs no settings; it becomes a header. The `repr` of the classes shows no field, and errors
name keys but quote no secret.
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
    """The exact scopes to request; `None` requests the scopes that the server names."""
    client_id: str | None = None
    """A manually registered client; `None` registers one dynamically (RFC 7591)."""
    client_secret: str | None = None
    client_name: str = DEFAULT_CLIENT_NAME
    """The name that the person reads on the consent page."""
    redirect_port: int | None = None
    """Loopback port of the redirect; `None` picks a free one and saves it with the tokens."""
    client_metadata_url: str | None = None
    """The https URL of a document that describes this client. It is the client's id if the authorization
    server supports such documents (MCP 2025-11-25, "Client ID Metadata Documents"); otherwise a client is
    registered."""
    issuer: str | None = None
    """The only authorization server that may receive the `client_secret`. `None` is the MCP server's
    origin."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientCredentials:
    """A program's own account, without a person (RFC 6749, section 4.4)."""

    token_folder: Path
    client_id: str
    client_secret: str
    scopes: tuple[str, ...] | None = None
    issuer: str | None = None
    """The only authorization server that may receive the secret. `None` is the MCP server's origin."""


AuthSettings = OAuthLogin | ClientCredentials
