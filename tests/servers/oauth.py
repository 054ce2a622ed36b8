"""A real OAuth authorization server and a protected MCP server: the SDK's own server side, on loopback."""

from __future__ import annotations

import json
import secrets
import time
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse

from playhead.servers.http import base_url, bind, serve_app
from tests.servers.loopback import started

SCOPE = "listen"


@dataclass(slots=True)
class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Everything in memory; it allows whoever asks, unless `refuses`."""

    refuses: bool = False
    token_seconds: int = 3600
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    refreshes: dict[str, RefreshToken] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    """Every code, token and client secret ever given out."""
    refreshed: int = 0
    asked_scopes: list[list[str] | None] = field(default_factory=list)

    def secret(self, kind: str) -> str:
        made = f"{kind}-{secrets.token_hex(16)}"
        self.secrets.append(made)
        return made

    def revoke_access(self) -> None:
        """Forget every access token: what clients hold is refused from now on."""
        self.tokens.clear()

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.refuses:
            raise AuthorizeError("access_denied", "no means no")
        self.asked_scopes.append(params.scopes)
        code = AuthorizationCode(
            code=self.secret("code"),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refreshes[refresh_token.token]
        self.refreshed += 1
        return self.issue(client.client_id, scopes)

    def issue(self, client_id: str, scopes: list[str], *, refreshable: bool = True) -> OAuthToken:
        access = self.secret("access")
        self.tokens[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        refresh = self.secret("refresh") if refreshable else None
        if refresh is not None:
            self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(
            access_token=access,
            expires_in=self.token_seconds,
            scope=" ".join(scopes),
            refresh_token=refresh,
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)


@dataclass(slots=True, kw_only=True)
class Protected:
    """The running pair."""

    url: str
    authority: Authority
    requests: list[str] = field(default_factory=list)
    """`METHOD path` of everything that came."""
    queries: list[str] = field(default_factory=list)
    """The queries of the same."""
    bearers: list[tuple[str, str]] = field(default_factory=list)
    """Path and token of what came with one."""
    wants: dict[str, str] = field(default_factory=dict)
    """MCP method → the scope that it needs as well (as the newest revision names methods: in a header)."""
    greets_anybody: bool = False
    """Answer `server/discover` without a token."""


@asynccontextmanager
async def protected_server(
    *, issuer: str | None = None, json_response: bool = True
) -> AsyncIterator[Protected]:
    """An MCP server that wants a token, and its authorization server at the same origin.

    With `issuer` the MCP server names that one as its authorization server, whoever it is.
    """
    sock = bind("127.0.0.1", 0)
    origin = base_url(sock)
    authority = Authority()
    server: MCPServer = MCPServer(
        "protected",
        log_level="CRITICAL",
        auth_server_provider=authority,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(issuer or origin),
            resource_server_url=AnyHttpUrl(f"{origin}/mcp"),
            required_scopes=[SCOPE],
            validate_token_resource=False,
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=[SCOPE, "more"], default_scopes=[SCOPE]
            ),
        ),
    )

    @server.resource("resource://pages{?start,end}")
    def pages(start: int = 0, end: int = 0) -> bytes:
        return b"x" * (end - start)

    running = Protected(url=f"{origin}/mcp", authority=authority)
    inner: Any = server.streamable_http_app(json_response=json_response)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            running.requests.append(f"{scope['method']} {scope['path']}")
            running.queries.append(scope["query_string"].decode())
            if scope["path"] == "/token":
                await _token(scope, receive, send)
                return
            headers = dict(scope["headers"])
            method = headers.get(b"mcp-method", b"").decode()
            if running.greets_anybody and method == "server/discover":
                await JSONResponse(await _greeting(receive))(scope, receive, send)
                return
            bearer = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
            if bearer:
                running.bearers.append((scope["path"], bearer))
            held, wanted = authority.tokens.get(bearer), running.wants.get(method)
            if held is not None and wanted is not None and wanted not in held.scopes:
                challenge = f'Bearer error="insufficient_scope", scope="{wanted}"'
                await JSONResponse({}, 403, {"www-authenticate": challenge})(scope, receive, send)
                return
        await inner(scope, receive, send)

    async def _greeting(receive: Any) -> dict[str, Any]:
        asked = json.loads((await receive())["body"])
        result = {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"resources": {}},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }
        return {"jsonrpc": "2.0", "id": asked["id"], "result": result}

    async def _token(scope: Any, receive: Any, send: Any) -> None:
        """The SDK's server side knows no client credentials: they are answered here, the rest there."""
        message = await receive()
        while message.get("more_body"):
            rest = await receive()
            message = {**rest, "body": message["body"] + rest["body"]}
        form = parse_qs(message["body"].decode())
        if form.get("grant_type") != ["client_credentials"]:
            held = [message]

            async def again() -> Any:
                return held.pop() if held else await receive()

            await inner(scope, again, send)
            return
        header = Request(scope).headers.get("authorization", "")
        name, _, secret = b64decode(header.removeprefix("Basic ")).decode().partition(":")
        client = authority.clients.get(name)
        if client is None or client.client_secret != secret:
            await JSONResponse({"error": "invalid_client"}, 401)(scope, receive, send)
            return
        token = authority.issue(name, form["scope"][0].split(), refreshable=False)
        await JSONResponse(token.model_dump(exclude_none=True))(scope, receive, send)

    async with started(serve_app, app, sock):
        yield running
