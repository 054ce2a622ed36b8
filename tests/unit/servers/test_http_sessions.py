"""Sessions over Streamable HTTP: idle ones end, and the oldest idle one makes room for a newcomer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import trio
import trio.testing
from mcp.server import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from playhead.limits import DEFAULT_LIMITS
from playhead.servers.http_sessions import SessionTable, streamable_http_app
from playhead.testing.transports import Peer
from tests.servers.messages import initialize, request

ACCEPT = {"accept": "application/json, text/event-stream"}


class Client:
    """Sessions of one server, in this process."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def open(self) -> httpx2.Response:
        return await self.http.post("/mcp", json=initialize(), headers=ACCEPT)

    async def session(self) -> str:
        opened = await self.open()
        assert opened.status_code == 200, opened.text
        session: str = opened.headers["mcp-session-id"]
        return session

    async def ping(self, session: str) -> int:
        headers = {**ACCEPT, "mcp-session-id": session}
        return (await self.http.post("/mcp", json=request("ping"), headers=headers)).status_code


@asynccontextmanager
async def serving(sessions: int = 1000) -> AsyncIterator[Client]:
    server: Server[object] = Peer().server()
    app = streamable_http_app(server, "/mcp", sessions=sessions)
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Client(http)


async def test_an_idle_session_ends_after_five_minutes(autojump_clock: trio.testing.MockClock) -> None:
    assert DEFAULT_LIMITS.idle_session_seconds == 300
    async with serving() as client:
        session = await client.session()
        await trio.sleep(299)
        assert await client.ping(session) == 200
        await trio.sleep(299)
        assert await client.ping(session) == 200, "counted from the last request"
        await trio.sleep(301)
        assert await client.ping(session) == 404


async def test_the_oldest_idle_session_makes_room_for_a_newcomer() -> None:
    async with serving(sessions=3) as client:
        first, second, third = [await client.session() for _ in range(3)]
        assert await client.ping(first) == 200  # now the second one is the oldest
        newcomer = await client.session()
        assert [await client.ping(each) for each in (first, second, third, newcomer)] == [200, 404, 200, 200]


async def test_many_newcomers_at_once_each_get_a_place() -> None:
    async with serving(sessions=5) as client, trio.open_nursery() as nursery:
        statuses: list[int] = []

        async def come() -> None:
            statuses.append((await client.open()).status_code)

        for _ in range(5):
            await client.session()
        for _ in range(5):
            nursery.start_soon(come)
        while len(statuses) < 5:
            await trio.lowlevel.checkpoint()
        assert statuses == [200] * 5


async def test_sessions_that_ended_by_themselves_make_room(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(sessions=2) as client:
        for _ in range(2):
            await client.session()
        await trio.sleep(301)
        for _ in range(4):
            assert await client.ping(await client.session()) == 200


class Gate:
    """An application whose answers wait, as those of a session with an open stream."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.deleted: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        session = headers.get(b"mcp-session-id", b"")
        if scope["method"] == "DELETE":
            self.deleted.append(session.decode())
        elif session:
            await self.open.wait()
        given = [] if session else [(b"mcp-session-id", f"s{id(scope)}".encode())]
        await send({"type": "http.response.start", "status": 200, "headers": given})
        await send({"type": "http.response.body", "body": b""})


async def test_a_session_with_an_open_request_is_never_the_one_that_goes() -> None:
    gate = Gate()
    app: ASGIApp = SessionTable(gate, path="/mcp", size=2)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        client = Client(http)
        busy, idle = await client.session(), await client.session()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ping, busy)
            await trio.testing.wait_all_tasks_blocked()
            await client.session()
            assert gate.deleted == [idle]
            gate.open.set()
