"""Calls and reads over HTTP: each way in which a server may answer has one outcome, and runs a tool once."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress

import httpx2
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from playhead.client import Question, Reply, connect
from playhead.errors import (
    AccessDeniedError,
    ConnectionLostError,
    DeadlineError,
    HttpRefusedError,
    HttpStatusError,
    LimitError,
    PlayheadError,
    ServerError,
    SessionLostError,
)
from playhead.limits import Limits
from playhead.stream.options import StreamOptions
from tests.servers.raw_http import Exchange, raw_http

WHOLE = bytes(i % 251 for i in range(200_000))

Answer = Callable[[Exchange], Awaitable[None]]


@pytest.fixture
def idle_clock(autojump_clock: MockClock) -> MockClock:
    """Time passes only while nothing happens. Client and server share one event loop, and what one sends on
    loopback can be received at once; the threshold is for the threads."""
    autojump_clock.autojump_threshold = 0.02
    return autojump_clock


def contents(exchange: Exchange) -> dict[str, object]:
    asked = exchange.message["params"]["arguments"]
    data = WHOLE[asked["start"] : asked["end"]]
    blob = {"uri": "x:", "blob": base64.b64encode(data).decode()}
    return {"contents": [blob] if data else []}


async def plainly(exchange: Exchange) -> None:
    await exchange.result(contents(exchange))


class Server:
    """Answers reads with `manner`."""

    def __init__(self, manner: Answer) -> None:
        self._manner = manner
        self.seen: list[dict[str, str]] = []

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.method != "resources/read":
            await exchange.error(-32601, "no such method")
        else:
            self.seen.append(exchange.headers)
            await self._manner(exchange)


async def read(handler: Answer, *, in_flight: int | None = None) -> None:
    async with (
        raw_http(handler) as origin,
        connect(origin.url) as session,
        session.open("x:song", options=StreamOptions(strategy="arguments", in_flight=in_flight)) as stream,
    ):
        assert await stream.read_all() == WHOLE


async def test_a_stream_is_read_from_a_server_that_answers_in_events() -> None:
    async def serve(exchange: Exchange) -> None:
        if exchange.method == "resources/read":
            outcome = {"result": contents(exchange)}
        else:
            outcome = {"error": {"code": -32601, "message": "no such method"}}
        data = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], **outcome})
        await exchange.body(f"data: {data}\n\n".encode(), kind="text/event-stream")

    await read(serve)


async def redirected(exchange: Exchange) -> None:
    await exchange.body(b"", status=307, headers="location: /elsewhere\r\n")


async def unauthorized(exchange: Exchange) -> None:
    await exchange.body(b"", status=401)


async def forbidden(exchange: Exchange) -> None:
    await exchange.body(b"", status=403)


async def accepted(exchange: Exchange) -> None:
    await exchange.body(b"", status=202)


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


# --- calls -------------------------------------------------------------------------------------------------

TEXT = {"content": [{"type": "text", "text": "done"}]}


def event(**members: object) -> bytes:
    return f"data: {json.dumps({'jsonrpc': '2.0', **members})}\n\n".encode()


async def done(exchange: Exchange) -> None:
    await exchange.result(TEXT)


async def done_in_events(exchange: Exchange) -> None:
    await exchange.begin()
    progress = {"progressToken": exchange.message["params"]["_meta"]["progressToken"], "progress": 1}
    await exchange.chunk(event(method="notifications/progress", params=progress))
    await exchange.chunk(event(id=exchange.message["id"], result=TEXT), last=True)


async def broken_events(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.chunk(event(method="notifications/message", params={"level": "info"}))
    await exchange.hang_up()


async def ended_events(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.chunk(last=True)


async def silent_events(exchange: Exchange) -> None:
    await exchange.begin()
    await trio.sleep_forever()


async def created(exchange: Exchange) -> None:
    answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": TEXT}
    await exchange.json(answer, status=201)


async def bad_request(exchange: Exchange) -> None:
    await exchange.error(-32602, "expected a song", status=400)


async def nameless_error(exchange: Exchange) -> None:
    await exchange.json({"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "no"}}, status=400)


async def not_found(exchange: Exchange) -> None:
    await exchange.body(b"", status=404)


async def busy(exchange: Exchange) -> None:
    await exchange.body(b"later", status=503, kind="text/plain", headers="retry-after: 7\r\n")


async def no_content(exchange: Exchange) -> None:
    await exchange.raw(b"HTTP/1.1 204 No Content\r\n\r\n")


async def a_page(exchange: Exchange) -> None:
    await exchange.body(b"<html>", kind="text/html")


async def nowhere(exchange: Exchange) -> None:
    await exchange.body(b"", status=307)


async def gzipped(exchange: Exchange) -> None:
    answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": TEXT}
    await exchange.body(gzip.compress(json.dumps(answer).encode()), headers="content-encoding: gzip\r\n")


OUTCOMES: dict[Answer, object] = {
    done: ("done", ()),
    done_in_events: ("done", (1.0,)),
    broken_events: ConnectionLostError,
    ended_events: ConnectionLostError,
    silent_events: DeadlineError,
    created: ("done", ()),
    bad_request: ServerError,
    nameless_error: ServerError,
    busy: HttpStatusError,
    a_page: HttpStatusError,
    nowhere: HttpRefusedError,
    unauthorized: AccessDeniedError,
    forbidden: AccessDeniedError,
    accepted: HttpStatusError,
    no_content: HttpStatusError,
    gzipped: ("done", ()),
    another_id: HttpStatusError,
    cut_off: ConnectionLostError,
    too_long: LimitError,
    no_json: HttpStatusError,
    refused: ServerError,
    silent: DeadlineError,
}


class CallServer:
    """Answers calls with `manner`, and remembers their ids."""

    def __init__(self, manner: Answer) -> None:
        self._manner = manner
        self.calls: list[int] = []
        self.cancelled: list[int] = []
        self.seen: list[dict[str, str]] = []

    async def __call__(self, exchange: Exchange) -> None:
        match exchange.method:
            case "tools/call":
                self.calls.append(exchange.message["id"])
                self.seen.append(exchange.headers)
                await self._manner(exchange)
            case _:
                await exchange.error(-32601, "no such method")


async def outcome_of_call(server: CallServer, *, session_id: str | None = None) -> object:
    limits = Limits(message_bytes=400_000)
    async with (
        raw_http(server, session=session_id) as origin,
        connect(origin.url, limits=limits, mode="legacy") as session,
    ):
        reports: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            assert (total, message) == (None, None)
            reports.append(progress)

        try:
            result = await session.call_tool("sing", timeout=60, on_progress=on_progress)
        except PlayheadError as error:
            return type(error)
        return result.text, tuple(reports)


@pytest.mark.parametrize("manner", OUTCOMES)
async def test_a_call_has_one_outcome_and_is_sent_once(manner: Answer, idle_clock: MockClock) -> None:
    server = CallServer(manner)
    assert await outcome_of_call(server) == OUTCOMES[manner]
    assert len(server.calls) == 1


@pytest.mark.parametrize("manner", [a_page, accepted, no_content, another_id, no_json])
async def test_a_stream_takes_a_body_without_the_answer_for_a_lost_one(
    manner: Answer, idle_clock: MockClock
) -> None:
    struck = 0

    async def strike(exchange: Exchange) -> None:
        nonlocal struck
        if exchange.message["params"]["arguments"]["start"] and struck < 3:
            struck += 1  # what is damaged is read once more only
            await manner(exchange)
        else:
            await plainly(exchange)

    await read(Server(strike), in_flight=1)
    assert struck == 3


@pytest.mark.parametrize(("session_id", "error"), [(None, HttpRefusedError), ("s", SessionLostError)])
async def test_a_404_means_a_lost_session_only_in_one(
    session_id: str | None, error: type[PlayheadError]
) -> None:
    server = CallServer(not_found)
    assert await outcome_of_call(server, session_id=session_id) is error
    assert len(server.calls) == 1


@pytest.mark.parametrize("status", [200, 400])
async def test_json_may_begin_with_a_byte_order_mark(status: int) -> None:
    async def handle(exchange: Exchange) -> None:
        error = {
            "jsonrpc": "2.0",
            "id": exchange.message["id"],
            "error": {"code": -32603, "message": "too loud"},
        }
        await exchange.body(b"\xef\xbb\xbf" + json.dumps(error).encode(), status=status)

    async with raw_http(handle) as server, connect(server.url) as session:
        with pytest.raises(ServerError, match="too loud"):
            await session.call_tool("x")


async def test_a_question_in_the_middle_of_a_call_is_answered() -> None:
    answered = trio.Event()

    async def ask(exchange: Exchange) -> None:
        await exchange.begin()
        params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        await exchange.chunk(event(id=77, method="elicitation/create", params=params))
        await answered.wait()
        await exchange.chunk(event(id=exchange.message["id"], result=TEXT), last=True)

    server = CallServer(ask)

    async def greet(exchange: Exchange) -> bool:
        if exchange.message.get("id") == 77 and "result" in exchange.message:
            answered.set()
            await exchange.body(b"", status=202)
            return True
        return await origin.handshake(exchange)

    async def accept(_question: Question) -> Reply:
        return Reply(action="accept", content={})

    async with raw_http(server) as origin:
        origin.greet = greet
        async with connect(origin.url, mode="legacy", on_elicitation=accept) as session:
            assert (await session.call_tool("sing")).text == "done"
    assert len(server.calls) == 1


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_call_that_is_cancelled_anywhere_is_sent_once_and_cancelled_on_the_wire(mode: str) -> None:
    told = trio.Event()

    async def until_left(exchange: Exchange) -> None:
        with suppress(trio.BrokenResourceError):
            await exchange.begin()
            await exchange.stream.receive_some(1)
        if mode != "legacy":  # closing the connection is the cancellation
            server.cancelled.append(exchange.message["id"])
            told.set()

    async def greet(exchange: Exchange) -> bool:
        if exchange.method == "notifications/cancelled":
            server.cancelled.append(exchange.message["params"]["requestId"])
            told.set()
        return await origin.handshake(exchange)

    server = CallServer(until_left)
    for checkpoints in range(50):
        async with raw_http(server) as origin:
            origin.greet = greet
            server.calls.clear()
            server.cancelled.clear()
            told = trio.Event()
            async with connect(origin.url, mode=mode) as session:
                with pytest.raises(PlayheadError):
                    await session.read_resource("x:nothing")  # an answer that shows the endpoint
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(session.call_tool, "sing")
                        for _ in range(checkpoints):
                            await trio.lowlevel.checkpoint()
                        scope.cancel()
                await wait_all_tasks_blocked(0.01)
                assert len(server.calls) <= 1
                if server.calls:
                    with trio.fail_after(30):
                        await told.wait()
                    assert server.cancelled == server.calls
    assert len(server.calls) == 1


class Renewed(httpx2.Auth):
    """A token that is renewed when the server refuses it."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self._number = 1

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["authorization"] = f"{self._scheme} {self._number}"
        response = yield request
        if response.status_code == 401:
            self._number += 1
            request.headers["authorization"] = f"{self._scheme} {self._number}"
            yield request


async def test_credentials_that_expired_are_renewed_for_a_call() -> None:
    valid = "Bearer 1"
    runs: list[int] = []

    async def serve(exchange: Exchange) -> None:
        if exchange.headers["authorization"] != valid:
            await exchange.body(b"", status=401)
        elif exchange.method == "tools/call":
            runs.append(exchange.message["id"])
            await done(exchange)
        else:
            await exchange.error(-32601, "no such method")

    async with raw_http(serve) as origin, connect(origin.url, auth=Renewed("Bearer")) as session:
        for number in (1, 1, 2, 2):
            valid = f"Bearer {number}"
            assert (await session.call_tool("sing")).text == "done"
    assert len(runs) == 4


async def test_credentials_of_one_request_are_not_used_for_another() -> None:
    server = CallServer(done)
    async with raw_http(server) as origin, connect(origin.url, auth=Renewed("Signature")) as session:
        for _ in range(2):
            assert (await session.call_tool("sing")).text == "done"
    assert [seen["authorization"] for seen in server.seen] == ["Signature 1"] * 2


async def test_a_call_to_an_endpoint_that_redirects_runs_once() -> None:
    runs: list[str] = []

    async def serve(exchange: Exchange) -> None:
        if exchange.method != "tools/call":
            await exchange.error(-32601, "no such method")
        elif not runs:
            runs.append("sent on")
            await redirected(exchange)
        else:
            runs.append("run")
            await done(exchange)

    async with raw_http(serve) as origin, connect(origin.url) as session:
        assert (await session.call_tool("sing")).text == "done"
    assert runs == ["sent on", "run"]
