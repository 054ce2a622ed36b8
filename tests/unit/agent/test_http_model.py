"""Laws of every model over HTTP, each run for every provider against a server on loopback."""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from inspect import signature
from itertools import chain, repeat
from typing import Any

import httpx2
import pytest
import trio
import trio.testing
from anthropic import AsyncAnthropic
from google import genai
from openai import AsyncOpenAI

from playhead.agent.conversation import (
    AssistantMessage,
    ModelRequest,
    ReplyEnd,
    ReplyPiece,
    Text,
    TextPiece,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
)
from playhead.agent.models.gemini import GeminiModel
from playhead.agent.models.http_model import HttpModel, retry_delay_seconds
from playhead.agent.models.openai_chat import CompatibleModel, OpenAIChatModel
from playhead.agent.models.providers import PROVIDERS, open_model
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ModelError,
    PlayheadError,
    UsageError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from tests.loop_kit import user
from tests.servers.loopback import free_port, tcp_server
from tests.servers.providers.models import KEY, ModelName, frames_of, model_at
from tests.servers.providers.script import Ask, Broken, Hold, Refuse, Reply, Say
from tests.servers.providers.wire_server import wire_server
from tests.servers.scripted_http import Answering, Asked, scripted_http

Json = dict[str, Any]
REQUEST = ModelRequest(messages=(user("Play"),))
NAMES: tuple[ModelName, ...] = ("openai", "openai-responses", "anthropic", "gemini", "compatible")
RETRIED = (429, 500, 502, 503, 529)
BUSY = Refuse(status=529, headers=(("retry-after", "0"),))
every_model = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """An unclosed generator or response warns when it is collected, and a warning fails the test."""
    yield
    gc.collect()
    gc.freeze()  # whatever lives on is not searched again after the next test


async def pieces_of(model: HttpModel) -> list[ReplyPiece]:
    async with model.stream(REQUEST) as pieces:
        return [piece async for piece in pieces]


async def error_of(model: HttpModel) -> PlayheadError:
    with trio.fail_after(20), pytest.raises(PlayheadError) as caught:
        async with model:
            await pieces_of(model)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    return caught.value


async def error_at(name: ModelName, answer: Callable[[Answering], Awaitable[None]], **more: Any) -> Any:
    """The error of one reply that `answer` answers."""
    async with scripted_http(answer) as (url, _):
        return await error_of(model_at(name, url, **more))


# --- requests ------------------------------------------------------------------------------------------


async def send_by_sdk(name: ModelName, url: str, body: Json) -> None:
    """Send the same request through the provider's own SDK."""
    match name:
        case "openai" | "openai-responses":
            async with AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0) as client:
                await (client.chat.completions if name == "openai" else client.responses).create(**body)
        case "anthropic":
            async with AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0) as claude:
                await claude.messages.create(**body)
        case _:
            settings = body["generationConfig"]
            config: Any = {
                "system_instruction": body["systemInstruction"],
                "tools": body["tools"],
                "max_output_tokens": settings["maxOutputTokens"],
                "temperature": settings["temperature"],
            }

            def send() -> None:
                with genai.Client(
                    api_key=KEY, http_options={"base_url": url, "api_version": "v1beta"}
                ) as google:
                    stream = google.models.generate_content_stream
                    list(stream(model="gemini-3-flash", contents=body["contents"], config=config))

            await trio.to_thread.run_sync(send)


@pytest.mark.parametrize("name", NAMES[:4])
async def test_a_request_is_the_one_that_the_providers_own_sdk_sends(name: ModelName) -> None:
    async def refuse(answering: Answering) -> None:
        await answering.whole(b"{}", status=400)

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    call = ToolCall(id="call_1", name="f", arguments={"n": 1}, arguments_text='{"n": 1}')
    request = ModelRequest(
        messages=(
            user("Grüße 🎵"),
            AssistantMessage(parts=(Text(text="Yes."), call)),
            ToolMessage(results=(ToolResult(call_id="call_1", name="f", text="one"),)),
        ),
        system="Be brief.",
        tools=(ToolSpec(name="f", description="Does.", parameters=schema),),
        max_tokens=9,
        temperature=0.5,
    )
    async with scripted_http(refuse, refuse) as (url, asked):
        with pytest.raises(ModelError):
            async with model_at(name, url).stream(request) as pieces:
                await anext(pieces)
        with pytest.raises(Exception, match="400"):
            await send_by_sdk(name, url, asked[0].body)
    ours, theirs = asked
    assert ours.target == theirs.target
    # Google's SDK writes the other of the two names that the API has for this field.
    sent = json.dumps(theirs.body).replace('"parameters_json_schema"', '"parametersJsonSchema"')
    assert ours.body == json.loads(sent)
    wanted = {"authorization", "x-goog-api-key", "x-api-key", "content-type", "anthropic-version"}
    assert headers_of(ours, wanted) == headers_of(theirs, wanted)


def headers_of(asked: Asked, names: set[str]) -> dict[str, str]:
    return {name: value for name, value in asked.headers.items() if name in names}


@every_model
async def test_fields_and_headers_of_the_user_are_sent_and_none_removes_a_field(name: ModelName) -> None:
    async with wire_server([Reply(Say("a"))]) as server:
        fields = {"contents": None, "messages": None, "input": None, "top_k": 5}
        headers = {"X-Team": "a", "Anthropic-Version": "2023-06-01"}
        async with model_at(name, server.url, extra_body=fields, headers=headers) as model:
            await pieces_of(model)
    (captured,) = server.requests
    assert captured.headers["x-team"] == "a"
    assert captured.headers["anthropic-version"] == "2023-06-01"
    assert captured.body["top_k"] == 5
    assert not {"contents", "messages", "input"} & set(captured.body)


@every_model
async def test_half_a_character_does_not_stop_a_request(name: ModelName) -> None:
    request = replace(REQUEST, system="Half \ud83d")
    async with wire_server([Reply(Say("a"))]) as server, model_at(name, server.url).stream(request) as pieces:
        assert [piece async for piece in pieces]
    assert "Half \ufffd" in str(server.requests[0].body)


async def test_objects_of_the_user_are_merged_with_ours() -> None:
    request = replace(REQUEST, max_tokens=7)
    async with wire_server([Reply(Say("a"))]) as server:
        model = model_at("gemini", server.url, extra_body={"generationConfig": {"topK": 1}})
        async with model.stream(request) as pieces:
            assert [piece async for piece in pieces]
    assert server.requests[0].body["generationConfig"] == {"maxOutputTokens": 7, "topK": 1}


async def test_a_server_without_a_key_gets_none() -> None:
    async def answer(answering: Answering) -> None:
        await answering.whole(b"{}", status=400)

    async with scripted_http(answer) as (url, asked):
        await error_of(model_at("compatible", url, api_key=None))
    assert "authorization" not in asked[0].headers


@pytest.mark.parametrize(
    ("model", "address"),
    [
        (CompatibleModel("m", base_url="http://h/v1/?a=1"), "http://h/v1/chat/completions?a=1"),
        (CompatibleModel("m", base_url="http://h/chat/completions"), "http://h/chat/completions"),
        (OpenAIChatModel("m", api_key=KEY), "https://api.openai.com/v1/chat/completions"),
        (
            GeminiModel("tunedModels/my m", api_key=KEY, base_url="http://h/v1?a=1"),
            "http://h/v1/tunedModels/my%20m:streamGenerateContent?a=1&alt=sse",
        ),
    ],
)
def test_the_address_is_the_base_url_with_the_apis_path(model: HttpModel, address: str) -> None:
    assert str(model._url) == address


@every_model
@pytest.mark.parametrize("url", ["localhost:11434", "file:///etc/passwd", "http://", ""])
def test_an_invalid_base_url_is_refused(name: ModelName, url: str) -> None:
    with pytest.raises(UsageError, match="base_url"):
        model_at(name, "", base_url=url)


@every_model
@pytest.mark.parametrize("key", ["", "two words", "line\n", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_unquoted(name: ModelName, key: str) -> None:
    with pytest.raises(UsageError, match="API key") as caught:
        model_at(name, "http://h", api_key=key)
    assert not key or key not in str(caught.value)


@every_model
def test_a_model_shows_no_key_and_waits_for_a_connection_as_long_as_the_limits_say(name: ModelName) -> None:
    model = model_at(name, "http://h", limits=replace(DEFAULT_LIMITS, connect_seconds=1.5))
    assert KEY not in repr(model)
    timeout = model._client().timeout
    assert (timeout.connect, timeout.read) == (1.5, 600.0)


# --- replies -------------------------------------------------------------------------------------------


@every_model
async def test_a_reply_streams_and_its_connection_serves_the_next_one(name: ModelName) -> None:
    async with wire_server([Reply(Say("One 🎵"))] * 2) as server, model_at(name, server.url) as model:
        for _ in range(2):
            *pieces, end = await pieces_of(model)
            assert pieces == [TextPiece(text="One "), TextPiece(text="🎵")]
            assert isinstance(end, ReplyEnd)
            assert (end.message.text, end.stop) == ("One 🎵", "end")
            assert (end.usage.input_tokens, end.usage.output_tokens) == (10, 5)
        assert server.connections == 1
        assert server.refused == []


@every_model
async def test_a_model_that_was_not_entered_streams_too_and_one_is_entered_once_at_a_time(
    name: ModelName,
) -> None:
    async with wire_server([Reply(Say("a"))]) as server:
        model = model_at(name, server.url)
        assert TextPiece(text="a") in await pieces_of(model)
        async with model:
            with pytest.raises(UsageError, match="already open"):
                await model.__aenter__()


@every_model
async def test_any_cut_of_the_bytes_gives_the_same_reply(name: ModelName) -> None:
    wire = b"".join(frames_of(name, Reply(Say("One 🎵"))))
    async with scripted_http(lambda answering: answering.streamed(wire)) as (url, _):
        *pieces, _ = await pieces_of(model_at(name, url))
    assert pieces == [TextPiece(text="One "), TextPiece(text="🎵")]


@every_model
async def test_an_invalid_byte_spoils_no_more_than_itself(name: ModelName) -> None:
    wire = b"".join(frames_of(name, Reply(Say("One two")))).replace(b"two", b"\xff")
    async with scripted_http(lambda answering: answering.streamed(wire)) as (url, _):
        *pieces, _ = await pieces_of(model_at(name, url))
    assert pieces == [TextPiece(text="One "), TextPiece(text="\ufffd")]


async def test_ids_that_a_model_invents_for_calls_differ_between_replies() -> None:
    script = [Reply(Ask("", "f"))] * 2
    async with wire_server(script) as server, model_at("gemini-without-ids", server.url) as model:
        ends = [(await pieces_of(model))[-1] for _ in script]
    first, second = (end.message.calls[0].id for end in ends if isinstance(end, ReplyEnd))
    assert first != second


@every_model
@pytest.mark.parametrize("how", ["left", "cancelled", "raised", "cancelled while nothing arrives"])
async def test_leaving_in_the_middle_closes_the_connection(name: ModelName, how: str) -> None:
    hold = Hold()

    async def leave(pieces: AsyncIterator[ReplyPiece], scope: trio.CancelScope) -> None:
        if how == "cancelled while nothing arrives":
            await hold.reached.wait()
            assert [await anext(pieces), await anext(pieces)]
        assert how.endswith("arrives") or await anext(pieces) == TextPiece(text="One ")
        if how == "raised":
            raise httpx2.ReadError("the user's own, which passes through untouched")
        if how.startswith("cancelled"):
            scope.cancel()
            await anext(pieces)

    with trio.fail_after(20):
        async with wire_server([Reply(Say("One two"), hold)]) as server, model_at(name, server.url) as model:
            with trio.CancelScope() as scope, suppress(httpx2.ReadError):
                async with model.stream(REQUEST) as pieces:
                    await leave(pieces, scope)
            await server.requests[0].gone.wait()


# --- failures ------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "refused the request (HTTP 400)"),
        (401, "refused the key"),
        (403, "refused the key"),
        (404, "check model and base_url"),
        (413, "shorter conversation"),
        (429, "retry after 7 s"),
        (500, "try again later"),
        (529, "failed (HTTP 529)"),
    ],
)
async def test_a_refusal_is_explained_without_the_key(name: ModelName, status: int, words: str) -> None:
    refusal = Refuse(status=status, message=f"no: {KEY} is bad", headers=(("retry-after", "7"),))
    async with wire_server([refusal]) as server:
        error = await error_of(model_at(name, server.url))
    assert isinstance(error, ModelError)
    assert (error.status, error.retry_after_seconds) == (status, 7.0)
    assert words in str(error)
    assert ("is bad" in str(error)) is (status not in (401, 403))
    assert error.__cause__ is error.__context__ is None, "the HTTP library's error may quote a header"


@pytest.mark.parametrize(
    "quoted", ["sk-proj-abcd********wxyz", "the key gsk_0123456789.", "Bearer 0123456789", "AIzaSy0123456789"]
)
async def test_a_key_that_a_server_quotes_in_its_own_way_is_hidden(quoted: str) -> None:
    async with wire_server([Refuse(status=400, message=f"not with {quoted}")]) as server:
        told = str(await error_of(model_at("compatible", server.url)))
    assert "0123456789" not in told
    assert "wxyz" not in told
    assert "[key]" in told


@every_model
async def test_a_redirect_takes_neither_the_key_nor_the_conversation_along(name: ModelName) -> None:
    async with wire_server([]) as other:

        async def answer(answering: Answering) -> None:
            await answering.whole(b"", status=307, headers=f"location: {other.url}\r\n")

        error = await error_at(name, answer)
        assert other.connections == 0
    assert error.status == 307
    assert "base_url" in str(error)


@every_model
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"object": "x"}', "text/event-stream"),
        (b'{"error": {"message": "no %s"}}' % KEY.encode(), "no [key]"),
    ],
)
async def test_an_answer_that_is_no_stream_is_named(name: ModelName, body: bytes, words: str) -> None:
    error = await error_at(name, lambda answering: answering.whole(body))
    assert isinstance(error, ModelError)
    assert words in str(error)


@every_model
async def test_the_status_is_reported_if_the_errors_body_breaks_off(name: ModelName) -> None:
    async def answer(answering: Answering) -> None:
        await answering.stream.send_all(b"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\nhalf a ")
        await answering.stream.aclose()

    assert (await error_at(name, answer)).status == 500


@every_model
async def test_an_errors_body_without_end_is_read_only_at_its_beginning(name: ModelName) -> None:
    async def answer(answering: Answering) -> None:
        await answering.stream.send_all(
            b"HTTP/1.1 400 X\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        while True:  # until the client hangs up
            await answering.send(b"no " * 4000)

    error = await error_at(name, answer)
    assert error.status == 400
    assert "no no no" in str(error)
    assert len(str(error)) < 500


@every_model
async def test_the_http_librarys_log_shows_no_password_of_the_address(
    name: ModelName, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with scripted_http(lambda answering: answering.whole(b"{}", status=400)) as (url, asked):
        await error_of(model_at(name, url.replace("://", "://me:hunter2@")))
    assert asked
    assert "HTTP Request: POST" in caplog.text
    assert "hunter2" not in caplog.text


GARBAGE = (
    (b"data: {not json\n\n", "base_url leads"),
    (b"data: [1]\n\n", "an object"),
    (b'data: {"type": "error", "error": {"message": "overloaded"}}\n\n', "overloaded"),
    (b"data: [DONE]\n\n", "expected"),
)
UNTYPED = (b'data: {"error": {"message": "overloaded"}}\n\n', "overloaded")
"""An error of any provider but Anthropic, whose events have a type."""


@pytest.mark.parametrize(
    ("name", "garbage", "words"),
    [(name, *row) for name in NAMES for row in (*GARBAGE, UNTYPED) if (name, row) != ("anthropic", UNTYPED)],
)
async def test_garbage_in_the_stream_is_the_providers_fault(
    name: ModelName, garbage: bytes, words: str
) -> None:
    error = await error_at(name, lambda answering: answering.streamed(garbage))
    assert isinstance(error, ModelError)
    assert words in str(error)


@every_model
@pytest.mark.parametrize("ends_well", [True, False])
async def test_a_stream_that_ends_too_early_is_a_lost_connection(name: ModelName, *, ends_well: bool) -> None:
    async def answer(answering: Answering) -> None:
        await answering.begin()
        for frame in frames_of(name, Reply(Say("One "))):
            await answering.send(frame)
            if b"One " in frame:
                break
        await (answering.end() if ends_well else answering.stream.aclose())

    assert isinstance(await error_at(name, answer), ConnectionLostError)


@every_model
async def test_a_reply_longer_than_the_limit_ends_with_an_error(name: ModelName) -> None:
    frames = frames_of(name, Reply(Say("word")))
    (said, *_) = [number for number, frame in enumerate(frames) if b"word" in frame]

    async def answer(answering: Answering) -> None:
        await answering.begin()
        for frame in chain(frames[:said], repeat(frames[said])):  # until the client hangs up
            await answering.send(frame)

    error = await error_at(name, answer, limits=Limits(message_bytes=10_000))
    assert isinstance(error, LimitError)
    assert error.limit == "message_bytes"


@every_model
@pytest.mark.parametrize("parts", [(Hold(),), (Say("One "), Hold())])
async def test_a_silent_provider_is_given_up(name: ModelName, parts: tuple[Any, ...]) -> None:
    async with wire_server([Reply(*parts)]) as server:
        error = await error_of(model_at(name, server.url, timeout_seconds=0.05, max_retries=2))
    assert isinstance(error, DeadlineError)
    assert len(server.requests) == 1


# --- retries -------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("status", RETRIED)
async def test_a_request_refused_for_the_moment_is_sent_again(name: ModelName, status: int) -> None:
    busy = replace(BUSY, status=status)
    async with wire_server([busy, busy, Reply(Say("a"))]) as server:
        assert TextPiece(text="a") in await pieces_of(model_at(name, server.url, max_retries=2))
    first, second, third = server.requests
    assert first.body == second.body == third.body
    assert server.refused == []


@every_model
async def test_a_request_is_sent_again_twice_by_default_and_then_its_error_is_raised(name: ModelName) -> None:
    async with wire_server([BUSY] * 4) as server:
        model = model_at(name, server.url)
        default = signature(type(model)).parameters["max_retries"].default
        error = await error_of(model_at(name, server.url, max_retries=default))
        assert isinstance(error, ModelError)
        assert error.status == 529
        assert len(server.requests) == 3
        await error_of(model)
        assert len(server.requests) == 4


@every_model
async def test_a_connection_lost_before_the_answer_is_made_anew(name: ModelName) -> None:
    tries = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal tries
        tries += 1
        async with stream:
            await stream.receive_some()
            if tries > 1:
                await stream.send_all(b"HTTP/1.1 400 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async with tcp_server(serve) as port:
        error = await error_of(model_at(name, f"http://127.0.0.1:{port}", max_retries=1))
    assert isinstance(error, ModelError)
    assert (error.status, tries) == (400, 2)


@every_model
@pytest.mark.parametrize("parts", [(Broken("error"),), (Say("One "), Broken("reset"))])
async def test_a_reply_that_has_begun_is_never_requested_again(
    name: ModelName, parts: tuple[Any, ...]
) -> None:
    async with wire_server([Reply(*parts)]) as server:
        await error_of(model_at(name, server.url, max_retries=2))
    assert len(server.requests) == 1


@every_model
async def test_the_wait_is_the_one_that_the_provider_asks_for(
    name: ModelName, mock_clock: trio.testing.MockClock
) -> None:
    busy = replace(BUSY, headers=(("retry-after", "7"),))
    async with wire_server([busy, Reply(Say("a"))]) as server, AsyncExitStack() as stack:
        model = await stack.enter_async_context(model_at(name, server.url, max_retries=1))
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(pieces_of, model)
        for seconds, requests in ((0, 1), (6.9, 1), (0.2, 2)):
            mock_clock.jump(seconds)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert len(server.requests) == requests


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_is_opened_by_the_name_of_its_provider_and_a_key_of_the_environment(provider: str) -> None:
    variables = PROVIDERS[provider].key_variables
    with pytest.raises(UsageError, match=" or ".join(variables)):
        open_model(provider, "m", base_url=None, environment={})
    for variable in variables:
        model = open_model(provider, "m", base_url=None, environment={variable: KEY})
        assert model.provider == ("openai" if provider == "prompt" else provider)


@every_model
async def test_an_address_where_nobody_listens_is_named_at_once(name: ModelName) -> None:
    error = await error_of(model_at(name, f"http://127.0.0.1:{free_port()}"))
    assert isinstance(error, ConnectError)
    assert "127.0.0.1" in str(error)


@pytest.mark.parametrize("status", RETRIED)
def test_without_a_wait_of_the_provider_the_delay_doubles(status: int) -> None:
    refused = ModelError("no", provider="p", status=status)
    for failure in (refused, ConnectionLostError("gone")):
        delays = [retry_delay_seconds(failure, retries) or 0 for retries in range(7)]
        for delay, longest in zip(delays, (0.5, 1, 2, 4, 8, 8, 8), strict=True):
            assert longest * 0.75 <= delay <= longest


@pytest.mark.parametrize(
    "failure",
    [
        *(ModelError("no", provider="p", status=status) for status in (None, 200, 307, 400, 401, 404, 413)),
        ModelError("come back tomorrow", provider="p", status=429, retry_after_seconds=61),
        ConnectError("nobody listens"),
        DeadlineError("silence"),
    ],
)
def test_a_failure_that_a_retry_would_not_help_is_final(failure: PlayheadError) -> None:
    assert retry_delay_seconds(failure, 0) is None
