"""The target of a check over a real session: any server that `playhead.client.connect` reaches."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.check.options import CheckOptions
from playhead.check.target import Answer
from playhead.client.connect import connect
from playhead.client.openers import opener_for
from playhead.client.session import Session
from playhead.config.servers import ServerConfig, from_command, resolve_target
from playhead.errors import HttpStatusError, PlayheadError, ServerError, TransportError
from playhead.limits import DEFAULT_LIMITS, Limits

Checkable = ServerConfig | Server[Any] | MCPServer
"""A server whose place is known: what a name, a URL or a command was resolved to."""

PATIENCE: float = 6.0
"""A request that goes on and on, always with a sign of life, may take this many times its timeout."""

MOST_UNANSWERED: int = 6
"""So many requests in a row without an answer, and a listing that gets none either: the server is gone. Each
of some hundred more would cost its deadline."""

TOO_OFTEN_WAITS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
"""Seconds before a request is repeated that came too often for the server."""

_TOO_OFTEN = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)
_TOO_MANY_REQUESTS = 429
_MILLISECONDS = 1000.0


@dataclass(slots=True)
class SessionTarget:
    """A `Target` over one session, which makes a lost connection anew."""

    options: CheckOptions
    session: Session
    server: Checkable
    """What the session is with: for probes that need a connection of their own."""
    tools: tuple[types.Tool, ...] = ()
    limits: Limits = field(default=DEFAULT_LIMITS)
    gone: PlayheadError | None = None
    """Why nothing is sent any more: the server has answered nothing for so long that it is given up."""
    _unanswered: int = 0
    _patient: bool = True

    @property
    def protocol_version(self) -> str:
        return self.session.protocol_version

    @property
    def is_process(self) -> bool:
        """Whether the server is a process that was started for the check, and speaks over stdio."""
        return isinstance(self.server, ServerConfig) and self.server.command is not None

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """See `Target.request`. Once the server is `gone`, every answer is that failure, at once."""
        if self.gone is not None:
            return Answer(failure=self.gone, latency_ms=0.0)
        seconds = self.options.timeout_seconds if timeout_seconds is None else timeout_seconds
        answer = await self._send_in_time(method, params, seconds)
        unanswered = isinstance(answer.failure, TransportError) and not answer.too_often
        self._unanswered = self._unanswered + 1 if unanswered else 0
        if self._unanswered >= MOST_UNANSWERED:
            await self._look_for_life()
        return answer

    async def _send_in_time(self, method: str, params: Mapping[str, Any] | None, seconds: float) -> Answer:
        """Send, and again somewhat later, where the server says that this was one request too many."""
        answer = await self._send(method, params, seconds)
        for wait_seconds in TOO_OFTEN_WAITS if self._patient else ():
            if not _is_too_often(answer):
                return answer
            await trio.sleep(wait_seconds)
            answer = await self._send(method, params, seconds)
        too_often = _is_too_often(answer)
        # One that is still not to be asked now isn't waited for again and again.
        self._patient = not too_often
        return replace(answer, too_often=too_often)

    async def _look_for_life(self) -> None:
        """Ask what any server answers quickly; one that hangs in a tool shall be asked about the others."""
        self._unanswered = 0
        alive = await self._send("tools/list", None, self.options.timeout_seconds)
        if isinstance(alive.failure, TransportError):
            self.gone = alive.failure

    async def _send(self, method: str, params: Mapping[str, Any] | None, seconds: float) -> Answer:
        started = trio.current_time()
        result: dict[str, Any] | None = None
        error: types.ErrorData | None = None
        failure: PlayheadError | None = None
        try:
            result = await self.session.request(method, params, timeout=seconds)
        except ServerError as came:
            error = types.ErrorData(code=came.code, message=came.said, data=came.data)
        except PlayheadError as came:
            failure = came
        latency_ms = (trio.current_time() - started) * _MILLISECONDS
        return Answer(result=result, error=error, failure=failure, latency_ms=latency_ms)


def _is_too_often(answer: Answer) -> bool:
    if isinstance(answer.failure, HttpStatusError):
        return answer.failure.status == _TOO_MANY_REQUESTS
    return answer.error is not None and _TOO_OFTEN.search(answer.error.message[:500]) is not None


def resolve(target: Checkable | str | Sequence[str]) -> Checkable:
    """What `target` names; see `playhead.client.connect`. Raises `ConfigError` where nothing fits."""
    if isinstance(target, ServerConfig | Server | MCPServer):
        return target
    return resolve_target(target) if isinstance(target, str) else from_command(target)


def limits_of(options: CheckOptions) -> Limits:
    """The limits of a check's session: nothing waits for ever."""
    seconds = options.timeout_seconds
    return replace(
        DEFAULT_LIMITS,
        connect_seconds=max(seconds, DEFAULT_LIMITS.connect_seconds),
        handshake_seconds=max(seconds, DEFAULT_LIMITS.handshake_seconds),
        page_seconds=seconds,
        page_total_seconds=seconds * PATIENCE,
        tool_seconds=seconds,
        tool_total_seconds=seconds * PATIENCE,
    )


@asynccontextmanager
async def open_target(
    server: Checkable, options: CheckOptions, *, mode: str | None = None
) -> AsyncIterator[SessionTarget]:
    """Connect, for as long as the context is open. `mode` and errors are as for `playhead.client.connect`.

    A server's process that ends is started again as often as it takes: one that dies of a request shall be
    asked all the others too.
    """
    limits = limits_of(options)
    if isinstance(server, ServerConfig):
        server = replace(server, restart="always")
    async with connect(server, limits=limits, mode=mode) as session:
        yield SessionTarget(options=options, session=session, server=server, limits=limits)


def words_for(server: Checkable) -> str:
    """The server in a report, without secrets, where there was no session to say it."""
    return opener_for(server, limits=DEFAULT_LIMITS, auth=None).server
