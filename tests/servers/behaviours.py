"""Behaviours of servers for a read of `[start, end)`: one correct and each known incorrect one.

A behaviour is an async function of the range; `BEHAVIOURS` names them. What only HTTP can do (a 503, a
connection cut in the middle of an answer) is in `http_faults.py`.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio
from mcp.shared.exceptions import MCPError

from tests.servers.payload import Payload

DONE = "W0RPTkVd"
"""The base64 of `[DONE]`."""

CAP_BYTES = 64 * 1024
OWN_SMALL_BYTES = 40_000
OWN_BIG_BYTES = 300_001
STALL_SECONDS = 3.0
SHUFFLE_SECONDS = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str


Answer = list[Blob | Text]


class Once:
    """True for the first asker. With a `path` the memory outlives the process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fired = False

    def __call__(self) -> bool:
        # Looked up when asked: a process that stands by was started before the first one fired.
        if self._fired or (self._path is not None and self._path.exists()):
            return False
        self._fired = True
        if self._path is not None:
            self._path.write_text("fired", encoding="ascii")
        return True


@dataclass(slots=True, kw_only=True)
class Script:
    """Shared state of the behaviours: the bytes, one-time events, and the order of events."""

    payload: Payload
    once: Once
    random: random.Random = field(default_factory=lambda: random.Random(7))
    one_at_a_time: trio.Lock = field(default_factory=trio.Lock)
    later_page_sent: trio.Event = field(default_factory=trio.Event)

    def page(self, start: int, end: int) -> Answer:
        """The right answer; an empty blob at and past the end."""
        if start >= self.payload.size_bytes:
            return [Blob(text="")]
        return [Blob(text=self.payload.base64(start, end))]


Behaviour = Callable[[Script, int, int], Awaitable[Answer]]


async def plain(script: Script, start: int, end: int) -> Answer:
    return script.page(start, end)


async def cap64k(script: Script, start: int, end: int) -> Answer:
    return script.page(start, min(end, start + CAP_BYTES))


async def split(script: Script, start: int, end: int) -> Answer:
    """A page in three blobs, the seams not at multiples of three."""
    end = min(end, max(script.payload.size_bytes, start))
    cuts = [start, start + (end - start) // 4, start + (end - start) * 2 // 3, end]
    return [Blob(text=script.payload.base64(a, b)) for a, b in itertools.pairwise(cuts) if a < b]


async def ignore_range(script: Script, start: int, end: int) -> Answer:
    """The whole, whatever was asked; in blobs, as a server would that reads its file in blocks."""
    return [Blob(text=script.payload.base64(0, script.payload.size_bytes))]


async def own_page_small(script: Script, start: int, end: int) -> Answer:
    return script.page(start, start + OWN_SMALL_BYTES)


async def own_page_big(script: Script, start: int, end: int) -> Answer:
    return script.page(start, start + OWN_BIG_BYTES)


async def end_empty_list(script: Script, start: int, end: int) -> Answer:
    return script.page(start, end) if start < script.payload.size_bytes else []


async def end_done(script: Script, start: int, end: int) -> Answer:
    return script.page(start, end) if start < script.payload.size_bytes else [Blob(text=DONE)]


async def end_416(script: Script, start: int, end: int) -> Answer:
    size = script.payload.size_bytes
    if start >= size:
        raise MCPError(-32603, f"416 Range Not Satisfiable: bytes {start}-{end - 1} of {size}")
    return script.page(start, end)


async def error_once(script: Script, start: int, end: int) -> Answer:
    """An internal error, once: reads are idempotent, so a second try may succeed."""
    if start >= script.payload.size_bytes // 2 and script.once():
        raise MCPError(-32603, "the disk is on fire")
    return script.page(start, end)


async def stall_once(script: Script, start: int, end: int) -> Answer:
    if start >= script.payload.size_bytes // 2 and script.once():
        await trio.sleep(STALL_SECONDS)
    return script.page(start, end)


async def die_once(script: Script, start: int, end: int) -> Answer:
    if start >= script.payload.size_bytes // 2 and script.once():
        os._exit(3)
    return script.page(start, end)


async def serial(script: Script, start: int, end: int) -> Answer:
    async with script.one_at_a_time:
        await trio.sleep(0.001)
        return script.page(start, end)


async def shuffle(script: Script, start: int, end: int) -> Answer:
    await trio.sleep(script.random.random() * SHUFFLE_SECONDS)
    return script.page(start, end)


async def overlap_disagree(script: Script, start: int, end: int) -> Answer:
    """The first page comes last, longer than asked, and its surplus denies what a later page said."""
    if start > 0:
        script.later_page_sent.set()
        return script.page(start, end)
    with trio.move_on_after(2):
        await script.later_page_sent.wait()
        await trio.sleep(0.1)  # the later page is on its way; it is to arrive first
    right = script.payload.slice(0, end + 4096)
    denied = bytes(byte ^ 0xFF for byte in right[end:])
    return [Blob(text=base64.b64encode(right[:end] + denied).decode("ascii"))]


async def bad_base64(script: Script, start: int, end: int) -> Answer:
    text = script.payload.base64(start, end)
    if start < script.payload.size_bytes // 2 <= end:
        text = text[: len(text) // 2] + "*" + text[len(text) // 2 + 1 :]
    return [Blob(text=text)]


async def text_for_bytes(script: Script, start: int, end: int) -> Answer:
    return [Text(text="Sorry, the song is not available today.")]


async def endless(script: Script, start: int, end: int) -> Answer:
    low = start % script.payload.size_bytes
    high = min(low + end - start, script.payload.size_bytes)
    return [Blob(text=script.payload.base64(low, high))]


BEHAVIOURS: dict[str, Behaviour] = {
    "plain": plain,
    "cap64k": cap64k,
    "split": split,
    "ignore-range": ignore_range,
    "own-page-small": own_page_small,
    "own-page-big": own_page_big,
    "end-empty-list": end_empty_list,
    "end-done": end_done,
    "end-416": end_416,
    "error-once": error_once,
    "stall-once": stall_once,
    "die-once": die_once,
    "serial": serial,
    "shuffle": shuffle,
    "overlap-disagree": overlap_disagree,
    "bad-base64": bad_base64,
    "text-for-bytes": text_for_bytes,
    "endless": endless,
}
