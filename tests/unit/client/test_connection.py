"""Reads past the SDK's session: the same on the wire and for the caller, and their deadlines."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from playhead.client import Session, connect
from playhead.client.session.sdk_connection import FIRST_DIRECT_ID, Connection
from playhead.client.transports.rpc_errors import Declined
from playhead.concurrency import Deadlines
from playhead.errors import PlayheadError, ServerError
from playhead.protocol.faults import PastRequests
from playhead.stream.options import StreamOptions

# --- deadlines -------------------------------------------------------------------------------------------


class Arriving:
    """A request whose bytes arrive at the given times."""

    def __init__(self, *times: float) -> None:
        self._times = times

    def last_received(self) -> float:
        now = trio.current_time()
        return max((time for time in self._times if time <= now), default=0.0)


async def spent(
    deadlines: Deadlines, *, silent: float, total: float = math.inf, bytes_at: Arriving, work: float
) -> tuple[float, float | None]:
    """The seconds that a request of `work` seconds ran, and the allowance that ended it."""
    began = trio.current_time()
    with deadlines.within(
        silent_seconds=silent, total_seconds=total, last_received=bytes_at.last_received
    ) as watched:
        await trio.sleep(work)
    return trio.current_time() - began, watched.spent_seconds


@pytest.mark.parametrize(
    ("silent", "total", "bytes_at", "work", "expected"),
    [
        (5.0, math.inf, (), 4.0, (4.0, None)),
        (5.0, math.inf, (), 9.0, (5.0, 5.0)),
        (5.0, math.inf, (3.0, 7.0), 20.0, (12.0, 5.0)),
        (5.0, 10.0, (4.0, 8.0, 9.5), 20.0, (10.0, 10.0)),
        (5.0, 10.0, (4.0, 8.0), 9.0, (9.0, None)),
    ],
)
async def test_a_deadline_runs_from_the_last_byte_and_ends_with_the_total(
    autojump_clock: MockClock,
    silent: float,
    total: float,
    bytes_at: tuple[float, ...],
    work: float,
    expected: tuple[float, float | None],
) -> None:
    deadlines = Deadlines()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        found = await spent(
            deadlines,
            silent=silent,
            total=total,
            bytes_at=Arriving(*(began + at for at in bytes_at)),
            work=work,
        )
        nursery.cancel_scope.cancel()
    assert found == expected


async def test_a_shorter_deadline_set_later_ends_first(autojump_clock: MockClock) -> None:
    deadlines = Deadlines()
    found: dict[str, tuple[float, float | None]] = {}

    async def run(name: str, silent: float) -> None:
        found[name] = await spent(deadlines, silent=silent, bytes_at=Arriving(), work=100.0)

    async with trio.open_nursery() as watching:
        watching.start_soon(deadlines.run)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "long", 30.0)
            await trio.sleep(1)
            nursery.start_soon(run, "short", 2.0)
        watching.cancel_scope.cancel()
    assert found == {"long": (30.0, 30.0), "short": (2.0, 2.0)}


# --- on the wire -----------------------------------------------------------------------------------------

SERVER = """
import base64, json, os, sys
log = open(sys.argv[1], "a")
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    log.write(line); log.flush()
    method, params = message["method"], message.get("params", {})
    if method == "server/discover" and sys.argv[2] == "modern":
        versions = {"supportedVersions": ["2026-07-28"], "capabilities": {"resources": {}}}
        info = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
        say(id=message["id"], result={**versions, "ttlMs": 0, "cacheScope": "private",
                                      "resultType": "complete", "_meta": info})
    elif method == "initialize":
        version = params["protocolVersion"]
        about = {"capabilities": {"resources": {}}, "serverInfo": {"name": "s", "version": "1"}}
        say(id=message["id"], result={"protocolVersion": version, **about})
    elif method == "resources/read":
        if sys.argv[3] == "die": sys.stderr.write("out of music\\n"); sys.exit(3)
        if sys.argv[3] == "silent": continue
        if sys.argv[3] == "refuse":
            say(id=message["id"], error={"code": -32002, "message": "no such song"}); continue
        start, end = params["arguments"]["start"], params["arguments"]["end"]
        data = bytes(i % 251 for i in range(start, min(end, 300000)))
        contents = [{"uri": "x:", "blob": base64.b64encode(data).decode()}] if data else []
        answer_id = str(message["id"]) if sys.argv[3] == "string" else message["id"]
        say(id=answer_id, result={"contents": contents})
    elif "id" in message:
        say(id=message["id"], error={"code": -32601, "message": "no such method"})
"""
OPTIONS = StreamOptions(strategy="arguments", patience_seconds=0.5, timeout=0.3)
WHOLE = bytes(i % 251 for i in range(300000))


def command(tmp_path: Path, era: str, manner: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", SERVER, str(tmp_path / "log"), era, manner]


def logged(tmp_path: Path, method: str) -> list[dict[str, Any]]:
    messages = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    return [message for message in messages if message["method"] == method]


async def read_all(session: Session) -> bytes:
    async with session.open("x:song", options=OPTIONS) as stream:
        return await stream.read_all()


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("way", ["direct", "session"])
async def test_a_read_is_the_same_on_the_wire_on_both_ways(
    tmp_path: Path, era: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "session":
        monkeypatch.setattr(Connection, "_read_directly", declined)
    async with (
        connect(command(tmp_path, era, "plain")) as session,
        session.open("x:song", options=OPTIONS) as stream,
    ):
        assert await stream.read_all() == WHOLE
        paths = stream.statistics().paths
    reads = logged(tmp_path, "resources/read")
    if way == "direct":
        assert (paths.direct, paths.session, paths.fallback) == (len(reads), 0, None)
        assert all(read["id"] > FIRST_DIRECT_ID for read in reads)
    else:
        assert (paths.direct, paths.session, paths.fallback) == (0, len(reads), "for a test")
    first = reads[0]
    assert first.keys() == {"jsonrpc", "id", "method", "params"}
    assert first["params"].keys() == {"uri", "arguments"} | ({"_meta"} if era == "modern" else set())
    if era == "modern":
        meta = first["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "playhead"
        assert meta["io.modelcontextprotocol/clientCapabilities"]["files"]["download"] is True


async def declined(*_arguments: object, **_more: object) -> Declined:
    return Declined(reason="for a test")


async def test_an_id_that_is_returned_as_a_string_is_counted_and_accepted(tmp_path: Path) -> None:
    async with connect(command(tmp_path, "legacy", "string")) as session:
        assert await read_all(session) == WHOLE
        assert session.protocol_faults().retyped > 0


@pytest.mark.parametrize("manner", ["refuse", "silent", "die"])
async def test_a_failed_read_raises_the_same_error_on_both_ways(
    tmp_path: Path, manner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = []
    for way in ("direct", "session"):
        if way == "session":
            monkeypatch.setattr(Connection, "_read_directly", declined)
        async with connect(command(tmp_path, "legacy", manner)) as session:
            with pytest.raises(PlayheadError) as caught:
                await read_all(session)
        # Which of two timers of the same length gave up a silent read depends on the machine.
        errors.append((type(caught.value), str(caught.value).partition(" (the last read failed")[0]))
    assert errors[0] == errors[1]


async def test_a_silent_read_is_cancelled_on_the_wire_with_its_own_id(tmp_path: Path) -> None:
    async with connect(command(tmp_path, "legacy", "silent")) as session:
        with pytest.raises(PlayheadError):
            await read_all(session)
    asked = {read["id"] for read in logged(tmp_path, "resources/read")}
    cancelled = {each["params"]["requestId"] for each in logged(tmp_path, "notifications/cancelled")}
    assert asked & cancelled
    assert cancelled <= asked


async def test_leaving_the_session_ends_a_read_that_waits(tmp_path: Path) -> None:
    ended: list[str] = []

    async def read(session: Session, started: trio.Event) -> None:
        started.set()
        try:
            await read_all(session)
        except PlayheadError as error:
            ended.append(type(error).__name__)

    async with trio.open_nursery() as nursery, connect(command(tmp_path, "legacy", "silent")) as session:
        started = trio.Event()
        nursery.start_soon(read, session, started)
        await started.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(ended) == 1


async def test_a_cancelled_read_leaves_the_connection_usable(tmp_path: Path) -> None:
    async with connect(command(tmp_path, "legacy", "plain")) as session:
        for checkpoints in range(12):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read_all, session)
                    for _ in range(checkpoints):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        assert await read_all(session) == WHOLE


def test_an_id_between_those_of_the_session_and_of_direct_requests_was_never_asked() -> None:
    past = PastRequests()
    for number in (0, 1, 2, FIRST_DIRECT_ID, FIRST_DIRECT_ID + 1, 3):
        past.sent(str(number))
    for key in ("2", str(FIRST_DIRECT_ID), "500", str(FIRST_DIRECT_ID + 7)):
        past.unclaimed(key, is_result=True)
    assert (past.late, past.unasked) == (2, 2)


@pytest.mark.parametrize("name_bytes", [10, 50_000])
async def test_a_call_of_any_length_reaches_the_server_whole(tmp_path: Path, name_bytes: int) -> None:
    name = "x" * name_bytes
    async with connect(command(tmp_path, "legacy", "plain")) as session:
        with pytest.raises(ServerError, match="no such method"):
            await session.call_tool(name)
    assert [call["params"]["name"] for call in logged(tmp_path, "tools/call")] == [name]
