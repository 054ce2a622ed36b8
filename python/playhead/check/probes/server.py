"""The server as a whole: unknown methods and tools, malformed and huge requests, and a line that is not JSON.

No request may end the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import trio
from mcp_types import METHOD_NOT_FOUND

from playhead._core import Frame, __version__
from playhead.check.probes.asking import ask, error_excerpt, error_words, fault_of
from playhead.check.results import Json, TestDraft
from playhead.check.target import RequestOutcome, Target
from playhead.client.transports.server_process import ServerProcess, open_server
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, DeadlineError, TransportError
from playhead.limits import DEFAULT_LIMITS, MIB
from playhead.protocol.framing import EndlessLine, Line, LineFramer
from playhead.protocol.messages import answered_plainly

BIG_BYTES: Final = 8 * MIB
"""The big request is larger than the arguments of any tool, and smaller than the memory of any server."""
BIG_PATIENCE: Final = 5.0
"""A big request may take this many times `timeout_seconds`, because both sides write and parse 8 MiB on a
machine that may be busy."""
_NO_METHOD: Final = "playhead/no-such-method"
NO_TOOL: Final = "playhead_no_such_tool"
_WRONG_CODES: Final = (-32700, -32600)
"""Lists the wrong codes for the call of an unknown tool: parse error and invalid request. -32601 is
acceptable, because the server may lack the method, and so are -32603 and the server's own codes."""


async def probe_server(target: Target) -> None:
    """Test the server apart from its tools."""
    await _probe_unknown_method(target)
    if target.tools:
        await _probe_unknown_tool(target)
        await _probe_malformed(target)
    await _probe_big_request(target)
    await probe_garbage(target)


async def _probe_unknown_method(target: Target) -> None:
    with target.test("server", "an unknown method", method=_NO_METHOD) as draft:
        answer = await ask(target, draft)
        if _is_answered(draft, answer):
            draft.require(
                "server.unknown-method",
                answer.error is not None and answer.error.code == METHOD_NOT_FOUND,
                f"expected error -32601 (method not found), got {_outcome(answer)}",
            )


async def _probe_unknown_tool(target: Target) -> None:
    with target.test("server", "an unknown tool", method="tools/call") as draft:
        answer = await ask(target, draft, {"name": NO_TOOL, "arguments": {}})
        if _is_answered(draft, answer):
            why = f"expected error -32602, or a result with isError, got {_outcome(answer)}"
            draft.require("server.unknown-tool", _is_error(answer), why)


async def _probe_malformed(target: Target) -> None:
    for title, params in (
        ("a call without a name", {"arguments": {}}),
        ("a call whose name is a number", {"name": 7, "arguments": {}}),
    ):
        with target.test("server", title, method="tools/call") as draft:
            answer = await ask(target, draft, params)
            if _is_answered(draft, answer):
                draft.require(
                    "server.malformed-params",
                    answer.error is not None or (answer.result or {}).get("isError") is True,
                    f"expected error -32602 (invalid params), got {_outcome(answer)}",
                )
            elif isinstance(answer.failure, TransportError):
                await _judge_alive(target, draft)


async def _probe_big_request(target: Target) -> None:
    title = f"a request of {BIG_BYTES // MIB} MiB"
    summary: Json = {"name": NO_TOOL, "arguments": {"text": f"a string of {BIG_BYTES:,} characters"}}
    params = {"name": NO_TOOL, "arguments": {"text": "a" * BIG_BYTES}}
    seconds = BIG_PATIENCE * target.options.timeout_seconds
    with target.test("server", title, method="tools/call", input=summary) as draft:
        answer = await target.request("tools/call", params, timeout_seconds=seconds)
        draft.latency_ms = answer.latency_ms
        if answer.error is not None:
            draft.output = error_excerpt(answer.error)
        if isinstance(answer.failure, DeadlineError):
            why = f"expected an answer, or a closed connection, got {_outcome(answer)}"
            draft.failed("server.big-request", why)
        elif isinstance(answer.failure, TransportError) and target.is_process:
            why = f"expected an answer, got {_outcome(answer)}: the server's process ended"
            draft.failed("server.big-request", why)
        else:
            draft.passed("server.big-request")  # over a network, refusing to read on is an answer, too
        await _judge_alive(target, draft)


async def _judge_alive(target: Target, draft: TestDraft) -> None:
    answer = await target.request("tools/list")
    why = f"expected the server to survive, got {answer.failure}"
    is_alive = answer.failure is None or answer.void is not None
    draft.require(fault_of(answer.failure, "server.alive"), is_alive, why)


def _is_answered(draft: TestDraft, answer: RequestOutcome) -> bool:
    why = f"expected a readable answer, got {_outcome(answer)}"
    return draft.require(fault_of(answer.failure, "server.answered"), answer.failure is None, why)


def _is_error(answer: RequestOutcome) -> bool:
    if answer.error is not None:
        return answer.error.code not in _WRONG_CODES
    return (answer.result or {}).get("isError") is True


def _outcome(answer: RequestOutcome) -> str:
    if answer.error is not None:
        return error_words(answer.error)
    return str(answer.failure) if answer.failure is not None else "a result without isError"


_GARBAGE: Final = b'{"jsonrpc": "2.0", "id": 2, "method": \n'
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
_LIST_TOOLS: Final = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}


async def probe_garbage(target: Target) -> None:
    """Send a line that is not JSON to a second process of a stdio server.

    Over HTTP, every body is a request of its own, so nothing is tested.
    """
    server = target.server
    if not isinstance(server, ServerConfig) or server.command is None:
        return
    seconds = 2 * target.options.timeout_seconds
    with target.test("server", "a line that is not JSON", input=_GARBAGE.decode()) as draft:
        try:
            async with open_server(server.command, env=server.env, cwd=server.cwd) as process:
                with trio.move_on_after(seconds) as scope:
                    await _converse(process, draft)
                if scope.cancelled_caught and not draft.output:
                    # The server may allow only one process per machine.
                    draft.undecided = "a second process did not answer initialize"
                elif scope.cancelled_caught:
                    why = f"expected an answer to tools/list within {seconds:g} s, got none"
                    draft.failed("server.garbage", why)
        except ConnectError as error:
            draft.undecided = f"a second process could not be started: {error}"


async def _converse(process: ServerProcess, draft: TestDraft) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain, process.stderr)
        answers = _Answers(process.stdout)
        try:
            await process.stdin.send_all(_line(_INITIALIZE))
            if not await answers.wait_for(1):
                draft.undecided = "the server ended before the first request"
            else:
                draft.output = "initialize was answered"
                await process.stdin.send_all(_line(_INITIALIZED) + _GARBAGE + _line(_LIST_TOOLS))
                why = "expected the server to answer tools/list afterwards, but its process ended"
                draft.require("server.garbage", await answers.wait_for(3), why)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            if draft.output:
                draft.failed("server.garbage", "expected the server to read on, but its process ended")
            else:
                draft.undecided = "the server ended before the first request"
        nursery.cancel_scope.cancel()


class _Answers:
    """The answers on a server's stdout; everything else is ignored."""

    def __init__(self, stdout: trio.abc.ReceiveStream) -> None:
        self._stdout = stdout
        self._framer = LineFramer(max_bytes=DEFAULT_LIMITS.message_bytes)

    async def wait_for(self, request_id: int) -> bool:
        """Wait for the answer to a request. False if the stream ends first."""
        while True:
            while (event := self._framer.next_event()) is not None:
                if isinstance(event, Line) and answered_plainly(Frame(event.data)) == str(request_id):
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
