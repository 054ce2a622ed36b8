"""The server as a whole: requests that nobody should send, and whether it is still there afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_types import METHOD_NOT_FOUND

from playhead.check.connecting import SessionTarget
from playhead.check.probes.asking import (
    SPECIFICATION,
    error_shown,
    fault_of,
    note,
    said,
    sent,
)
from playhead.check.probes.server_garbage import GARBAGE, probe_garbage
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.check.target import Answer
from playhead.errors import DeadlineError, TransportError
from playhead.limits import MIB

ANSWERED: Final = CheckKind(
    name="server.answered",
    title="A request that can't be fulfilled is answered by a JSON-RPC error or a result",
    level="must",
    source="https://www.jsonrpc.org/specification#response_object",
)
UNKNOWN_METHOD: Final = CheckKind(
    name="server.unknown-method",
    title="A method that doesn't exist is answered with error -32601",
    level="must",
    source="https://www.jsonrpc.org/specification#error_object",
)
UNKNOWN_TOOL: Final = CheckKind(
    name="server.unknown-tool",
    title="A call of a tool that doesn't exist is answered with an error about it",
    level="must",
    source=f"{SPECIFICATION}/server/tools#error-handling",
)
MALFORMED: Final = CheckKind(
    name="server.malformed-params",
    title="A call whose parameters are none is answered with an error",
    level="must",
    source="https://www.jsonrpc.org/specification#error_object",
)
BIG_REQUEST: Final = CheckKind(
    name="server.big-request",
    title="A request that is too large is answered or refused, and the server goes on",
    level="must",
    source="docs/check.md#server",
)
ALIVE: Final = CheckKind(
    name="server.alive",
    title="The server goes on after a request that nobody should send",
    level="must",
    source="docs/check.md#server",
)
KINDS: Final = (ANSWERED, UNKNOWN_METHOD, UNKNOWN_TOOL, MALFORMED, BIG_REQUEST, ALIVE, GARBAGE)

BIG_BYTES: Final = 8 * MIB
"""More than any tool's arguments, and less than what ordinary servers are started with."""
_NO_METHOD: Final = "playhead/no-such-method"
_NO_TOOL: Final = "playhead_no_such_tool"
_ABOUT_SOMETHING_ELSE: Final = (-32700, -32600)
"""Parse error and invalid request: the request was neither. A server may not have the method, and -32603 and
codes of its own say nothing wrong."""

Found = Callable[[TestResult], None]


async def probe_server(target: SessionTarget, found: Found) -> None:
    """Test what doesn't belong to any one tool; `found` is called with each test as it ends."""
    await _probe_unknown_method(target, found)
    if target.tools:
        await _probe_unknown_tool(target, found)
        await _probe_malformed(target, found)
    await _probe_big_request(target, found)
    await probe_garbage(target, found)


async def _asked(
    target: SessionTarget, title: str, method: str, params: Mapping[str, Any]
) -> tuple[TestDraft, Answer]:
    draft = TestDraft(subject="server", title=title, method=method, input=sent(params))
    answer = await target.request(method, params)
    note(draft, answer)
    return draft, answer


async def _probe_unknown_method(target: SessionTarget, found: Found) -> None:
    draft, answer = await _asked(target, "a method that doesn't exist", _NO_METHOD, {})
    if _is_answered(draft, answer):
        draft.require(
            UNKNOWN_METHOD,
            answer.error is not None and answer.error.code == METHOD_NOT_FOUND,
            f"expected error -32601 (method not found), came {_came(answer)}",
        )
    found(draft.done())


async def _probe_unknown_tool(target: SessionTarget, found: Found) -> None:
    params = {"name": _NO_TOOL, "arguments": {}}
    draft, answer = await _asked(target, "a tool that doesn't exist", "tools/call", params)
    if _is_answered(draft, answer):
        draft.require(
            UNKNOWN_TOOL,
            _is_error(answer),
            f"expected error -32602, or a result with isError, came {_came(answer)}",
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
                f"expected error -32602 (invalid params), came {_came(answer)}",
            )
        elif isinstance(answer.failure, TransportError):
            await _judge_alive(target, draft)
        found(draft.done())


async def _probe_big_request(target: SessionTarget, found: Found) -> None:
    title = f"a request of {BIG_BYTES // MIB} MiB"
    draft = TestDraft(subject="server", title=title, method="tools/call")
    draft.input = {"name": _NO_TOOL, "arguments": {"text": f"a text of {BIG_BYTES:,} characters"}}
    params = {"name": _NO_TOOL, "arguments": {"text": "a" * BIG_BYTES}}
    answer = await target.request("tools/call", params)
    draft.latency_ms = answer.latency_ms
    if answer.error is not None:
        draft.output = error_shown(answer.error)
    if isinstance(answer.failure, DeadlineError):
        draft.failed(BIG_REQUEST, f"expected an answer, or a closed connection, came {_came(answer)}")
    elif isinstance(answer.failure, TransportError) and target.is_process:
        draft.failed(BIG_REQUEST, f"expected an answer, came {_came(answer)}: the server's process ended")
    else:
        draft.passed(BIG_REQUEST)  # over a network, refusing to read further is an answer too
    await _judge_alive(target, draft)
    found(draft.done())


async def _judge_alive(target: SessionTarget, draft: TestDraft) -> None:
    answer = await target.request("tools/list")
    why = f"expected the server to go on, came {answer.failure}"
    lives = answer.failure is None or answer.too_often
    draft.require(fault_of(answer.failure, ALIVE), lives, why)


def _is_answered(draft: TestDraft, answer: Answer) -> bool:
    why = f"expected an answer that can be read, came {_came(answer)}"
    return draft.require(fault_of(answer.failure, ANSWERED), answer.failure is None, why)


def _is_error(answer: Answer) -> bool:
    if answer.error is not None:
        return answer.error.code not in _ABOUT_SOMETHING_ELSE
    return (answer.result or {}).get("isError") is True


def _came(answer: Answer) -> str:
    if answer.error is not None:
        return said(answer.error)
    return str(answer.failure) if answer.failure is not None else "a result without isError"
