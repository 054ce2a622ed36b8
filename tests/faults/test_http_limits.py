"""Answers over HTTP that are larger or deeper than allowed: cut as they arrive, and one request fails."""

from __future__ import annotations

import pytest

from playhead.client import connect
from playhead.errors import LimitError
from playhead.limits import Limits
from tests.faults.test_http_faults import first_then_pages, read
from tests.servers.raw_http import Exchange, Handler, raw_http

SMALL = Limits(message_bytes=100_000, json_values=10_000)


async def big_json(exchange: Exchange) -> None:
    await exchange.result({"contents": [{"uri": "x:", "blob": "A" * 200_000}]})


async def big_unannounced(exchange: Exchange) -> None:
    await exchange.begin("application/json")
    while True:
        await exchange.chunk(b" " * 10_000)


async def big_event(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.chunk(b"data: ")
    while True:
        await exchange.chunk(b"x" * 10_000)


async def nested(exchange: Exchange) -> None:
    result: dict[str, object] = {"contents": []}
    for _ in range(150):
        result = {"contents": [], "more": result}
    await exchange.result(result)


async def nested_and_nameless(exchange: Exchange) -> None:
    await exchange.body(b"[" * 200 + b"]" * 200)


async def many_values(exchange: Exchange) -> None:
    await exchange.result({"contents": [[]] * 20_000})


@pytest.mark.parametrize(
    ("answer", "limit"),
    [
        (big_json, "message_bytes"),
        (big_unannounced, "message_bytes"),
        (big_event, "message_bytes"),
        (nested, "json_depth"),
        (nested_and_nameless, "json_depth"),
        (many_values, "json_values"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
async def test_an_answer_past_a_limit_fails_its_request_only(answer: Handler, limit: str) -> None:
    async with raw_http(first_then_pages(answer)) as server, connect(server.url, limits=SMALL) as session:
        with pytest.raises(LimitError) as caught:
            await read(session)
        assert caught.value.limit == limit
        assert await read(session) == ("eHh4",)
