"""When bytes of a stream's answers arrived: what stops its patience."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from playhead.client import connect
from playhead.client.session.arrivals import Arrivals
from playhead.stream.reader import open_forms
from playhead.stream.strategies import ResourceRequest
from tests.servers.raw_http import Exchange, raw_http

PAGE = {"contents": [{"uri": "x:", "blob": "eHh4"}]}


def test_the_newest_byte_of_every_read_counts() -> None:
    arrivals = Arrivals()
    assert arrivals.last_received() == 0.0
    arrivals.note(2.0)
    arrivals.note(1.0)  # of an answer that it shares from now on
    assert arrivals.last_received() == 2.0


async def test_over_http_only_the_bytes_of_this_answer_count(mock_clock: MockClock) -> None:
    go_on = trio.Event()

    async def handle(exchange: Exchange) -> None:
        if exchange.message["params"]["uri"] == "x:other":
            await exchange.result(PAGE)
            return
        await exchange.raw(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n")
        await exchange.raw(b" " * 100)
        await go_on.wait()
        answer = b'{"jsonrpc":"2.0","id":%d,"result":{"contents":[]}}' % exchange.message["id"]
        await exchange.raw(answer + b" " * (999 - 100 - len(answer)))

    async with raw_http(handle) as server, connect(server.url) as connected:
        arrivals = Arrivals()
        mock_clock.jump(100)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                await connected.read_range(ResourceRequest(uri="x:"), arrivals=arrivals)

            nursery.start_soon(read)
            while arrivals.last_received() < began:
                await wait_all_tasks_blocked(0.01)
            assert arrivals.last_received() == began
            mock_clock.jump(5)  # after ten seconds of silence the read would be sent once more
            await connected.read_resource("x:other")
            assert arrivals.last_received() == began
            go_on.set()
        assert arrivals.last_received() == began + 5


async def test_a_stream_receives_only_its_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Callable[[], float]] = []

    def spy(*args: Any, **options: Any) -> Any:
        told.append(options["last_received"])
        return open_forms(*args, **options)

    monkeypatch.setattr("playhead.client.session.session.open_forms", spy)

    async def handle(exchange: Exchange) -> None:
        await exchange.result(PAGE)

    async with raw_http(handle) as server, connect(server.url) as connected:
        began = trio.current_time()
        async with connected.open("x:") as stream:
            assert await stream.read_all() == b"xxx"
            assert told[0]() >= began
