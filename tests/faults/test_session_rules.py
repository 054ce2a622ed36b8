"""Rules of a session that hold on every transport: answers and their ids, signs of life, one bad message.

A peer answers each read with messages that a test writes out; ID stands for the id of the request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product

import pytest
import trio
import trio.testing
from trio.testing import MockClock
from trio_websocket import WebSocketConnection, WebSocketRequest

from playhead.client import Session, connect
from playhead.errors import DeadlineError
from playhead.limits import Limits
from tests.faults.crossed_answers import handshake
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.scripted_stdio import scripted_stdio
from tests.servers.websocket_peer import listening

RIGHT = b'{"jsonrpc":"2.0","id":ID,"result":{"contents":[{"uri":"x:","blob":"eHh4"}]}}'
WRONG = RIGHT.replace(b"eHh4", b"d3Jvbmc=")
FOREIGN = WRONG.replace(b":ID", b":10ID")
NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}'
LIMITS = Limits(page_seconds=3, handshake_seconds=10)


def events(answers: Sequence[bytes], number: int) -> bytes:
    return b"".join(b"data: %s\n\n" % answer.replace(b"ID", b"%d" % number) for answer in answers)


@asynccontextmanager
async def peer(transport: str, answers: Sequence[bytes], *, open_end: bool = False) -> AsyncIterator[Session]:
    """A session with a peer that answers each read with `answers`; with `open_end` SSE streams stay open."""

    async def sse(exchange: Exchange) -> None:
        body = events(answers, exchange.message["id"])
        if open_end:
            await exchange.begin()
            await exchange.chunk(body)
            await trio.sleep_forever()
        await exchange.body(body, kind="text/event-stream")

    async def websocket(request: WebSocketRequest) -> None:
        socket: WebSocketConnection = await request.accept(subprotocol="mcp")
        while True:
            message = json.loads(await socket.get_message())
            match message:
                case {"method": "resources/read", "id": number}:
                    for answer in answers:
                        text = answer.replace(b"ID", b"%d" % number).decode("utf-8", "surrogatepass")
                        await socket.send_message(text)
                case _ if (reply := handshake(message)) is not None:
                    await socket.send_message(reply.decode())

    match transport:
        case "stdio":
            script = f"""
while True:
    number = str(take("resources/read")["id"]).encode()
    for answer in {list(answers)}:
        sys.stdout.buffer.write(answer.replace(b"ID", number) + b"\\n")
    sys.stdout.buffer.flush()
"""
            async with connect(scripted_stdio(script), limits=LIMITS) as session:
                yield session
        case "sse":
            async with raw_http(sse) as server, connect(server.url, limits=LIMITS) as session:
                yield session
        case _:
            async with listening(websocket) as url, connect(url, limits=LIMITS) as session:
                yield session


TRANSPORTS = ("stdio", "sse", "websocket")
STREAMS = pytest.mark.parametrize("transport", TRANSPORTS)


async def read(session: Session) -> object:
    (blob,) = (await session.read_resource("x:")).blobs
    return blob


# --- an answer belongs to its id -----------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([FOREIGN, RIGHT], id="a foreign answer is given to nobody"),
        pytest.param([RIGHT, WRONG], id="the first of two answers counts"),
        pytest.param([RIGHT.replace(b"ID", b'"ID"')], id="a string of the number is the number"),
        pytest.param([RIGHT.replace(b"ID", b"ID.0")], id="numbers compare by value"),
    ],
)
async def test_a_request_gets_the_first_answer_with_its_id(transport: str, answers: list[bytes]) -> None:
    async with peer(transport, answers) as session:
        assert [await read(session) for _ in range(3)] == ["eHh4"] * 3


@STREAMS
async def test_a_request_that_only_a_foreign_answer_followed_waits_until_its_deadline(transport: str) -> None:
    async with peer(transport, [FOREIGN], open_end=True) as session:
        with pytest.raises(DeadlineError):
            await session.read_resource("x:", timeout=0.2)


async def test_an_answer_on_the_servers_own_stream_is_used_at_once(mock_clock: MockClock) -> None:
    """It should be on the stream of its POST, which stays open here. The clock stands still."""
    opened, asked = trio.Event(), trio.Event()
    number = 0

    async def greet(exchange: Exchange) -> bool:
        if exchange.verb == "GET":
            await exchange.begin()
            opened.set()
            await asked.wait()
            await exchange.chunk(events([RIGHT], number))
        return exchange.method != "resources/read" and await server.handshake(exchange)

    async def handle(exchange: Exchange) -> None:
        nonlocal number
        await exchange.begin()
        await opened.wait()
        number = exchange.message["id"]
        asked.set()
        await trio.sleep_forever()

    async with raw_http(handle, session="s") as server:
        server.greet = greet
        async with connect(server.url, limits=LIMITS) as session:
            assert await read(session) == "eHh4"


# --- life is bytes of an awaited answer, or its progress -------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "sign"),
    [
        (b"", b": ping\n\n"),
        (b"", b"data: " + NOTE % b'"working"' + b"\n\n"),
        (b'data: {"jsonrpc":"2.0","id":ID,"result":\n', b": ping\n"),
    ],
    ids=["comments", "messages", "comments within the answer"],
)
async def test_comments_and_unrelated_notifications_over_sse_are_no_sign_of_life(
    begin: bytes, sign: bytes, mock_clock: MockClock
) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.begin()
        if begin:
            await exchange.chunk(begin.replace(b"ID", b"%d" % exchange.message["id"]))
        for _ in range(8):
            mock_clock.jump(1)
            await exchange.chunk(sign)
            await trio.testing.wait_all_tasks_blocked(0.01)
        await exchange.chunk(events([RIGHT], exchange.message["id"]), last=True)

    async with raw_http(handle) as server, connect(server.url, limits=LIMITS) as session:
        with pytest.raises(DeadlineError):
            await read(session)


# --- one bad message fails one message -------------------------------------------------------------------

BAD = {
    "a lone surrogate": NOTE % rb'"\ud800"',
    "NaN": NOTE % b"NaN",
    "invalid UTF-8": NOTE % b'"\xff"',
    "not JSON": b"{]",
}


@pytest.mark.parametrize(
    ("transport", "bad"),
    # A text frame of a WebSocket that is not UTF-8 ends the connection.
    [pair for pair in product(TRANSPORTS, BAD) if pair != ("websocket", "invalid UTF-8")],
)
async def test_a_bad_notification_is_dropped(transport: str, bad: str) -> None:
    async with peer(transport, [BAD[bad], RIGHT]) as session:
        assert [await read(session) for _ in range(2)] == ["eHh4"] * 2
        assert session.protocol_faults().not_messages == 2
