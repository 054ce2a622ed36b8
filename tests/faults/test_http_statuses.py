"""The error for each HTTP status in place of an answer, with and without a JSON-RPC error in its body."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.utils import formatdate

import pytest

from playhead.client import Session, connect
from playhead.errors import (
    AccessDeniedError,
    ConnectError,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    RangePastEndError,
    ServerError,
    SessionLostError,
)
from playhead.retry import retry_after_seconds
from tests.servers.raw_http import Exchange, Handler, raw_http

PAGE = {"contents": [{"uri": "x:", "blob": "eHh4"}]}
NOON = 784_111_777.0
"""Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110's examples."""


def plain(status: int, text: str = "no", headers: str = "") -> Handler:
    async def answer(exchange: Exchange) -> None:
        await exchange.body(text.encode(), status=status, kind="text/plain", headers=headers)

    return answer


def json_rpc(status: int, code: int, message: str = "no", headers: str = "") -> Handler:
    async def answer(exchange: Exchange) -> None:
        error = {"code": code, "message": message}
        body = {"jsonrpc": "2.0", "id": exchange.message["id"], "error": error}
        await exchange.json(body, status=status, headers=headers)

    return answer


async def failure(session: Session) -> PlayheadError:
    with pytest.raises(PlayheadError) as caught:
        await session.read_resource("x:")
    return caught.value


async def failure_of(answer: Handler) -> PlayheadError:
    """The error of a read that is answered so."""
    async with raw_http(answer) as server, connect(server.url) as session:
        return await failure(session)


LATER = "retry-after: 7\r\n"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        *((status, plain(status, "come back later", LATER)) for status in (500, 501, 520)),
        *(
            (status, answer)
            for status in (408, 425, 429, 502, 503, 504)
            for answer in (
                plain(status, "come back later", LATER),
                json_rpc(status, -32602, "come back later", LATER),  # as a gateway may put into the body
            )
        ),
    ],
)
async def test_a_status_that_may_pass_is_retryable_and_says_when(status: int, answer: Handler) -> None:
    error = await failure_of(answer)
    assert type(error) is HttpStatusError
    assert (error.status, error.retry_after_seconds) == (status, 7.0)
    assert "come back later" in str(error)


@pytest.mark.parametrize("status", [400, 404, 409, 410, 413, 422, 451])
async def test_a_refusal_keeps_its_status(status: int) -> None:
    error = await failure_of(plain(status))
    assert type(error) is HttpRefusedError
    assert error.status == status


@pytest.mark.parametrize("status", [400, 413, 500, 502])
@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("invalid resource URI: x:\n", "text/plain; charset=utf-8", ": invalid resource URI: x:"),
        ('{"detail": "message too large"}', "application/json", ": message too large"),
        ('{"error": {"message": "no such backend", "code": "x"}}', "application/json", ": no such backend"),
        ('{"error": ["x"]}', "application/json", ""),
        ("[" * 60_000, "application/json", ""),
        ("<html>502</html>", "text/html", ""),
        ("", "text/plain", ""),
        ("x" * 60_000, "text/plain", "xxxx…"),
        ("x" * 70_000, "text/html", ""),
    ],
)
async def test_the_words_of_a_gateway_are_in_the_error(status: int, body: str, kind: str, words: str) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body(body.encode(), status=status, kind=kind)

    error = await failure_of(answer)
    assert type(error) is (HttpRefusedError if status < 500 else HttpStatusError)
    without = "is it an MCP endpoint?" if status < 500 else f"HTTP {status} X"
    assert str(error).endswith(words or without)
    assert len(str(error)) < 1000


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("answer", [plain, lambda status: json_rpc(status, -32602)], ids=["plain", "json"])
async def test_a_denied_access_is_one_whatever_the_body(
    answer: Callable[[int], Handler], status: int
) -> None:
    error = await failure_of(answer(status))
    assert isinstance(error, AccessDeniedError)
    assert error.status == status


@pytest.mark.parametrize(
    ("status", "code"), [(400, -32602), (400, -32000), (404, -32601), (404, -32002), (500, -32603), (500, 7)]
)
async def test_a_json_rpc_error_in_the_body_is_the_servers_own_answer(status: int, code: int) -> None:
    error = await failure_of(json_rpc(status, code, "no such thing"))
    assert type(error) is ServerError
    assert (error.code, error.server_message) == (code, "no such thing")


async def test_a_json_rpc_error_is_read_under_any_content_type() -> None:
    async def answer(exchange: Exchange) -> None:
        body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"HTTP 416"}}'
        await exchange.body(body, status=400, kind="text/plain")

    assert type(await failure_of(answer)) is RangePastEndError


@pytest.mark.parametrize("body", [b'{"error":{"code":"x","message":"m"}}', b'{"error":{"message":"m"}}'])
async def test_an_error_without_a_number_is_no_json_rpc_error(body: bytes) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body(body, status=422)

    assert type(await failure_of(answer)) is HttpRefusedError


async def test_a_server_that_is_busy_at_the_handshake_says_when_to_come_back() -> None:
    async def busy(exchange: Exchange) -> bool:
        await plain(503, headers="retry-after: 9\r\n")(exchange)
        return True

    async with raw_http(plain(500)) as server:
        server.greet = busy
        with pytest.raises(ConnectError) as caught:
            async with connect(server.url):
                raise AssertionError("connected")
    assert caught.value.retry_after_seconds == 9.0


async def lost_in_an_event_stream(exchange: Exchange) -> None:
    error = {"code": -32600, "message": "Session not found"}
    answer = json.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})
    await exchange.body(f"data: {answer}\n\n".encode(), kind="text/event-stream")


LOST = [
    lost_in_an_event_stream,
    plain(404, ""),
    json_rpc(404, -32600, "Session not found"),
    json_rpc(404, -32001, "Session not found"),
    json_rpc(200, -32600, "Session not found"),
    plain(400, "Bad Request: No valid session ID provided"),
    json_rpc(400, -32000, "Bad Request: No valid session ID provided"),
    plain(400, "Bad Request: Server not initialized"),
    json_rpc(400, -32000, "Bad Request: Server not initialized"),
    plain(400, "Invalid session ID\n"),
    json_rpc(400, -32600, "Session expired"),
    json_rpc(404, -32600, "Not Found: Invalid or expired session ID"),
]


@pytest.mark.requirement("MCP-09")
@pytest.mark.parametrize("lost", LOST)
async def test_a_session_that_the_server_does_not_know_is_renewed_before_the_retry(lost: Handler) -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.headers["mcp-session-id"] == "s-1":
            await lost(exchange)
        else:
            await exchange.result(PAGE)

    async with raw_http(handle, session="s") as server, connect(server.url) as session:
        assert isinstance(await failure(session), SessionLostError)
        assert (await session.read_resource("x:")).blobs == ("eHh4",)
        assert session.statistics().reconnects == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (json_rpc(400, -32602, "Unknown resource: no valid session ID.mp3"), ServerError),
        (json_rpc(404, -32002, "Resource not found: session.mp3"), ServerError),
        (plain(400, "the session is busy"), HttpRefusedError),
        (json_rpc(200, -32000, "Session not found"), ServerError),
    ],
)
async def test_an_error_about_something_else_costs_no_session(
    answer: Handler, kind: type[PlayheadError]
) -> None:
    async with raw_http(answer, session="s") as server, connect(server.url) as session:
        assert type(await failure(session)) is kind
        assert session.statistics().reconnects == 0


@pytest.mark.parametrize(
    "refuse",
    [
        json_rpc(404, -32600, "Session not found"),
        json_rpc(400, -32600, "Bad Request: Mcp-Session-Id header is required"),
        json_rpc(200, -32601, "Method not found"),
        plain(400, "no"),
        plain(404, ""),
        plain(405, ""),
        plain(500, "it broke"),
        plain(202, ""),
        plain(200, "hello"),
    ],
)
async def test_behaviour_8_a_server_that_refuses_the_probe_in_any_words_is_greeted_in_the_old_way(
    refuse: Handler,
) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result(PAGE)

    async with raw_http(handle, session="s") as server:

        async def greet(exchange: Exchange) -> bool:
            if exchange.method != "server/discover":
                return await server.handshake(exchange)
            await refuse(exchange)
            return True

        server.greet = greet
        async with connect(server.url) as session:
            assert (await session.read_resource("x:")).blobs == ("eHh4",)
        greeting = server.headers[server.methods.index("initialize")]
    assert "mcp-protocol-version" not in greeting
    assert "mcp-method" not in greeting


async def test_without_a_session_none_is_lost() -> None:
    assert type(await failure_of(plain(400, "No valid session ID provided"))) is HttpRefusedError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("1.5", 1.5),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        ("Sun, 06 Nov 1994 10:50:37 +0200", 60.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("1e9", None),
        ("9" * 400, None),
        ("Sun, 06 Nov 99999999 08:50:37 GMT", None),
        ("Sun, 06 Nov 1994 08:50:37 GMT" * 100, None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    headers = {} if text is None else {"retry-after": text}
    assert retry_after_seconds(headers, now=NOON) == seconds


async def test_a_date_counts_from_the_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playhead.client.transports.http.time.time", lambda: NOON)
    handler = plain(503, headers=f"retry-after: {formatdate(NOON + 30, usegmt=True)}\r\n")
    error = await failure_of(handler)
    assert isinstance(error, HttpStatusError)
    assert error.retry_after_seconds == 30.0
