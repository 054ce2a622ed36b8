"""The example programs of the adapters run as programs, against the peers of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio_websocket import open_websocket_url

from tests.unit.adapters.test_wyoming import Speaker, serving
from tests.unit.adapters.test_xiaozhi import HELLO, Device

EXAMPLES = Path(__file__).parents[3] / "examples"
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}

pytestmark = pytest.mark.slow("starts programs, each of which starts a server")


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[trio.Process]:
    async with trio.open_nursery() as nursery:
        command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
        start = partial(trio.run_process, command, env=ENVIRONMENT, stdout=subprocess.PIPE, check=False)
        process = await nursery.start(start)
        yield process
        nursery.cancel_scope.cancel()


async def test_the_wyoming_example_plays_in_the_format_of_the_service() -> None:
    speaker = Speaker()
    async with serving(speaker) as port, running("wyoming_speaker.py", "127.0.0.1", str(port)):
        await speaker.tenth_chunk.wait()
    assert speaker.kinds[:3] == ["describe", "audio-start", "audio-chunk"]
    assert speaker.events[1][1]["rate"] == 22050
    assert any(speaker.pcm), "silence"


async def test_the_xiaozhi_example_plays_when_woken_and_stops_when_interrupted() -> None:
    async with running("xiaozhi_server.py") as process:
        assert process.stdout is not None
        url = (await process.stdout.receive_some()).decode().strip()
        async with open_websocket_url(url) as socket, trio.open_nursery() as nursery:
            device = Device(socket)
            nursery.start_soon(device.run)
            await socket.send_message(HELLO)
            await device.say(type="listen", state="start", mode="auto")
            await device.heard.wait()
            await device.say(type="abort", reason="wake_word_detected")
            await device.stopped.wait()
            nursery.cancel_scope.cancel()
    assert device.states == ["start", "stop"]
