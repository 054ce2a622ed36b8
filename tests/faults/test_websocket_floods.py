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
from wsproto.events import CloseConnection, TextMessage

from playhead.servers.http_connection import HttpServerOptions
from playhead.servers.websocket import WebSocketServerOptions
from playhead.servers.websocket_frames import OWN_BYTES
from playhead.testing.transports import Peer
from tests.servers.launch import pages_command
from tests.servers.raw_websocket import RawWebSocket, raw_websocket, read
from tests.servers.served_websocket import served_websocket

PEAK_BYTES = 400_000_000
CLIENTS = 32
MESSAGES = 16


@asynccontextmanager
async def clients_of(
    peer: Peer, slots: int, count: int, options: WebSocketServerOptions | None = None
) -> AsyncIterator[list[RawWebSocket]]:
    with trio.fail_after(20):
        async with (
            served_websocket(peer.server(), http=HttpServerOptions(requests=slots), options=options) as port,
            AsyncExitStack() as stack,
        ):
            clients = [await stack.enter_async_context(raw_websocket(port)) for _ in range(count)]
            for client in clients:
                await client.initialize()
            yield clients


# --- the bounds ---------------------------------------------------------------------------------------


LONG_TEXT = "x" * 2 * OWN_BYTES


async def test_a_long_message_waits_for_a_slot_and_small_ones_are_answered_meanwhile() -> None:
    peer = Peer()
    async with clients_of(peer, 1, 3) as (greedy, patient, modest):
        await greedy.send(read("hold://x", 1, text=LONG_TEXT))
        await peer.anyone_started.wait()
        await patient.send(read("hold://x", 2, text=LONG_TEXT))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert peer.started == 1
        assert (await modest.ask("ping"))["result"] == {}
        peer.release.set()
        assert (await greedy.receive())["id"] == 1
        assert (await patient.receive())["id"] == 2


async def test_a_long_message_that_gets_no_slot_in_time_closes_with_1013() -> None:
    peer = Peer()
    async with clients_of(peer, 1, 3, WebSocketServerOptions(message_seconds=0.1)) as (greedy, late, modest):
        await greedy.send(read("hold://x", 1, text=LONG_TEXT))
        await peer.anyone_started.wait()
        await late.send(read("hold://x", 1, text=LONG_TEXT))
        closed = await late.receive()
        assert isinstance(closed, CloseConnection)
        assert closed.code == 1013
        assert (await modest.ask("ping"))["result"] == {}


async def test_what_a_client_held_is_there_for_others_when_it_has_left() -> None:
    peer = Peer()
    async with clients_of(peer, 1, 2) as (greedy, next_one):
        await greedy.send(read("hold://x", 1, text=LONG_TEXT))
        await peer.anyone_started.wait()
        await greedy.stream.aclose()
        await peer.anyone_cancelled.wait()
        peer.release.set()
        await next_one.send(read("hold://x", 1, text=LONG_TEXT))
        assert (await next_one.receive())["result"]["contents"]


async def test_requests_wait_where_there_is_no_slot_but_for_one_of_each_client() -> None:
    peer = Peer()
    async with clients_of(peer, 3, 2) as (greedy, modest):
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


@pytest.mark.slow("a server process that many clients flood for as long as it lets them")
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


@pytest.mark.slow("600 MB are sent to a server process")
async def test_a_message_that_is_too_long_is_not_collected_after_it_was_refused() -> None:
    with trio.fail_after(60):
        async with server_process() as process:
            port = await port_of(process)
            async with raw_websocket(port) as greedy:
                first = greedy.frames.send(TextMessage(data="x" * 1_000_000, message_finished=False))
                more = b"\x00\xff" + (1_000_000).to_bytes(8, "big") + bytes(4) + b"x" * 1_000_000
                sent = 0
                try:
                    await greedy.stream.send_all(first)
                    for _ in range(600):
                        await greedy.stream.send_all(more)
                        sent += 1
                except trio.BrokenResourceError:
                    pass  # it was cut
                print(f"{sent} MB were sent; the peak is {peak_bytes(process.pid) / 1e6:.0f} MB")
            async with raw_websocket(port) as honest:
                await honest.initialize()
                assert (await honest.ask("ping"))["result"] == {}
            assert peak_bytes(process.pid) < PEAK_BYTES / 2
