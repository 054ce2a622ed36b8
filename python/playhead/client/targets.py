"""The kinds of server that a session can connect to, each a factory of fresh transports."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx2
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.client.oauth import ShowUrl
from playhead.client.session.connection import OpenedTransport, TransportFactory
from playhead.client.session.response_tap import ResponseTap
from playhead.client.transports.http import HttpOptions, http_transport
from playhead.client.transports.http_errors import place_of
from playhead.client.transports.stdio import StdioTransport, stdio_transport
from playhead.client.transports.websocket import WebSocketTransport, websocket_transport
from playhead.client.transports.websocket_opening import WebSocketOptions
from playhead.config.servers import ClientCredentials, OAuthLogin, ServerConfig, is_websocket
from playhead.errors import ConfigError
from playhead.limits import Limits
from playhead.redaction import redacted_url
from playhead.sdk_internals import InMemoryTransport


@dataclass(frozen=True, slots=True)
class InProcessTarget:
    """A server object in this process, over memory streams."""

    target: Server[Any] | MCPServer
    is_process: ClassVar = False
    authorize: ClassVar = None

    @property
    def server(self) -> str:
        return f"{self.target.name} (in process)"

    def __call__(self, tap: ResponseTap) -> OpenedTransport:
        return OpenedTransport(transport=InMemoryTransport(self.target))


@dataclass(frozen=True, slots=True)
class HttpTarget:
    config: ServerConfig
    limits: Limits
    auth: httpx2.Auth | None
    verify: ssl.SSLContext
    authorize: Callable[[], Awaitable[None]] | None = None
    wait_for_stream: bool = False
    is_process: ClassVar = False

    @property
    def server(self) -> str:
        return _name_and_place(self.config)

    def __call__(self, tap: ResponseTap) -> OpenedTransport:
        assert self.config.url is not None
        options = HttpOptions(
            headers=self.config.headers,
            auth=self.auth,
            verify=self.verify,
            wait_for_stream=self.wait_for_stream,
        )
        return OpenedTransport(
            transport=http_transport(self.config.url, limits=self.limits, options=options, observer=tap)
        )


@dataclass(frozen=True, slots=True)
class WebSocketTarget:
    config: ServerConfig
    limits: Limits
    auth: httpx2.Auth | None
    verify: ssl.SSLContext
    is_process: ClassVar = False
    authorize: ClassVar = None

    @property
    def server(self) -> str:
        return _name_and_place(self.config)

    def __call__(self, tap: ResponseTap) -> OpenedTransport:
        assert self.config.url is not None
        # A server that answers in series is silent while a tool runs: allow it as much time as a call.
        patience = max(self.limits.tool_seconds, self.config.timeout_seconds or 0.0)
        options = WebSocketOptions(
            headers=self.config.headers,
            auth=self.auth,
            verify=self.verify,
            pong_seconds=max(patience, WebSocketOptions().pong_seconds),
        )
        transport = websocket_transport(self.config.url, limits=self.limits, options=options)
        return _opened_transport(transport)


def _opened_transport(transport: WebSocketTransport | StdioTransport) -> OpenedTransport:
    def diagnosis() -> str:
        known = transport.diagnosis()
        return f"; {known}" if known else ""

    return OpenedTransport(
        transport=transport,
        last_received=lambda: transport.last_received,
        diagnosis=diagnosis,
        faults=transport.faults,
    )


def _name_and_place(config: ServerConfig) -> str:
    place = redacted_url(config.url or "", config.secrets)
    return place if config.name in ("", place, place.partition("?")[0]) else f"{config.name} ({place})"


@dataclass(frozen=True, slots=True)
class StdioTarget:
    config: ServerConfig
    limits: Limits
    is_process: ClassVar = True
    authorize: ClassVar = None

    @property
    def server(self) -> str:
        return self.config.name or (self.config.command or ("",))[0]

    def __call__(self, tap: ResponseTap) -> OpenedTransport:
        assert self.config.command is not None
        transport = stdio_transport(
            self.config.command, env=self.config.env, cwd=self.config.cwd, limits=self.limits
        )
        return _opened_transport(transport)


def transport_factory(
    target: ServerConfig | Server[Any] | MCPServer,
    *,
    limits: Limits,
    auth: httpx2.Auth | None,
    show_url: ShowUrl | None = None,
    wait_for_stream: bool = False,
) -> TransportFactory:
    """The factory for `target`. Raises `ConfigError` for unusable TLS files and for OAuth over a
    WebSocket."""
    if not isinstance(target, ServerConfig):
        return InProcessTarget(target)
    if target.url is not None and is_websocket(target.url):
        return _websocket_target(target, limits=limits, auth=auth or target.auth)
    if target.url is not None:
        factory = _http_target(target, target.url, limits=limits, auth=auth or target.auth, show_url=show_url)
        return replace(factory, wait_for_stream=wait_for_stream)
    return StdioTarget(target, limits)


def _websocket_target(
    config: ServerConfig, *, limits: Limits, auth: httpx2.Auth | OAuthLogin | ClientCredentials | None
) -> WebSocketTarget:
    if isinstance(auth, OAuthLogin | ClientCredentials):
        raise ConfigError(
            f"server {config.name!r}: expected a bearer token or `headers` for a WebSocket, got OAuth, which"
            " MCP defines for HTTP only"
        )
    return WebSocketTarget(config, limits, auth, _tls(config))


def _http_target(
    config: ServerConfig,
    url: str,
    *,
    limits: Limits,
    auth: httpx2.Auth | OAuthLogin | ClientCredentials | None,
    show_url: ShowUrl | None,
) -> HttpTarget:
    verify = _tls(config)
    if not isinstance(auth, OAuthLogin | ClientCredentials):
        return HttpTarget(config, limits, auth, verify)
    # The SDK's OAuth and its dependencies are loaded for servers that ask for it only.
    from playhead.client.oauth.build import build_oauth

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
    return HttpTarget(config, limits, access.auth, verify, access.authorize)


@cache
def default_tls_context() -> ssl.SSLContext:
    """A context that trusts the system's authorities. Shared by all sessions: loading takes 40 ms and
    more."""
    return httpx2.create_ssl_context()


class _DeferredContext(ssl.SSLContext):
    """The default context for an `http:` URL: loaded only if the server redirects to its `https:` origin."""

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        default_tls_context().set_alpn_protocols(alpn_protocols)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return default_tls_context().wrap_bio(*args, **kwargs)


def _tls(config: ServerConfig) -> ssl.SSLContext:
    if config.tls_verify and config.tls_authorities is None and config.tls_certificate is None:
        if urlsplit(config.url or "").scheme.lower() in ("https", "wss"):
            return default_tls_context()
        return _DeferredContext(ssl.PROTOCOL_TLS_CLIENT)
    with _naming(config, "authorities", config.tls_authorities):
        if config.tls_verify:
            context = ssl.create_default_context(cafile=config.tls_authorities)
        else:
            context = httpx2.create_ssl_context(verify=False)
            if config.tls_authorities is not None:
                context.load_verify_locations(config.tls_authorities)  # a wrong file is an error all the same
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
            f"server {config.name!r}: expected tls.{key} to be a PEM file, got {path} ({error})"
        ) from error
