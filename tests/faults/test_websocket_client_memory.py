"""Hostile WebSocket servers: what they make a client hold, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from wsproto import WSConnection
from wsproto.events import TextMessage

from tests.servers.websocket_peer import frame, raw_websocket

pytestmark = pytest.mark.slow("a client process for each row, flooded until a limit or a deadline stops it")

PEAK_BYTES = 400_000_000
MIB = 1 << 20
ROOT = Path(__file__).parents[2]

CLIENT = """
import sys, trio, playhead
from tests.faults.hostile_client import peak_bytes

async def main():
    limits = playhead.Limits(page_seconds=1.0, page_total_seconds=2.0)
    async with playhead.connect(sys.argv[1], limits=limits, mode="legacy") as session:
        try:
            page = await session.read_resource("hostile://it")
            print("ok", sum(map(len, page.blobs)))
        except playhead.errors.PlayheadError as error:
            print(type(error).__name__, getattr(error, "limit", ""))

trio.run(main)
print(peak_bytes())
"""


def begin(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{"contents":[{"uri":"hostile://it","blob":"' % number


def endless_answer(number: int) -> Iterator[bytes]:
    yield frame(begin(number), final=False)
    while True:
        yield frame(b"A" * MIB, first=False, final=False)


def answer_at_the_limit(number: int) -> Iterator[bytes]:
    yield frame(begin(number), final=False)
    for _ in range(63):
        yield frame(b"A" * MIB, first=False, final=False)
    yield frame(b'"}]}}', first=False)


def answer_that_is_four_times_as_long_in_memory(number: int) -> Iterator[bytes]:
    yield frame(begin(number) + "\U0001f600".encode(), final=False)
    for _ in range(63):
        yield frame(b"A" * MIB, first=False, final=False)
    yield frame(b'"}]}}', first=False)


def frames_that_are_no_message(number: int) -> Iterator[bytes]:
    while True:
        yield frame(b"INFO still working on it") * 10_000


def pings(number: int) -> Iterator[bytes]:
    while True:
        yield frame(b"ping", opcode=9) * 10_000


ROWS = {
    endless_answer: "LimitError message_bytes",
    answer_at_the_limit: f"ok {63 * MIB}",
    answer_that_is_four_times_as_long_in_memory: "LimitError message_bytes",
    frames_that_are_no_message: "DeadlineError",
    pings: "DeadlineError",
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
async def test_a_hostile_server_costs_a_client_bounded_memory(row: Any) -> None:
    async def talk(stream: trio.SocketStream, connection: WSConnection) -> None:
        text = ""
        while True:
            data = bytes(await stream.receive_some())
            if not data:
                break
            connection.receive_data(data)
            for event in connection.events():
                if not isinstance(event, TextMessage):
                    continue
                text += event.data
                if not event.message_finished:
                    continue
                asked, text = json.loads(text), ""
                if asked["method"] == "initialize":
                    info = {"name": "hostile", "version": "1"}
                    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
                    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
                    await stream.send_all(frame(json.dumps(answer).encode()))
                elif asked["method"] == "resources/read":
                    await flood(stream, asked["id"])

    async def flood(stream: trio.SocketStream, number: int) -> None:
        try:
            for data in row(number):
                await stream.send_all(data)
            await trio.sleep_forever()
        except trio.BrokenResourceError:
            await trio.sleep_forever()

    with trio.fail_after(90):
        async with raw_websocket(talk) as url:
            done = await trio.run_process(
                [sys.executable, "-c", CLIENT, url],
                cwd=ROOT,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
    said, peak = done.stdout.decode().rsplit("\n", 2)[:2]
    assert ROWS[row] in said
    assert int(peak) < PEAK_BYTES
