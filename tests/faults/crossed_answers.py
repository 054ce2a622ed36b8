"""Answers mixed up, the same way for each seed: `python -I crossed_answers.py` serves them over stdio.

    for stream transports   Mixer.replies(read) → the messages in place of an answer
    for one HTTP body       Mixer.body(read) → the message

The resource `crossed:SEED` has `truth(SEED)`. An even seed is gentle: every request gets its own answer too,
whatever is wrong before and after it. An odd seed lets some requests go without. Standard library only.
"""

from __future__ import annotations

import base64
import json
import os
import random
import select
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HELD_SECONDS = 0.02
"""Time for which an answer waits for another request, to cross with it."""
SILENT_TRIES = 2
"""Reads of one range that may go without an answer."""


Play = Callable[[], list[bytes]]


@dataclass(frozen=True)
class Read:
    id: int
    seed: int
    start: int
    end: int

    @classmethod
    def of(cls, message: dict[str, Any]) -> Read:
        params = message["params"]
        asked = params["arguments"]
        return cls(message["id"], int(params["uri"].removeprefix("crossed:")), asked["start"], asked["end"])


def truth(seed: int) -> bytes:
    dice = random.Random(seed)
    return dice.randbytes(dice.randrange(1, 400_000))


def answer(id: object, blob: bytes, more: str = "") -> bytes:
    """An answer with its id written as JSON, or as `id` says if it is a string that begins with `=`."""
    written = id[1:] if isinstance(id, str) and id.startswith("=") else json.dumps(id)
    text = base64.b64encode(blob).decode()
    contents = f'"contents":[{{"uri":"x:","blob":"{text}"}}]'
    return f'{{"jsonrpc":"2.0","id":{written},"result":{{{contents}{more}}}}}'.encode()


def error(id: object, code: int) -> bytes:
    body = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "mixed up"}}
    return json.dumps(body).encode()


@dataclass
class Mixer:
    """Decides what is sent in place of each answer, and counts it."""

    played: Counter[str] = field(default_factory=Counter)
    gone: list[int] = field(default_factory=list)
    """The ids of the reads that are answered."""
    silent: set[int] = field(default_factory=set)
    """The ids of the reads that go without an answer."""
    silences: Counter[tuple[int, int]] = field(default_factory=Counter)
    reads: int = 0

    def right(self, read: Read, id: object = None) -> bytes:
        return answer(read.id if id is None else id, truth(read.seed)[read.start : read.end])

    def wrong(self, read: Read, id: object) -> bytes:
        """A lookalike of an answer to the read, with as many bytes, none of them right."""
        right = truth(read.seed)[read.start : read.end]
        return answer(id, bytes(byte ^ 0x5A for byte in right) or b"more")

    def dice(self, read: Read) -> random.Random:
        self.reads += 1
        return random.Random(f"{read.seed} {read.start} {self.silences[read.seed, read.start]}")

    def may_be_silent(self, read: Read, dice: random.Random) -> bool:
        key = (read.seed, read.start)
        if read.seed % 2 == 0 or self.silences[key] >= SILENT_TRIES or dice.random() < 0.7:
            return False
        self.silences[key] += 1
        self.silent.add(read.id)
        return True

    def sent(self, id: int) -> None:
        """The replies to a read were sent."""
        if id not in self.silent:
            self.gone.append(id)

    def play(self, name: str, *messages: bytes) -> list[bytes]:
        self.played[name] += 1
        return list(messages)

    def replies(self, read: Read, *, is_whole: bool = True) -> list[bytes]:
        """The messages of a stream. With `is_whole` false the stream may end without the answer."""
        dice = self.dice(read)
        if self.may_be_silent(read, dice):
            silent: list[Play] = [
                lambda: self.play("foreign only", self.wrong(read, read.id + 100_000)),
                lambda: self.play("spoilt", self.right(read)[:-9] + b'"a":NaN}}'),
                lambda: self.play("error", error(read.id, -32603)),
            ]
            if not is_whole:
                silent.append(lambda: self.play("null", error(None, -32603)))
                silent.append(lambda: self.play("nothing"))
            return dice.choice(silent)()
        gentle: list[Play] = [
            lambda: self.play("honest", self.right(read)),
            lambda: self.play("foreign first", self.wrong(read, read.id + 100_000), self.right(read)),
            lambda: self.play("unlike an id", *(self.wrong(read, id) for id in ODD_IDS), self.right(read)),
            lambda: self.play(
                "twice", self.right(read), self.wrong(read, read.id), self.wrong(read, read.id)
            ),
            lambda: self.play("string", self.right(read, str(read.id)), self.wrong(read, read.id)),
            lambda: self.play("7.0", self.right(read, f"={read.id}.0"), self.wrong(read, read.id)),
            lambda: self.play("70e-1", self.right(read, f"={read.id}0e-1"), self.wrong(read, read.id)),
            lambda: self.play("half", self.wrong(read, read.id + 0.5), self.right(read)),
            lambda: self.play("two ids", self._with_two_ids(read), self.right(read)),
            lambda: self.play("decoys", self._with_decoys(read)),
            lambda: self.play("bad notes", *BAD_NOTES, self.right(read)),
        ]
        if self.gone:
            old = dice.choice(self.gone[-50:])
            gentle.append(lambda: self.play("late", self.wrong(read, old), self.right(read)))
        if is_whole:
            gentle.append(lambda: self.play("null first", error(None, -32000), self.right(read)))
        return dice.choice(gentle)()

    def body(self, read: Read) -> bytes:
        """One JSON body."""
        dice = self.dice(read)
        plays: list[Play]
        if self.may_be_silent(read, dice):
            plays = [
                lambda: self.play("foreign body", self.wrong(read, read.id + 100_000)),
                lambda: self.play("null body", error(None, -32603)),
                lambda: self.play("odd body", self.wrong(read, None)),
                lambda: self.play("spoilt body", self.right(read)[:-9] + b'"a":NaN}}'),
                lambda: self.play("note for a body", BAD_NOTES[0]),
            ]
        else:
            plays = [
                lambda: self.play("body", self.right(read)),
                lambda: self.play("string body", self.right(read, str(read.id))),
                lambda: self.play("7.0 body", self.right(read, f"={read.id}.0")),
                lambda: self.play("decoys in the body", self._with_decoys(read)),
            ]
        (message,) = dice.choice(plays)()
        return message

    def _with_two_ids(self, read: Read) -> bytes:
        """Ends with a foreign id, and begins with the read's: the last of two members counts."""
        return self.wrong(read, read.id)[:-1] + b',"id":%d}' % (read.id + 100_000)

    def _with_decoys(self, read: Read) -> bytes:
        """The read's own id last, and others within."""
        result = json.loads(self.right(read))["result"]
        result["_meta"] = {"id": read.id + 1, "result": {"contents": []}}
        members = {"result": {"id": read.id + 2, **result}, "jsonrpc": "2.0", "id": read.id}
        return json.dumps(members).encode()


ODD_IDS = (None, True, [7], {"id": 7}, "", "listen-1", -1, 0, "9" * 5000, 10**30)
BAD_NOTES = tuple(
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}' % data
    for data in (rb'"\ud800"', b"NaN", b"1e999", b'"id":7')
)


# --- over stdio ------------------------------------------------------------------------------------------


def handshake(message: dict[str, Any]) -> bytes | None:
    """The answer to anything but a read; None if there is none."""
    if "id" not in message:
        return None
    if message["method"] != "initialize":
        body = {"error": {"code": -32601, "message": "no"}}
    else:
        info = {"name": "mixed up", "version": "1"}
        body = {
            "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"resources": {}},
                "serverInfo": info,
            }
        }
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode()


def serve() -> None:
    mixer, held, unread = Mixer(), list[tuple[int | None, list[bytes]]](), b""
    while True:
        if not select.select([0], [], [], HELD_SECONDS if held else None)[0] or len(held) > 3:
            while held:  # the last one first
                id, messages = held.pop()
                for message in messages:
                    sys.stdout.buffer.write(b" " * (len(message) % 3) + message + b"\n")
                if id is not None:
                    mixer.sent(id)
            sys.stdout.buffer.flush()
            continue
        chunk = os.read(0, 65_536)
        if not chunk:
            return
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message.get("method") == "resources/read":
                held.append((message["id"], mixer.replies(Read.of(message))))
            elif (reply := handshake(message)) is not None:
                held.append((None, [reply]))


if __name__ == "__main__":
    serve()
