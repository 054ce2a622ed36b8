"""A hostile WebSocket client gets the documented answer, and the server goes on answering others."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from mcp.server import Server
from wsproto.events import CloseConnection, TextMessage

from playhead.servers.access import Access
from playhead.servers.http_connection import HttpServerOptions
from playhead.servers.websocket import WebSocketServerOptions
from playhead.testing.transports import Peer
from tests.servers.raw_websocket import RawWebSocket, raw_websocket, read, upgrade
from tests.servers.served_websocket import served_websocket

SHORT = 0.05
"""A limit that a test waits for."""
LONG = 30.0
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "echo://hello"}}


def options(
    *,
    message_bytes: int = 4096,
    message_seconds: float = LONG,
    silence_seconds: float = LONG,
    ping_seconds: float = LONG,
    send_seconds: float = LONG,
    in_flight: int = 32,
    waiting: int = 1024,
    waiting_bytes: int = 1 << 22,
) -> WebSocketServerOptions:
    return WebSocketServerOptions(
        message_bytes=message_bytes,
        message_seconds=message_seconds,
        silence_seconds=silence_seconds,
        ping_seconds=ping_seconds,
        send_seconds=send_seconds,
        requests_in_flight=in_flight,
        requests_waiting=waiting,
        waiting_bytes=waiting_bytes,
    )


HTTP = HttpServerOptions(closing_seconds=SHORT, head_seconds=LONG)


@asynccontextmanager
async def serving(
    limits: WebSocketServerOptions | None = None,
    *,
    peer: Peer | None = None,
    http: HttpServerOptions = HTTP,
    access: Access | None = None,
) -> AsyncIterator[int]:
    """A server's port; in the end another client is still answered, by its name and with its token."""
    server: Server[Any] = (peer or Peer()).server()
    with trio.fail_after(20):
        async with served_websocket(server, options=limits or options(), http=http, access=access) as port:
            yield port
            token = access.token if access is not None else None
            headers = [f"Authorization: Bearer {token}"] if token else []
            async with raw_websocket(port, *headers) as other:
                assert await echo(other) == "hello"


async def echo(websocket: RawWebSocket) -> str:
    await websocket.initialize()
    answer = await websocket.ask("resources/read", {"uri": "echo://hello"})
    text: str = answer["result"]["contents"][0]["text"]
    return text


@asynccontextmanager
async def client_of(limits: WebSocketServerOptions | None = None, **more: Any) -> AsyncIterator[RawWebSocket]:
    async with serving(limits, **more) as port, raw_websocket(port) as websocket:
        await websocket.initialize()
        yield websocket


async def closed_with(websocket: RawWebSocket) -> int:
    """The code that ends the connection; messages before it are passed over."""
    while not isinstance(message := await websocket.receive(), CloseConnection):
        pass
    return int(message.code)


# --- messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "request_id"),
    [
        ("{", -32700, None),
        ("", -32700, None),
        ('{"jsonrpc":"2.0","id":1,"method":NaN}', -32700, None),
        ('{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32700, None),
        ("[]", -32600, None),
        (json.dumps([HELLO]), -32600, None),
        ("7", -32600, None),
        ("{}", -32600, None),
        ('{"id":3,"method":"ping"}', -32600, 3),
        ('{"jsonrpc":"1.0","id":"three","method":"ping"}', -32600, "three"),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":4,"method":5}', -32600, 4),
        ('{"jsonrpc":"2.0","id":4,"method":"ping","params":[1]}', -32602, 4),
        ('{"jsonrpc":"2.0","id":4,"result":5}', -32600, None),
        ('{"jsonrpc":"2.0","id":4,"method":"ping","params":' + '{"a":' * 200 + "1" + "}" * 201, -32600, None),
    ],
)
async def test_what_is_no_message_is_answered_with_its_error(
    text: str, code: int, request_id: object
) -> None:
    async with client_of() as client:
        await client.send_text(text)
        answer = await client.receive()
        assert (answer["error"]["code"], answer["id"]) == (code, request_id)
        assert "id" in answer
        assert (await client.ask("ping", id=2))["result"] == {}


async def test_a_message_of_too_many_values_is_not_decoded() -> None:
    async with client_of(options(message_bytes=1 << 20)) as client:
        await client.send_text(
            '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[' + "[]," * 60_000 + "1]}}"
        )
        answer = await client.receive()
        assert answer["error"]["code"] == -32600
        assert "json_values" in answer["error"]["message"]


@pytest.mark.parametrize("request_id", ["seven", 7, 0, -1, 2**60, "", "7"])
async def test_an_id_comes_back_as_it_went(request_id: object) -> None:
    async with client_of() as client:
        answer = await client.ask("ping", id=request_id)
        assert answer == {"jsonrpc": "2.0", "id": request_id, "result": {}}
        assert type(answer["id"]) is type(request_id)


@pytest.mark.parametrize("notification", ["initialized", "notifications/initialized"])
async def test_the_bare_name_of_initialized_is_understood(notification: str) -> None:
    async with serving() as port, raw_websocket(port) as client:
        answer = await client.initialize(notification=notification)
        assert answer["result"]["protocolVersion"] == "2024-11-05"
        read = await client.ask("resources/read", {"uri": "echo://x"})
        assert read["result"]["contents"][0]["text"] == "x"


@pytest.mark.parametrize("announced", [4097, 70_000, 2**63 - 1])
async def test_a_frame_whose_head_announces_too_much_closes_with_1009_before_its_payload(
    announced: int,
) -> None:
    extended = (
        b"\xfe" + struct.pack(">H", announced)
        if announced < 2**16
        else b"\xff" + struct.pack(">Q", announced)
    )
    async with client_of() as client:  # the head alone, byte by byte
        for at in range(len(extended) + 1):
            await client.stream.send_all((b"\x81" + extended)[at : at + 1])
        assert await closed_with(client) == 1009
    async with client_of() as client:  # in the packet of a complete message
        message = client.frames.send(TextMessage(data=json.dumps(HELLO)))
        await client.stream.send_all(message + b"\x81" + extended)
        assert await closed_with(client) == 1009


@asynccontextmanager
async def impatient_client(frames: bytes) -> AsyncIterator[RawWebSocket]:
    """A client that sent `frames` right behind its upgrade."""
    async with serving() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        client = RawWebSocket(stream, b"HTTP/1.1 101", b"")
        await stream.send_all(upgrade("/mcp", port) + frames)
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
        client.frames.receive_data(received.partition(b"\r\n\r\n")[2])
        yield client


async def test_a_long_frame_right_behind_the_upgrade_is_refused_at_its_head() -> None:
    async with impatient_client(b"\x81\xff" + struct.pack(">Q", 1 << 40)) as client:
        assert await closed_with(client) == 1009


async def test_an_id_is_free_as_soon_as_its_answer_was_sent() -> None:
    async with client_of() as client:
        for _ in range(2000):
            assert "result" in await client.ask("resources/read", {"uri": "echo://hello"}, id=7)


async def test_a_notification_with_the_id_null_learns_that_a_notification_has_none() -> None:
    async with client_of() as client:
        await client.send({"jsonrpc": "2.0", "id": None, "method": "notifications/initialized"})
        answer = await client.receive()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert "a notification has no" in answer["error"]["message"]


@asynccontextmanager
async def flood(client: RawWebSocket, first: bytes, more: bytes) -> AsyncIterator[None]:
    """Send `more` and `more` meanwhile, and on until the connection is cut."""
    client.answers_close = False

    async def send() -> None:
        with suppress(trio.BrokenResourceError):
            await client.stream.send_all(first)
            while True:
                await client.stream.send_all(more)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        yield


async def test_a_client_that_goes_on_sending_a_long_message_is_told_and_cut() -> None:
    async with client_of() as client:
        first, more = (client.frames.send(_piece("x" * 50_000)) for _ in range(2))
        async with flood(client, first, more):
            assert await closed_with(client) == 1009


async def test_a_message_in_many_fragments_is_put_together() -> None:
    async with client_of() as client:
        text = json.dumps(HELLO)
        for letter in text:
            await client.send_piece(letter, last=False)
            await client.send_piece("", last=False)
        await client.send_piece("", last=True)
        assert (await client.receive())["result"]["contents"][0]["text"] == "hello"


async def test_endless_empty_fragments_are_cut_though_they_have_no_length() -> None:
    async with client_of() as client:
        first, empty = client.frames.send(_piece("")), b"\x00\x80\0\0\0\0" * 1000
        async with flood(client, first, empty):
            assert await closed_with(client) == 1008


async def test_a_message_that_is_never_finished_is_cut_in_time() -> None:
    async with client_of(options(message_seconds=SHORT)) as client:
        await client.send_piece("{", last=False)
        assert await closed_with(client) == 1008


def masked(head: int, payload: bytes) -> bytes:
    """A frame of at most 65,535 bytes, masked with zeros."""
    n_bytes = len(payload)
    length = bytes([0x80 | n_bytes]) if n_bytes < 126 else b"\xfe" + struct.pack("!H", n_bytes)
    return bytes([head]) + length + bytes(4) + payload


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked(0x81, b"x" * 4097), 1009),
        (masked(0x81, "\u00e9".encode() * 2049), 1009),  # the length is counted in bytes
        (masked(0x01, b"x") + masked(0x00, b"x") * 5000, 1009),
        (b"\x81\xff" + struct.pack("!Q", 1 << 62) + bytes(4) + b"x" * 5000, 1009),
        (masked(0x82, b"{}"), 1003),
        (b"\x81\x05hello", 1002),  # not masked
        (masked(0x81, b"\xff\xff"), 1007),
        (masked(0xF1, b""), 1002),  # a reserved bit: compression was not agreed upon
        (masked(0x83, b""), 1002),  # an unknown opcode
        (masked(0x80, b""), 1002),  # a continuation of nothing
        (masked(0x89, b"x" * 126), 1002),  # a long ping
        (masked(0x88, b"x"), 1002),  # half a close code
        (masked(0x88, struct.pack("!H", 999)), 1002),  # a code that may not be sent
        (masked(0x88, struct.pack("!H", 4001) + b"enough"), 4001),  # the client's own close
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_frames_that_end_the_connection_close_it_with_their_code(data: bytes, code: int) -> None:
    async with client_of() as client:
        await client.stream.send_all(data)
        assert await closed_with(client) == code


# --- requests -----------------------------------------------------------------------------------------


async def test_further_requests_wait_for_their_turn_and_all_are_answered() -> None:
    peer = Peer()
    async with client_of(options(in_flight=2), peer=peer) as client:
        for number in range(5):
            await client.send(read("hold://x", number))
        await peer.anyone_started.wait()
        await client.send(read("hold://x", 5))
        await trio.testing.wait_all_tasks_blocked(SHORT)
        assert peer.started == 2
        peer.release.set()
        assert sorted([(await client.receive())["id"] for _ in range(6)]) == list(range(6))
        assert peer.started == 6


async def test_a_request_that_is_cancelled_before_its_turn_is_dropped() -> None:
    peer = Peer()
    async with client_of(options(in_flight=1), peer=peer) as client:
        await client.send(read("hold://first", 1))
        await client.send(read("hold://second", 2))
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
        await client.send(cancelled)
        await client.send(read("echo://third", 3))
        peer.release.set()
        assert [(await client.receive())["id"] for _ in range(2)] == [1, 3]
        assert peer.started == 1


async def test_a_cancelled_request_makes_room_for_the_next() -> None:
    peer = Peer()
    async with client_of(options(in_flight=1), peer=peer) as client:
        await client.send(read("hold://first", 1))
        await client.send(read("echo://second", 2))
        await peer.anyone_started.wait()
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        assert (await client.receive())["id"] == 2


async def test_one_request_too_many_is_refused_and_the_others_go_on() -> None:
    peer = Peer()
    async with client_of(options(in_flight=1, waiting=3), peer=peer) as client:
        for number in range(4):
            await client.send(read("hold://x", number))
        refused = await client.receive()
        assert (refused["id"], refused["error"]["code"]) == (3, -32603)
        assert "3" in refused["error"]["message"]
        peer.release.set()
        assert [(await client.receive())["id"] for _ in range(3)] == [0, 1, 2]


async def test_waiting_requests_are_bounded_in_bytes_too() -> None:
    peer = Peer()
    async with client_of(options(in_flight=1, waiting_bytes=3000), peer=peer) as client:
        await client.send(read("hold://x", 1))
        await client.send(read("hold://" + "x" * 3000, 2))
        assert (await client.receive())["error"]["code"] == -32603
        peer.release.set()
        assert (await client.receive())["id"] == 1


async def test_an_id_that_is_in_use_is_refused() -> None:
    peer = Peer()
    async with client_of(peer=peer) as client:
        await client.send(read("hold://x", 1))
        assert (await client.ask("ping", id=1))["error"]["code"] == -32600
        peer.release.set()
        assert (await client.receive())["result"]["contents"][0]["text"] == "x"


async def test_a_client_that_leaves_takes_its_requests_along() -> None:
    peer = Peer()
    async with client_of(peer=peer) as client:
        await client.send(read("hold://x", 1))
        await peer.anyone_started.wait()
        await client.stream.aclose()
        await peer.anyone_cancelled.wait()


# --- time ---------------------------------------------------------------------------------------------


async def test_a_client_that_never_reads_is_cut_and_others_are_answered_meanwhile() -> None:
    peer = Peer()
    async with serving(options(send_seconds=1.0), peer=peer) as port, raw_websocket(port) as slow:
        await slow.initialize()
        await slow.send(read("hold://x", 100))
        for number in range(31):
            await slow.send(read(f"big://{1 << 20}", number))
        async with raw_websocket(port) as other:
            await other.initialize()
            for _ in range(20):
                answer = await other.ask("resources/read", {"uri": "echo://on"})
                assert answer["result"]["contents"][0]["text"] == "on"
        # The server gives up while nobody reads; what the kernel holds is all that comes then.
        await peer.anyone_cancelled.wait()
        received = 0
        try:
            while data := await slow.stream.receive_some(1 << 20):
                received += len(data)
        except trio.BrokenResourceError:
            pass
        assert received < 32 << 20


async def test_pings_wait_until_a_client_has_taken_a_long_answer_and_it_is_not_silent_meanwhile(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with served_websocket(Peer().server()) as port, raw_websocket(port) as client:
        await client.initialize()
        await client.send(read(f"big://{1 << 24}", 5))
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked(SHORT)  # the answer is half out
            mock_clock.jump(15)
            taken = 0
            while taken < 1 << 21:
                data = await client.stream.receive_some(1 << 20)
                client.frames.receive_data(bytes(data))
                taken += len(data)
        answer = await client.receive()
        assert len(answer["result"]["contents"][0]["text"]) == 1 << 24
        assert (await client.ask("ping"))["result"] == {}


async def test_a_silent_client_is_pinged_and_cut_when_it_does_not_answer() -> None:
    async with client_of(options(ping_seconds=SHORT, silence_seconds=0.5)) as client:
        client.answers_pings = False
        assert await closed_with(client) == 1008
        assert client.pings > 1


async def test_a_client_that_is_silent_from_the_handshake_on_is_cut_after_a_minute(
    mock_clock: trio.testing.MockClock,
) -> None:
    # Time stands still but for the jumps, so that no deadline depends on the machine.
    async with served_websocket(Peer().server()) as port, raw_websocket(port) as client:
        client.answers_pings = False
        await trio.testing.wait_all_tasks_blocked(SHORT)
        mock_clock.jump(59)
        async with trio.open_nursery() as nursery:

            async def stop_when_nothing_happens() -> None:
                await trio.testing.wait_all_tasks_blocked(SHORT)
                nursery.cancel_scope.cancel()

            nursery.start_soon(stop_when_nothing_happens)
            raise AssertionError(await client.receive())
        mock_clock.jump(2)
        closed = await client.receive()
        assert isinstance(closed, CloseConnection)
        assert closed.code == 1008


async def test_an_idle_client_that_answers_pings_stays() -> None:
    async with client_of(options(ping_seconds=SHORT, silence_seconds=0.5)) as client:
        with trio.move_on_after(1.0):
            raise AssertionError(await client.receive())
        assert client.pings > 5
        assert (await client.ask("ping"))["result"] == {}


async def test_an_idle_client_outlives_the_times_of_http() -> None:
    http = HttpServerOptions(head_seconds=SHORT * 4, keep_alive_seconds=SHORT, body_seconds=SHORT)
    async with serving(http=http) as port, raw_websocket(port) as client:
        await client.initialize()
        with trio.move_on_after(SHORT * 8):
            raise AssertionError(await client.receive())
        assert (await client.ask("ping"))["result"] == {}


async def test_half_a_handshake_is_cut_in_time() -> None:
    http = HttpServerOptions(head_seconds=0.5, closing_seconds=SHORT)
    async with serving(http=http) as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(upgrade("/mcp", port)[:-2])
        assert await stream.receive_some() == b""


async def test_a_client_that_speaks_before_it_was_answered_is_heard() -> None:
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    async with impatient_client(masked(0x81, ping.encode())) as client:
        assert (await client.receive())["id"] == 1


# --- the handshake ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Origin: https://evil.example"], 403),
        (["Origin: null"], 403),
        (["Origin: http://localhost.evil.example"], 403),
        (["Host: evil.example"], 421),
        (["Host: 127.0.0.1.evil.example:80"], 421),
        (["Authorization: Bearer wrong"], 401),
        (["Authorization: Basic c2VjcmV0"], 401),
        (["Authorization: Bearer"], 401),
        ([], 401),
        (["Authorization: Bearer s3cret", "Authorization: Bearer wrong"], 401),
        (["Authorization: Bearer s3cret", "Origin: https://evil.example"], 403),
        (["Authorization: Bearer s3cret"], 101),
        (["Authorization: Bearer s3cret", "Origin: http://localhost:5173"], 403),
        (["Authorization: Bearer s3cret", "Origin: http://localhost"], 403),
        (["authorization: bearer s3cret", "Host: localhost:80", "Origin: http://127.0.0.1"], 101),
        (["Authorization: Bearer s3cret", "Origin: https://app.example"], 101),
        (["Authorization: Bearer s3cret", "Host: localhost"], 101),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_who_may_not_ask_is_told_before_the_upgrade(headers: list[str], status: int) -> None:
    access = Access.for_host("127.0.0.1", web_origins=["https://app.example"], token="s3cret")
    async with serving(access=access) as port, raw_websocket(port, *headers) as client:
        assert client.status == status
        assert (b"www-authenticate: Bearer" in client.head) == (status == 401)
        assert b"s3cret" not in client.head


@pytest.mark.parametrize(
    "header",
    [
        "Sec-WebSocket-Version: 8",
        "Sec-WebSocket-Protocol: \xff\xfe",
        "Sec-WebSocket-Extensions: \xff",
        "Content-Length: x",
    ],
)
async def test_a_handshake_that_is_none_is_refused(header: str) -> None:
    async with serving() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        head = upgrade("/mcp", port, "X: y").decode().replace("X: y", header)
        if "Version" in header:
            head = head.replace("Sec-WebSocket-Version: 13\r\n", "")
        await stream.send_all(head.encode("latin-1"))
        received = b""
        while data := await stream.receive_some():
            received += data
        assert received.split()[1] == b"400"


async def test_a_handshake_of_http_1_0_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        head = upgrade("/mcp", port).replace(b"HTTP/1.1", b"HTTP/1.0")
        await stream.send_all(head.replace(f"Host: 127.0.0.1:{port}\r\n".encode(), b""))
        assert b"".join([data async for data in stream]).startswith(b"HTTP/1.1 400 ")
    assert not caplog.records


async def test_an_unknown_path_is_refused() -> None:
    async with serving() as port, raw_websocket(port, path="/elsewhere") as client:
        assert client.status in (403, 404)


@pytest.mark.parametrize(("offered", "taken"), [("mcp", True), ("chat, mcp", True), ("chat", False)])
async def test_the_subprotocol_is_taken_when_it_is_offered(offered: str, taken: bool) -> None:
    async with serving() as port, raw_websocket(port, f"Sec-WebSocket-Protocol: {offered}") as client:
        assert client.status == 101
        assert (b"sec-websocket-protocol: mcp" in client.head.lower()) == taken


async def test_compression_is_not_taken() -> None:
    offer = "Sec-WebSocket-Extensions: permessage-deflate"
    async with serving() as port, raw_websocket(port, offer) as client:
        assert b"deflate" not in client.head
        assert await echo(client) == "hello"


def _piece(text: str) -> TextMessage:
    return TextMessage(data=text, message_finished=False)
