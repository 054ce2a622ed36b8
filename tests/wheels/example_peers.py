"""Peers of the programs of examples/, each of which runs in an environment against its own."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from trio_websocket import open_websocket_url

from playhead.concurrency import unwrap_exception_group
from tests.servers.loopback import tcp_server
from tests.unit.adapters.test_wyoming import Speaker
from tests.unit.adapters.test_xiaozhi import Device, hello_of
from tests.wheels.environments import HANG_SECONDS, Environment

SAID = """\
playhead-template speaks 2024-11-05
tools: calculator, web_search, document_analyzer, knowledge_graph
2 + 3 * 4 = 14
1. Sampling theorem
"""


def template_client(environment: Environment, program: Path) -> None:
    with environment.serving("playhead serve template --port 0") as url:
        said = environment.finish(environment.python, "-I", "-W", "error", str(program), url)
    assert said.startswith(SAID), said


def compose_music(environment: Environment, program: Path) -> None:
    environment.finish(environment.python, "-I", str(program), "music")
    assert len(list((environment.home / "music").iterdir())) == 4


def wyoming_speaker(environment: Environment, program: Path) -> None:
    trio.run(a_satellite_hears_music, environment, program)


async def a_satellite_hears_music(environment: Environment, program: Path) -> None:
    speaker = Speaker()
    async with tcp_server(speaker.serve) as port, running(environment, program, "127.0.0.1", str(port)):
        with trio.fail_after(HANG_SECONDS):
            await speaker.tenth_chunk.wait()
    assert speaker.kinds[:3] == ["describe", "audio-start", "audio-chunk"]
    assert speaker.events[1][1]["rate"] == 22050
    assert any(speaker.pcm), "silence"


def xiaozhi_server(environment: Environment, program: Path) -> None:
    trio.run(a_device_is_woken_and_interrupted, environment, program)


async def a_device_is_woken_and_interrupted(environment: Environment, program: Path) -> None:
    with trio.fail_after(HANG_SECONDS):
        async with running(environment, program) as process:
            assert process.stdout is not None
            url = (await process.stdout.receive_some()).decode().strip()
            assert url, "the server ended"
            async with open_websocket_url(url) as socket, trio.open_nursery() as nursery:
                device = Device(socket, version=3)
                nursery.start_soon(device.run)
                await socket.send_message(hello_of(device.version))
                await device.say(type="listen", state="start", mode="auto")
                await device.heard.wait()
                await device.say(type="abort", reason="wake_word_detected")
                await device.stopped.wait()
                nursery.cancel_scope.cancel()
    assert device.states == ["start", "stop"]


@asynccontextmanager
async def running(environment: Environment, program: Path, *arguments: str) -> AsyncIterator[trio.Process]:
    """Run a program until the context is left. If it ends by itself, that is a failure with its stderr."""
    errors = environment.home / "stderr.txt"

    async def watch(process: trio.Process) -> None:
        code = await process.wait()
        raise AssertionError(f"{program.name}\nexit code {code}\n{errors.read_text('utf-8')}")

    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            with errors.open("wb") as stderr:
                process = await trio.lowlevel.open_process(
                    [environment.python, "-I", str(program), *arguments],
                    cwd=environment.home,
                    env=environment.variables,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                )
            nursery.start_soon(watch, process)
            try:
                yield process
                nursery.cancel_scope.cancel()
            finally:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()


PEERS: Final[Mapping[str, Callable[[Environment, Path], None]]] = {
    f"{run.__name__}.py": run for run in (compose_music, template_client, wyoming_speaker, xiaozhi_server)
}
