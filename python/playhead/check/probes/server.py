"""The server as a whole: whether it survives invalid requests, who can fix it, and what a check changed.

The framework under a server shows in its answers: each has its own words for an unknown method or tool. A
finding about what a framework decides is for its maintainers, the others for the server's author.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import trio
from mcp_types import METHOD_NOT_FOUND

from playhead._core import Frame, __version__
from playhead.check.probes.asking import (
    ask,
    error_shown,
    fault_of,
    said,
)
from playhead.check.results import Found, TestDraft, TestResult
from playhead.check.target import RequestOutcome, Target
from playhead.client.transports.server_process import ServerProcess, open_server
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, DeadlineError, PlayheadError, TransportError
from playhead.limits import DEFAULT_LIMITS, MIB
from playhead.protocol.framing import EndlessLine, Line, LineFramer
from playhead.protocol.messages import answered_plainly

BIG_BYTES: Final = 8 * MIB
"""More than the arguments of any tool, and less than the memory of ordinary servers."""
BIG_PATIENCE: Final = 5.0
"""The answer to it may take this many times `timeout_seconds`: most of the time goes into writing and parsing
8 MiB, on both sides of a machine that may be busy."""
_NO_METHOD: Final = "playhead/no-such-method"
_NO_TOOL: Final = "playhead_no_such_tool"
_ABOUT_SOMETHING_ELSE: Final = (-32700, -32600)
"""Parse error and invalid request: neither is true. A server may lack the method, and -32603 and its own
codes are acceptable."""


async def probe_server(target: Target, found: Found) -> None:
    """Test the server apart from its tools; `found` is called with each finished test."""
    await _probe_unknown_method(target, found)
    if target.tools:
        await _probe_unknown_tool(target, found)
        await _probe_malformed(target, found)
    await _probe_big_request(target, found)
    await probe_garbage(target, found)


async def _asked(
    target: Target, title: str, method: str, params: Mapping[str, Any]
) -> tuple[TestDraft, RequestOutcome]:
    draft = TestDraft(subject="server", title=title, method=method)
    return draft, await ask(target, draft, params)


async def _probe_unknown_method(target: Target, found: Found) -> None:
    draft, answer = await _asked(target, "an unknown method", _NO_METHOD, {})
    if _is_answered(draft, answer):
        draft.require(
            "server.unknown-method",
            answer.error is not None and answer.error.code == METHOD_NOT_FOUND,
            f"expected error -32601 (method not found), got {_outcome(answer)}",
        )
    found(draft.done())


async def _probe_unknown_tool(target: Target, found: Found) -> None:
    params = {"name": _NO_TOOL, "arguments": {}}
    draft, answer = await _asked(target, "an unknown tool", "tools/call", params)
    if _is_answered(draft, answer):
        draft.require(
            "server.unknown-tool",
            _is_error(answer),
            f"expected error -32602, or a result with isError, got {_outcome(answer)}",
        )
    found(draft.done())


async def _probe_malformed(target: Target, found: Found) -> None:
    for title, params in (
        ("a call without a name", {"arguments": {}}),
        ("a call whose name is a number", {"name": 7, "arguments": {}}),
    ):
        draft, answer = await _asked(target, title, "tools/call", params)
        if _is_answered(draft, answer):
            draft.require(
                "server.malformed-params",
                answer.error is not None or (answer.result or {}).get("isError") is True,
                f"expected error -32602 (invalid params), got {_outcome(answer)}",
            )
        elif isinstance(answer.failure, TransportError):
            await _judge_alive(target, draft)
        found(draft.done())


async def _probe_big_request(target: Target, found: Found) -> None:
    title = f"a request of {BIG_BYTES // MIB} MiB"
    draft = TestDraft(subject="server", title=title, method="tools/call")
    draft.input = {"name": _NO_TOOL, "arguments": {"text": f"a string of {BIG_BYTES:,} characters"}}
    params = {"name": _NO_TOOL, "arguments": {"text": "a" * BIG_BYTES}}
    seconds = BIG_PATIENCE * target.options.timeout_seconds
    answer = await target.request("tools/call", params, timeout_seconds=seconds)
    draft.latency_ms = answer.latency_ms
    if answer.error is not None:
        draft.output = error_shown(answer.error)
    if isinstance(answer.failure, DeadlineError):
        draft.failed(
            "server.big-request", f"expected an answer, or a closed connection, got {_outcome(answer)}"
        )
    elif isinstance(answer.failure, TransportError) and target.is_process:
        draft.failed(
            "server.big-request", f"expected an answer, got {_outcome(answer)}: the server's process ended"
        )
    else:
        draft.passed("server.big-request")  # over a network, refusing to read on is an answer, too
    await _judge_alive(target, draft)
    found(draft.done())


async def _judge_alive(target: Target, draft: TestDraft) -> None:
    answer = await target.request("tools/list")
    why = f"expected the server to survive, got {answer.failure}"
    lives = answer.failure is None or answer.too_often
    draft.require(fault_of(answer.failure, "server.alive"), lives, why)


def _is_answered(draft: TestDraft, answer: RequestOutcome) -> bool:
    why = f"expected a readable answer, got {_outcome(answer)}"
    return draft.require(fault_of(answer.failure, "server.answered"), answer.failure is None, why)


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


async def probe_garbage(target: Target, found: Found) -> None:
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
                draft.failed(
                    "server.garbage", f"expected an answer to tools/list within {2 * seconds:g} s, got none"
                )
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
                draft.require("server.garbage", await answers.to(3), why)
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

    async def to(self, request_id: int) -> bool:
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


# --- who can fix it ------------------------------------------------------------------------------------

PYTHON_SDK_1: Final = "the Python SDK 1.x"
_REVEALED: Final[tuple[tuple[str, re.Pattern[str], str], ...]] = (
    ("definition", re.compile(r'"_?fastmcp": ?[{]'), "FastMCP"),
    ("an unknown method", re.compile(r'-32602, "message": "Invalid request parameters"'), PYTHON_SDK_1),
    ("a call without a name", re.compile(r'-32602, "message": "Invalid request param'), "the Python SDK 2.x"),
    ("an unknown tool", re.compile(f"MCP error -32602: Tool {_NO_TOOL} not found"), "the TypeScript SDK"),
    ("an unknown tool", re.compile(f"tool '{_NO_TOOL}' not found: tool not found"), "mcp-go"),
    ("definition", re.compile(r'"title": "\w+Arguments"'), "the Python SDK"),
)
"""The title of a test, what its answer contains, and the framework that this reveals. The first one counts:
FastMCP is built on the SDK."""
_DECIDED: Final = re.compile(
    r"handshake\.|wire\.(?!messages)|capabilities\.|server\.|connection\.(?:ping|second|stops)"
    r"|\w+\.(?:list|templates)-(?:answered|ends|unknown-cursor)"
    r"|(?:tools|resources|prompts)\.(?:error-code|unknown$)|prompts\.missing-argument"
    r"|tools\.without-arguments"
)
"""Checks of what a framework decides."""
_UNCLEAR: Final = re.compile(
    r"tools\.(?:cancel|concurrent|deadline|survives)|connection\.(?:connect|health|stays)"
)
"""Checks that both can fail: a tool that blocks its framework is never cancelled."""
_FIXED: Final = {
    (PYTHON_SDK_1, "server.unknown-method"): "2.x answers as specified",
    (PYTHON_SDK_1, "resources.error-code"): "2.x answers as specified",
}


_FOUND: Final = ("failed", "accepted")
"""Verdicts and statuses of defects."""


def framework_of(tests: Sequence[TestResult]) -> str | None:
    """Return the framework that the answers of a server reveal; None if they don't."""
    for title, words, name in _REVEALED:
        for test in tests:
            if test.title == title and words.search(json.dumps(test.output, default=str)):
                return name
    return None


def attributed(tests: Sequence[TestResult]) -> tuple[TestResult, ...]:
    """Say in each failed check who can fix it, if the framework under the server is known."""
    framework = framework_of(tests)
    if framework is None:
        return tuple(tests)
    return tuple(_attributed(test, framework) for test in tests)


def _attributed(test: TestResult, framework: str) -> TestResult:
    if test.status not in _FOUND:
        return test
    checks = tuple(
        replace(check, message=check.message + _who(check.kind.name, framework))
        if check.verdict in _FOUND
        else check
        for check in test.checks
    )
    first = next((check.message for check in checks if check.verdict == test.status), test.error)
    return replace(test, checks=checks, error=first)


def _who(check: str, framework: str) -> str:
    if _UNCLEAR.match(check):
        return ""
    if not _DECIDED.match(check):
        return f" [to fix in the server; not in {framework}, on which it is built]"
    known = _FIXED.get((framework, check))
    return f" [to fix in {framework}, on which the server is built{f'; {known}' if known else ''}]"


# --- what a check leaves behind ------------------------------------------------------------------------

_MOST_ENTRIES: Final = 20_000
"""Of all watched directories. Beyond it, nothing is reported: a partial count would be a guess."""
_DEPTH: Final = 8
_SHALLOW: Final = 1
"""Below the working directory, which belongs to the server by accident only."""
_SHOWN_NAMES: Final = 3

Entry = tuple[int, int]
"""Size in bytes and time of the last change in nanoseconds; both 0 for a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The files and resources of a server at one moment, to find what a check changed."""

    entries: Mapping[str, Mapping[str, Entry]]
    """By watched directory: its entries, by their relative paths."""
    resources: frozenset[str] = frozenset()
    """The URIs of the listed resources."""


def footprint(server: object) -> Footprint:
    """Record the directories that a server process is given: in its command, its environment, and as its
    working directory. Empty for other servers. Blocks for some milliseconds."""
    if not isinstance(server, ServerConfig) or server.command is None:
        return Footprint(entries={})
    places: dict[str, int] = {}
    for word in (*server.command[1:], *(server.env or {}).values()):
        place = word.partition("=")[2] if word.startswith("-") and "=" in word else word
        if (found := _directory(place, server.cwd)) is not None:
            places[found] = _DEPTH
    places.setdefault(os.path.realpath(server.cwd or os.curdir), _SHALLOW)
    entries: dict[str, Mapping[str, Entry]] = {}
    left = _MOST_ENTRIES
    for place, depth in sorted(places.items()):  # a directory comes before those below it
        if any(Path(place).is_relative_to(other) for other in entries if places[other] == _DEPTH):
            continue
        inside = dict(islice(_walk(Path(place), "", depth), left + 1))
        if len(inside) <= left:
            left -= len(inside)
            entries[place] = inside
    return Footprint(entries=entries)


def _directory(word: str, cwd: str | None) -> str | None:
    """Return the directory that an argument names: itself, or that of a data file."""
    if not word or "\n" in word or "://" in word:
        return None
    path = Path(cwd or os.curdir, word)
    try:
        if path.is_dir():
            return os.path.realpath(path)
        # A file of code is where a server was installed, not where it works.
        if (
            os.sep in word
            and path.suffix not in _CODE
            and path.parent.is_dir()
            and not os.access(path, os.X_OK)
        ):
            return os.path.realpath(path.parent)
    except (OSError, ValueError):
        pass
    return None


_CODE: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".jar", ".rb", ".php", ".sh", ".exe"})


def _walk(place: Path, inner: str, depth: int) -> Iterator[tuple[str, Entry]]:
    try:
        with os.scandir(place / inner) as found:
            items = sorted(found, key=lambda item: item.name)
    except OSError:
        return
    for item in items:
        path = f"{inner}/{item.name}" if inner else item.name
        try:
            status = item.stat(follow_symlinks=False)
        except OSError:
            continue
        is_directory = stat.S_ISDIR(status.st_mode)
        yield path, (0, 0) if is_directory else (status.st_size, status.st_mtime_ns)
        if is_directory and depth > 1:
            yield from _walk(place, path, depth - 1)


def changes(before: Footprint, after: Footprint) -> list[str]:
    """Return what changed between two footprints, one sentence per place."""
    found = []
    for place, old in before.entries.items():
        now = after.entries.get(place)
        if now is None:
            continue
        added = [path for path in now if path not in old]
        gone = [path for path in old if path not in now]
        other = [path for path in now if path in old and now[path] != old[path]]
        parts = [
            f"{len(paths)} {word} {'entry' if len(paths) == 1 else 'entries'} ({_names(paths)})"
            for word, paths in (("new", added), ("changed", other), ("deleted", gone))
            if paths
        ]
        if parts:
            found.append(f"the check left the server changed: {', '.join(parts)} under {place}")
    if added_resources := sorted(after.resources - before.resources):
        count = len(added_resources)
        word = "resource" if count == 1 else "resources"
        found.append(f"the check left the server changed: {count} new {word} ({_names(added_resources)})")
    return found


def _names(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - _SHOWN_NAMES} more" if len(paths) > _SHOWN_NAMES else ""
    return ", ".join(path[:60] for path in paths[:_SHOWN_NAMES]) + more


async def listed_resources(target: Target) -> frozenset[str]:
    """Return the URIs of all listed resources; none if the server doesn't list any."""
    if target.session.capabilities.resources is None:
        return frozenset()
    try:
        return frozenset(str(item.uri) for item in await target.session.list_resources())
    except PlayheadError:
        return frozenset()
