"""A connection that stays open and is dead, or a server too busy to answer a ping: a stream goes on, or ends.

Between client and server is a `Road`, on which connections may go dead, or all traffic may stop for a while.
In simulated time; a dead connection in real time too.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
import trio
from trio.testing import MockClock
from trio_websocket import WebSocketRequest

from playhead.client import Session, connect
from playhead.errors import PlayheadError, StreamBrokenError
from playhead.stream.options import StreamOptions
from tests.faults.crossed_answers import handshake
from tests.servers.loopback import tcp_server
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.websocket_peer import listening

WHOLE = random.Random(3).randbytes(3_000_000)
OPTIONS = StreamOptions(strategy="arguments", page_bytes_max=102_400, capacity_bytes=1 << 20)
"""With the default patience of 60 s. The ring is smaller than the resource: the reader always waits."""
GOES_ON_SECONDS = 20.0
DEAD_AFTER_BYTES = 1_000_000


@dataclass(slots=True)
class Road:
    """A TCP proxy. Connections that go dead stay open, and nothing passes any more."""

    passed_bytes: int = 0
    connections: int = 0
    on_bytes: Callable[[], None] = lambda: None
    """Called when bytes have passed down."""
    is_free: trio.Event = field(default_factory=trio.Event)
    _dead: range = range(0)

    def __post_init__(self) -> None:
        self.is_free.set()

    def kill(self, *, for_good: bool = False) -> None:
        """Let the open connections carry nothing from now on; with `for_good`, new ones too."""
        self._dead = range(1 << 30 if for_good else self.connections + 1)

    async def block(self, seconds: float) -> None:
        """Hold everything back for a time, as a server that does not run its event loop."""
        self.is_free = trio.Event()
        await trio.sleep(seconds)
        self.is_free.set()

    async def _pump(
        self, number: int, source: trio.SocketStream, sink: trio.SocketStream, down: bool
    ) -> None:
        while chunk := await source.receive_some(16_384):
            await self.is_free.wait()
            if number in self._dead:
                await trio.sleep_forever()
            await sink.send_all(chunk)
            if down:
                self.passed_bytes += len(chunk)
                self.on_bytes()

    @asynccontextmanager
    async def to(self, url: str) -> AsyncIterator[str]:
        """The URL of the way to `url`."""
        parts = urlsplit(url)
        assert parts.port is not None
        behind = parts.port

        async def serve(client: trio.SocketStream) -> None:
            self.connections += 1
            number = self.connections
            try:
                async with (
                    client,
                    await trio.open_tcp_stream("127.0.0.1", behind) as server,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._pump, number, client, server, False)
                    await self._pump(number, server, client, True)
                    nursery.cancel_scope.cancel()
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        async with tcp_server(serve) as port:
            yield parts._replace(netloc=f"127.0.0.1:{port}").geturl()


# --- the servers -----------------------------------------------------------------------------------------


def page(message: dict[str, object]) -> bytes:
    params = message["params"]
    assert isinstance(params, dict)
    data = WHOLE[params["arguments"]["start"] : params["arguments"]["end"]]
    contents = [{"uri": "x:", "blob": base64.b64encode(data).decode()}] if data else []
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"contents": contents}}).encode()


def reply_to(message: dict[str, object]) -> bytes | None:
    return page(message) if message.get("method") == "resources/read" else handshake(message)


@asynccontextmanager
async def over_websocket(road: Road) -> AsyncIterator[Session]:
    async def handle(request: WebSocketRequest) -> None:
        socket = await request.accept(subprotocol="mcp")
        while True:
            reply = reply_to(json.loads(await socket.get_message()))
            if reply is not None:
                await socket.send_message(reply.decode())

    async with listening(handle) as url, road.to(url) as outside, connect(outside) as session:
        yield session


@asynccontextmanager
async def over_http(
    road: Road, answer: Callable[[Exchange, bytes], Awaitable[None]] = Exchange.body
) -> AsyncIterator[Session]:
    async def greet(exchange: Exchange) -> bool:
        if exchange.verb != "POST":
            await exchange.body(b"", status=405)
        elif exchange.method == "resources/read":
            await answer(exchange, page(exchange.message))
        elif (reply := handshake(exchange.message)) is not None:
            await exchange.body(reply)
        else:
            await exchange.body(b"", status=202)
        return True

    async with raw_http(Exchange.hang_up) as server:
        server.greet = greet
        async with road.to(server.url) as outside, connect(outside) as session:
            yield session


Peer = Callable[[Road], AbstractAsyncContextManager[Session]]
PEERS: dict[str, Peer] = {"websocket": over_websocket, "http": over_http}


@dataclass(slots=True)
class Heard:
    data: bytearray = field(default_factory=bytearray)
    longest_wait: float = 0.0
    seconds: float = 0.0
    error: PlayheadError | None = None


async def hear(session: Session, options: StreamOptions = OPTIONS) -> Heard:
    heard = Heard()
    began = last = trio.current_time()
    try:
        async with session.open("x:song", options=options) as stream:
            async for chunk in stream:
                now = trio.current_time()
                heard.data += chunk
                heard.longest_wait, last = max(heard.longest_wait, now - last), now
    except PlayheadError as error:
        heard.error = error
    heard.seconds = trio.current_time() - began
    return heard


@pytest.fixture
def idle_clock(autojump_clock: MockClock) -> MockClock:
    """Time passes only while nothing happens; the threshold is for the threads."""
    autojump_clock.autojump_threshold = 0.05
    return autojump_clock


# --- dead connections ------------------------------------------------------------------------------------


async def goes_on(peer: Peer) -> None:
    road = Road()

    def strike() -> None:
        if road.passed_bytes > DEAD_AFTER_BYTES:
            road.on_bytes = lambda: None
            road.kill()

    road.on_bytes = strike
    async with peer(road) as session:
        heard = await hear(session)
    assert heard.error is None
    assert heard.data == WHOLE
    assert heard.longest_wait > 5
    assert heard.seconds < GOES_ON_SECONDS


@pytest.mark.parametrize("transport", PEERS)
async def test_a_stream_whose_connections_go_dead_goes_on_within_20_s(
    transport: str, idle_clock: MockClock
) -> None:
    await goes_on(PEERS[transport])


@pytest.mark.slow("waits 16 s and 10 s for signs of life")
@pytest.mark.parametrize("transport", PEERS)
async def test_in_real_time_a_stream_goes_on_within_20_s(transport: str) -> None:
    await goes_on(PEERS[transport])


@pytest.mark.parametrize("transport", PEERS)
async def test_a_server_that_is_gone_for_good_ends_the_stream_by_patience(
    transport: str, idle_clock: MockClock
) -> None:
    road = Road()

    def strike() -> None:
        if road.passed_bytes > DEAD_AFTER_BYTES:
            road.kill(for_good=True)

    road.on_bytes = strike
    async with PEERS[transport](road) as session:
        heard = await hear(session)
    assert isinstance(heard.error, StreamBrokenError)
    assert WHOLE.startswith(heard.data)
    assert 60 <= heard.seconds < 90


# --- a stuck server behind pings -------------------------------------------------------------------------

NOTE = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"busy"}}\n\n'


@pytest.mark.parametrize("recovers", [True, False])
@pytest.mark.parametrize("sign", [b": ping\n\n", NOTE], ids=["comments", "messages"])
async def test_signs_of_life_that_are_none_do_not_keep_a_stream_waiting(
    sign: bytes, recovers: bool, idle_clock: MockClock
) -> None:
    """After 1 MB reads get pings for ever: on the connections that are open, or on all."""
    sent = 0

    async def answer(exchange: Exchange, reply: bytes) -> None:
        nonlocal sent
        if sent <= DEAD_AFTER_BYTES:
            old.add(exchange.stream)
        is_stuck = sent > DEAD_AFTER_BYTES and (not recovers or exchange.stream in old)
        await exchange.begin()
        while is_stuck:
            await exchange.chunk(sign)
            await trio.sleep(3)
        sent += len(reply)
        await exchange.chunk(b"data: %s\n\n" % reply, last=True)

    old: set[trio.SocketStream] = set()
    async with over_http(Road(), answer) as session:
        heard = await hear(session)
    if recovers:
        assert heard.error is None
        assert heard.data == WHOLE
        assert heard.longest_wait > 5
        assert heard.seconds < GOES_ON_SECONDS
    else:
        assert isinstance(heard.error, StreamBrokenError)
        assert 60 <= heard.seconds < 90


# --- a busy server ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", PEERS)
async def test_a_server_that_works_20_s_in_its_event_loop_is_not_cut_off(
    transport: str, idle_clock: MockClock
) -> None:
    road = Road()
    async with PEERS[transport](road) as session, trio.open_nursery() as nursery:

        def strike() -> None:
            if road.passed_bytes > DEAD_AFTER_BYTES:
                road.on_bytes = lambda: None
                nursery.start_soon(road.block, 20)

        road.on_bytes = strike
        heard = await hear(session)
    assert heard.error is None
    assert heard.data == WHOLE
    assert 19 < heard.longest_wait < 21
