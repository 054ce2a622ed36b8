"""Direct reads over HTTP: what is plain is taken, and everything else is left to httpx2 and the SDK."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from playhead.client import connect
from playhead.client.session.connection import FIRST_DIRECT_ID, Connection
from playhead.client.transports.outcomes import Declined
from playhead.errors import PlayheadError
from playhead.limits import Limits
from playhead.stream.options import ReadPaths, StreamOptions
from tests.servers.raw_http import Exchange, raw_http

WHOLE = bytes(i % 251 for i in range(200_000))
OPTIONS = StreamOptions(strategy="arguments", patience_seconds=0.4, timeout=0.3)

FIRST_BURST = 3
"""Reads that a stream sends before the first answer."""

Answer = Callable[[Exchange], Awaitable[None]]


def contents(exchange: Exchange) -> dict[str, object]:
    asked = exchange.message["params"]["arguments"]
    data = WHOLE[asked["start"] : asked["end"]]
    blob = {"uri": "x:", "blob": base64.b64encode(data).decode()}
    return {"contents": [blob] if data else []}


async def plainly(exchange: Exchange) -> None:
    await exchange.result(contents(exchange))


class Server:
    """Answers calls and the session's reads plainly, and direct reads with `direct`."""

    def __init__(self, direct: Answer) -> None:
        self._direct = direct
        self.direct_reads = 0
        self.session_reads = 0
        self.seen: list[dict[str, str]] = []

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.method != "resources/read":
            await exchange.error(-32601, "no such method")
        elif exchange.message["id"] > FIRST_DIRECT_ID:
            self.direct_reads += 1
            self.seen.append(exchange.headers)
            await self._direct(exchange)
        else:
            self.session_reads += 1
            self.seen.append(exchange.headers)
            await plainly(exchange)


async def read(handler: Answer) -> ReadPaths:
    async with (
        raw_http(handler) as origin,
        connect(origin.url) as session,
        session.open("x:song", options=OPTIONS) as stream,
    ):
        assert await stream.read_all() == WHOLE
        return stream.statistics().paths


async def test_plain_answers_are_read_directly_with_the_headers_of_the_session() -> None:
    server = Server(plainly)
    paths = await read(server)
    assert (paths.session, paths.fallback) == (server.session_reads, None)
    assert paths.direct == server.direct_reads > 0
    first = server.seen[0]
    assert first["accept"] == "application/json, text/event-stream"
    assert first["content-type"] == "application/json"
    assert first["mcp-protocol-version"] == "2025-11-25"


async def as_event_stream(exchange: Exchange) -> None:
    await exchange.body(b"data: {}\n\n", kind="text/event-stream")


async def gzipped(exchange: Exchange) -> None:
    await exchange.body(gzip.compress(b"{}"), headers="content-encoding: gzip\r\n")


async def redirected(exchange: Exchange) -> None:
    await exchange.body(b"", status=307, headers="location: /elsewhere\r\n")


async def unauthorized(exchange: Exchange) -> None:
    await exchange.body(b"", status=401)


async def forbidden(exchange: Exchange) -> None:
    await exchange.body(b"", status=403)


async def accepted(exchange: Exchange) -> None:
    await exchange.body(b"", status=202)


@pytest.mark.parametrize(
    ("direct", "reason"),
    [
        (as_event_stream, "the content type 'text/event-stream'"),
        (gzipped, "an encoded body"),
        (redirected, "HTTP 307"),
        (unauthorized, "HTTP 401"),
        (forbidden, "HTTP 403"),
        (accepted, "HTTP 202"),
    ],
)
async def test_what_is_not_plain_json_is_read_through_the_session(direct: Answer, reason: str) -> None:
    server = Server(direct)
    paths = await read(server)
    assert (paths.direct, paths.fallback) == (0, reason)
    assert paths.session == server.session_reads > 0


# The SDK leaves its reader of event streams to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_of_event_streams_is_asked_twice_only_until_it_has_answered() -> None:
    direct: list[int] = []

    async def serve(exchange: Exchange) -> None:
        request_id = exchange.message["id"]
        direct.extend([request_id] if request_id > FIRST_DIRECT_ID else [])
        if exchange.method == "resources/read":
            outcome = {"result": contents(exchange)}
        else:
            outcome = {"error": {"code": -32601, "message": "no such method"}}
        data = json.dumps({"jsonrpc": "2.0", "id": request_id, **outcome})
        await exchange.body(f"data: {data}\n\n".encode(), kind="text/event-stream")

    paths = await read(serve)
    assert paths.direct == 0
    assert len(direct) <= FIRST_BURST < paths.session


async def test_a_cookie_is_sent_back_with_the_reads_after_it() -> None:
    async def with_cookie(exchange: Exchange) -> None:
        known = "cookie" in exchange.headers
        await exchange.result(contents(exchange), headers="" if known else "set-cookie: node=7\r\n")

    server = Server(with_cookie)
    paths = await read(server)
    assert server.seen[-1]["cookie"] == "node=7"
    assert paths.direct > 1


async def another_id(exchange: Exchange) -> None:
    await exchange.json({"jsonrpc": "2.0", "id": 5, "result": {"contents": []}})


async def cut_off(exchange: Exchange) -> None:
    await exchange.raw(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
    await exchange.hang_up()


async def too_long(exchange: Exchange) -> None:
    await exchange.body(b" " * 500_000)


async def no_json(exchange: Exchange) -> None:
    await exchange.body(b"<html>")


async def refused(exchange: Exchange) -> None:
    await exchange.error(-32002, "no such song")


async def silent(exchange: Exchange) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("manner", [another_id, cut_off, too_long, no_json, refused, silent])
async def test_a_failed_read_raises_the_same_error_on_both_ways(
    manner: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(exchange: Exchange) -> None:
        if exchange.method == "resources/read":
            await manner(exchange)
        elif "id" in exchange.message:
            await exchange.error(-32601, "no such method")
        else:
            await exchange.body(b"", status=202)

    async def declined(*_arguments: object, **_more: object) -> Declined:
        return Declined(reason="for a test")

    errors = []
    for way in ("direct", "session"):
        if way == "session":
            monkeypatch.setattr(Connection, "_read_directly", declined)
        limits = Limits(message_bytes=400_000)
        async with raw_http(serve) as origin, connect(origin.url, limits=limits) as session:
            with pytest.raises(PlayheadError) as caught:
                async with session.open("x:song", options=OPTIONS) as stream:
                    await stream.read_all()
            place = origin.url.removesuffix("/mcp")
        said = str(caught.value).replace(place, "http://there")
        errors.append((type(caught.value), "".join(letter for letter in said if not letter.isdigit())))
    assert errors[0] == errors[1]


async def test_a_silent_read_is_cancelled_by_a_notification_in_the_old_revisions() -> None:
    server = Server(silent)
    async with raw_http(server) as origin, connect(origin.url) as session:
        with trio.move_on_after(0.2):
            async with session.open("x:song", options=OPTIONS) as stream:
                await stream.read_all()
        while "notifications/cancelled" not in origin.methods:
            await wait_all_tasks_blocked(0.01)
    assert (server.direct_reads > 0, server.session_reads) == (True, 0)
