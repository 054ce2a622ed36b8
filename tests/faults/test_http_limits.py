"""Answers over HTTP that are larger or deeper than allowed: cut as they arrive, and one request fails."""

from __future__ import annotations

import pytest

from playhead.client import connect
from playhead.errors import LimitError
from playhead.limits import Limits
from tests.faults.test_http_faults import first_then_pages, read
from tests.servers.raw_http import Exchange, Handler, raw_http

SMALL = Limits(message_bytes=100_000)


async def big_json(exchange: Exchange) -> None:
    await exchange.result({"contents": [{"uri": "x:", "blob": "A" * 200_000}]})


async def big_unannounced(exchange: Exchange) -> None:
    await exchange.raw(
        b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    while True:
        await exchange.raw(b"2710\r\n" + b" " * 10_000 + b"\r\n")


async def big_event(exchange: Exchange) -> None:
    await exchange.raw(
        b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        b"6\r\ndata: \r\n"
    )
    while True:
        await exchange.raw(b"2710\r\n" + b"x" * 10_000 + b"\r\n")


@pytest.mark.filterwarnings(
    # The HTTP libraries chain generators, and closing the outer leaves the inner to trio's collector.
    "ignore:Async generator 'httpcore2:ResourceWarning",
    "ignore:Async generator 'httpx2:ResourceWarning",
)
@pytest.mark.parametrize("flood", [big_json, big_unannounced, big_event], ids=lambda value: value.__name__)
async def test_an_answer_past_the_limit_is_cut_while_it_arrives(flood: Handler) -> None:
    async with raw_http(first_then_pages(flood)) as server, connect(server.url, limits=SMALL) as session:
        with pytest.raises(LimitError) as caught:
            await read(session)
        assert caught.value.limit == "message_bytes"
        assert await read(session) == ("eHh4",)


async def test_a_result_that_nests_too_deep_is_refused() -> None:
    async def nest(exchange: Exchange) -> None:
        result: dict[str, object] = {"contents": []}
        for _ in range(150):
            result = {"contents": [], "more": result}
        await exchange.result(result)

    async with raw_http(first_then_pages(nest)) as server, connect(server.url) as session:
        with pytest.raises(LimitError) as caught:
            await read(session)
        assert caught.value.limit == "json_depth"
        assert await read(session) == ("eHh4",)
