"""Bounds of a client: no peer leaks a group, hangs a call, or piles up tasks or connections."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from mcp_types import HEADER_MISMATCH

from playhead.client import connect
from playhead.client.transports.http_client import CONNECTIONS
from playhead.errors import (
    DeadlineError,
    LimitError,
    ProtocolError,
    ServerError,
)
from playhead.limits import Limits
from playhead.stream.options import StreamOptions
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.scripted_stdio import scripted_stdio


async def test_ctrl_c_comes_out_of_a_session_as_it_is_however_deep_the_groups_around_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        async with connect(scripted_stdio("take()")):
            raise BaseExceptionGroup("deep", [ExceptionGroup("x", [OSError()]), KeyboardInterrupt()])


async def test_a_flood_of_requests_over_http_is_stopped_at_the_limit() -> None:
    async def greet(exchange: Exchange) -> bool:
        if exchange.verb == "GET":
            await exchange.raw(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n")
            while True:
                await exchange.raw(b'data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n' * 10)
        if exchange.verb == "POST" and not exchange.method:
            await trio.sleep_forever()
        return await server.handshake(exchange)

    async def never_answer(_exchange: Exchange) -> None:
        await trio.sleep_forever()

    with trio.fail_after(60):
        async with raw_http(never_answer, session="a") as server:
            server.greet = greet
            async with connect(server.url) as session:
                with pytest.raises(LimitError) as caught:
                    await session.read_resource("x:")
                assert caught.value.limit == "server_requests"


@pytest.mark.requirement("MCP-17", "MCP-35")
async def test_what_a_server_asks_is_answered_and_does_not_add_up() -> None:
    asks = """
read = take("resources/read")
for ask in ("ping", "roots/list", "sampling/createMessage", "elicitation/create") * 5:
    say(id="mine", method=ask, params={"messages": [], "maxTokens": 1, "message": "", "requestedSchema": {}})
    answer = take()
    assert answer["id"] == "mine" and ("result" in answer) == (ask == "ping"), answer
say(id=read["id"], result={"contents": []})
take()
"""
    with trio.fail_after(60):
        async with connect(scripted_stdio(asks), limits=Limits(server_requests=2)) as session:
            assert (await session.read_resource("x:")).blobs == ()


@pytest.mark.parametrize("listing", ["", 'say(id=asked["id"], result={"tools": 7})\n'])
async def test_a_server_that_wants_headers_and_lists_nothing_fails_the_call(listing: str) -> None:
    wants = f"""
say(id=take("tools/call")["id"], error={{"code": {HEADER_MISMATCH}, "message": "headers"}})
asked = take("tools/list")
{listing}take("tools/call")
"""
    with trio.fail_after(60):
        async with connect(
            scripted_stdio(wants), limits=Limits(tool_seconds=1), mode="2026-07-28"
        ) as session:
            with pytest.raises(ProtocolError if listing else DeadlineError, match="tools"):
                await session.call_tool("x")


async def test_the_code_for_missing_headers_is_a_plain_error_in_the_revisions_without_it() -> None:
    refuses = f"""
while True: say(id=take("tools/call")["id"], error={{"code": {HEADER_MISMATCH}, "message": "mine"}})
"""
    async with connect(scripted_stdio(refuses)) as session:
        with pytest.raises(ServerError, match="mine"):
            await session.call_tool("x")


async def test_a_read_that_drips_for_ever_ends_at_its_total() -> None:
    drips = """
read = take("resources/read")
sys.stdout.write(f'{{"jsonrpc":"2.0","id":{read["id"]},"result":{{"contents":[{{"uri":"x:","blob":"')
while True:
    sys.stdout.write("A"); sys.stdout.flush(); time.sleep(0.05)
"""
    limits = Limits(page_total_seconds=1.5)
    with trio.fail_after(60):
        async with connect(scripted_stdio(drips), limits=limits) as session:
            with pytest.raises(DeadlineError, match=r"in 1.5 s in total"):
                await session.read_resource("x:", timeout=1.0)


async def test_the_page_of_a_stream_may_drip_for_longer_than_that_as_its_patience_decides() -> None:
    drips = """
read = take("resources/read")
line = json.dumps(
    {"jsonrpc": "2.0", "id": read["id"], "result": {"contents": [{"uri": "x:", "blob": "QUJD" * 20}]}}
)
for character in line + "\\n":
    sys.stdout.write(character); sys.stdout.flush(); time.sleep(0.01)
take("resources/read")
"""
    limits = Limits(page_total_seconds=0.5)
    options = StreamOptions(strategy="whole", timeout=0.5)
    with trio.fail_after(60):
        async with (
            connect(scripted_stdio(drips), limits=limits) as session,
            session.open("x:", options=options) as stream,
        ):
            assert await stream.read_all() == b"ABC" * 20
        assert stream.statistics().requests == 1


# --- HTTP: what an answer is not ---------------------------------------------------------------------


PAGE = {"contents": [{"uri": "x:", "blob": "eHh4"}]}


@pytest.mark.parametrize(
    "begins",
    [
        b"",
        b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n: wait\n\n",
        b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{",
    ],
)
async def test_answers_that_never_come_do_not_use_up_the_connections(begins: bytes) -> None:
    reads, all_wait = 0, trio.Event()

    async def handle(exchange: Exchange) -> None:
        nonlocal reads
        reads += 1
        if reads <= CONNECTIONS:
            await exchange.raw(begins)
            if reads == CONNECTIONS:
                all_wait.set()
            await trio.sleep_forever()
        await exchange.result(PAGE)

    with trio.fail_after(60):
        async with raw_http(handle) as server, connect(server.url) as session:
            async with trio.open_nursery() as nursery:
                for _ in range(CONNECTIONS):
                    nursery.start_soon(session.read_resource, "x:")
                await all_wait.wait()
                nursery.cancel_scope.cancel()
            assert (await session.read_resource("x:")).blobs == ("eHh4",)
