"""`connect`: from whatever names a server to a session with it."""

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

from playhead.client.changes import ToolChanges
from playhead.client.elicitation import Asker, OnElicitation
from playhead.client.groups import bare
from playhead.client.handshake import check_mode
from playhead.client.oauth import ShowUrl
from playhead.client.openers import opener_for
from playhead.client.session import Session
from playhead.client.supervise import Supervisor
from playhead.config.servers import ServerConfig, from_command, resolve_target
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.results.policy import DEFAULT_POLICY, Policy

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
    """A session with the server that `target` names, for as long as the context is open.

    `target` is a `ServerConfig`; a text (a name from the servers file `config`, an `http(s)` or `ws(s)` URL,
    or a command line in quotes, told apart in that order); an argument vector; or an SDK server object in
    this process. `mode` is the protocol era: `auto` (default: the server's own setting, then `auto`) asks
    for the newest and falls back, `legacy` goes straight to the handshake, and a revision such as
    `2026-07-28` is taken without asking. `auth` is any `httpx2.Auth`, in place of the servers file's.
    Where the file asks for OAuth and a person has to allow the access, `show_url` is awaited with the URL of
    the page to open (default: the user's browser is opened), and `Limits.authorization_seconds` (5 min) bound
    the wait for the answer. That happens here and nowhere else: later on, a token that can't be refreshed any
    more is an `AuthorizationNeededError`, and connecting anew asks again.
    `on_elicitation` is awaited with each question that the server has for the user, one at a time; without it
    (the default) servers are told that nobody answers. Its time counts for no deadline of silence, and what
    it raises leaves the context.
    `policy` is how results are classified; a `trust_structured` of the servers file goes before its own.

    Raises `ConfigError` for a target that can't be understood, and `ConnectError` where no session came
    about (its cause says why; the server's last words on stderr are in the message). An error raised inside
    the context leaves it as it is, not in a group. Leaving ends the server's process, where there is one,
    and everything in flight; cancelling does the same at once.
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
    opener = opener_for(
        resolved,
        limits=limits,
        auth=auth,
        show_url=show_url,
        hears_questions=on_elicitation is not None,
    )
    changes = ToolChanges(limits)
    if settings.trust_structured is not None:
        policy = replace(policy, trust_structured=settings.trust_structured)
    with bare():
        async with trio.open_nursery() as nursery:
            asker = None
            if on_elicitation is not None:
                asker = Asker(on_elicitation, nursery=nursery, server=opener.server)
            supervisor = Supervisor(
                opener,
                nursery=nursery,
                limits=limits,
                mode=mode,
                restart=settings.restart,
                changes=changes,
                asker=asker,
            )
            connection = await supervisor.connect()
            session = Session(
                supervisor=supervisor,
                connection=connection,
                name=opener.server,
                config=settings,
                limits=limits,
                changes=changes,
                asker=asker,
                policy=policy,
            )
            background = trio.CancelScope()
            nursery.start_soon(_inside, background, session)
            try:
                yield session
            finally:
                background.cancel()
                changes.close()
                supervisor.close()


async def _inside(scope: trio.CancelScope, session: Session) -> None:
    with scope:
        await session.learn_templates()
