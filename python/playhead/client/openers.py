"""What a target is, and how a fresh transport to it is made each time one is needed."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
from mcp.client._memory import InMemoryTransport  # no public way from an MCPServer to its streams
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.client.connection import Opened, Opener
from playhead.client.link import Link
from playhead.client.oauth import ShowUrl, build_oauth
from playhead.client.transports.http import HttpOptions, http_transport
from playhead.client.transports.http_answers import place_of
from playhead.client.transports.stdio import StdioTransport, stdio_transport
from playhead.client.transports.websocket import WebSocketTransport, websocket_transport
from playhead.client.transports.websocket_options import WebSocketOptions
from playhead.config.auth import ClientCredentials, OAuthLogin
from playhead.config.servers import ServerConfig, is_websocket
from playhead.errors import ConfigError
from playhead.limits import Limits


@dataclass(frozen=True, slots=True)
class InProcess:
    """A server object in this process, over memory streams: both eras, like any other server."""

    target: Server[Any] | MCPServer

    @property
    def server(self) -> str:
        return f"{self.target.name} (in process)"

    @property
    def is_process(self) -> bool:
        return False

    @property
    def authorize(self) -> None:
        return None

    def __call__(self, link: Link) -> Opened:
        return Opened(transport=InMemoryTransport(self.target))


@dataclass(frozen=True, slots=True)
class OverHttp:
    config: ServerConfig
    limits: Limits
    auth: httpx2.Auth | None
    verify: ssl.SSLContext | bool
    authorize: Callable[[], Awaitable[None]] | None = None
    hears_questions: bool = False

    @property
    def server(self) -> str:
        return _name_and_place(self.config)

    @property
    def is_process(self) -> bool:
        return False

    def __call__(self, link: Link) -> Opened:
        assert self.config.url is not None
        options = HttpOptions(
            headers=self.config.headers,
            auth=self.auth,
            verify=self.verify,
            hears_questions=self.hears_questions,
        )
        return Opened(
            transport=http_transport(self.config.url, limits=self.limits, options=options, observer=link)
        )


@dataclass(frozen=True, slots=True)
class OverWebSocket:
    config: ServerConfig
    limits: Limits
    auth: httpx2.Auth | None
    verify: ssl.SSLContext | bool

    @property
    def server(self) -> str:
        return _name_and_place(self.config)

    @property
    def is_process(self) -> bool:
        return False

    @property
    def authorize(self) -> None:
        return None

    def __call__(self, link: Link) -> Opened:
        assert self.config.url is not None
        # A server that answers in series keeps silent while a tool runs: no less time than a call has.
        patience = max(self.limits.tool_seconds, self.config.timeout_seconds or 0.0)
        options = WebSocketOptions(
            headers=self.config.headers,
            auth=self.auth,
            verify=self.verify,
            pong_seconds=max(patience, WebSocketOptions().pong_seconds),
        )
        transport = websocket_transport(self.config.url, limits=self.limits, options=options)
        return _opened(transport)


def _opened(transport: WebSocketTransport | StdioTransport) -> Opened:
    def diagnosis() -> str:
        known = transport.diagnosis()
        return f"; {known}" if known else ""

    return Opened(
        transport=transport,
        last_received=lambda: transport.last_received,
        diagnosis=diagnosis,
        faults=transport.faults,
    )


def _name_and_place(config: ServerConfig) -> str:
    place = place_of(config.url or "")
    return place if config.name in ("", place) else f"{config.name} ({place})"


@dataclass(frozen=True, slots=True)
class OverStdio:
    config: ServerConfig
    limits: Limits

    @property
    def server(self) -> str:
        return self.config.name or (self.config.command or ("",))[0]

    @property
    def is_process(self) -> bool:
        return True

    @property
    def authorize(self) -> None:
        return None

    def __call__(self, link: Link) -> Opened:
        assert self.config.command is not None
        transport = stdio_transport(
            self.config.command, env=self.config.env, cwd=self.config.cwd, limits=self.limits
        )
        return _opened(transport)


def opener_for(
    target: ServerConfig | Server[Any] | MCPServer,
    *,
    limits: Limits,
    auth: httpx2.Auth | None,
    show_url: ShowUrl | None = None,
    hears_questions: bool = False,
) -> Opener:
    """Raises `ConfigError` for TLS files that can't be used, and for OAuth over a WebSocket."""
    if not isinstance(target, ServerConfig):
        return InProcess(target)
    if target.url is not None and is_websocket(target.url):
        return _over_websocket(target, limits=limits, auth=auth or target.auth)
    if target.url is not None:
        opener = _over_http(target, target.url, limits=limits, auth=auth or target.auth, show_url=show_url)
        return replace(opener, hears_questions=hears_questions)
    return OverStdio(target, limits)


def _over_websocket(
    config: ServerConfig, *, limits: Limits, auth: httpx2.Auth | OAuthLogin | ClientCredentials | None
) -> OverWebSocket:
    if isinstance(auth, OAuthLogin | ClientCredentials):
        raise ConfigError(
            f"server {config.name!r}: expected a bearer token or `headers` for a WebSocket, came OAuth, which"
            " MCP has for HTTP only"
        )
    return OverWebSocket(config, limits, auth, _tls(config))


def _over_http(
    config: ServerConfig,
    url: str,
    *,
    limits: Limits,
    auth: httpx2.Auth | OAuthLogin | ClientCredentials | None,
    show_url: ShowUrl | None,
) -> OverHttp:
    verify = _tls(config)
    if not isinstance(auth, OAuthLogin | ClientCredentials):
        return OverHttp(config, limits, auth, verify)
    access = build_oauth(
        auth,
        url=url,
        place=place_of(url),
        headers=config.headers,
        verify=verify,
        allow_origins=config.allow_origins,
        limits=limits,
        show_url=show_url,
    )
    return OverHttp(config, limits, access.auth, verify, access.authorize)


def _tls(config: ServerConfig) -> ssl.SSLContext | bool:
    if config.tls_verify and config.tls_authorities is None and config.tls_certificate is None:
        return True
    with _naming(config, "authorities", config.tls_authorities):
        context = ssl.create_default_context(cafile=config.tls_authorities)
    if not config.tls_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if config.tls_certificate is not None:
        with _naming(config, "certificate", config.tls_certificate):
            context.load_cert_chain(config.tls_certificate, config.tls_key)
    return context


@contextmanager
def _naming(config: ServerConfig, key: str, path: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"server {config.name!r}: tls.{key} {path} can't be used ({error}); expected a file in PEM"
        ) from error
