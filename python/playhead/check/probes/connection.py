"""Is the server there, does it shake hands as the specification says, and does it let go?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2
import mcp_types as types
import trio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from playhead._core import __version__
from playhead.check.connecting import SessionTarget, open_target
from playhead.check.probes.asking import SPECIFICATION, ask, error_shown, require_answered, said, sent, shown
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.client.transports.stdio import stdio_transport
from playhead.config.servers import ServerConfig
from playhead.content.formats import quoted
from playhead.errors import ConnectError, PlayheadError

LIFECYCLE: Final = f"{SPECIFICATION}/basic/lifecycle"

CONNECT: Final = CheckKind(
    name="connection.connect",
    title="The server can be reached and completes the handshake",
    level="must",
    source=LIFECYCLE,
)
HEALTH: Final = CheckKind(
    name="connection.health",
    title="The health endpoint, where there is one, says that the server is well",
    level="should",
    source="docs/check.md",
)
REVISION: Final = CheckKind(
    name="handshake.revision",
    title="The handshake settles on a published revision",
    level="must",
    source=f"{LIFECYCLE}#version-negotiation",
)
SHAPE: Final = CheckKind(
    name="handshake.shape",
    title="The handshake's result has the fields of the schema: serverInfo, capabilities, instructions",
    level="must",
    source=f"{LIFECYCLE}#initialization",
)
NEGOTIATES: Final = CheckKind(
    name="handshake.negotiates",
    title="A client that asks for a revision that nobody has is offered another one",
    level="must",
    source=f"{LIFECYCLE}#version-negotiation",
)
PING: Final = CheckKind(
    name="connection.ping",
    title="A ping is answered with an empty result",
    level="must",
    source=f"{SPECIFICATION}/basic/utilities/ping",
)
SECOND: Final = CheckKind(
    name="connection.second",
    title="A second client can connect while the first is there",
    level="should",
    source=f"{SPECIFICATION}/basic/transports#streamable-http",
)
STOPS: Final = CheckKind(
    name="connection.stops",
    title="The server's process ends when its stdin does, or at SIGTERM",
    level="should",
    source=f"{LIFECYCLE}#shutdown",
)
STAYS: Final = CheckKind(
    name="connection.stays",
    title="The server is there until the end",
    level="must",
    source="docs/check.md#server",
)
KINDS: Final = (CONNECT, HEALTH, REVISION, SHAPE, NEGOTIATES, PING, SECOND, STOPS, STAYS)

_UNWELL: Final = frozenset({"unhealthy", "error", "down", "fail", "failed", "failing", "degraded"})
_BODY_BYTES: Final = 64 * 1024
_KILLED: Final = -9
NO_REVISION: Final = "1999-12-31"
"""Older than the protocol: revisions are named by their date."""


def unreachable(error: ConnectError, latency_ms: float) -> TestResult:
    """The test of a server that no session came about with."""
    draft = TestDraft(subject="connection", title="connect", latency_ms=latency_ms)
    draft.failed(CONNECT, str(error))
    return draft.done()


def judge_stay(target: SessionTarget, found: Callable[[TestResult], None]) -> None:
    """Judge whether the server outlived the check: to be called when everything else was tried."""
    draft = TestDraft(subject="connection", title="until the end")
    draft.require(
        STAYS,
        target.gone is None,
        f"expected the server to answer, or a new connection to it, until the end; it is gone: {target.gone}",
    )
    found(draft.done())


async def probe_connection(
    target: SessionTarget, found: Callable[[TestResult], None], *, latency_ms: float
) -> None:
    """Judge the connection that stands (it took `latency_ms`), and what else connecting can show."""
    found(_connected(target, latency_ms))
    url = target.server.url if isinstance(target.server, ServerConfig) else None
    if url is not None:
        await _probe_health(target, url, found)
    if target.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await _probe_ping(target, found)
    if url is not None:
        await _probe_second(target, found)
    if isinstance(target.server, ServerConfig) and target.server.command is not None:
        await _probe_stop(target, target.server, target.server.command, found)


def _connected(target: SessionTarget, latency_ms: float) -> TestResult:
    handshake = target.session.handshake
    modern = target.protocol_version in MODERN_PROTOCOL_VERSIONS
    draft = TestDraft(subject="connection", title="connect", latency_ms=latency_ms)
    draft.passed(CONNECT)
    if handshake is None:
        draft.skipped(REVISION, "the revision was given, and none negotiated")
        return draft.done()
    draft.method = "server/discover" if modern else "initialize"
    draft.output = shown(handshake)
    draft.require(
        REVISION,
        target.protocol_version in (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS),
        f"expected one of {', '.join(HANDSHAKE_PROTOCOL_VERSIONS)}, came {quoted(target.protocol_version)}",
    )
    wrong = _shape_problems(types.DiscoverResult if modern else types.InitializeResult, handshake)
    draft.require(SHAPE, not wrong, f"expected the result of {draft.method}; {wrong}")
    return draft.done()


def _shape_problems(
    model: type[types.DiscoverResult] | type[types.InitializeResult], raw: Mapping[str, Any]
) -> str:
    try:
        # Strict: pydantic would take "yes" for true.
        model.model_validate_json(json.dumps(raw), strict=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[:5]
        return "; ".join(
            "at " + ".".join(map(str, ("$", *problem["loc"]))) + f": {problem['msg']}" for problem in first
        )
    return ""


async def _probe_health(target: SessionTarget, url: str, found: Callable[[TestResult], None]) -> None:
    """Ask the origin for `/health`. The specification knows none: one that isn't there is fine."""
    place = httpx2.URL(url)
    scheme = {"ws": "http", "wss": "https"}.get(place.scheme, place.scheme)
    health = place.copy_with(scheme=scheme, raw_path=b"/health", userinfo=b"", fragment=None)
    draft = TestDraft(subject="connection", title="health endpoint", input={"GET": str(health)})
    config = target.server
    verify = isinstance(config, ServerConfig) and config.tls_verify
    started = trio.current_time()
    with trio.move_on_after(target.options.timeout_seconds):
        try:
            async with (
                httpx2.AsyncClient(verify=verify, follow_redirects=False) as client,
                client.stream("GET", health) as response,
            ):
                draft.latency_ms = (trio.current_time() - started) * 1000
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _BODY_BYTES:
                        break
                _judge_health(draft, response.status_code, bytes(body))
        except (httpx2.HTTPError, OSError) as error:
            draft.skipped(HEALTH, f"no health endpoint can be asked ({type(error).__name__})")
    if not draft.checks:
        draft.skipped(HEALTH, "the health endpoint gave no answer in time")
    found(draft.done())


def _judge_health(draft: TestDraft, status: int, body: bytes) -> None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    state = answer.get("status") if isinstance(answer, dict) else None
    draft.output = {"status": status, "body": shown(answer)}
    if not isinstance(state, str) or status not in (200, 503):
        draft.skipped(HEALTH, f"there is no health endpoint (HTTP {status})")
        return
    well = status == 200 and state.lower() not in _UNWELL
    draft.require(HEALTH, well, f"expected the server to be well, came HTTP {status}, status {quoted(state)}")


async def _probe_ping(target: SessionTarget, found: Callable[[TestResult], None]) -> None:
    draft = TestDraft(subject="connection", title="ping", method="ping")
    answer = await ask(target, draft)
    if answer.error is not None:
        draft.failed(PING, f"expected an empty result, came {said(answer.error)}")
    else:
        require_answered(draft, PING, answer, target)
    found(draft.done())


async def _probe_second(target: SessionTarget, found: Callable[[TestResult], None]) -> None:
    draft = TestDraft(subject="connection", title="a second client")
    started = trio.current_time()
    try:
        async with open_target(target.server, target.options):
            draft.passed(SECOND)
    except PlayheadError as error:
        draft.failed(SECOND, f"expected a second session beside the first, came none: {error}")
    draft.latency_ms = (trio.current_time() - started) * 1000
    found(draft.done())


async def _probe_stop(
    target: SessionTarget,
    config: ServerConfig,
    command: tuple[str, ...],
    found: Callable[[TestResult], None],
) -> None:
    """Start another process of the server, ask it for a revision that nobody has, close its stdin, and see
    how it ends."""
    draft = TestDraft(subject="connection", title="the process ends")
    transport = stdio_transport(command, env=config.env, cwd=config.cwd, limits=target.limits)
    answer: JSONRPCResponse | JSONRPCError | None = None
    try:
        async with transport as (read, write):
            with trio.move_on_after(target.limits.handshake_seconds):
                answer = await _offered(read, write)
    except PlayheadError as error:
        draft.skipped(STOPS, f"a second process could not be started: {error}")
        found(draft.done())
        return
    if target.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        found(_negotiated(answer))
    if answer is None:
        draft.skipped(STOPS, "a second process gave no answer")
    else:
        draft.require(
            STOPS,
            transport.returncode not in (None, _KILLED),
            "expected the process to end after its stdin was closed, or after SIGTERM; after 2 s of each it"
            " had to be killed",
        )
    found(draft.done())


_ASKED: Final[Mapping[str, Any]] = {
    "protocolVersion": NO_REVISION,
    "capabilities": {},
    "clientInfo": {"name": "playhead", "version": __version__},
}


async def _offered(read: Any, write: Any) -> JSONRPCResponse | JSONRPCError | None:
    """The answer to a client that asks for `NO_REVISION`; None where the stream ends first."""
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="initialize", params=dict(_ASKED))
    await write.send(SessionMessage(request))
    async for item in read:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            return message
    return None


def _negotiated(answer: JSONRPCResponse | JSONRPCError | None) -> TestResult:
    draft = TestDraft(subject="connection", title="a revision that nobody has", method="initialize")
    draft.input = sent(_ASKED)
    match answer:
        case None:
            # It may be one that runs once on a machine.
            draft.undecided = "a second process gave no answer"
        case JSONRPCError():
            draft.output = error_shown(answer.error)
            draft.failed(NEGOTIATES, f"expected another revision, came {said(answer.error)}")
        case JSONRPCResponse():
            draft.output = shown(answer.result)
            revision = answer.result.get("protocolVersion")
            draft.require(
                NEGOTIATES,
                isinstance(revision, str) and revision != NO_REVISION,
                f"expected a revision that the server supports, came {shown(revision)!r:.100}",
            )
    return draft.done()
