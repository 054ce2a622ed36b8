"""`connect`: open a session with a server, however it is named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.client.oauth import ShowUrl
from playhead.client.session.elicitation import Elicitor, OnElicitation
from playhead.client.session.handshake import check_mode
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.session import Session
from playhead.client.session.supervisor import Supervisor
from playhead.client.targets import transport_factory
from playhead.concurrency import unwrap_exception_group
from playhead.config.servers import ServerConfig, from_command, resolve_target
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.plan import DEFAULT_POLICY, Policy

Target = ServerConfig | str | Sequence[str] | Server[Any] | MCPServer


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
) -> AsyncIterator[Session]:
    """Open a session with `target`, for as long as the context is open.

    `target` is a `ServerConfig`; a string (a name from the servers file `config`, an `http(s)` or `ws(s)`
    URL, or a command line in quotes, tried in that order); an argument vector; or an SDK server object in
    this process. `mode` selects the protocol revision: `auto` (default: the server's own setting, then
    `auto`) probes for the newest and falls back, `legacy` starts with the handshake, and a revision such as
    `2026-07-28` is used without asking. `auth` is any `httpx2.Auth`, replacing that of the servers file.

    If the file configures OAuth and a person has to grant access, `show_url` is awaited with the URL of the
    page to open (default: the user's browser is opened), and `Limits.authorization_seconds` (5 min) limits
    the wait for the answer. That happens here only: later, a token that can't be refreshed any more is an
    `AuthorizationNeededError`, and connecting again asks again.

    `on_elicitation` is awaited with each question of the server to the user, one at a time; without it (the
    default) servers learn that nobody answers. Its time does not count as silence, and its exceptions are
    raised from the context. `policy` classifies results; a `trust_structured` in the servers file overrides
    its own.

    Raises `ConfigError` for an invalid target, and `ConnectError` if no session could be opened (its cause is
    the reason; the message includes the end of the server's stderr). An error raised inside the context is
    raised as it is, not in a group. Leaving ends the server's process, if any, and everything in flight;
    cancelling does the same at once.
    """
    resolved: ServerConfig | Server[Any] | MCPServer
    if isinstance(target, str):
        resolved = resolve_target(target, config)
    elif isinstance(target, ServerConfig | Server | MCPServer):
        resolved = target
    else:
        resolved = from_command(target)
    settings = resolved if isinstance(resolved, ServerConfig) else ServerConfig()
    mode = mode or settings.mode
    check_mode(mode)
    factory = transport_factory(
        resolved,
        limits=limits,
        auth=auth,
        show_url=show_url,
        wait_for_stream=on_elicitation is not None,
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
            )
            background = trio.CancelScope()
            nursery.start_soon(_learn_templates, background, session)
            try:
                yield session
            finally:
                background.cancel()
                changes.close()
                supervisor.close()


async def _learn_templates(scope: trio.CancelScope, session: Session) -> None:
    with scope:
        await session.learn_templates()
