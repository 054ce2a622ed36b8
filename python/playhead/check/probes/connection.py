"""The connection: the handshake, its end, and the messages seen on the wire.

Faults that playhead's client tolerates (`ProtocolFaults`) are findings, too: other clients may not tolerate
them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import mcp_types as types
import trio
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from playhead._core import __version__
from playhead.check.cassette import UNRECORDED, UNRECORDED_WORDS
from playhead.check.conversation import broken_rows
from playhead.check.probes.asking import (
    ask,
    error_excerpt,
    error_words,
    excerpt,
    request_copy,
    require_answered,
)
from playhead.check.results import TestDraft, TestResult
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

_UNHEALTHY: Final = frozenset({"unhealthy", "error", "down", "fail", "failed", "failing", "degraded"})
_BODY_BYTES: Final = 64 * 1024
_KILLED: Final = -9
NO_REVISION: Final = "1999-12-31"
"""Is an unknown revision: revisions are named by date, and the protocol did not exist at this one."""


def unreachable_test(error: ConnectError, latency_ms: float) -> TestResult:
    """Return the test of a server that could not be connected to."""
    draft = TestDraft(subject="connection", title="connect", latency_ms=latency_ms)
    draft.failed("connection.connect", str(error))
    return draft.done()


def judge_stay(target: Target) -> None:
    """Judge whether the server is still available. Call it after all other probes."""
    why = f"expected the server to stay available until the end; it is gone: {target.gone}"
    with target.test("connection", "until the end") as draft:
        draft.require("connection.stays", target.gone is None, why)


async def probe_connection(target: Target, *, latency_ms: float) -> None:
    """Judge the open connection (established in `latency_ms`), and other properties of connecting."""
    target.on_test(_handshake_test(target, latency_ms))
    url = target.server.url if isinstance(target.server, ServerConfig) else None
    if url is not None:
        await _probe_health(target, url)
    if target.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await _probe_ping(target)
    if url is not None:
        await _probe_second_client(target)
    if isinstance(target.server, ServerConfig) and target.server.command is not None:
        await _probe_stop(target, target.server, target.server.command)
    else:
        await _probe_negotiation(target)


def _handshake_test(target: Target, latency_ms: float) -> TestResult:
    handshake = target.session.handshake
    modern = target.protocol_version in MODERN_PROTOCOL_VERSIONS
    draft = TestDraft(subject="connection", title="connect", latency_ms=latency_ms)
    draft.passed("connection.connect")
    if handshake is None:
        draft.skipped("handshake.shape", "the revision was preset, not negotiated")
        return draft.done()
    draft.method = "server/discover" if modern else "initialize"
    draft.output = excerpt(handshake)
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
        # Strict validation, because lax pydantic accepts "yes" for true.
        model.model_validate_json(json.dumps(raw), strict=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[:5]
        return "; ".join(
            "at " + ".".join(map(str, ("$", *problem["loc"]))) + f": {problem['msg']}" for problem in first
        )
    return ""


async def _probe_health(target: Target, url: str) -> None:
    """Ask the origin for `/health`. The specification doesn't define it, so it may be missing."""
    place = httpx2.URL(url)
    scheme = {"ws": "http", "wss": "https"}.get(place.scheme, place.scheme)
    # Neither credentials nor the query are sent, so the URL has no secret to redact.
    health = place.copy_with(scheme=scheme, raw_path=b"/health", userinfo=b"", fragment=None)
    verify = isinstance(target.server, ServerConfig) and target.server.tls_verify
    with target.test("connection", "health endpoint", input={"GET": str(health)}) as draft:
        with trio.move_on_after(target.options.timeout_seconds):
            try:
                await _fetch_health(draft, health, verify=verify)
            except (httpx2.HTTPError, OSError) as error:
                why = f"the health endpoint can't be reached ({type(error).__name__})"
                draft.skipped("connection.health", why)
        if not draft.checks:
            draft.skipped("connection.health", "the health endpoint did not answer in time")


async def _fetch_health(draft: TestDraft, url: httpx2.URL, *, verify: bool) -> None:
    started = trio.current_time()
    async with (
        httpx2.AsyncClient(verify=verify, follow_redirects=False) as client,
        client.stream("GET", url) as response,
    ):
        draft.latency_ms = (trio.current_time() - started) * 1000
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _BODY_BYTES:
                break
    _judge_health(draft, response.status_code, bytes(body))


def _judge_health(draft: TestDraft, status: int, body: bytes) -> None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    state = answer.get("status") if isinstance(answer, dict) else None
    draft.output = {"status": status, "body": excerpt(answer)}
    if not isinstance(state, str) or status not in (200, 503):
        draft.skipped("connection.health", f"no health endpoint (HTTP {status})")
        return
    is_healthy = status == 200 and state.lower() not in _UNHEALTHY
    why = f"expected a healthy server, got HTTP {status}, status {quoted(state)}"
    draft.require("connection.health", is_healthy, why)


async def _probe_ping(target: Target) -> None:
    with target.test("connection", "ping", method="ping") as draft:
        answer = await ask(target, draft)
        if answer.error is not None:
            draft.failed("connection.ping", f"expected an empty result, got {error_words(answer.error)}")
        else:
            require_answered(draft, "connection.ping", answer, target)


async def _probe_second_client(target: Target) -> None:
    started = trio.current_time()
    with target.test("connection", "a second client") as draft:
        try:
            async with open_target(target.server, target.options):
                draft.passed("connection.second")
        except PlayheadError as error:
            why = f"expected a second session while the first is open, got none: {error}"
            draft.failed("connection.second", why)
        draft.latency_ms = (trio.current_time() - started) * 1000


async def _probe_stop(target: Target, config: ServerConfig, command: tuple[str, ...]) -> None:
    """Start a second process and judge its answer to an unknown revision. Then close its stdin, and judge
    whether it ends."""
    carrier = StdioCarrier(command, env=config.env, cwd=config.cwd, limits=target.limits)
    with target.test("connection", "the process ends") as draft:
        try:
            answer = await _initialize(Connection(carrier, server=words_for(config), limits=target.limits))
        except ConnectError as error:
            draft.skipped("connection.stops", f"a second process could not be started: {error}")
            return
        except PlayheadError:
            answer = None
        target.on_test(_negotiation_test(target, answer))
        if answer is None:
            draft.skipped("connection.stops", "a second process did not answer")
        else:
            draft.require(
                "connection.stops",
                carrier.returncode not in (None, _KILLED),
                "expected the process to end within 2 s of closing its stdin, or of SIGTERM; it had to be"
                " killed",
            )


_INITIALIZE_PARAMS: Final[Mapping[str, Any]] = {
    "protocolVersion": NO_REVISION,
    "capabilities": {},
    "clientInfo": {"name": "playhead", "version": __version__},
}


async def _initialize(connection: Connection) -> Mapping[str, Any] | RpcError | None:
    """Ask for `NO_REVISION` and return the answer; None if there is none in time."""
    with trio.move_on_after(connection.limits.handshake_seconds):
        async with connection.opened():
            connection.exchange.revision = NEWEST_INITIALIZED
            try:
                return await connection.request(
                    "initialize", _INITIALIZE_PARAMS, silent_seconds=math.inf, total_seconds=math.inf
                )
            except ServerError as error:
                return RpcError(error.code, error.server_message, error.data)
    return None


async def _probe_negotiation(target: Target) -> None:
    """Ask for an unknown revision over a second connection."""
    factory = carrier_factory(target.server, limits=target.limits, auth=None)
    connection = Connection(factory.new(), server=factory.server, limits=target.limits)
    answer: Mapping[str, Any] | RpcError | None = None
    failure: PlayheadError | None = None
    try:
        answer = await _initialize(connection)
    except PlayheadError as error:
        failure = error
    target.on_test(_negotiation_test(target, answer, failure=failure))


def _negotiation_test(
    target: Target,
    answer: Mapping[str, Any] | RpcError | None,
    *,
    failure: PlayheadError | None = None,
) -> TestResult:
    """Judge the answer to `NO_REVISION`.

    An answer with another revision passes, and an error fails; it is skipped for a modern server, which has
    no handshake. Without an answer nothing is decided, unless `failure` is an HTTP refusal by a server that
    has a handshake.
    """
    draft = TestDraft(subject="connection", title="an unknown revision", method="initialize")
    draft.input = request_copy(_INITIALIZE_PARAMS)
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
        case RpcError(code=code) if code == UNRECORDED:
            draft.undecided = UNRECORDED_WORDS
        case RpcError() if is_modern:
            draft.output = error_excerpt(answer)
            draft.skipped(
                "handshake.negotiates", "the server has no handshake, in which revisions are negotiated"
            )
        case RpcError():
            draft.output = error_excerpt(answer)
            again = "; playhead then asked for 2024-11-05, which most clients don't"
            was_refused = target.session.protocol_faults().revisions_refused > 0
            draft.failed(
                "handshake.negotiates",
                f"expected another revision, got {error_words(answer)}{again if was_refused else ''}",
            )
        case _:
            draft.output = excerpt(answer)
            revision = answer.get("protocolVersion")
            draft.require(
                "handshake.negotiates",
                isinstance(revision, str) and revision != NO_REVISION,
                f"expected a supported revision, got {excerpt(revision)!r:.100}",
            )
    return draft.done()


def judge_wire(target: Target) -> None:
    """Judge the messages observed during the whole check. Call it last."""
    faults = target.session.protocol_faults()
    is_modern = target.protocol_version in MODERN_PROTOCOL_VERSIONS
    if not is_modern and target.options.depth == "full":  # only then there are tool calls, which show it
        with target.test("connection", "the end of the handshake") as draft:
            draft.require(
                "handshake.initialized",
                faults.bare_initialized == 0,
                "expected answers after notifications/initialized, got an error that the server is not"
                " initialized; playhead then sent the notification `initialized`, which no specification has",
            )
    with target.test("conversation", "every message of the server") as draft:
        for row, message in broken_rows(target.observations):
            draft.require(row, not message, message)
        if not draft.checks:
            draft.skipped("progress.shape", "the server sent nothing but answers")
    where = "lines on stdout" if target.is_process else "messages"
    hint = "; logs belong to stderr" if target.is_process else ""
    with target.test("connection", "messages other than answers") as draft:
        for kind, count, why in (
            (
                "wire.messages",
                faults.not_messages,
                f"expected only JSON-RPC messages, got {faults.not_messages} invalid {where}, first:"
                f" {faults.first}{hint}",
            ),
            (
                "wire.answered-once",
                faults.repeated,
                f"expected one answer per request, got {faults.repeated} to requests already answered",
            ),
            (
                "wire.known-ids",
                faults.unasked,
                f"expected answers to requests, got {faults.unasked} with an unknown id",
            ),
            (
                "wire.same-ids",
                faults.retyped,
                f"expected the ids of requests unchanged, got {faults.retyped} answers with an id of another"
                " type: a client that compares ids waits for them forever",
            ),
            (
                "wire.error-ids",
                faults.nameless_errors,
                f"expected the id of the request in each error, got {faults.nameless_errors} without one, for"
                " valid requests: a client waits for their answers forever",
            ),
        ):
            draft.require(kind, count == 0, why)
