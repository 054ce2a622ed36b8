"""OpenAI's models through its SDK, and compatible ones over plain HTTP, against a server on loopback."""

from __future__ import annotations

import gc
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
import trio

from playhead.agent.conversation import ModelRequest, ReplyEnd, ReplyPiece, Text, TextPiece, UserMessage
from playhead.agent.models.openai_chat import CompatibleModel, OpenAIChatModel
from playhead.agent.models.openai_responses import OpenAIResponsesModel
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ModelError,
    PlayheadError,
    UsageError,
)
from playhead.limits import Limits
from tests.servers.raw_http import Exchange, RawServer, raw_http
from tests.unit.agent.openai_shapes import check_chat_request, check_responses_request, chunk, event

KEY = "sk-secret-0123456789"
REQUEST = ModelRequest(messages=(UserMessage(parts=(Text(text="Play"),)),))
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

AnyModel = OpenAIChatModel | OpenAIResponsesModel | CompatibleModel
Make = Callable[..., AnyModel]


def chat(url: str, **more: Any) -> AnyModel:
    return OpenAIChatModel("m", **{"api_key": KEY, "base_url": url, "max_retries": 0, **more})


def responses(url: str, **more: Any) -> AnyModel:
    return OpenAIResponsesModel("m", **{"api_key": KEY, "base_url": url, "max_retries": 0, **more})


def compatible(url: str, **more: Any) -> AnyModel:
    return CompatibleModel("m", **{"api_key": KEY, "base_url": url, **more})


every_model = pytest.mark.parametrize("make", [chat, responses, compatible])
every_chat_model = pytest.mark.parametrize("make", [chat, compatible])


def sent(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def as_event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def deltas(make: Make, *texts: str) -> list[bytes]:
    if make is responses:
        where = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
        return [
            as_event(event("response.output_text.delta", **where, delta=text, logprobs=[])) for text in texts
        ]
    return [as_event(chunk({"content": text})) for text in texts]


def ending(make: Make) -> list[bytes]:
    if make is responses:
        return [as_event({"type": "response.completed", "response": {"output": []}})]
    return [as_event(chunk({}, finish="stop")), as_event(chunk(usage=(3, 2))), b"data: [DONE]\n\n"]


@asynccontextmanager
async def serving(handler: Callable[[Exchange], Awaitable[None]]) -> AsyncIterator[RawServer]:
    async def no_handshake(_exchange: Exchange) -> bool:
        return False

    async with raw_http(handler) as server:
        server.greet = no_handshake
        yield server
    # What was left unclosed would warn here, and a warning fails the test.
    gc.collect()


async def replies_of(model: AnyModel) -> list[ReplyPiece]:
    async with model.stream(REQUEST) as pieces:
        return [piece async for piece in pieces]


async def error_of(model: AnyModel) -> PlayheadError:
    with trio.fail_after(20), pytest.raises(PlayheadError) as raised:
        async with model:
            await replies_of(model)
    told = "".join(traceback.format_exception(raised.value))
    assert KEY not in told
    return raised.value


@every_model
async def test_a_reply_streams_and_the_connection_serves_the_next_one(make: Make) -> None:
    asked: list[Exchange] = []

    async def handler(exchange: Exchange) -> None:
        asked.append(exchange)
        parts = [*deltas(make, "One ", "🎵"), *ending(make), b""]
        await exchange.raw(STREAM_HEAD + b"".join(map(sent, parts)))

    async with serving(handler) as server, make(server.url) as model:
        for _ in range(2):
            *pieces, end = await replies_of(model)
            assert pieces == [TextPiece(text="One "), TextPiece(text="🎵")]
            assert isinstance(end, ReplyEnd)
            assert (end.message.text, end.stop) == ("One 🎵", "end")
        assert server.connections == 1
    check = check_responses_request if make is responses else check_chat_request
    check(asked[0].message)
    assert asked[0].headers["authorization"] == f"Bearer {KEY}"


@every_model
async def test_a_model_that_was_not_entered_streams_too(make: Make) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.raw(STREAM_HEAD + b"".join(map(sent, [*deltas(make, "a"), *ending(make), b""])))

    async with serving(handler) as server:
        assert TextPiece(text="a") in await replies_of(make(server.url))


@every_model
@pytest.mark.parametrize("how", ["left", "cancelled", "raised"])
async def test_leaving_in_the_middle_closes_the_connection(make: Make, how: str) -> None:
    closed = trio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.raw(STREAM_HEAD + b"".join(map(sent, deltas(make, "One ", "two "))))
        assert await exchange.stream.receive_some(1) == b""
        closed.set()

    async def leave(pieces: AsyncIterator[ReplyPiece], scope: trio.CancelScope) -> None:
        assert await anext(pieces) == TextPiece(text="One ")
        if how == "raised":
            raise KeyError
        if how == "cancelled":
            assert await anext(pieces) == TextPiece(text="two ")
            scope.cancel()
            await anext(pieces)

    async with serving(handler) as server, make(server.url) as model:
        with trio.fail_after(20):
            with trio.CancelScope() as scope, suppress(KeyError):
                async with model.stream(REQUEST) as pieces:
                    await leave(pieces, scope)
            await closed.wait()


@every_model
@pytest.mark.parametrize(
    ("status", "words"),
    [(400, "refused the request"), (401, "refused the key"), (429, "retry after 7 s"), (500, "failed")],
)
async def test_an_http_error_is_named_without_the_key(make: Make, status: int, words: str) -> None:
    async def handler(exchange: Exchange) -> None:
        body = {"error": {"message": f"no: {KEY} is bad", "type": "x"}}
        await exchange.json(body, status=status, headers="retry-after: 7\r\n")

    async with serving(handler) as server:
        error = await error_of(make(server.url))
    assert isinstance(error, ModelError)
    assert (error.status, error.retry_after_seconds) == (status, 7.0)
    assert words in str(error)
    assert ("is bad" in str(error)) is (status != 401)


@pytest.mark.parametrize(
    "quoted", ["sk-proj-abcd********wxyz", "the key gsk_0123456789.", "Bearer 0123456789", "AIzaSy0123456789"]
)
async def test_a_key_that_a_server_quotes_in_its_own_way_is_hidden(quoted: str) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.json({"error": {"message": f"not with {quoted}"}}, status=400)

    async with serving(handler) as server:
        told = str(await error_of(compatible(server.url)))
    assert "0123456789" not in told
    assert "wxyz" not in told
    assert "[key]" in told


@every_chat_model
@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"data: {not json\n\n", "base_url leads"),
        (b"data: [1]\n\n", "an object"),
        (b'data: {"choices": 7}\n\n', "list of objects"),
        (b'data: {"error": {"message": "overloaded"}}\n\n', "overloaded"),
        (b"data: [DONE]\n\n", "without a reply"),
    ],
)
async def test_garbage_in_the_stream_is_the_providers_fault(make: Make, garbage: bytes, words: str) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.raw(STREAM_HEAD + sent(garbage) + sent(b""))

    async with serving(handler) as server:
        error = await error_of(make(server.url))
    assert isinstance(error, ModelError)
    assert words in str(error)


@every_model
@pytest.mark.parametrize("ends_well", [True, False])
async def test_a_stream_that_ends_too_early_is_a_lost_connection(make: Make, *, ends_well: bool) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.raw(STREAM_HEAD + sent(deltas(make, "One ")[0]) + (sent(b"") if ends_well else b""))
        await exchange.hang_up()

    async with serving(handler) as server:
        assert isinstance(await error_of(make(server.url)), ConnectionLostError)


@every_model
async def test_a_reply_longer_than_the_limit_ends_with_an_error(make: Make) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.raw(STREAM_HEAD)
        while True:
            await exchange.raw(sent(deltas(make, "x" * 500)[0]))

    async with serving(handler) as server:
        error = await error_of(make(server.url, limits=Limits(message_bytes=10_000)))
    assert isinstance(error, LimitError)
    assert error.limit == "message_bytes"


@every_model
async def test_a_silent_provider_is_given_up(make: Make) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.raw(STREAM_HEAD)
        await exchange.stream.receive_some(1)

    async with serving(handler) as server:
        assert isinstance(await error_of(make(server.url, timeout_seconds=0.05)), DeadlineError)


@every_model
async def test_an_address_where_nobody_listens_is_named(make: Make) -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    error = await error_of(make(f"http://127.0.0.1:{port}/v1"))
    assert isinstance(error, ConnectError)
    assert "127.0.0.1" in str(error)


@every_model
async def test_a_redirect_takes_neither_the_key_nor_the_conversation_along(make: Make) -> None:
    async def elsewhere(exchange: Exchange) -> None:
        await exchange.json({})

    async with serving(elsewhere) as other:

        async def handler(exchange: Exchange) -> None:
            await exchange.body(b"", status=307, headers=f"location: {other.url}\r\n")

        async with serving(handler) as server:
            error = await error_of(make(server.url))
        assert other.connections == 0
    assert isinstance(error, ModelError)
    assert error.status == 307
    assert "base_url" in str(error)


@every_chat_model
async def test_an_answer_that_is_no_stream_is_named(make: Make) -> None:
    bodies: list[dict[str, Any]] = [{"object": "chat.completion"}, {"error": {"message": "no such model"}}]

    async def handler(exchange: Exchange) -> None:
        await exchange.json(bodies.pop(0))

    async with serving(handler) as server:
        assert "text/event-stream" in str(await error_of(make(server.url)))
        assert "no such model" in str(await error_of(make(server.url)))


async def test_the_sdk_sends_again_what_failed_before_the_reply() -> None:
    statuses = [429, 500]

    async def handler(exchange: Exchange) -> None:
        if statuses:
            await exchange.json({}, status=statuses.pop(), headers="retry-after-ms: 1\r\n")
        else:
            await exchange.raw(STREAM_HEAD + b"".join(map(sent, [*deltas(chat, "a"), *ending(chat), b""])))

    async with serving(handler) as server, chat(server.url, max_retries=2) as model:
        assert TextPiece(text="a") in await replies_of(model)
        assert len(server.methods) == 3


async def test_a_compatible_server_gets_more_fields_and_headers_and_no_key_that_is_not_there() -> None:
    asked: list[Exchange] = []

    async def handler(exchange: Exchange) -> None:
        asked.append(exchange)
        parts = [*deltas(compatible, "a"), *ending(compatible), b""]
        await exchange.raw(STREAM_HEAD + b"".join(map(sent, parts)))

    async with serving(handler) as server:
        model = compatible(
            server.url,
            api_key=None,
            headers={"x-team": "a"},
            extra_body={"top_k": 5, "stream_options": None},
        )
        await replies_of(model)
    [exchange] = asked
    assert exchange.headers["x-team"] == "a"
    assert "authorization" not in exchange.headers
    assert exchange.message["top_k"] == 5
    assert "stream_options" not in exchange.message


@pytest.mark.parametrize("url", ["localhost:11434", "file:///etc/passwd", "http://", ""])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="base_url"):
        CompatibleModel("m", base_url=url)


@every_model
def test_a_model_shows_no_key(make: Make) -> None:
    assert KEY not in repr(make("http://localhost/v1"))


def test_without_the_sdk_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError, match=r"playhead\[openai\]"):
        chat("http://localhost/v1")


async def test_the_users_own_http_errors_pass_through_the_stream_untouched() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.raw(STREAM_HEAD + b"".join(map(sent, deltas(compatible, "a"))))
        await exchange.stream.receive_some(1)

    async with serving(handler) as server, compatible(server.url) as model:
        with pytest.raises(httpx2.ReadError):
            async with model.stream(REQUEST):
                raise httpx2.ReadError("the user's")
