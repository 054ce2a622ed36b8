"""Errors over HTTP whose body is broken, or has no end, through each way to a provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from playhead.agent.conversation import Model, ModelRequest, Text, UserMessage
from playhead.agent.models.anthropic import AnthropicModel
from playhead.agent.models.gemini import GeminiModel
from playhead.agent.models.openai_chat import CompatibleModel, OpenAIChatModel
from playhead.agent.models.openai_responses import OpenAIResponsesModel
from playhead.errors import ModelError
from playhead.limits import DEFAULT_LIMITS
from tests.servers.scripted_http import Answering, scripted_http

Make = Callable[[str], Model]
REQUEST = ModelRequest(messages=(UserMessage(parts=(Text(text="Hi"),)),))
MODELS: dict[str, Make] = {
    "anthropic": lambda url: AnthropicModel("m", api_key="my-own-key-5", base_url=url, max_retries=0),
    "openai": lambda url: OpenAIChatModel("m", api_key="my-own-key-5", base_url=url, max_retries=0),
    "responses": lambda url: OpenAIResponsesModel("m", api_key="my-own-key-5", base_url=url, max_retries=0),
    "compatible": lambda url: CompatibleModel("m", api_key="my-own-key-5", base_url=url),
    "gemini": lambda url: GeminiModel("m", api_key="my-own-key-5", base_url=url),
}


async def failure_at(url: str, make: Make) -> ModelError:
    async def ask() -> None:
        async with make(url).stream(REQUEST) as pieces:
            async for _ in pieces:
                pass

    with pytest.raises(ModelError) as caught:
        await ask()
    return caught.value


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
async def test_the_status_is_told_where_the_errors_body_breaks_off(make: Make) -> None:
    async def answer(answering: Answering) -> None:
        await answering.stream.send_all(b"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\nhalf a ")
        await answering.stream.aclose()

    async with scripted_http(answer) as (url, _):
        assert (await failure_at(url, make)).status == 500


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
async def test_an_errors_body_without_end_is_read_only_at_its_beginning(make: Make) -> None:
    async def answer(answering: Answering) -> None:
        await answering.stream.send_all(
            b"HTTP/1.1 400 X\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        while True:  # until the client hangs up
            await answering.send(b"no " * 4000)

    with trio.fail_after(20):
        async with scripted_http(answer) as (url, _):
            error = await failure_at(url, make)
    assert error.status == 400
    assert "no no no" in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIChatModel, OpenAIResponsesModel])
def test_the_sdks_wait_for_a_connection_as_long_as_the_limits_say(kind: Callable[..., Any]) -> None:
    limits = replace(DEFAULT_LIMITS, connect_seconds=1.5)
    timeout = kind("m", api_key="k", limits=limits)._make_client().timeout
    assert (timeout.connect, timeout.read) == (1.5, 600.0)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
async def test_an_error_that_comes_with_success_does_not_quote_the_key(make: Make) -> None:
    async def answer(answering: Answering) -> None:
        await answering.whole(b'{"error": {"message": "no such key: my-own-key-5"}}')

    async with scripted_http(answer) as (url, _):
        error = await failure_at(url, make)
    assert "no such key" in str(error)
    assert "my-own-key-5" not in str(error)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
async def test_the_http_librarys_log_shows_no_password_of_the_address(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(answering: Answering) -> None:
        await answering.whole(b"{}", status=400)

    caplog.set_level("INFO")
    async with scripted_http(answer) as (url, asked):
        await failure_at(url.replace("://", "://me:hunter2@"), make)
    assert asked
    assert "HTTP Request: POST" in caplog.text
    assert "hunter2" not in caplog.text
