"""Sessions with servers that are processes: they die, they exit on what they don't know, they never start."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import trio

from playhead.client import connect
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, ConnectionLostError
from playhead.limits import Limits
from playhead.stream.options import StreamOptions
from tests.servers.scripted_stdio import scripted_stdio

DIES_AT_EACH_READ = scripted_stdio('take("resources/read"); sys.exit("read: not today")')


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open: waits for a non-child process")
async def test_a_server_that_dies_takes_its_children_with_it(tmp_path: Path) -> None:
    script = f'sleep 600 & echo $! > {tmp_path}/child; exec "$@"'
    command = ["/bin/sh", "-c", script, "sh", *DIES_AT_EACH_READ]
    async with connect(command) as session:
        child = os.pidfd_open(int((tmp_path / "child").read_text()))
        try:
            with pytest.raises(ConnectionLostError):
                await session.read_resource("x:")
            with trio.fail_after(20):
                await trio.lowlevel.wait_readable(child)
        finally:
            os.close(child)


@pytest.mark.parametrize(("restart", "reconnects"), [("never", 0), ("once", 1), ("always", 3)])
async def test_restarts_follow_the_setting(restart: str, reconnects: int) -> None:
    config = ServerConfig(command=tuple(DIES_AT_EACH_READ), restart=restart)  # type: ignore[arg-type]
    async with connect(config) as session:
        for _ in range(4):
            with pytest.raises(ConnectionLostError):
                await session.read_resource("x:")
        assert session.statistics().reconnects == reconnects


@pytest.mark.requirement("MCP-38")
async def test_an_old_server_that_exits_on_the_probe_is_started_in_the_old_way() -> None:
    async with connect(scripted_stdio('take("server/discover"); sys.exit("what is that?")')) as session:
        assert session.protocol_version == "2025-11-25"


async def test_a_command_that_fails_is_one_error_with_its_last_words() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such music')"]
    with pytest.raises(ConnectError, match="no such music"):
        async with connect(command):
            raise AssertionError("connected")


async def test_a_server_that_playhead_ends_is_not_said_to_have_ended() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(ConnectError, match="did not finish the handshake") as caught:
        async with connect(command, limits=Limits(handshake_seconds=0.05)):
            raise AssertionError("connected")
    assert "ended" not in str(caught.value)


BLOB = "QUJD" * 4096

ANSWERS_WITH_BLOBS = f"""
BLOB = {BLOB!r}
while True:
    number = take("resources/read", "tools/call")["id"]
    audio = {{"type": "audio", "mimeType": "audio/wav", "data": BLOB}}
    held = {{"type": "resource", "resource": {{"uri": "x:", "blob": BLOB}}}}
    say(id=number, result={{"contents": [{{"uri": "x:", "blob": BLOB}}], "content": [audio, held]}})
"""


async def test_results_leave_as_plain_json_however_long_their_blobs() -> None:
    async with connect(scripted_stdio(ANSWERS_WITH_BLOBS)) as session:
        for method, params in (("resources/read", {"uri": "x:"}), ("tools/call", {"name": "x"})):
            result = await session.request(method, params)
            assert json.dumps(result).count(BLOB) == 3
        called = await session.call_tool("x", {})
        assert json.dumps(called.raw).count(BLOB) == 3
        assert (await session.read_resource("x:")).blobs == (BLOB,)
        async with session.open("x:", options=StreamOptions(strategy="whole")) as stream:
            assert await stream.receive_some(100) == b"ABC" * 33 + b"A"
