"""The connection: the handshake, its end, and the messages seen on the wire.

What playhead's client makes up for is a finding, too: other clients may not (`ProtocolFaults`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import mcp_types as types
import trio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from playhead._core import __version__
from playhead.check.probes.asking import (
    ask,
    error_shown,
    require_answered,
    said,
    sent,
    shown,
)
from playhead.check.results import Found, TestDraft, TestResult
from playhead.check.target import Target, open_target, words_for
from playhead.client.connector import carrier_factory
from playhead.client.session.connection import Connection
from playhead.client.transports.stdio import StdioCarrier
from playhead.config.servers import ServerConfig
from playhead.content.formats import quoted
from playhead.errors import (
    AccessDeniedError,
    ConnectError,
    HttpRefusedError,
    PlayheadError,
    ServerError,
)
from playhead.protocol.messages import RpcError
from playhead.protocol.revisions import NEWEST_INITIALIZED

_UNWELL: Final = frozenset({"unhealthy", "error", "down", "fail", "failed", "failing", "degraded"})
_BODY_BYTES: Final = 64 * 1024
_KILLED: Final = -9
NO_REVISION: Final = "1999-12-31"
"""A date before the protocol existed: revisions are named by date."""


def unreachable(error: ConnectError, latency_ms: float) -> TestResult:
    """Return the test of a server that could not be connected to."""
    draft = TestDraft(subject="connection", title="connect", latency_ms=latency_ms)
    draft.failed("connection.connect", str(error))
    return draft.done()


def judge_stay(target: Target, found: Found) -> None:
    """Judge whether the server is still available. Call it after all other probes."""
    draft = TestDraft(subject="connection", title="until the end")
    draft.require(
        "connection.stays",
        target.gone is None,
        f"expected the server to stay available until the end; it is gone: {target.gone}",
    )
    found(draft.done())


async def probe_connection(target: Target, found: Found, *, latency_ms: float) -> None:
    """Judge the open connection (established in `latency_ms`), and other properties of connecting."""
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
    else:
        await _probe_negotiation(target, found)


def _connected(target: Target, latency_ms: float) -> TestResult:
    handshake = target.session.handshake
    modern = target.protocol_version in MODERN_PROTOCOL_VERSIONS
    draft = TestDraft(subject="connection", title="connect", latency_ms=latency_ms)
    draft.passed("connection.connect")
    if handshake is None:
        draft.skipped("handshake.revision", "the revision was preset, not negotiated")
        return draft.done()
    draft.method = "server/discover" if modern else "initialize"
    draft.output = shown(handshake)
    draft.require(
        "handshake.revision",
        target.protocol_version in (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS),
        f"expected one of {', '.join(HANDSHAKE_PROTOCOL_VERSIONS)}, got {quoted(target.protocol_version)}",
    )
    wrong = _shape_problems(types.DiscoverResult if modern else types.InitializeResult, handshake)
    draft.require("handshake.shape", not wrong, f"expected the result of {draft.method}; {wrong}")
    draft.require(
        "handshake.unknown-method",
        target.session.protocol_faults().ended_by_discovery == 0,
        "expected error -32601 for server/discover, which asks for revision 2026-07-28; got the end of the"
        " connection, and connected again without it",
    )
    return draft.done()


def _shape_problems(
    model: type[types.DiscoverResult] | type[types.InitializeResult], raw: Mapping[str, Any]
) -> str:
    try:
        # Strict: lax pydantic accepts "yes" for true.
        model.model_validate_json(json.dumps(raw), strict=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[:5]
        return "; ".join(
            "at " + ".".join(map(str, ("$", *problem["loc"]))) + f": {problem['msg']}" for problem in first
        )
    return ""


async def _probe_health(target: Target, url: str, found: Found) -> None:
    """Ask the origin for `/health`. The specification doesn't define it, so it may be missing."""
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
            draft.skipped(
                "connection.health", f"the health endpoint can't be reached ({type(error).__name__})"
            )
    if not draft.checks:
        draft.skipped("connection.health", "the health endpoint did not answer in time")
    found(draft.done())


def _judge_health(draft: TestDraft, status: int, body: bytes) -> None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    state = answer.get("status") if isinstance(answer, dict) else None
    draft.output = {"status": status, "body": shown(answer)}
    if not isinstance(state, str) or status not in (200, 503):
        draft.skipped("connection.health", f"no health endpoint (HTTP {status})")
        return
    well = status == 200 and state.lower() not in _UNWELL
    draft.require(
        "connection.health", well, f"expected a healthy server, got HTTP {status}, status {quoted(state)}"
    )


async def _probe_ping(target: Target, found: Found) -> None:
    draft = TestDraft(subject="connection", title="ping", method="ping")
    answer = await ask(target, draft)
    if answer.error is not None:
        draft.failed("connection.ping", f"expected an empty result, got {said(answer.error)}")
    else:
        require_answered(draft, "connection.ping", answer, target)
    found(draft.done())


async def _probe_second(target: Target, found: Found) -> None:
    draft = TestDraft(subject="connection", title="a second client")
    started = trio.current_time()
    try:
        async with open_target(target.server, target.options):
            draft.passed("connection.second")
    except PlayheadError as error:
        draft.failed(
            "connection.second", f"expected a second session while the first is open, got none: {error}"
        )
    draft.latency_ms = (trio.current_time() - started) * 1000
    found(draft.done())


async def _probe_stop(
    target: Target,
    config: ServerConfig,
    command: tuple[str, ...],
    found: Found,
) -> None:
    """Start a second process, ask it for an unknown revision, close its stdin, and watch it end."""
    draft = TestDraft(subject="connection", title="the process ends")
    carrier = StdioCarrier(command, env=config.env, cwd=config.cwd, limits=target.limits)
    answer: Mapping[str, Any] | RpcError | None = None
    try:
        answer = await _offered(Connection(carrier, server=words_for(config), limits=target.limits))
    except ConnectError as error:
        draft.skipped("connection.stops", f"a second process could not be started: {error}")
        found(draft.done())
        return
    except PlayheadError:
        answer = None
    found(_negotiated(target, answer))
    if answer is None:
        draft.skipped("connection.stops", "a second process did not answer")
    else:
        draft.require(
            "connection.stops",
            carrier.returncode not in (None, _KILLED),
            "expected the process to end within 2 s of closing its stdin, or of SIGTERM; it had to be killed",
        )
    found(draft.done())


_ASKED: Final[Mapping[str, Any]] = {
    "protocolVersion": NO_REVISION,
    "capabilities": {},
    "clientInfo": {"name": "playhead", "version": __version__},
}


async def _offered(connection: Connection) -> Mapping[str, Any] | RpcError | None:
    """Return the answer to a client that asks for `NO_REVISION`; None without one in time."""
    with trio.move_on_after(connection.limits.handshake_seconds):
        async with connection.opened():
            connection.exchange.revision = NEWEST_INITIALIZED
            try:
                return await connection.request(
                    "initialize", _ASKED, silent_seconds=math.inf, total_seconds=math.inf
                )
            except ServerError as error:
                return RpcError(error.code, error.server_message, error.data)
    return None


async def _probe_negotiation(target: Target, found: Found) -> None:
    """Ask for an unknown revision over a second connection."""
    factory = carrier_factory(target.server, limits=target.limits, auth=None)
    connection = Connection(factory.new(), server=factory.server, limits=target.limits)
    answer: Mapping[str, Any] | RpcError | None = None
    failure: PlayheadError | None = None
    try:
        answer = await _offered(connection)
    except PlayheadError as error:
        failure = error
    found(_negotiated(target, answer, failure=failure))


def _negotiated(
    target: Target,
    answer: Mapping[str, Any] | RpcError | None,
    *,
    failure: PlayheadError | None = None,
) -> TestResult:
    """Judge the answer to `NO_REVISION`."""
    draft = TestDraft(subject="connection", title="an unknown revision", method="initialize")
    draft.input = sent(_ASKED)
    is_modern = target.protocol_version in MODERN_PROTOCOL_VERSIONS
    is_refusal = isinstance(failure, HttpRefusedError) and not isinstance(failure, AccessDeniedError)
    if is_refusal and not is_modern:
        draft.failed("handshake.negotiates", f"expected another revision, got no JSON-RPC answer: {failure}")
        return draft.done()
    match answer:
        case None:
            # The server may allow only one process per machine.
            why = f": {failure}" if failure is not None else ""
            draft.undecided = f"a second connection got no answer{why}"
        case RpcError() if is_modern:
            draft.output = error_shown(answer)
            draft.skipped(
                "handshake.negotiates", "the server has no handshake, in which revisions are negotiated"
            )
        case RpcError():
            draft.output = error_shown(answer)
            again = "; playhead then asked for 2024-11-05, which most clients don't"
            was_refused = target.session.protocol_faults().revisions_refused > 0
            draft.failed(
                "handshake.negotiates",
                f"expected another revision, got {said(answer)}{again if was_refused else ''}",
            )
        case _:
            draft.output = shown(answer)
            revision = answer.get("protocolVersion")
            draft.require(
                "handshake.negotiates",
                isinstance(revision, str) and revision != NO_REVISION,
                f"expected a supported revision, got {shown(revision)!r:.100}",
            )
    return draft.done()


def judge_wire(target: Target, found: Found) -> None:
    """Judge the messages observed during the whole check. Call it last."""
    faults = target.session.protocol_faults()
    is_modern = target.protocol_version in MODERN_PROTOCOL_VERSIONS
    if not is_modern and target.options.depth == "full":  # tool calls show it
        draft = TestDraft(subject="connection", title="the end of the handshake")
        draft.require(
            "handshake.initialized",
            faults.bare_initialized == 0,
            "expected answers after notifications/initialized, got an error that the server is not"
            " initialized; playhead then sent the notification `initialized`, which no specification has",
        )
        found(draft.done())
    draft = TestDraft(subject="connection", title="messages other than answers")
    where = "lines on stdout" if target.is_process else "messages"
    hint = "; logs belong to stderr" if target.is_process else ""
    draft.require(
        "wire.messages",
        faults.not_messages == 0,
        f"expected only JSON-RPC messages, got {faults.not_messages} invalid {where}, first:"
        f" {faults.first}{hint}",
    )
    draft.require(
        "wire.answered-once",
        faults.repeated == 0,
        f"expected one answer per request, got {faults.repeated} answers to requests already answered",
    )
    draft.require(
        "wire.known-ids",
        faults.unasked == 0,
        f"expected answers to requests, got {faults.unasked} with an unknown id",
    )
    draft.require(
        "wire.same-ids",
        faults.retyped == 0,
        f"expected the ids of requests unchanged, got {faults.retyped} answers with an id of another type:"
        " a client that compares ids waits for them forever",
    )
    draft.require(
        "wire.error-ids",
        faults.nameless_errors == 0,
        f"expected the id of the request in each error, got {faults.nameless_errors} without one, for valid"
        " requests: a client waits for their answers forever",
    )
    found(draft.done())
