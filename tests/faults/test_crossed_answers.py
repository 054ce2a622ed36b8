"""Answers that are crossed, foreign, repeated, or named in another way: no stream has a byte of another.

What is sent in place of each answer is in `crossed_answers.py`. Streams are read several at once, to files
that are compared by their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
import trio
from trio.testing import MockClock
from trio_websocket import WebSocketConnection, WebSocketRequest

from playhead.client import Session, connect
from playhead.errors import PlayheadError
from playhead.protocol.faults import ProtocolFaults
from playhead.stream.options import StreamOptions
from tests.faults import crossed_answers
from tests.faults.crossed_answers import HELD_SECONDS, Mixer, Read, handshake, truth
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.websocket_peer import listening

TOGETHER = 5
"""Streams at once on a session: their requests are crossed with each other, too."""
HANG_SECONDS = 300.0
Peer = Callable[[Mixer], AbstractAsyncContextManager[Session]]


# --- the peers -------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_stdio(mixer: Mixer) -> AsyncIterator[Session]:
    async with connect([sys.executable, "-I", crossed_answers.__file__]) as session:
        yield session


@asynccontextmanager
async def over_websocket(mixer: Mixer) -> AsyncIterator[Session]:
    async def handle(request: WebSocketRequest) -> None:
        socket: WebSocketConnection = await request.accept(subprotocol="mcp")
        held: list[tuple[int | None, list[bytes]]] = []
        while True:
            message = None
            with trio.move_on_after(HELD_SECONDS if held else float("inf")):
                message = json.loads(await socket.get_message())
            if message is None or len(held) > 3:
                while held:
                    id, replies = held.pop()
                    for reply in replies:
                        await socket.send_message(reply.decode())
                    if id is not None:
                        mixer.sent(id)
            if message is None:
                continue
            if message["method"] == "resources/read":
                held.append((message["id"], mixer.replies(Read.of(message))))
            elif (other := handshake(message)) is not None:
                held.append((None, [other]))

    async with listening(handle) as url, connect(url.replace("localhost", "127.0.0.1")) as session:
        yield session  # a name would be looked up in a thread


class HttpPeer:
    """Answers reads in JSON bodies, or in streams of events; some cross, some streams have to be resumed."""

    def __init__(self, mixer: Mixer, form: Literal["json", "sse"]) -> None:
        self.mixer = mixer
        self.form = form
        self._parked: list[tuple[Read, trio.Event, list[Read]]] = []
        self._cut: dict[str, Read] = {}

    async def greet(self, exchange: Exchange) -> bool:
        if exchange.verb == "GET" and "last-event-id" in exchange.headers:
            return False
        if exchange.verb != "POST":
            await exchange.body(b"", status=405)
        elif exchange.method == "resources/read":
            return False
        elif (reply := handshake(exchange.message)) is not None:
            await exchange.body(reply)
        else:
            await exchange.body(b"", status=202)
        return True

    async def handle(self, exchange: Exchange) -> None:
        if exchange.verb == "GET":
            await self._resume(exchange, self._cut[exchange.headers["last-event-id"]])
            return
        read = Read.of(exchange.message)
        dice = self.mixer.dice(read)
        match dice.choice(["alone", "crossed", "cut"]):
            case "crossed":
                await self._cross(exchange, read, dice)
            case "cut" if self.form == "sse":
                token = f"{read.seed}-{read.id}"
                self._cut[token] = read
                await self._events(exchange, [], b"id: %s\nretry: 10\ndata:\n\n" % token.encode())
            case _:
                await self._alone(exchange, read)

    async def _alone(self, exchange: Exchange, read: Read) -> None:
        if self.form == "json":
            await exchange.body(self.mixer.body(read))
        else:
            await self._events(exchange, self.mixer.replies(read, is_whole=False))

    async def _cross(self, exchange: Exchange, read: Read, dice: random.Random) -> None:
        """Answer with the answer to another request that is in flight; a gentle seed's events go on."""
        if self._parked:
            other, event, theirs = self._parked.pop()
            theirs.append(read)
            event.set()
        else:
            event, mine = trio.Event(), list[Read]()
            self._parked.append((read, event, mine))
            with trio.move_on_after(HELD_SECONDS):
                await event.wait()
            if not mine:
                self._parked = [each for each in self._parked if each[1] is not event]
                await self._alone(exchange, read)
                return
            (other,) = mine
        is_silent = self.mixer.may_be_silent(read, dice)
        if self.form == "json":
            if is_silent:
                await exchange.body(*self.mixer.play("crossed", self.mixer.right(other)))
            else:
                await self._alone(exchange, read)
            return
        replies = self.mixer.play("crossed", self.mixer.right(other))
        if not is_silent:
            replies += self.mixer.replies(read, is_whole=False)
        await self._events(exchange, replies)

    async def _resume(self, exchange: Exchange, read: Read) -> None:
        dice = self.mixer.dice(read)
        others = [other for other in self._cut.values() if other.id != read.id]
        lie = self.mixer.right(dice.choice(others)) if others else self.mixer.wrong(read, read.id + 100_000)
        replies = self.mixer.play("lying resumption", lie)
        if not self.mixer.may_be_silent(read, dice):
            replies += self.mixer.replies(read, is_whole=False)
        await self._events(exchange, replies)

    async def _events(self, exchange: Exchange, replies: list[bytes], head: bytes = b"") -> None:
        body = head + b"".join(b"data: %s\n\n" % reply for reply in replies)
        await exchange.body(body, kind="text/event-stream")
        if replies and "id" in exchange.message:
            self.mixer.sent(exchange.message["id"])


@asynccontextmanager
async def over_http(form: Literal["json", "sse"], mixer: Mixer) -> AsyncIterator[Session]:
    peer = HttpPeer(mixer, form)
    async with raw_http(peer.handle) as server:
        server.greet = peer.greet
        async with connect(server.url) as session:
            yield session


# --- the reads -------------------------------------------------------------------------------------------


async def save(session: Session, seed: int, path: Path) -> str:
    """Read a resource to a file; the outcome by name.

    An odd seed may get no answer at all, so it gives up soon.
    """
    dice = random.Random(f"options {seed}")
    options = StreamOptions(
        strategy="arguments",
        page_bytes=dice.choice([10_000, 40_000]),
        in_flight=dice.choice([1, 3, 8]),
        timeout=1.0,
        patience_seconds=5.0 if seed % 2 else 20.0,
    )
    try:
        async with session.open(f"crossed:{seed}", options=options) as stream:
            await stream.save(path)
    except PlayheadError as error:
        outcome = f"{type(error).__name__}: {error}"
    else:
        outcome = "exact"
    file = trio.Path(path)
    if outcome != "exact":
        return "A FILE WAS LEFT BEHIND" if await file.exists() else outcome
    saved, expected = hashlib.sha256(await file.read_bytes()), hashlib.sha256(truth(seed))
    return "exact" if saved.digest() == expected.digest() else "WRONG BYTES"


async def outcomes(
    peer: Peer, seeds: Iterable[int], directory: Path
) -> tuple[dict[int, str], Counter[str], ProtocolFaults]:
    """The outcome of each seed, the counts of what was played, and the faults that were counted.

    All sessions run at once: most of their time is waiting for answers that do not come.
    """
    found: dict[int, str] = {}
    played, faults = Counter[str](), ProtocolFaults()

    async def one(session: Session, seed: int) -> None:
        found[seed] = await save(session, seed, directory / str(seed))

    async def read(together: Iterable[int]) -> None:
        nonlocal faults
        mixer = Mixer()
        with trio.fail_after(HANG_SECONDS):
            async with peer(mixer) as session:
                async with trio.open_nursery() as nursery:
                    for seed in together:
                        nursery.start_soon(one, session, seed)
                faults += session.protocol_faults()
        played.update(mixer.played)

    async with trio.open_nursery() as nursery:
        waiting = list(seeds)
        for at in range(0, len(waiting), TOGETHER):
            nursery.start_soon(read, waiting[at : at + TOGETHER])
    return found, played, faults


def wrong_of(found: dict[int, str]) -> list[str]:
    """An even seed gets every answer, so it is read whole; an odd one may end with a typed error."""
    return [
        f"seed {seed}: {outcome}"
        for seed, outcome in found.items()
        if outcome != "exact" and (seed % 2 == 0 or outcome.isupper())
    ]


def check_counted(faults: ProtocolFaults) -> None:
    assert faults.not_messages
    assert faults.unasked
    assert faults.retyped


PEERS: dict[str, Peer] = {
    "websocket": over_websocket,
    "json": partial(over_http, "json"),
    "sse": partial(over_http, "sse"),
}
PLAYED = {
    "websocket": {
        "foreign first",
        "unlike an id",
        "twice",
        "string",
        "7.0",
        "70e-1",
        "half",
        "two ids",
        "late",
    },
    "json": {"crossed", "foreign body", "null body", "odd body", "spoilt body", "string body", "7.0 body"},
    "sse": {"crossed", "lying resumption", "foreign first", "twice", "null", "nothing", "decoys", "late"},
}
SEEDS = pytest.mark.parametrize(
    "seeds",
    [range(10), pytest.param(range(10, 210), marks=pytest.mark.slow("reads 200 files"))],
    ids=["10 seeds", "200 seeds"],
)


@SEEDS
async def test_over_stdio_no_stream_has_a_byte_of_another_answer(seeds: range, tmp_path: Path) -> None:
    found, _, faults = await outcomes(over_stdio, seeds, tmp_path)
    assert wrong_of(found) == []
    check_counted(faults)


@SEEDS
@pytest.mark.parametrize("transport", PEERS)
async def test_no_stream_has_a_byte_of_another_answer(
    transport: str, seeds: range, tmp_path: Path, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.01
    found, played, faults = await outcomes(PEERS[transport], seeds, tmp_path)
    assert wrong_of(found) == []
    check_counted(faults)
    if len(seeds) == 200:
        assert played.keys() >= PLAYED[transport]
