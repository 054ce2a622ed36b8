"""The server under test: `Target` sends the requests of a check and returns their unvalidated outcomes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.check.arguments.cases import Case
from playhead.check.arguments.mine import Mine
from playhead.check.cassette import UNRECORDED, UNRECORDED_WORDS, CassetteRecorder
from playhead.check.conversation import Observations
from playhead.check.options import CheckOptions
from playhead.check.results import Json, TestDraft, TestResult
from playhead.client.connector import carrier_factory, connect
from playhead.client.session.session import Session
from playhead.config.servers import ServerConfig, from_command, is_websocket, resolve_target
from playhead.errors import HttpStatusError, PlayheadError, ServerError, TransportError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.net_guard import is_loopback
from playhead.protocol.exchange import Witness
from playhead.protocol.messages import RpcError


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of one request: exactly one of `result`, `error` and `failure` is set."""

    result: Mapping[str, Any] | None = None
    """The unvalidated result object."""
    error: RpcError | None = None
    """The server's JSON-RPC error."""
    failure: PlayheadError | None = None
    """No usable answer arrived: the deadline passed, the connection was lost, or a message was invalid."""
    latency_ms: float
    void: str | None = None
    """The reason why the outcome proves nothing: the server still refused the request for its rate limit
    after all pauses, or a cassette does not have it."""


OnTest = Callable[[TestResult], None]
"""The callback that receives each finished test. It must not block."""

Checkable = ServerConfig | Server[Any] | MCPServer
"""The server to check: the configuration that a name, URL or command resolves to, or a server object."""

PATIENCE: float = 6.0
"""A request may take this many times its timeout while the server keeps showing signs of life."""

MOST_UNANSWERED: int = 6
"""After this many requests in a row without an answer, `tools/list` is tried. If that fails too, the server
is gone and nothing more is sent, because each of hundreds of further requests would wait for its deadline."""

STILL_RATE_LIMITED: Final = "the server limits the rate of requests and still refused after pauses: undecided"
"""Explains a test that the server's rate limit made void."""

RATE_LIMIT_PAUSES: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
"""Lists the pauses in seconds before a rate-limited request is repeated."""

RATE_LIMITED: Final = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)
_TOO_MANY_REQUESTS = 429
_MILLISECONDS = 1000.0


@dataclass(slots=True)
class Target:
    """A connected server: one session, which replaces a lost connection. Many tasks may use it at once."""

    options: CheckOptions
    session: Session
    """The client session, for more than plain requests, such as streams of resources."""
    server: Checkable
    """The server that the session is connected to, for probes that open a connection of their own."""
    on_test: OnTest
    tools: tuple[types.Tool, ...] = ()
    """The discovered tools; empty before discovery."""
    limits: Limits = field(default=DEFAULT_LIMITS)
    observations: Observations = field(default_factory=Observations)
    """The rows that the messages of the server have kept or broken."""
    mine: Mine = field(default_factory=Mine)
    """The values that the server has named."""
    proposals: dict[str, list[Case]] = field(default_factory=dict)
    """The arguments that a model has proposed, by tool."""
    templates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the variables of each listed template."""
    succeeded: dict[str, object] = field(default_factory=dict)
    """The arguments with which each tool first answered with a result that is not an error."""
    remarks: list[str] = field(default_factory=list)
    gone: PlayheadError | None = None
    """The last failure, once the server counts as gone (`MOST_UNANSWERED`) and nothing more is sent to it."""
    _unanswered: int = 0
    """The number of requests in a row without an answer."""
    _pauses_for_rate_limit: bool = True
    """False while the latest request was still rate-limited after its pauses. The next request is then sent
    only once."""

    @property
    def protocol_version(self) -> str:
        return self.session.protocol_version

    @property
    def is_process(self) -> bool:
        """True if the server is a process started for the check, speaking over stdio."""
        return isinstance(self.server, ServerConfig) and self.server.command is not None

    @property
    def is_here(self) -> bool:
        """True if the server runs on this machine."""
        if not isinstance(self.server, ServerConfig) or self.server.url is None:
            return True
        return is_loopback(self.server.url)

    @contextmanager
    def test(
        self,
        subject: str,
        title: str,
        *,
        tool: str | None = None,
        method: str | None = None,
        input: Json = None,
    ) -> Iterator[TestDraft]:
        """Yield the draft of a test. The test is reported when the block ends, unless the block raises."""
        draft = TestDraft(subject=subject, title=title, tool=tool, method=method, input=input)
        yield draft
        self.on_test(draft.done())

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> RequestOutcome:
        """Send a request and return its outcome.

        The server's errors are in the outcome and are never raised. A lost connection is replaced before the
        next request. `timeout_seconds` defaults to `options.timeout_seconds`. Cancelling sends
        `notifications/cancelled`. Once the server is `gone`, every outcome is that failure, immediately.
        """
        if self.gone is not None:
            return RequestOutcome(failure=self.gone, latency_ms=0.0)
        seconds = self.options.timeout_seconds if timeout_seconds is None else timeout_seconds
        outcome = await self._send_within_rate(method, params, seconds)
        unanswered = isinstance(outcome.failure, TransportError) and outcome.void is None
        self._unanswered = self._unanswered + 1 if unanswered else 0
        if self._unanswered >= MOST_UNANSWERED:
            await self._check_alive()
        if outcome.result is not None:
            self.mine.learn(method, params or {}, outcome.result)
        elif outcome.error is not None:
            self.mine.learn_error(params or {}, outcome.error.message)
        return outcome

    async def _send_within_rate(
        self, method: str, params: Mapping[str, Any] | None, seconds: float
    ) -> RequestOutcome:
        """Send a request, and repeat it after pauses if the server limits the rate."""
        outcome = await self.request_once(method, params, timeout_seconds=seconds)
        pauses = RATE_LIMIT_PAUSES if self._pauses_for_rate_limit else ()
        for pause_seconds in pauses:
            if not is_rate_limited(outcome):
                return outcome
            await trio.sleep(pause_seconds)
            outcome = await self.request_once(method, params, timeout_seconds=seconds)
        rate_limited = is_rate_limited(outcome)
        self._pauses_for_rate_limit = not rate_limited
        return replace(outcome, void=STILL_RATE_LIMITED) if rate_limited else outcome

    async def _check_alive(self) -> None:
        """Set `gone` if the server does not answer `tools/list` either. It may hang in one tool only."""
        self._unanswered = 0
        outcome = await self.request_once("tools/list", None, timeout_seconds=self.options.timeout_seconds)
        if isinstance(outcome.failure, TransportError):
            self.gone = outcome.failure

    async def request_once(
        self, method: str, params: Mapping[str, Any] | None, *, timeout_seconds: float
    ) -> RequestOutcome:
        """Send a request once, even if the server limits the rate. Its errors are in the outcome."""
        started = trio.current_time()
        result: dict[str, Any] | None = None
        error: RpcError | None = None
        failure: PlayheadError | None = None
        try:
            result = await self.session.request(method, params, timeout=timeout_seconds)
        except ServerError as raised:
            error = RpcError(code=raised.code, message=raised.server_message, data=raised.data)
        except PlayheadError as raised:
            failure = raised
        latency_ms = (trio.current_time() - started) * _MILLISECONDS
        is_unrecorded = error is not None and error.code == UNRECORDED
        return RequestOutcome(
            result=result,
            error=error,
            failure=failure,
            latency_ms=latency_ms,
            void=UNRECORDED_WORDS if is_unrecorded else None,
        )


def is_rate_limited(outcome: RequestOutcome) -> bool:
    """Return True if the server refused a request for its rate limit (HTTP 429, or an error that says so)."""
    if isinstance(outcome.failure, HttpStatusError):
        return outcome.failure.status == _TOO_MANY_REQUESTS
    return outcome.error is not None and RATE_LIMITED.search(outcome.error.message[:500]) is not None


def resolve(target: Checkable | str | Sequence[str]) -> Checkable:
    """Resolve `target` as `playhead.client.connect` does. Raises `ConfigError` if nothing matches."""
    if isinstance(target, ServerConfig | Server | MCPServer):
        return target
    return resolve_target(target) if isinstance(target, str) else from_command(target)


def limits_of(options: CheckOptions) -> Limits:
    """Return the limits of a check's session. They bound every wait by the timeout of `options`."""
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
    server: Checkable,
    options: CheckOptions,
    on_test: OnTest = lambda _test: None,
    *,
    mode: str | None = None,
    recorder: CassetteRecorder | None = None,
) -> AsyncIterator[Target]:
    """Open a connection, which the end of the context closes. `mode` and errors are those of `connect`.

    A server process that ends is always restarted, so that a request that crashes it does not end the check.
    """
    limits = limits_of(options)
    if isinstance(server, ServerConfig):
        server = replace(server, restart="always")
    observations = Observations()
    is_http = isinstance(server, ServerConfig) and server.url is not None and not is_websocket(server.url)

    def new_witness() -> Witness:
        conversation = observations.witness(in_order=not is_http)
        recording = recorder.witness() if recorder is not None else None

        def see(direction: Literal["sent", "received"], data: bytes) -> None:
            conversation(direction, data)
            if recording is not None:
                recording(direction, data)

        return see

    async with connect(server, limits=limits, mode=mode, new_witness=new_witness) as session:
        yield Target(
            options=options,
            session=session,
            server=server,
            on_test=on_test,
            limits=limits,
            observations=observations,
        )


def words_for(server: Checkable) -> str:
    """Describe the server without secrets, for a report of a check that could not connect."""
    return carrier_factory(server, limits=DEFAULT_LIMITS, auth=None).server
