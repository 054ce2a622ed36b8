"""What is no JSON on a server's stdin: it may be answered or ignored, and must not end the server.

In a process of its own, and by hand: a client sends nothing but messages. Only servers over stdio
are tested: over HTTP every body is a request of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from playhead._core import __version__
from playhead.check.connecting import SessionTarget
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.client.process import ServerProcess, open_server
from playhead.client.transports.frames import EndlessLine, Line, LineFramer
from playhead.client.transports.messages import answered_id
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError
from playhead.limits import DEFAULT_LIMITS

GARBAGE: Final = CheckKind(
    name="server.garbage",
    title="A line that is no JSON is answered with error -32700 or ignored, and the server goes on",
    level="should",
    source="https://www.jsonrpc.org/specification#error_object",
)
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
    """Send it, where the server is a process; else nothing is tested."""
    server = target.server
    if not isinstance(server, ServerConfig) or server.command is None:
        return
    draft = TestDraft(subject="server", title="a line that is no JSON", input=_LINE.decode())
    seconds = target.options.timeout_seconds
    try:
        async with open_server(server.command, env=server.env, cwd=server.cwd) as process:
            with trio.move_on_after(2 * seconds) as scope:
                await _converse(process, draft)
            if scope.cancelled_caught and not draft.output:
                # It may be one that runs once on a machine: nothing is proven of what was not begun.
                draft.undecided = "a second process gave no answer to initialize"
            elif scope.cancelled_caught:
                draft.failed(GARBAGE, f"expected an answer to tools/list within {2 * seconds:g} s, came none")
    except ConnectError as error:
        draft.undecided = f"the server could not be started once more: {error}"
    found(draft.done())


async def _converse(process: ServerProcess, draft: TestDraft) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain, process.stderr)
        answers = _Answers(process.stdout)
        try:
            await process.stdin.send_all(_line(_INITIALIZE))
            if not await answers.to(1):
                draft.undecided = "the server ended before it was asked anything"
            else:
                draft.output = "initialize was answered"
                await process.stdin.send_all(_line(_INITIALIZED) + _LINE + _line(_ASK))
                why = "expected the server to answer tools/list after it, came the end of its process"
                draft.require(GARBAGE, await answers.to(3), why)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            if draft.output:
                draft.failed(GARBAGE, "expected the server to read on, came the end of its process")
            else:
                draft.undecided = "the server ended before it was asked anything"
        nursery.cancel_scope.cancel()


class _Answers:
    """The answers on a server's stdout; everything else is passed over."""

    def __init__(self, stdout: trio.abc.ReceiveStream) -> None:
        self._stdout = stdout
        self._framer = LineFramer(max_bytes=DEFAULT_LIMITS.message_bytes)

    async def to(self, request_id: int) -> bool:
        """Wait for the answer to a request. False where the stream ends first."""
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
