"""The stdio transport against scripted peers in real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import mcp_types as types
import pytest
import trio
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from playhead.client.transports import server_process
from playhead.client.transports.sdk_stdio import StdioTransport, stdio_transport
from playhead.errors import ClosedError, ConnectError, ConnectionLostError, ProtocolError, UsageError
from playhead.limits import Limits
from playhead.protocol.sdk_messages import own_error
from playhead.testing import peers
from playhead.testing.peers import AwaitEnd, Exit, Expect, Handshake, Hang, IgnoreTerm, Say, Send, SendResult

READ = Expect(method="resources/read")
FINE = SendResult(result={"contents": []})


@asynccontextmanager
async def session_over(transport: StdioTransport) -> AsyncIterator[ClientSession]:
    with trio.fail_after(30):
        async with transport as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session


def scripted(*steps: peers.Step, limits: Limits | None = None) -> StdioTransport:
    return stdio_transport(peers.command([Handshake(), *steps]), limits=limits or Limits())


async def error_of_read(session: ClientSession) -> BaseException:
    with pytest.raises(MCPError) as caught:
        await session.read_resource("test://it")
    return own_error(caught.value) or caught.value


@pytest.mark.requirement("MCP-04")
async def test_a_request_is_answered_and_the_server_ends_with_its_stdin() -> None:
    transport = scripted(READ, FINE, AwaitEnd())
    async with session_over(transport) as session:
        assert (await session.read_resource("test://it")).contents == []
    assert transport.returncode == 0
    assert transport.failure is None
    assert transport.statistics().received.messages == 2
    assert transport.statistics().sent_messages == 3


@pytest.mark.requirement("MCP-06")
async def test_lines_that_are_not_messages_are_counted_and_the_answer_still_arrives() -> None:
    transport = scripted(READ, Send(line="\xff\xfe"), Send(line="INFO \x1b[2Jhello"), Send(line="[]"), FINE)
    async with session_over(transport) as session:
        await session.read_resource("test://it")
    assert transport.statistics().received.ignored_lines == 3
    assert "3 lines on its stdout were not JSON-RPC messages" in transport.diagnosis()


@pytest.mark.requirement("MCP-06")
async def test_an_answer_with_an_invalid_byte_fails_its_request_at_once_and_no_other() -> None:
    broken = Send(line='{"jsonrpc":"2.0","id":%ID%,"result":{"contents":[],"a":"\xff"}}')
    async with session_over(scripted(READ, broken, READ, FINE, AwaitEnd())) as session:
        assert isinstance(await error_of_read(session), ProtocolError)
        await session.read_resource("test://it")


async def test_a_server_that_dies_fails_pending_requests_with_its_status_and_last_stderr_lines() -> None:
    transport = scripted(READ, Say(line="fatal: no disk"), Exit(status=7))
    async with session_over(transport) as session:
        error = await error_of_read(session)
    assert isinstance(error, ConnectionLostError)
    assert "exit status 7" in str(error)
    assert "fatal: no disk" in str(error)
    assert transport.failure is error


async def test_a_server_that_dies_is_noticed_although_its_child_holds_the_pipes() -> None:
    server = peers.command([Handshake(), READ, Exit(status=7)])
    transport = stdio_transport(["/bin/sh", "-c", 'sleep 600 & exec "$@"', "sh", *server])
    with trio.fail_after(20):
        async with session_over(transport) as session:
            error = await error_of_read(session)
    assert isinstance(error, ConnectionLostError)
    assert "exit status 7" in str(error)


async def test_a_server_that_closes_its_stdout_but_keeps_running_fails_pending_requests() -> None:
    async with session_over(scripted(READ, peers.CloseStdout(), AwaitEnd())) as session:
        error = await error_of_read(session)
    assert isinstance(error, ConnectionLostError)
    assert "closed its stdout" in str(error)


async def test_secrets_of_the_environment_are_blanked_in_what_the_server_said() -> None:
    command = peers.command([Handshake(), READ, Say(line="bad token s3cr3t-value"), Exit(status=1)])
    transport = stdio_transport(command, env={"API_TOKEN": "s3cr3t-value"})
    async with session_over(transport) as session:
        error = await error_of_read(session)
    assert "s3cr3t" not in str(error)
    assert "bad token [API_TOKEN]" in str(error)


@pytest.mark.requirement("MCP-07")
async def test_only_the_newest_of_stderr_is_kept() -> None:
    transport = scripted(
        *[Say(line=f"line {i}") for i in range(100)], READ, FINE, limits=Limits(stderr_bytes=50)
    )
    async with session_over(transport) as session:
        await session.read_resource("test://it")
    assert len(transport.stderr_tail) <= 50
    assert transport.stderr_tail.endswith("line 99\n")


async def test_a_request_that_cannot_be_json_is_a_usage_error() -> None:
    transport = scripted(READ, FINE, AwaitEnd())
    async with session_over(transport) as session:
        with pytest.raises(MCPError) as caught:
            await session.read_resource("test://\ud800")
        assert isinstance(own_error(caught.value), UsageError)
        await session.read_resource("test://it")


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
        async with stdio_transport(command):
            pass


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"directory .*correct `cwd`"):
        async with stdio_transport([sys.executable], cwd=tmp_path / "missing"):
            pass


async def test_a_transport_is_used_once() -> None:
    transport = scripted(AwaitEnd())
    async with session_over(transport):
        pass
    with pytest.raises(ClosedError):
        await transport.__aenter__()


@pytest.mark.requirement("HUB-10")
async def test_the_server_gets_a_minimal_environment_and_a_session_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "1")
    code = "import os,sys; print(sorted(os.environ), os.getsid(0) == os.getpid(), file=sys.stderr)"
    transport = stdio_transport([sys.executable, "-I", "-c", code], env={"GIVEN": "1"})
    async with transport as (read, _):
        async for _message in read:
            pass
    assert "GIVEN" in transport.stderr_tail
    assert "SECRET_OF_OURS" not in transport.stderr_tail
    assert transport.stderr_tail.strip().endswith("True")


@pytest.mark.requirement("MCP-04")
async def test_closing_escalates_from_stdin_to_term_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE_SECONDS", 0.05)
    transport = scripted(IgnoreTerm(), READ, FINE, Hang())
    async with session_over(transport) as session:
        await session.read_resource("test://it")
    assert transport.returncode == -9


async def test_a_cancelled_closing_skips_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE_SECONDS", 1000.0)
    transport = scripted(IgnoreTerm(), READ, FINE, Hang())
    with trio.fail_after(30), trio.CancelScope() as scope:
        async with session_over(transport) as session:
            await session.read_resource("test://it")
            scope.cancel()
            await trio.sleep_forever()
    assert transport.returncode == -9


async def test_a_cancellation_during_the_grace_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE_SECONDS", 1000.0)
    transport = scripted(Hang())
    with trio.fail_after(30), trio.CancelScope() as scope:
        async with session_over(transport):
            scope.deadline = trio.current_time() + 0.1
    assert scope.cancelled_caught
    assert transport.returncode == -15


async def test_closing_drains_a_server_that_still_writes() -> None:
    flood = "import sys; sys.stdin.read(); sys.stdout.write('x\\n' * 2_000_000); sys.stdout.flush()"
    transport = stdio_transport([sys.executable, "-I", "-c", flood])
    async with transport:
        pass
    assert transport.returncode == 0


async def test_a_server_that_writes_before_it_reads_does_not_lock_both_sides() -> None:
    # It fills its stdout, and we its stdin, each far beyond a pipe's capacity, before anyone reads.
    code = (
        "import sys\nfor _ in range(40): sys.stdout.write('log ' * 100_000 + '\\n')\n"
        "sys.stdout.flush()\nn = len(sys.stdin.buffer.readline())\n"
        'sys.stdout.write(\'{"jsonrpc":"2.0","id":1,"result":{"n":%d}}\\n\' % n)'
    )
    async with stdio_transport([sys.executable, "-I", "-c", code]) as (read, write):
        with trio.fail_after(30):
            params = {"a": "y" * 8_000_000}
            await write.send(
                SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="m", params=params))
            )
            message = await read.receive()
    assert isinstance(message, SessionMessage)
    assert isinstance(message.message, types.JSONRPCResponse)
    assert message.message.result["n"] > 8_000_000


async def test_the_watcher_is_gone_when_the_transport_is_closed() -> None:
    others = _children()  # other tests may have left the interpreter a helper process
    transport = scripted(AwaitEnd())
    async with session_over(transport):
        children = _children() - others
        assert len(children) >= 2
    assert not _children() & children


def _children() -> set[int]:
    path = Path(f"/proc/{os.getpid()}/task")
    return {int(pid) for task in path.iterdir() for pid in (task / "children").read_text().split()}


async def test_the_time_of_the_last_byte_moves_with_answers_and_not_with_logs() -> None:
    transport = scripted(READ, Send(line="a log line"), FINE, AwaitEnd())
    async with session_over(transport) as session:
        before = transport.last_received
        await session.read_resource("test://it")
        assert transport.last_received > before
