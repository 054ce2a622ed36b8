"""The process of a server that is started before its session."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from playhead.client import connect
from playhead.client.transports.server_process import (
    INHERITED_VARIABLES,
    QUICK_GRACE_SECONDS,
    ServerProcess,
    StartedServer,
    open_server,
    started_early,
)
from playhead.config.servers import ServerConfig, from_command
from playhead.errors import ConnectError, UsageError
from playhead.testing import peers
from playhead.testing.peers import AwaitEnd, Handshake

PEER = peers.command([Handshake(), AwaitEnd()])
EXIT_AT_FIRST = 'mkdir "$0" 2>/dev/null && read -r line && exit 0; exec "$@"'
"""The first process ends at its first message, later ones run the command."""


def process_of(target: StartedServer | ServerConfig) -> ServerProcess:
    assert isinstance(target, StartedServer)
    return target.process


def test_servers_inherit_the_variables_that_the_sdk_lets_them_inherit() -> None:
    assert list(INHERITED_VARIABLES) == DEFAULT_INHERITED_ENV_VARS


async def test_a_session_uses_the_process_that_was_started_and_ends_it() -> None:
    async with started_early(from_command(PEER)) as target:
        process = process_of(target)
        assert process.returncode is None
        async with connect(target, mode="legacy"):
            assert not process.claim()
        assert process.returncode == 0


async def test_an_early_process_has_the_environment_and_directory_of_its_entry(tmp_path: Path) -> None:
    code = "import os; print(os.environ['MARK'], os.getcwd(), len(os.environ) < 20)"
    config = ServerConfig(command=(sys.executable, "-c", code), env={"MARK": "here"}, cwd=str(tmp_path))
    async with started_early(config) as target:
        said = await process_of(target).stdout.receive_some()
    assert said.decode().split() == ["here", str(tmp_path), "True"]


async def test_an_early_process_ends_with_an_error_that_is_found_before_the_session() -> None:
    early = started_early(from_command(PEER))
    process = process_of(await early.__aenter__())
    error = UsageError("a wrong option")
    assert not await early.__aexit__(UsageError, error, None)
    assert process.returncode is not None


async def test_a_second_connection_starts_a_process_of_its_own(tmp_path: Path) -> None:
    marker = str(tmp_path / "marker")
    config = from_command(("/bin/sh", "-c", EXIT_AT_FIRST, marker, *PEER))
    async with started_early(config) as target, connect(target) as session:
        assert session.protocol_version is not None
        assert process_of(target).returncode == 0


async def test_a_command_that_cannot_start_fails_in_the_session_as_ever() -> None:
    async with started_early(from_command(("/no/such/program",))) as target:
        assert isinstance(target, ServerConfig)
        with pytest.raises(ConnectError, match="cannot start the server '/no/such/program': no such command"):
            async with connect(target):
                pass


async def test_a_child_that_outlives_the_server_has_time_to_end_after_sigterm(
    mock_clock: trio.testing.MockClock,
) -> None:
    child = "trap 'echo saved; exit' TERM; echo ready; while :; do sleep 60 & wait; done"
    async with open_server(["/bin/sh", "-c", f"({child}) & read -r line"], env=None, cwd=None) as server:
        assert await server.stdout.receive_some() == b"ready\n"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(server.stop, quick=False))
            assert await server.stdout.receive_some() == b"saved\n"
            mock_clock.jump(QUICK_GRACE_SECONDS)


async def test_a_directory_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="expected a program, got a directory; name a program in it"):
        async with connect((str(tmp_path),)):
            pass
