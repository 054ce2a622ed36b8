"""Helpers for tests of `playhead chat`: a model on loopback, servers in a file, and a person who types."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.e2e.command import (
    AUDIO_SERVER,
    Outcome,
    playhead,
    playhead_process,
)
from tests.e2e.typist import Typist, at_keyboard
from tests.servers.household import HOUSEHOLD_COMMAND
from tests.servers.scripted_http import Answer, Answering, Asked, scripted_http, sse
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


def tagged(name: str, arguments: Json) -> str:
    """A call as a model without function calling writes it."""
    return f"<tool_use><name>{name}</name><arguments>{json.dumps(arguments)}</arguments></tool_use>"


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


@asynccontextmanager
async def conversation(
    *replies: Answer, cwd: Path, provider: str = "openai"
) -> AsyncIterator[tuple[Typist, list[Asked]]]:
    """A person at the prompt of `playhead chat`, whose model answers with `replies`; what it was asked.

    The end of the block types `/quit`, unless the process has ended.
    """
    async with (
        scripted_http(*replies) as (url, asked),
        typing(*model_words(url, provider=provider), "--sink", "null", cwd=cwd) as person,
    ):
        await person.see("> ")
        yield person, asked
        if person.exit_code is None:
            person.type("/quit")
            assert await person.end() == 0


def typing(*words: str | Path, cwd: Path) -> AbstractAsyncContextManager[Typist]:
    """`playhead chat` at a terminal."""
    return at_keyboard("chat", "--trust", *words, cwd=cwd)
