"""`connect`: open a session with a server, however it is named.

Each kind of server (a command, a URL over HTTP or WebSocket, an object in this process) is a factory of fresh
transports, because a session outlives its connections: `transport_factory`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import httpx2
import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.cache import PageCache, open_cache
from playhead.client.oauth import ShowUrl
from playhead.client.session.cached_reads import SessionCache, credentials_name
from playhead.client.session.elicitation import Elicitor, OnElicitation
from playhead.client.session.handshake import check_mode
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.response_tap import ResponseTap
from playhead.client.session.sdk_connection import OpenedTransport, TransportFactory
from playhead.client.session.session import Session
from playhead.client.session.supervisor import Supervisor
from playhead.client.transports.http import HttpOptions, http_transport
from playhead.client.transports.http_direct import HttpDirect
from playhead.client.transports.http_errors import place_of
from playhead.client.transports.sdk_stdio import StdioTransport, stdio_transport
from playhead.client.transports.server_process import ServerProcess, StartedServer
from playhead.concurrency import require_trio, unwrap_exception_group
from playhead.config.auth import ClientCredentials, OAuthLogin
from playhead.config.servers import (
    ServerConfig,
    from_command,
    is_websocket,
    resolve_target,
    server_identity,
)
from playhead.errors import ConfigError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.net_guard import is_loopback
from playhead.redaction import redacted_url
from playhead.results.plan import DEFAULT_POLICY, Policy
from playhead.sdk_internals import InMemoryTransport

if TYPE_CHECKING:
    from playhead.client.transports.websocket import WebSocketTransport


Target = StartedServer | ServerConfig | str | Sequence[str] | Server[Any] | MCPServer


@asynccontextmanager
async def connect(
    target: Target,
    *,
    config: Path | None = None,
    limits: Limits = DEFAULT_LIMITS,
    mode: str | None = None,
    auth: httpx2.Auth | None = None,
    show_url: ShowUrl | None = None,
    on_elicitation: OnElicitation | None = None,
    policy: Policy = DEFAULT_POLICY,
    cache: PageCache | None = None,
) -> AsyncIterator[Session]:
    """Open a session with `target`, for as long as the context is open.

    `target` is a `ServerConfig`; a `StartedServer`, whose process already runs; a string (a name from the
    servers file `config`, an `http(s)` or `ws(s)` URL, or a command line in quotes, tried in that order); an
    argument vector; or an SDK server object in this process. `mode` selects the protocol revision: `auto`
    (default: the server's own setting, then `auto`) probes for the newest and falls back, `legacy` starts
    with the handshake, and a revision such as `2026-07-28` is used without asking. `auth` is any
    `httpx2.Auth`, replacing that of the servers file.

    If the file configures OAuth and a person has to grant access, `show_url` is awaited with the URL of the
    page to open (default: the user's browser is opened), and `Limits.authorization_seconds` (5 min) limits
    the wait for the answer. That happens here only: later, a token that can't be refreshed any more is an
    `AuthorizationNeededError`, and connecting again asks again.

    `on_elicitation` is awaited with each question of the server to the user, one at a time; without it (the
    default) servers learn that nobody answers. Its time does not count as silence, and its exceptions are
    raised from the context. `policy` classifies results; a `trust_structured` in the servers file overrides
    its own. `cache` has pages that were read before, by anybody (default: that of the servers file, if any).

    Raises `ConfigError` for an invalid target, and `ConnectError` if no session could be opened (its cause is
    the reason; the message includes the end of the server's stderr). An error raised inside the context is
    raised as it is, not in a group. Leaving ends the server's process, if any, and everything in flight;
    cancelling does the same at once.
    """
    require_trio("connect")
    resolved: StartedServer | ServerConfig | Server[Any] | MCPServer
    if isinstance(target, str):
        resolved = resolve_target(target, config)
    elif isinstance(target, StartedServer | ServerConfig | Server | MCPServer):
        resolved = target
    else:
        resolved = from_command(target)
    settings = resolved.config if isinstance(resolved, StartedServer) else resolved
    if not isinstance(settings, ServerConfig):
        settings = ServerConfig()
    mode = mode or settings.mode
    check_mode(mode)
    factory = transport_factory(
        resolved,
        limits=limits,
        auth=auth,
        show_url=show_url,
        wait_for_stream=on_elicitation is not None,
    )
    if cache is None and settings.cache is not None:
        cache = open_cache(settings.cache)
    session_cache = SessionCache(
        shared=cache,
        server=server_identity(settings),
        machine=_machine(settings),
        credentials=_credentials(settings, auth),
    )
    changes = ToolListChanges(limits)
    if settings.trust_structured is not None:
        policy = replace(policy, trust_structured=settings.trust_structured)
    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            elicitor = None
            if on_elicitation is not None:
                elicitor = Elicitor(on_elicitation, nursery=nursery, server=factory.server)
            supervisor = Supervisor(
                factory,
                nursery=nursery,
                limits=limits,
                mode=mode,
                restart=settings.restart,
                changes=changes,
                elicitor=elicitor,
            )
            connection = await supervisor.connect()
            session = Session(
                supervisor=supervisor,
                connection=connection,
                name=factory.server,
                config=settings,
                limits=limits,
                changes=changes,
                elicitor=elicitor,
                policy=policy,
                cache=session_cache,
            )
            background = trio.CancelScope()
            nursery.start_soon(_learn_templates, background, session)
            try:
                yield session
            finally:
                background.cancel()
                changes.close()
                supervisor.close()


def _machine(config: ServerConfig) -> str | None:
    """Return a name for this machine if the server's address means another server on another one."""
    if config.url is not None and not is_loopback(config.url):
        return None
    try:
        number = Path("/etc/machine-id").read_text("ascii").strip()
    except (OSError, ValueError):
        number = ""
    return f"{socket.gethostname()} {number}"


def _credentials(config: ServerConfig, auth: httpx2.Auth | None) -> str | None:
    """Return a name for the credentials of a session, empty without any; None if they change."""
    if auth is not None or config.auth is not None or config.tls_certificate is not None:
        return None
    # The cache's own password opens nothing at the server.
    secrets = replace(config, cache=None).secrets
    return credentials_name([*sorted(secrets), *sorted(map(list, config.env.items()))])


async def _learn_templates(scope: trio.CancelScope, session: Session) -> None:
    with scope:
        await session.learn_templates()


# --- the kinds of server ------------------------------------------------------------------------------------


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
        direct = HttpDirect(self.limits)
        return OpenedTransport(
            transport=http_transport(
                self.config.url, limits=self.limits, options=options, observer=tap, direct=direct
            ),
            direct=direct,
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
        # wsproto is imported for servers that need it only.
        from playhead.client.transports.websocket import websocket_transport
        from playhead.client.transports.websocket_opening import WebSocketOptions

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
        direct=transport,
    )


def _name_and_place(config: ServerConfig) -> str:
    place = redacted_url(config.url or "", config.secrets)
    return place if config.name in ("", place, place.partition("?")[0]) else f"{config.name} ({place})"


@dataclass(frozen=True, slots=True)
class StdioTarget:
    config: ServerConfig
    limits: Limits
    started: ServerProcess | None = None
    """The process of the first connection, if it already runs."""
    is_process: ClassVar = True
    authorize: ClassVar = None

    @property
    def server(self) -> str:
        return self.config.name or (self.config.command or ("",))[0]

    def __call__(self, tap: ResponseTap) -> OpenedTransport:
        assert self.config.command is not None
        transport = stdio_transport(
            self.config.command,
            env=self.config.env,
            cwd=self.config.cwd,
            limits=self.limits,
            started=self.started if self.started is not None and self.started.claim() else None,
        )
        return _opened_transport(transport)


def transport_factory(
    target: StartedServer | ServerConfig | Server[Any] | MCPServer,
    *,
    limits: Limits,
    auth: httpx2.Auth | None,
    show_url: ShowUrl | None = None,
    wait_for_stream: bool = False,
) -> TransportFactory:
    """The factory for `target`. Raises `ConfigError` for unusable TLS files and for OAuth over a
    WebSocket."""
    if isinstance(target, StartedServer):
        return StdioTarget(target.config, limits, target.process)
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
