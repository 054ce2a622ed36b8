"""OAuth tokens in a file of the user: one per server, mode 0600, replaced atomically.

The file also saves two values that the SDK forgets between runs and needs for a refresh: the expiry of the
token and its authorization server. Without these a later run sends an expired token, and then a refresh token
to an endpoint that it has to guess.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import trio
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ValidationError

from playhead.errors import ConfigError


class Challenge(BaseModel):
    """A refusal that a person has to settle (MCP 2025-11-25, "Scope challenge handling")."""

    status: int
    header: str
    """Its `WWW-Authenticate`."""


class SavedTokens(BaseModel):
    """The content of the file."""

    tokens: OAuthToken | None = None
    expires_at: float | None = None
    """Seconds since the epoch; `None` if the server did not say."""
    client: OAuthClientInformationFull | None = None
    authorization_server: str | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    challenge: Challenge | None = None
    """A refusal in the middle of a session, until a person has been asked."""


def token_file(directory: Path, *, url: str, account: str) -> Path:
    """Return the file for `url` and the account used there. Its name reveals neither."""
    return directory / f"{sha256(f'{account} {url}'.encode()).hexdigest()[:32]}.json"


class FileTokens:
    """The SDK's `TokenStorage` in one file. Raises `ConfigError` if the file can't be read or written."""

    def __init__(self, path: Path, *, client: OAuthClientInformationFull | None = None) -> None:
        self._path = path
        self._registered = client
        self._context: OAuthContext

    def __repr__(self) -> str:
        return f"FileTokens({str(self._path)!r})"

    def serve(self, context: OAuthContext) -> None:
        """Save from the provider's `context` whenever the provider saves something."""
        self._context = context

    async def load(self) -> SavedTokens:
        """Return the content of the file; empty without a file."""
        return await trio.to_thread.run_sync(self._read)

    async def restore(self) -> Challenge | None:
        """Load the file into the provider's context: another process may have refreshed the token.

        Returns the refusal that a person still has to settle, if any.
        """
        saved, context = await self.load(), self._context
        if saved.tokens is None:
            return saved.challenge
        context.current_tokens, context.token_expiry_time = saved.tokens, saved.expires_at
        context.client_info = self._registered or saved.client
        context.auth_server_url = saved.authorization_server
        context.oauth_metadata = saved.metadata
        context.protected_resource_metadata = saved.resource
        return saved.challenge

    async def save_challenge(self, challenge: Challenge | None) -> None:
        """Have a person asked at the next connection attempt; `None` if they have been asked."""
        await self._save((await self.load()).model_copy(update={"challenge": challenge}))

    async def forget_client(self) -> None:
        """Drop a dynamically registered client, so that another is registered."""
        if self._registered is not None:
            return
        saved = (await self.load()).model_copy(update={"client": None})
        self._context.client_info = None
        await self._save(saved)

    # --- the SDK's protocol ------------------------------------------------------------------------

    async def get_tokens(self) -> OAuthToken | None:
        return (await self.load()).tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._registered or (await self.load()).client

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self._save(self._of_context())

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._save(self._of_context())

    # -------------------------------------------------------------------------------------------------

    def _of_context(self) -> SavedTokens:
        context = self._context
        return SavedTokens(
            tokens=context.current_tokens,
            expires_at=context.token_expiry_time,
            # A client from the servers file stays there: its secret is not copied.
            client=context.client_info if self._registered is None else None,
            authorization_server=context.auth_server_url,
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )

    async def _save(self, saved: SavedTokens) -> None:
        text = saved.model_dump_json(exclude_none=True)
        # Not to be cancelled half-way: a refresh token that was rotated and not saved is lost.
        await trio.to_thread.run_sync(self._write, text, abandon_on_cancel=False)

    def _read(self) -> SavedTokens:
        try:
            return SavedTokens.model_validate(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return SavedTokens()
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot read the OAuth tokens ({error.strerror})") from None
        except (ValidationError, ValueError):
            # Not the error's own text: it quotes the tokens.
            raise ConfigError(
                f"{self._path}: expected OAuth tokens, got something else; delete the file to log in again"
            ) from None

    def _write(self, text: str) -> None:
        temporary = self._path.with_suffix(f".{token_hex(4)}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise ConfigError(f"{self._path}: cannot save the OAuth tokens ({error.strerror})") from None
