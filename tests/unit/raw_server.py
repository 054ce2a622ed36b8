"""A server in this process that answers what a test says, in the wire's own JSON: nothing validates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)


class Refusal:
    """An error in place of a result."""

    def __init__(self, code: int, message: str) -> None:
        self.data = ErrorData(code=code, message=message)


class Never:
    """No answer at all."""


class Said:
    """An answer, with what is sent before and after it: notifications, and requests, which have an id."""

    def __init__(self, answer: Any, *, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> None:
        self.answer, self.before, self.after = answer, before, after


class RawServer(Server[Any]):
    """Answers each method with what `answers` has for it: a result, a `Refusal`, `NEVER`, or a function of
    the params that gives one of them. Methods that it doesn't have are unknown (-32601)."""

    def __init__(
        self, answers: Mapping[str, Any], *, capabilities: Mapping[str, Any], version: str = "2025-11-25"
    ) -> None:
        super().__init__("raw")
        self._answers = {
            "initialize": {
                "protocolVersion": version,
                "capabilities": capabilities,
                "serverInfo": {"name": "raw", "version": "1"},
            },
            "ping": {},
            **answers,
        }

    async def run(self, read_stream: Any, write_stream: Any, *_args: Any, **_options: Any) -> None:
        async with trio.open_nursery() as nursery:
            async for message in read_stream:
                request = message.message
                if isinstance(request, JSONRPCRequest):
                    nursery.start_soon(self._answer, request, write_stream)
                elif isinstance(request, JSONRPCNotification) and callable(
                    told := self._answers.get(request.method)
                ):
                    told(request.params or {})
            nursery.cancel_scope.cancel()

    async def _answer(self, request: JSONRPCRequest, write_stream: Any) -> None:
        answer = self._answers.get(request.method, Refusal(-32601, f"no {request.method} here"))
        if callable(answer) and not isinstance(answer, type):
            answer = answer(request.params or {})
        if answer is NEVER:
            return
        said = answer if isinstance(answer, Said) else Said(answer)
        answer = said.answer
        for unasked in said.before:
            await write_stream.send(SessionMessage(_unasked(unasked)))
        reply: JSONRPCMessage
        if isinstance(answer, Refusal):
            reply = JSONRPCError(jsonrpc="2.0", id=request.id, error=answer.data)
        else:
            reply = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=answer)
        await write_stream.send(SessionMessage(reply))
        for unasked in said.after:
            await write_stream.send(SessionMessage(_unasked(unasked)))


def _unasked(message: Mapping[str, Any]) -> JSONRPCMessage:
    kind = JSONRPCRequest if "id" in message else JSONRPCNotification
    return kind(jsonrpc="2.0", **message)


NEVER = Never()
