"""Many WebSocket clients that want a server to hold too much: it stays small, and others are answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import mcp_types as types
import pytest
import trio
import trio.testing
from mcp.server import Server
from wsproto.events import CloseConnection

from playhead.servers.websocket import WebSocketOptions
from playhead.servers.websocket_memory import ANSWER_BYTES, OWN_BYTES
from playhead.testing.transports import Peer
from tests.servers.launch import pages_command
from tests.servers.raw_websocket import RawWebSocket, raw_websocket
from tests.servers.served_websocket import served_websocket

PEAK_BYTES = 400_000_000
CLIENTS = 32
MESSAGES = 16


def read(uri: str, request_id: int, text: object = "") -> dict[str, object]:
    params = {"uri": uri, "arguments": {"text": text}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "resources/read", "params": params}


@asynccontextmanager
async def clients_of(peer: Peer, shared_bytes: int, count: int) -> AsyncIterator[list[RawWebSocket]]:
    with trio.fail_after(20):
        async with (
            served_websocket(peer.server(), options=WebSocketOptions(shared_bytes=shared_bytes)) as port,
            AsyncExitStack() as stack,
        ):
            clients = [await stack.enter_async_context(raw_websocket(port)) for _ in range(count)]
            for client in clients:
                await client.initialize()
            yield clients


# --- the bounds ---------------------------------------------------------------------------------------


async def test_a_request_for_which_there_is_no_room_is_refused_and_small_ones_are_answered() -> None:
    peer = Peer()
    async with clients_of(peer, 700_000, 2) as (greedy, modest):
        await greedy.send(read("hold://x", 1, "x" * 600_000))
        await peer.anyone_started.wait()
        await greedy.send(read("hold://x", 2, [0] * 5_000))
        refused = await greedy.receive()
        assert (refused["id"], refused["error"]["code"]) == (2, -32603)
        assert "try again later" in refused["error"]["message"]
        assert (await modest.ask("ping"))["result"] == {}
        peer.release.set()
        assert (await greedy.receive())["id"] == 1
        await greedy.send(read("hold://x", 3, [0] * 5_000))  # there is room again
        assert (await greedy.receive())["id"] == 3


async def test_a_message_for_which_there_is_no_room_closes_with_1013() -> None:
    async with clients_of(Peer(), 100_000, 2) as (greedy, modest):
        await greedy.send_piece("x" * (OWN_BYTES + 200_000), last=False)
        closed = await greedy.receive()
        assert isinstance(closed, CloseConnection)
        assert closed.code == 1013
        assert (await modest.ask("ping"))["result"] == {}


async def test_what_a_client_held_is_there_for_others_when_it_has_left() -> None:
    peer = Peer()
    async with clients_of(peer, 700_000, 2) as (greedy, next_one):
        await greedy.send(read("hold://x", 1, "x" * 600_000))
        await peer.anyone_started.wait()
        await greedy.stream.aclose()
        await peer.anyone_cancelled.wait()
        peer.release.set()
        await next_one.send(read("hold://x", 1, "x" * 600_000))
        assert (await next_one.receive())["result"]["contents"]


async def test_requests_wait_where_there_is_no_room_for_their_answers_but_for_one_of_each_client() -> None:
    peer = Peer()
    async with clients_of(peer, 3 * ANSWER_BYTES, 2) as (greedy, modest):
        for number in range(10):
            await greedy.send(read("hold://x", number))
        await greedy.send({"jsonrpc": "2.0", "id": "refused", "method": 5})
        assert (await greedy.receive())["id"] == "refused"  # so the others were taken
        await peer.anyone_started.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert peer.started == 4
        assert (await modest.ask("ping"))["result"] == {}
        peer.release.set()
        assert sorted([(await greedy.receive())["id"] for _ in range(10)]) == list(range(10))


async def test_an_answer_that_is_no_utf_8_fails_its_request_only() -> None:
    async def list_resources(_context: object, _params: object) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri="file:x", name="\udcff.mp3")])

    with trio.fail_after(20):
        server = Server("files", on_list_resources=list_resources)
        async with served_websocket(server) as port, raw_websocket(port) as client:
            await client.initialize()
            failed = await client.ask("resources/list", id=7)
            assert (failed["id"], failed["error"]["code"]) == (7, -32603)
            assert (await client.ask("ping"))["result"] == {}


# --- the whole process --------------------------------------------------------------------------------


@asynccontextmanager
async def server_process() -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(
        pages_command("ws", "--size", 32 << 20), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def port_of(process: trio.Process) -> int:
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        line += await process.stdout.receive_some()
    return int(line.rsplit(b":", 1)[1].partition(b"/")[0])


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def pages_never_taken(number: int) -> str:
    arguments = {"start": 0, "end": 700_000}
    params = {"uri": "resource://pages", "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "resources/read", "params": params})


def long_texts(number: int) -> str:
    """Each takes four times its length in memory."""
    params = {"x": "a" * 1_000_000 + "\U0001f600"}
    message = {"jsonrpc": "2.0", "id": number, "method": "resources/list", "params": params}
    return json.dumps(message, ensure_ascii=False)


@pytest.mark.parametrize("message", [pages_never_taken, long_texts])
async def test_clients_that_ask_and_never_read_leave_the_server_small(message: Callable[[int], str]) -> None:
    async def flood(port: int) -> None:
        try:
            async with raw_websocket(port) as greedy:
                await greedy.initialize()
                for number in range(MESSAGES):
                    await greedy.send(message(number))
                await trio.sleep_forever()
        except trio.BrokenResourceError:
            pass  # it was cut

    with trio.fail_after(60):
        async with server_process() as process, trio.open_nursery() as nursery:
            port = await port_of(process)
            for _ in range(CLIENTS):
                nursery.start_soon(flood, port)
            async with raw_websocket(port) as honest:
                await honest.initialize()
                for number in range(100):
                    assert (await honest.ask("ping", id=number))["result"] == {}
            assert peak_bytes(process.pid) < PEAK_BYTES
            nursery.cancel_scope.cancel()
