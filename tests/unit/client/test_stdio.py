"""The stdio carrier against scripted peers in real processes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from playhead.client.session.connection import Connection
from playhead.client.session.handshake import negotiate
from playhead.client.transports import server_process
from playhead.client.transports.stdio import StdioCarrier
from playhead.errors import ConnectError, ConnectionLostError, PlayheadError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.revisions import NEWEST_INITIALIZED
from playhead.testing import peers
from playhead.testing.peers import AwaitEnd, Exit, Expect, Handshake, Hang, IgnoreTerm, Say, Send, SendResult

READ = Expect(method="resources/read")
FINE = SendResult(result={"contents": []})


def stdio(command: Sequence[str], *, limits: Limits = DEFAULT_LIMITS, **options: Any) -> StdioCarrier:
    return StdioCarrier(command, limits=limits, **options)


def scripted(*steps: peers.Step, limits: Limits = DEFAULT_LIMITS) -> StdioCarrier:
    return stdio(peers.command([Handshake(), *steps]), limits=limits)


@asynccontextmanager
async def connection_over(carrier: StdioCarrier, *, handshake: bool = True) -> AsyncIterator[Connection]:
    connection = Connection(carrier, server="the server", limits=DEFAULT_LIMITS)
    with trio.fail_after(30):
        async with connection.opened():
            connection.exchange.revision = NEWEST_INITIALIZED
            if handshake:
                await negotiate(connection, mode="legacy", seconds=30)
            yield connection


async def read(
    connection: Connection, uri: str = "test://it", *, method: str = "resources/read", **params: object
) -> Mapping[str, Any]:
    return await connection.request(
        method, {"uri": uri, **params}, silent_seconds=math.inf, total_seconds=math.inf
    )


async def error_of_read(connection: Connection) -> PlayheadError:
    with pytest.raises(PlayheadError) as caught:
        await read(connection)
    return caught.value


@pytest.mark.requirement("MCP-04")
async def test_a_request_is_answered_and_the_server_ends_with_its_stdin() -> None:
    carrier = scripted(READ, FINE, AwaitEnd())
    async with connection_over(carrier) as connection:
        assert await read(connection) == {"contents": []}
    assert carrier.returncode == 0


@pytest.mark.requirement("MCP-06")
async def test_lines_that_are_not_messages_are_counted_and_the_answer_still_arrives() -> None:
    carrier = scripted(READ, Send(line="\xff\xfe"), Send(line="INFO \x1b[2Jhello"), Send(line="[]"), FINE)
    async with connection_over(carrier) as connection:
        await read(connection)
        assert connection.faults().not_messages == 3
    assert "3 lines on its stdout were not JSON-RPC messages" in carrier.diagnosis()


async def test_a_server_that_dies_fails_pending_requests_with_its_status_and_last_stderr_lines() -> None:
    carrier = scripted(READ, Say(line="fatal: no disk"), Exit(status=7))
    async with connection_over(carrier) as connection:
        error = await error_of_read(connection)
    assert isinstance(error, ConnectionLostError)
    assert "exit status 7" in str(error)
    assert "fatal: no disk" in str(error)


async def test_a_server_that_dies_is_noticed_although_its_child_holds_the_pipes() -> None:
    server = peers.command([Handshake(), READ, Exit(status=7)])
    carrier = stdio(["/bin/sh", "-c", 'sleep 600 & exec "$@"', "sh", *server])
    with trio.fail_after(20):
        async with connection_over(carrier) as connection:
            error = await error_of_read(connection)
    assert isinstance(error, ConnectionLostError)
    assert "exit status 7" in str(error)


async def test_a_server_that_closes_its_stdout_but_keeps_running_fails_pending_requests() -> None:
    async with connection_over(scripted(READ, peers.CloseStdout(), AwaitEnd())) as connection:
        error = await error_of_read(connection)
    assert isinstance(error, ConnectionLostError)
    assert "closed its stdout" in str(error)


async def test_secrets_of_the_environment_are_blanked_in_what_the_server_said() -> None:
    command = peers.command([Handshake(), READ, Say(line="bad token s3cr3t-value"), Exit(status=1)])
    carrier = stdio(command, env={"API_TOKEN": "s3cr3t-value"})
    async with connection_over(carrier) as connection:
        error = await error_of_read(connection)
    assert "s3cr3t" not in str(error)
    assert "bad token [API_TOKEN]" in str(error)


@pytest.mark.requirement("MCP-07")
async def test_only_the_newest_of_stderr_is_kept() -> None:
    carrier = scripted(
        *[Say(line=f"line {i}") for i in range(100)], READ, FINE, limits=Limits(stderr_bytes=50)
    )
    async with connection_over(carrier) as connection:
        await read(connection)
    assert len(carrier.stderr_tail) <= 50
    assert carrier.stderr_tail.endswith("line 99\n")


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (["/nowhere/at-all"], "install it"),
        (["/etc/passwd"], "chmod"),
        ([sys.executable, "a\0b"], "correct the command"),
        ([], "list of strings"),
        ("python server.py", "shlex"),
    ],
)
async def test_a_command_that_cannot_start_is_a_connect_error_with_a_remedy(
    command: Sequence[str], remedy: str
) -> None:
    with pytest.raises(ConnectError, match=remedy):
        async with connection_over(stdio(command)):
            pass


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"directory .*correct `cwd`"):
        async with connection_over(stdio([sys.executable], cwd=tmp_path / "missing")):
            pass


@pytest.mark.requirement("HUB-10")
async def test_the_server_gets_a_minimal_environment_and_a_session_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "1")
    code = "import os,sys; print(sorted(os.environ), os.getsid(0) == os.getpid(), file=sys.stderr)"
    carrier = stdio([sys.executable, "-I", "-c", code], env={"GIVEN": "1"})
    async with connection_over(carrier, handshake=False) as connection:
        await connection.wait_ended()
    assert "GIVEN" in carrier.stderr_tail
    assert "SECRET_OF_OURS" not in carrier.stderr_tail
    assert carrier.stderr_tail.strip().endswith("True")


@pytest.mark.requirement("MCP-04")
async def test_closing_escalates_from_stdin_to_term_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE_SECONDS", 0.05)
    carrier = scripted(IgnoreTerm(), READ, FINE, Hang())
    async with connection_over(carrier) as connection:
        await read(connection)
    assert carrier.returncode == -9


async def test_a_cancelled_closing_skips_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE_SECONDS", 1000.0)
    carrier = scripted(IgnoreTerm(), READ, FINE, Hang())
    with trio.fail_after(30), trio.CancelScope() as scope:
        async with connection_over(carrier) as connection:
            await read(connection)
            scope.cancel()
            await trio.sleep_forever()
    assert carrier.returncode == -9


async def test_a_cancellation_during_the_grace_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE_SECONDS", 1000.0)
    carrier = scripted(Hang())
    with trio.fail_after(30), trio.CancelScope() as scope:
        async with connection_over(carrier):
            scope.deadline = trio.current_time() + 0.1
    assert scope.cancelled_caught
    assert carrier.returncode == -15


async def test_closing_drains_a_server_that_still_writes() -> None:
    flood = "import sys; sys.stdin.read(); sys.stdout.write('x\\n' * 2_000_000); sys.stdout.flush()"
    carrier = stdio([sys.executable, "-I", "-c", flood])
    async with connection_over(carrier, handshake=False):
        pass
    assert carrier.returncode == 0


async def test_a_server_that_writes_before_it_reads_does_not_lock_both_sides() -> None:
    # It fills its stdout, and we its stdin, each far beyond a pipe's capacity, before anyone reads.
    code = (
        "import sys\nfor _ in range(40): sys.stdout.write('log ' * 100_000 + '\\n')\n"
        "sys.stdout.flush()\nn = len(sys.stdin.buffer.readline())\n"
        'sys.stdout.write(\'{"jsonrpc":"2.0","id":1,"result":{"n":%d}}\\n\' % n)'
    )
    carrier = stdio([sys.executable, "-I", "-c", code])
    async with connection_over(carrier, handshake=False) as connection:
        result = await read(connection, a="y" * 8_000_000)
    assert result["n"] > 8_000_000


RECORDER = """
import json, sys
lines = []
for line in sys.stdin:
    message = json.loads(line)
    lines.append([message["method"], message.get("id")])
    if message["method"] == "ping":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"lines": lines}}), flush=True)
"""
"""Answers only pings, with the lines that have arrived."""


async def lines_received(connection: Connection) -> list[list[Any]]:
    await read(connection, method="ping")  # a cancellation may be behind it
    lines: list[list[Any]] = (await read(connection, method="ping"))["lines"]
    return lines[:-1]


async def test_a_cancelled_write_tears_no_line() -> None:
    """Requests longer than a pipe, cancelled while they are written and while they wait for it."""
    async with connection_over(stdio([sys.executable, "-I", "-c", RECORDER]), handshake=False) as connection:
        for checkpoints in range(1, 8):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(partial(read, connection, a="y" * 300_000))
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        lines = await lines_received(connection)
    ids = [id for method, id in lines if method == "resources/read"]
    assert ids
    assert ids == sorted(set(ids))
    assert [method for method, _ in lines].count("notifications/cancelled") == len(ids)


async def test_a_request_that_the_server_never_saw_is_not_cancelled_at_it() -> None:
    async with connection_over(stdio([sys.executable, "-I", "-c", RECORDER]), handshake=False) as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(read, connection, a="y" * 16_000_000))
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            with trio.move_on_after(0):
                await read(connection)
            nursery.cancel_scope.cancel()
        lines = await lines_received(connection)
    assert sorted(map(str, lines)) == [
        "['notifications/cancelled', None]",
        "['ping', 3]",
        "['resources/read', 1]",
    ]


async def test_the_watcher_is_gone_when_the_transport_is_closed() -> None:
    others = _children()  # other tests may have left the interpreter a helper process
    carrier = scripted(AwaitEnd())
    async with connection_over(carrier):
        children = _children() - others
        assert len(children) >= 2
    assert not _children() & children


def _children() -> set[int]:
    path = Path(f"/proc/{os.getpid()}/task")
    return {int(pid) for task in path.iterdir() for pid in (task / "children").read_text().split()}
