"""`connect`: open a session with a server, however it is named.

Each kind of server (a command, a URL over HTTP or WebSocket, an object in this process) is a factory of fresh
carriers, because a session outlives its connections: `carrier_factory`.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import trio

from playhead.cache import PageCache, open_cache
from playhead.client.oauth import ShowUrl
from playhead.client.session.backchannel import Backchannel
from playhead.client.session.elicitation import Elicitor, OnElicitation
from playhead.client.session.handshake import check_mode
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.session import Session
from playhead.client.session.shared_reads import SessionReads, credentials_name
from playhead.client.session.supervisor import Supervisor
from playhead.client.transports.carrier import Carrier, CarrierFactory
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
from playhead.protocol.exchange import Witness
from playhead.redaction import redacted_url
from playhead.results.plan import DEFAULT_POLICY, Policy

if TYPE_CHECKING:
    import httpx2
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer


SdkServer = Union["Server[Any]", "MCPServer"]  # the SDK is not imported for other servers
Target = Union[StartedServer, ServerConfig, str, Sequence[str], SdkServer]  # noqa: UP007


@asynccontextmanager
async def connect(
    target: Target,
    *,
    config: Path | str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    mode: str | None = None,
    auth: httpx2.Auth | None = None,
    show_url: ShowUrl | None = None,
    on_elicitation: OnElicitation | None = None,
    backchannel: Backchannel | None = None,
    policy: Policy = DEFAULT_POLICY,
    cache: PageCache | None = None,
    new_witness: Callable[[], Witness] | None = None,
) -> AsyncIterator[Session]:
    """Open a session with `target`, for as long as the context is open.

    `target` is a `ServerConfig`; a `StartedServer`, whose process already runs; a string (a name from the
    servers file `config`, an `http(s)` or `ws(s)` URL, or a command line in quotes, tried in that order); an
    argument vector; or an SDK server object in this process. `mode` selects the protocol revision: `auto`
    (default: the server's own setting, then `auto`) probes for the newest and falls back, `legacy` starts
    with the handshake, and a revision such as `2026-07-28` is used without a handshake. `auth` is any
    `httpx2.Auth`; it replaces the one of the servers file.

    If the file configures OAuth and a person has to grant access, `show_url` is awaited with the URL of the
    page to open (default: the user's browser is opened), and `Limits.authorization_seconds` (5 min) limits
    the wait for the answer. The person is asked only here. Later, a token that can't be refreshed any more
    raises `AuthorizationNeededError`; connect again to ask again.

    `on_elicitation` is awaited with each question of the server to the user, one at a time. Without it (the
    default) the client does not declare elicitation. Its time does not count as silence, and its exceptions
    are raised from the context. A `backchannel` takes its place in a program that passes all requests and
    notifications of the server on. `policy` classifies results; `trust_structured` in the servers file
    overrides the policy's. `cache` is a page cache, which sessions and processes may share (default: that of
    the servers file, if any). `new_witness` is called for each connection of the session; the callable that
    it returns is called with each message of that connection, in both directions.

    Raises `ConfigError` for an invalid target, and `ConnectError` if no session could be opened (its cause is
    the reason; the message includes the end of the server's stderr). An error raised inside the context is
    raised as it is, not in a group. Leaving ends the server's process, if any, and everything in flight;
    cancelling does the same at once.
    """
    require_trio("connect")
    resolved: StartedServer | ServerConfig | SdkServer
    if isinstance(target, str):
        resolved = resolve_target(target, None if config is None else Path(config))
    elif isinstance(target, Sequence):
        resolved = from_command(target)
    else:
        resolved = target
    settings = resolved.config if isinstance(resolved, StartedServer) else resolved
    if not isinstance(settings, ServerConfig):
        settings = ServerConfig()
    mode = mode or settings.mode
    check_mode(mode)
    factory = carrier_factory(
        resolved,
        limits=limits,
        auth=auth,
        show_url=show_url,
        wait_for_stream=on_elicitation is not None or backchannel is not None,
    )
    if cache is None and settings.cache is not None:
        cache = open_cache(settings.cache)
    reads = SessionReads(
        cache=cache,
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
                backchannel=backchannel,
                new_witness=new_witness,
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
                reads=reads,
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
    """Return a name for this machine if the address is valid on it only, else None."""
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
    # The cache's password is no credential for the server.
    secrets = replace(config, cache=None).secrets
    return credentials_name([*sorted(secrets), *sorted(map(list, config.env.items()))])


async def _learn_templates(scope: trio.CancelScope, session: Session) -> None:
    with scope:
        await session.learn_templates()


# --- the kinds of server ------------------------------------------------------------------------------------


# Each imports its carrier, and with it the libraries that it needs, when the carrier is made.


def carrier_factory(
    target: StartedServer | ServerConfig | SdkServer,
    *,
    limits: Limits,
    auth: httpx2.Auth | None,
    show_url: ShowUrl | None = None,
    wait_for_stream: bool = False,
) -> CarrierFactory:
    """Return the factory for `target`. Raises `ConfigError` for another type, for unusable TLS files, and for
    OAuth over a WebSocket."""
    if isinstance(target, StartedServer):
        return _process(target.config, limits, target.process)
    if not isinstance(target, ServerConfig):
        return _in_process(target)
    if target.url is None:
        return _process(target, limits, None)
    if is_websocket(target.url):
        return _websocket(target, target.url, limits, auth or target.auth)
    return _http(
        target,
        target.url,
        limits=limits,
        auth=auth or target.auth,
        show_url=show_url,
        wait_for_stream=wait_for_stream,
    )


def _process(config: ServerConfig, limits: Limits, started: ServerProcess | None) -> CarrierFactory:
    """Return the factory for a process. `started` is the first one, if it runs already."""

    def new() -> Carrier:
        from playhead.client.transports.stdio import StdioCarrier

        assert config.command is not None
        process = started if started is not None and started.claim() else None
        return StdioCarrier(config.command, env=config.env, cwd=config.cwd, limits=limits, started=process)

    server = config.name or (config.command or ("",))[0]
    return CarrierFactory(server=server, new=new, is_process=True)


def _in_process(server: SdkServer) -> CarrierFactory:
    if not hasattr(server, "run"):
        raise ConfigError(
            "connect: expected a name of the servers file, a URL, a command line, an argument vector or a"
            f" server object of the SDK, got {server!r:.80}"
        )

    def new() -> Carrier:
        from playhead.client.transports.in_process import InProcessCarrier

        return InProcessCarrier(server)

    return CarrierFactory(server=f"{server.name} (in process)", new=new)


def _websocket(
    config: ServerConfig, url: str, limits: Limits, auth: httpx2.Auth | OAuthLogin | ClientCredentials | None
) -> CarrierFactory:
    if isinstance(auth, OAuthLogin | ClientCredentials):
        raise ConfigError(
            f"server {config.name!r}: expected a bearer token or `headers` for a WebSocket, got OAuth, which"
            " MCP defines for HTTP only"
        )
    from playhead.client.transports.tls import tls_context

    tls = tls_context(config)

    def new() -> Carrier:
        from playhead.client.transports.websocket import WebSocketCarrier
        from playhead.client.transports.websocket_opening import WebSocketOptions

        options = WebSocketOptions(headers=config.headers, auth=auth, verify=tls)
        return WebSocketCarrier(url, limits=limits, options=options)

    return CarrierFactory(server=_name_and_place(config, url), new=new)


def _http(
    config: ServerConfig,
    url: str,
    *,
    limits: Limits,
    auth: httpx2.Auth | OAuthLogin | ClientCredentials | None,
    show_url: ShowUrl | None,
    wait_for_stream: bool,
) -> CarrierFactory:
    from playhead.client.transports.tls import tls_context

    tls = tls_context(config)
    authorize = None
    if isinstance(auth, OAuthLogin | ClientCredentials):
        # The SDK's OAuth and its dependencies are loaded for servers that ask for it only.
        from playhead.client.oauth.build import build_oauth
        from playhead.client.transports.http_errors import place_of

        access = build_oauth(
            auth,
            url=url,
            place=place_of(url),
            headers=config.headers,
            verify=tls,
            allow_origins=config.allow_origins,
            limits=limits,
            show_url=show_url,
        )
        auth, authorize = access.auth, access.authorize

    def new() -> Carrier:
        from playhead.client.transports.http import HttpCarrier

        return HttpCarrier(
            url, limits=limits, headers=config.headers, auth=auth, tls=tls, wait_for_stream=wait_for_stream
        )

    return CarrierFactory(server=_name_and_place(config, url), new=new, authorize=authorize)


def _name_and_place(config: ServerConfig, url: str) -> str:
    place = redacted_url(url, config.secrets)
    return place if config.name in ("", place, place.partition("?")[0]) else f"{config.name} ({place})"
