"""The server as a whole: invalid requests, and whether it survives them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio
from mcp_types import METHOD_NOT_FOUND

from playhead._core import __version__
from playhead.check.probes.asking import (
    SPECIFICATION,
    error_shown,
    fault_of,
    note,
    said,
    sent,
)
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.check.target import RequestOutcome, SessionTarget
from playhead.client.transports.stdio import ServerProcess, open_server
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, DeadlineError, TransportError
from playhead.jsonrpc.codec import answered_id
from playhead.jsonrpc.framing import EndlessLine, Line, LineFramer
from playhead.limits import DEFAULT_LIMITS, MIB

ANSWERED: Final = CheckKind(
    name="server.answered",
    title="A request that can't be fulfilled is answered with a JSON-RPC error or a result",
    level="must",
    source="https://www.jsonrpc.org/specification#response_object",
)
UNKNOWN_METHOD: Final = CheckKind(
    name="server.unknown-method",
    title="An unknown method is answered with error -32601",
    level="must",
    source="https://www.jsonrpc.org/specification#error_object",
)
UNKNOWN_TOOL: Final = CheckKind(
    name="server.unknown-tool",
    title="A call of an unknown tool is answered with an error about it",
    level="must",
    source=f"{SPECIFICATION}/server/tools#error-handling",
)
MALFORMED: Final = CheckKind(
    name="server.malformed-params",
    title="A call with invalid parameters is answered with an error",
    level="must",
    source="https://www.jsonrpc.org/specification#error_object",
)
BIG_REQUEST: Final = CheckKind(
    name="server.big-request",
    title="A request that is too large is answered or refused, and the server survives",
    level="must",
    source="docs/check.md#server",
)
ALIVE: Final = CheckKind(
    name="server.alive",
    title="The server survives invalid requests",
    level="must",
    source="docs/check.md#server",
)
GARBAGE: Final = CheckKind(
    name="server.garbage",
    title="A line that is not JSON is answered with error -32700 or ignored, and the server survives",
    level="should",
    source="https://www.jsonrpc.org/specification#error_object",
)
KINDS: Final = (ANSWERED, UNKNOWN_METHOD, UNKNOWN_TOOL, MALFORMED, BIG_REQUEST, ALIVE, GARBAGE)

BIG_BYTES: Final = 8 * MIB
"""More than the arguments of any tool, and less than the memory of ordinary servers."""
_NO_METHOD: Final = "playhead/no-such-method"
_NO_TOOL: Final = "playhead_no_such_tool"
_ABOUT_SOMETHING_ELSE: Final = (-32700, -32600)
"""Parse error and invalid request: neither is true. A server may lack the method, and -32603 and its own
codes are acceptable."""

Found = Callable[[TestResult], None]


async def probe_server(target: SessionTarget, found: Found) -> None:
    """Test the server apart from its tools; `found` is called with each finished test."""
    await _probe_unknown_method(target, found)
    if target.tools:
        await _probe_unknown_tool(target, found)
        await _probe_malformed(target, found)
    await _probe_big_request(target, found)
    await probe_garbage(target, found)


async def _asked(
    target: SessionTarget, title: str, method: str, params: Mapping[str, Any]
) -> tuple[TestDraft, RequestOutcome]:
    draft = TestDraft(subject="server", title=title, method=method, input=sent(params))
    answer = await target.request(method, params)
    note(draft, answer)
    return draft, answer


async def _probe_unknown_method(target: SessionTarget, found: Found) -> None:
    draft, answer = await _asked(target, "an unknown method", _NO_METHOD, {})
    if _is_answered(draft, answer):
        draft.require(
            UNKNOWN_METHOD,
            answer.error is not None and answer.error.code == METHOD_NOT_FOUND,
            f"expected error -32601 (method not found), got {_outcome(answer)}",
        )
    found(draft.done())


async def _probe_unknown_tool(target: SessionTarget, found: Found) -> None:
    params = {"name": _NO_TOOL, "arguments": {}}
    draft, answer = await _asked(target, "an unknown tool", "tools/call", params)
    if _is_answered(draft, answer):
        draft.require(
            UNKNOWN_TOOL,
            _is_error(answer),
            f"expected error -32602, or a result with isError, got {_outcome(answer)}",
        )
    found(draft.done())


async def _probe_malformed(target: SessionTarget, found: Found) -> None:
    for title, params in (
        ("a call without a name", {"arguments": {}}),
        ("a call whose name is a number", {"name": 7, "arguments": {}}),
    ):
        draft, answer = await _asked(target, title, "tools/call", params)
        if _is_answered(draft, answer):
            draft.require(
                MALFORMED,
                answer.error is not None or (answer.result or {}).get("isError") is True,
                f"expected error -32602 (invalid params), got {_outcome(answer)}",
            )
        elif isinstance(answer.failure, TransportError):
            await _judge_alive(target, draft)
        found(draft.done())


async def _probe_big_request(target: SessionTarget, found: Found) -> None:
    title = f"a request of {BIG_BYTES // MIB} MiB"
    draft = TestDraft(subject="server", title=title, method="tools/call")
    draft.input = {"name": _NO_TOOL, "arguments": {"text": f"a string of {BIG_BYTES:,} characters"}}
    params = {"name": _NO_TOOL, "arguments": {"text": "a" * BIG_BYTES}}
    answer = await target.request("tools/call", params)
    draft.latency_ms = answer.latency_ms
    if answer.error is not None:
        draft.output = error_shown(answer.error)
    if isinstance(answer.failure, DeadlineError):
        draft.failed(BIG_REQUEST, f"expected an answer, or a closed connection, got {_outcome(answer)}")
    elif isinstance(answer.failure, TransportError) and target.is_process:
        draft.failed(BIG_REQUEST, f"expected an answer, got {_outcome(answer)}: the server's process ended")
    else:
        draft.passed(BIG_REQUEST)  # over a network, refusing to read on is an answer, too
    await _judge_alive(target, draft)
    found(draft.done())


async def _judge_alive(target: SessionTarget, draft: TestDraft) -> None:
    answer = await target.request("tools/list")
    why = f"expected the server to survive, got {answer.failure}"
    lives = answer.failure is None or answer.too_often
    draft.require(fault_of(answer.failure, ALIVE), lives, why)


def _is_answered(draft: TestDraft, answer: RequestOutcome) -> bool:
    why = f"expected a readable answer, got {_outcome(answer)}"
    return draft.require(fault_of(answer.failure, ANSWERED), answer.failure is None, why)


def _is_error(answer: RequestOutcome) -> bool:
    if answer.error is not None:
        return answer.error.code not in _ABOUT_SOMETHING_ELSE
    return (answer.result or {}).get("isError") is True


def _outcome(answer: RequestOutcome) -> str:
    if answer.error is not None:
        return said(answer.error)
    return str(answer.failure) if answer.failure is not None else "a result without isError"


_LINE: Final = b'{"jsonrpc": "2.0", "id": 2, "method": \n'
_INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "playhead", "version": __version__},
    },
}
_INITIALIZED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}
_ASK: Final = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}


async def probe_garbage(target: SessionTarget, found: Callable[[TestResult], None]) -> None:
    """Send a line that is not JSON to a second process of a stdio server.

    Over HTTP, every body is a request of its own, so nothing is tested.
    """
    server = target.server
    if not isinstance(server, ServerConfig) or server.command is None:
        return
    draft = TestDraft(subject="server", title="a line that is not JSON", input=_LINE.decode())
    seconds = target.options.timeout_seconds
    try:
        async with open_server(server.command, env=server.env, cwd=server.cwd) as process:
            with trio.move_on_after(2 * seconds) as scope:
                await _converse(process, draft)
            if scope.cancelled_caught and not draft.output:
                # The server may allow only one process per machine.
                draft.undecided = "a second process did not answer initialize"
            elif scope.cancelled_caught:
                draft.failed(GARBAGE, f"expected an answer to tools/list within {2 * seconds:g} s, got none")
    except ConnectError as error:
        draft.undecided = f"a second process could not be started: {error}"
    found(draft.done())


async def _converse(process: ServerProcess, draft: TestDraft) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain, process.stderr)
        answers = _Answers(process.stdout)
        try:
            await process.stdin.send_all(_line(_INITIALIZE))
            if not await answers.to(1):
                draft.undecided = "the server ended before the first request"
            else:
                draft.output = "initialize was answered"
                await process.stdin.send_all(_line(_INITIALIZED) + _LINE + _line(_ASK))
                why = "expected the server to answer tools/list afterwards, but its process ended"
                draft.require(GARBAGE, await answers.to(3), why)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            if draft.output:
                draft.failed(GARBAGE, "expected the server to read on, but its process ended")
            else:
                draft.undecided = "the server ended before the first request"
        nursery.cancel_scope.cancel()


class _Answers:
    """The answers on a server's stdout; everything else is ignored."""

    def __init__(self, stdout: trio.abc.ReceiveStream) -> None:
        self._stdout = stdout
        self._framer = LineFramer(max_bytes=DEFAULT_LIMITS.message_bytes)

    async def to(self, request_id: int) -> bool:
        """Wait for the answer to a request. False if the stream ends first."""
        while True:
            while (event := self._framer.next_event()) is not None:
                if isinstance(event, Line) and answered_id(event.data, event.data) == str(request_id):
                    return True
                if isinstance(event, EndlessLine):
                    return False
            chunk = await self._stdout.receive_some()
            if not chunk:
                return False
            self._framer.feed(chunk)


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    async for _chunk in stream:
        pass
