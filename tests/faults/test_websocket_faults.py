"""WebSocket servers that break, lie or fall silent: each costs what it must, and nothing hangs."""

from __future__ import annotations

import json
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
import trio
import trio.testing
import trustme
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest
from wsproto import WSConnection
from wsproto.events import Ping, TextMessage

from playhead import ServerConfig, connect
from playhead.client.transports import websocket as websocket_module
from playhead.client.transports.websocket import WebSocketCarrier
from playhead.client.transports.websocket_opening import WebSocketOptions
from playhead.errors import (
    AccessDeniedError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    PlayheadError,
    UpgradeRefusedError,
    UsageError,
    WebSocketClosedError,
)
from playhead.limits import Limits
from tests.carrier_driver import Driver
from tests.servers.loopback import tcp_server
from tests.servers.websocket_peer import frame, listening, raw_websocket

Script = Callable[[WebSocketConnection], Awaitable[None]]


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[str]:
    """The URL of a server that accepts a connection and follows `script` on it."""

    async def handle(request: WebSocketRequest) -> None:
        await script(await request.accept())

    async with listening(handle) as url:
        yield url


@asynccontextmanager
async def connected(
    url: str, *, limits: Limits | None = None, options: WebSocketOptions | None = None
) -> AsyncIterator[Driver]:
    driver = Driver(limits=limits or Limits())
    carrier = driver.carrier = WebSocketCarrier(url, limits=limits or Limits(), options=options)
    async with carrier.open(driver):
        yield driver


@asynccontextmanager
async def client_of(
    script: Script, *, limits: Limits | None = None, options: WebSocketOptions | None = None
) -> AsyncIterator[Driver]:
    async with scripted(script) as url, connected(url, limits=limits, options=options) as client:
        yield client


async def silent(*_connection: object) -> None:
    """A server that says nothing more."""
    await trio.sleep_forever()


def answer(id_: int, result: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": result})


async def raw(websocket: WebSocketConnection, data: bytes) -> None:
    """Bytes that no library would send."""
    await websocket._stream.send_all(data)


async def close_code(websocket: WebSocketConnection) -> int:
    """The code with which the client closes."""
    with pytest.raises(ConnectionClosed) as caught:
        await websocket.get_message()
    assert caught.value.reason is not None
    return int(caught.value.reason.code)


# --- how it ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"), [(1000, "bye"), (1001, "restarting"), (1011, "out of tape"), (4001, "\x1b[31mred")]
)
async def test_a_close_frame_fails_every_waiting_request_with_its_code_and_words(
    code: int, reason: str
) -> None:
    async def script(websocket: WebSocketConnection) -> None:
        await websocket.get_message()
        await websocket.get_message()
        await websocket.aclose(code, reason)

    async with client_of(script) as client:
        await client.ask(2)
        for id_ in (1, 2):
            failure = await client.error(id_)
            assert isinstance(failure, WebSocketClosedError)
            assert (failure.code, failure.reason) == (code, reason)
            assert f"was closed by the server ({reason!r}), code {code}" in str(failure)
        await client.end()
        assert client.failure is failure
        assert str(failure) in client.carrier.diagnosis()


async def test_a_close_frame_without_a_code_is_told_as_such() -> None:
    async def script(websocket: WebSocketConnection) -> None:
        await websocket.get_message()
        await raw(websocket, b"\x88\x00")
        await websocket.get_message()

    async with client_of(script) as client:
        await client.ask()
        failure = await client.error(1)
        assert isinstance(failure, WebSocketClosedError)
        assert failure.code == 1005


async def test_a_connection_that_is_cut_in_the_middle_of_an_answer_fails_the_request_at_once() -> None:
    async def script(websocket: WebSocketConnection) -> None:
        await websocket.get_message()
        await raw(websocket, frame(answer(1, {"x": "y" * 100}).encode())[:50])
        await trio.aclose_forcefully(websocket._stream)

    async with client_of(script) as client:
        await client.ask()
        failure = await client.error(1)
        assert isinstance(failure, WebSocketClosedError)
        assert failure.code == 1006
        await client.end()


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (b"\x81\x02\xc3\x28", 1007),  # text that is not UTF-8
        (frame(b"x" * 5000 + b"\xc3\x28"), 1007),  # the same in a long frame
        (frame(b"x" * 5000 + b"\xc3"), 1007),  # half a character at its end
        (b"\x81\x7f" + (5000).to_bytes(8, "big") + b"x" * 5000, 1002),  # a length in more bytes than it takes
        (b"\x01\x00" + frame(b"x" * 5000), 1002),  # a new message in the middle of another
        (b"\x81\x85\x01\x02\x03\x04hello", 1002),  # masked by a server
        (b"\xc1\x02{}", 1002),  # a reserved bit
        (b"\x00\x02{}", 1002),  # a continuation of nothing
        (b"\x83\x02{}", 1002),  # an opcode that there isn't
        (b"\x89\x7e\x00\x80" + b"x" * 128, 1002),  # a ping that is too long
    ],
)
async def test_a_broken_frame_ends_the_connection_as_the_rfc_says(broken: bytes, code: int) -> None:
    closed: list[int] = []

    async def script(websocket: WebSocketConnection) -> None:
        await websocket.get_message()
        await raw(websocket, broken)
        closed.append(await close_code(websocket))

    async with client_of(script) as client:
        await client.ask()
        failure = await client.error(1)
        assert isinstance(failure, WebSocketClosedError)
        assert failure.code == code
        assert "was closed by playhead: the server sent" in str(failure)
        await client.end()
        await trio.testing.wait_all_tasks_blocked()
    assert closed == [code]


async def test_leaving_says_goodbye() -> None:
    closed: list[int] = []

    async def script(websocket: WebSocketConnection) -> None:
        closed.append(await close_code(websocket))

    async with client_of(script):
        pass
    assert closed == [1000]


async def test_a_server_that_never_closes_cannot_hold_up_the_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "CLOSE_SECONDS", 0.05)

    async with raw_websocket(silent) as url:
        with trio.fail_after(5):
            async with connected(url):
                pass


async def test_a_cancelled_session_is_left_at_once() -> None:
    async with raw_websocket(silent) as url:
        with trio.CancelScope() as scope:
            async with connected(url):
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught


# --- what costs one request ------------------------------------------------------------------------------


async def test_an_endless_message_ends_the_connection_with_the_limits_name_and_code_1009() -> None:
    closed: list[int] = []

    async def script(websocket: WebSocketConnection) -> None:
        await websocket.get_message()
        await raw(websocket, b"\x01\x7f" + struct.pack("!Q", 1 << 40) + b'{"x":"' + b"y" * 50_000)
        closed.append(await close_code(websocket))

    async with client_of(script, limits=Limits(message_bytes=10_000)) as client:
        await client.ask()
        failure = await client.error(1)
        assert isinstance(failure, LimitError)
        assert failure.limit == "message_bytes"
        await client.end()
        await trio.testing.wait_all_tasks_blocked()
    assert closed == [1009]


async def test_what_is_no_answer_to_anything_is_dropped_and_counted() -> None:
    async def script(websocket: WebSocketConnection) -> None:
        await websocket.get_message()
        for text in ("", "hello", "[]", '{"jsonrpc":"2.0"}', answer(99, {}), "\n" + answer(1, {"n": "\n"})):
            await websocket.send_message(text)
        await websocket.send_message(answer(1, {}))
        await websocket.send_message(b"\x00\x01")
        await websocket.send_message(b'{"jsonrpc":"2.0","id":2,"result":{}}')
        await websocket.send_message(answer(2, {}))
        await websocket.get_message()

    async with client_of(script) as client:
        await client.ask(2)
        assert await client.result(1) == {"n": "\n"}
        assert await client.result(2) == {}
        counted = client.exchange.faults()
        assert (counted.unasked, counted.repeated) == (1, 1)
        assert counted.not_messages == 3
        assert (counted + client.carrier.faults()).not_messages == 5
        assert "2 binary messages were ignored" in client.carrier.diagnosis()


async def test_pings_are_answered_while_a_request_waits_and_the_last_of_a_flood_counts() -> None:
    async def script(websocket: WebSocketConnection) -> None:
        await websocket.get_message()
        with trio.fail_after(10):
            await websocket.ping(b"one")
            await raw(websocket, b"".join(b"\x89\x04%04d" % number for number in range(1000)))
            await websocket.ping(b"last")
        await websocket.send_message(answer(1, {}))
        await websocket.get_message()

    async with client_of(script) as client:
        await client.ask()
        assert await client.result(1) == {}


# --- what the socket does not take -----------------------------------------------------------------------


async def test_frames_are_whole_and_in_order_whoever_is_cancelled_in_the_middle_of_one() -> None:
    full, heard_last = trio.Event(), trio.Event()
    heard: list[int | str] = []
    blocked: dict[int | str, trio.CancelScope] = {}

    async def slow(stream: trio.SocketStream, connection: WSConnection) -> None:
        await full.wait()
        text = ""
        while not heard_last.is_set():
            connection.receive_data(bytes(await stream.receive_some()))
            for event in connection.events():
                if isinstance(event, Ping):
                    continue
                assert isinstance(event, TextMessage), event
                text += event.data
                if event.message_finished:
                    message = json.loads(text)
                    assert message["params"] == {"padding": "x" * 300_000}
                    heard.append(message["id"])
                    text = ""
            if heard and heard[-1] == last:
                heard_last.set()
        await trio.sleep_forever()

    async def request() -> None:
        outgoing = client.request("tools/call", {"padding": "x" * 300_000})
        with trio.CancelScope() as scope:
            blocked[outgoing.id] = scope
            await client.carrier.request(outgoing)
            del blocked[outgoing.id]

    with trio.fail_after(20):
        async with raw_websocket(slow) as url, connected(url) as client, trio.open_nursery() as nursery:
            while len(blocked) < 3:  # until the buffers of the system are full, and two more
                nursery.start_soon(request)
                nursery.start_soon(client.carrier.ping)  # whose frame waits for the end of the other
                await trio.testing.wait_all_tasks_blocked(0.01)
            begun, withdrawn, last = blocked
            blocked[begun].cancel()
            blocked[withdrawn].cancel()
            await trio.testing.wait_all_tasks_blocked()
            full.set()
            await heard_last.wait()
            nursery.cancel_scope.cancel()
    assert heard == [*range(1, int(begun) + 1), last]


# --- silence ---------------------------------------------------------------------------------------------


async def test_a_server_that_answers_no_ping_while_nothing_is_asked_of_it_is_lost() -> None:
    options = WebSocketOptions(ping_seconds=0.02, pong_seconds=0.02)
    async with raw_websocket(silent) as url, connected(url, options=options) as client:
        failure = await client.end()
        assert type(failure) is ConnectionLostError
        assert "not even a pong" in str(failure)
        with pytest.raises(ConnectionLostError, match="not even a pong"):
            await client.ask()
        assert not await client.carrier.ping()


async def test_a_sign_of_life_is_the_answer_to_our_own_ping() -> None:
    async def script(websocket: WebSocketConnection) -> None:
        await websocket.pong(b"\x00\x00\x00\x07")
        await websocket.get_message()

    async with client_of(script) as client:
        with trio.fail_after(10):
            assert await client.carrier.ping()
            assert await client.carrier.ping()


# --- the way in -------------------------------------------------------------------------------------------


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[str]:
    """A server that answers any request with these bytes, and closes."""

    async def handle(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        with suppress(trio.BrokenResourceError):  # the client has heard enough
            await stream.send_all(reply)

    async with tcp_server(handle) as port:
        yield f"ws://127.0.0.1:{port}/mcp?key=secret"


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", AccessDeniedError, "HTTP 401 Unauth"),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\nno!!", AccessDeniedError, "`Origin`"),
        (
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            UpgradeRefusedError,
            "upgrade .HTTP 404 Not",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            UpgradeRefusedError,
            "HTTP 200 OK.: is the path correct",
        ),
        (b"HTTP/1.1 302 Found\r\nlocation: ws://x/\r\ncontent-length: 0\r\n\r\n", UpgradeRefusedError, "302"),
        (b"HTTP/1.1 599 \x1b[31m\r\ncontent-length: 0\r\n\r\n", ConnectError, "599|that is none"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", ConnectError, "invalid answer"),
        (b"", ConnectError, "ended the connection before it answered.*does it require wss:"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n", ConnectError, "invalid answer"),
        (b"x" * 100_000, ConnectError, "invalid answer"),
    ],
)
async def test_a_refused_upgrade_says_what_came(reply: bytes, kind: type[PlayheadError], said: str) -> None:
    async with answering(reply) as url:
        with pytest.raises(kind, match=said) as caught:
            async with connected(url):
                pass
        assert "secret" not in str(caught.value)
        assert "\x1b" not in str(caught.value)
        with pytest.raises(ConnectError, match=said):
            async with connect(url):
                pass


async def test_a_port_where_nobody_listens_is_named() -> None:
    async with answering(b"") as url:
        pass
    with pytest.raises(ConnectError, match="check that the server is running there"):
        async with connected(url):
            pass


async def test_a_server_that_never_answers_the_upgrade_is_given_up() -> None:
    async with tcp_server(silent) as port:
        url = f"ws://127.0.0.1:{port}/mcp"
        with pytest.raises(ConnectError, match=r"did not open a WebSocket in 0\.05 s"):
            async with connected(url, limits=Limits(connect_seconds=0.05)):
                pass
        with pytest.raises(ConnectError, match=r"did not accept the connection in 0\.05 s") as caught:
            async with connect(url, limits=Limits(connect_seconds=0.05)):
                pass
        assert isinstance(caught.value.__cause__, DeadlineError)


async def test_headers_credentials_and_the_subprotocol_are_offered_and_none_has_to_be_taken() -> None:
    seen: list[tuple[dict[str, str], tuple[str, ...]]] = []

    async def handle(request: WebSocketRequest) -> None:
        headers = {name.decode(): value.decode() for name, value in request.headers}
        seen.append((headers, request.proposed_subprotocols))
        await request.accept()

    async with listening(handle) as url:
        options = WebSocketOptions(headers={"X-Key": "k", "Origin": "http://localhost"})
        carrier = WebSocketCarrier(url.replace("//", "//ada:pw@"), options=options)
        async with carrier.open(Driver()):
            assert carrier.subprotocol is None
    ((headers, offered),) = seen
    assert headers["x-key"] == "k"
    assert headers["origin"] == "http://localhost"
    assert headers["authorization"] == "Basic YWRhOnB3"
    assert offered == ("mcp",)


async def test_credentials_take_the_place_of_a_header_of_that_name() -> None:
    seen: list[list[bytes]] = []

    async def handle(request: WebSocketRequest) -> None:
        seen.append([value for name, value in request.headers if name.lower() == b"authorization"])
        await request.accept()

    async with listening(handle) as url:
        options = WebSocketOptions(headers={"Authorization": "Bearer t"})
        async with connected(url.replace("//", "//ada:pw@"), options=options):
            pass
    assert seen == [[b"Basic YWRhOnB3"]]


async def test_a_name_that_dns_cannot_have_is_nobodys() -> None:
    with pytest.raises(ConnectError, match="could not connect to"):
        async with connected(f"ws://{'a' * 64}.example/mcp"):
            pass


@pytest.mark.parametrize("headers", [{"Host": "x"}, {"Sec-WebSocket-Key": "x"}, {"A": "secret\x00"}])
async def test_a_header_that_cannot_be_sent_is_refused_without_its_value(headers: dict[str, str]) -> None:
    async with answering(b"") as url:
        with pytest.raises(UsageError) as caught:
            async with connected(url, options=WebSocketOptions(headers=headers)):
                pass
        assert "secret" not in str(caught.value)


async def test_tls_works_as_over_http(tmp_path: Any) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)

    async def handle(request: WebSocketRequest) -> None:
        await (await request.accept()).get_message()

    async with listening(handle, tls=context) as url:
        trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        async with connected(url, options=WebSocketOptions(verify=trusting)):
            pass
        unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        async with connected(url, options=WebSocketOptions(verify=unverified)):
            pass
        with pytest.raises(ConnectError, match=r"tls\.authorities"):
            async with connected(url):
                pass
        with pytest.raises(ConnectError, match=r"tls\.authorities"):
            async with connect(ServerConfig(name="it", url=url)):
                pass


async def test_oauth_is_refused_with_what_to_give_instead(tmp_path: Any) -> None:
    from playhead.config.auth import OAuthLogin

    config = ServerConfig(name="it", url="ws://127.0.0.1:9/mcp", auth=OAuthLogin(token_folder=tmp_path))
    with pytest.raises(ConfigError, match="bearer token or `headers`"):
        async with connect(config):
            pass


class AsksElsewhere(httpx2.Auth):
    """Credentials that are fetched from another server first, as OAuth's are."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        yield httpx2.Request("POST", "https://login.example.org/token")
        yield request


async def test_credentials_that_have_to_be_fetched_are_refused() -> None:
    async with answering(b"") as url:
        with pytest.raises(ConfigError, match="set a bearer token or a header"):
            async with connected(url, options=WebSocketOptions(auth=AsksElsewhere())):
                pass
