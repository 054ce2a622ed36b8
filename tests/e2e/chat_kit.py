"""Helpers for tests of `playhead chat`: a model on loopback, servers in a file, and a person who types."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.e2e.command import (
    AUDIO_SERVER,
    HANG_SECONDS,
    Outcome,
    environment,
    playhead,
    playhead_process,
)
from tests.e2e.forked import Forked
from tests.servers.household import HOUSEHOLD_COMMAND
from tests.servers.scripted_http import Answer, Answering, sse
from tests.servers.shared import SharedServers

Json = dict[str, Any]


def chunk(delta: Json, finish: str | None = None) -> Json:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "tiny",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


USAGE: Json = {
    **chunk({}),
    "choices": [],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}


def says(*texts: str) -> Answer:
    """A reply of text, in these pieces."""

    async def answer(answering: Answering) -> None:
        pieces = [chunk({"content": text}) for text in texts]
        await answering.events([*pieces, chunk({}, "stop"), USAGE])

    return answer


def calls(*wanted: tuple[str, Json], text: str = "") -> Answer:
    """A reply that asks for these calls."""

    async def answer(answering: Answering) -> None:
        deltas = [
            {
                "index": index,
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(wanted)
        ]
        pieces = [chunk({"content": text})] if text else []
        pieces += [chunk({"tool_calls": [delta]}) for delta in deltas]
        await answering.events([*pieces, chunk({}, "tool_calls"), USAGE])

    return answer


class Stuck:
    """A reply that begins with `text` and never ends. `left`: the client went away."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.left = trio.Event()

    async def __call__(self, answering: Answering) -> None:
        await answering.begin()
        await answering.send(sse(chunk({"content": self.text})))
        await answering.hung_up.wait()
        self.left.set()


def servers_file(folder: Path, shared: SharedServers | None = None, **more: Json) -> Path:
    """`music` (the example), `home` (household.py) and `more`: the shared ones, or processes that can ask."""
    if shared is None:
        music, home = shlex.split(AUDIO_SERVER), HOUSEHOLD_COMMAND
        legacy = {"playhead": {"mode": "legacy"}}
        servers: Json = {
            "music": {"command": music[0], "args": music[1:]},
            "home": {"command": home[0], "args": list(home[1:]), **legacy},
        }
    else:
        servers = {"music": {"url": shared.audio}, "home": {"url": shared.home}}
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers | more}))
    return path


def model_words(url: str, *, provider: str = "openai") -> list[str]:
    return ["--provider", provider, "--model", "tiny", "--base-url", f"{url}/v1"]


async def chat(
    *words: str | Path, cwd: Path, stdin: bytes = b"", env: dict[str, str] | None = None
) -> Outcome:
    """Run `playhead chat` to its end without a terminal, beside the model of the test."""
    command = partial(playhead, "chat", "--trust", *words, cwd=cwd, stdin=stdin, **(env or {}))
    return await trio.to_thread.run_sync(command)


async def chat_process(*words: str | Path, cwd: Path) -> Outcome:
    """The same as a process."""
    return await trio.to_thread.run_sync(partial(playhead_process, "chat", "--trust", *words, cwd=cwd))


class Typist:
    """A person at a terminal of 80 columns."""

    def __init__(self, master: int, process: Forked) -> None:
        self._master = master
        self._process = process
        self._read = b""
        self._seen = 0

    @property
    def screen(self) -> str:
        """All that was printed so far."""
        return self._read.decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def type(self, line: str) -> None:
        self.press(line + "\n")

    async def see(self, text: str) -> str:
        """Wait until `text` is printed after what was seen before; what came until then."""
        wanted = text.encode()
        with trio.move_on_after(HANG_SECONDS) as scope:
            while (at := self._read.find(wanted, self._seen)) < 0:
                assert await self._more(), f"{text!r} never came; the screen: {self.screen}"
            came = self._read[self._seen : at]
            self._seen = at + len(wanted)
            return came.decode("utf-8", "replace")
        assert not scope.cancelled_caught, f"{text!r} did not come; the screen: {self.screen}"
        raise AssertionError

    async def end(self) -> int:
        """Wait for the process to end; its exit code."""
        with trio.fail_after(HANG_SECONDS):
            while await self._more():
                pass
            code = await trio.to_thread.run_sync(self._process.wait)
        assert "Traceback" not in self.screen, self.screen
        assert "internal error" not in self.screen, self.screen
        return code

    async def _more(self) -> bool:
        await trio.lowlevel.wait_readable(self._master)
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # EIO: nobody has the other end open any more
            return False
        self._read += data
        return bool(data)


@asynccontextmanager
async def typing(*words: str | Path, cwd: Path) -> AsyncIterator[Typist]:
    """`playhead chat` at a terminal. Killed if it still runs at the end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        command = ["chat", "--trust", *map(str, words)]
        process = Forked(command, environment=environment(), cwd=cwd, terminal=slave)
        os.close(slave)
        try:
            yield Typist(master, process)
        finally:
            process.kill()
            process.wait(HANG_SECONDS)
    finally:
        os.close(master)
