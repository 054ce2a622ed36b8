"""Response handlers: sync and async, what they get and give, and what is made of their failures."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

from playhead.config.tools import (
    HandlerReference,
    ToolConfig,
    ToolContent,
    ToolResponse,
    create_tool_config,
    handler_name,
    load_tool_configs,
    run_handler,
)
from playhead.content.blocks import parse_block
from playhead.errors import ConfigError, HandlerError, HandlerLoadError, UsageError

RAW: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "text", "text": "two"},
    ],
    "structuredContent": {"n": 1},
}
CONTENT = ToolContent(
    server="home",
    tool="play",
    arguments={"query": "x"},
    blocks=tuple(parse_block(item) for item in RAW["content"]),
    raw=RAW,
)


def with_handler(handler: Any) -> ToolConfig:
    return create_tool_config("home", "play", response_handler=handler)


def in_thread(content: ToolContent) -> ToolResponse:
    return ToolResponse(content.text, threading.current_thread(), paths={"txt": Path("a.txt")})


async def in_trio(content: ToolContent) -> ToolResponse:
    await trio.lowlevel.checkpoint()
    return ToolResponse(f"{content.arguments['query']} {content.structured}")


class Handlers:
    async def __call__(self, content: ToolContent) -> ToolResponse:
        return await in_trio(content)

    @staticmethod
    def fails(content: ToolContent) -> NoReturn:
        raise ValueError("no words")


def gives_a_coroutine(content: ToolContent) -> Awaitable[ToolResponse]:
    return in_trio(content)


@pytest.mark.requirement("CF-09")
async def test_a_sync_handler_gets_the_content_in_a_thread_of_its_own() -> None:
    answer = await run_handler(with_handler(in_thread), CONTENT)
    assert (answer.message, dict(answer.paths)) == ("one\ntwo", {"txt": Path("a.txt")})
    assert answer.raw_content is not threading.current_thread()


@pytest.mark.requirement("CF-09")
@pytest.mark.parametrize("handler", [in_trio, Handlers(), partial(in_trio), gives_a_coroutine])
async def test_an_async_handler_is_awaited_under_trio_whatever_it_is_wrapped_in(handler: Any) -> None:
    assert (await run_handler(with_handler(handler), CONTENT)).message == "x {'n': 1}"


def test_content_without_text_or_structured_content_has_none() -> None:
    assert (ToolContent().text, ToolContent().structured, ToolContent().is_error) == ("", None, False)


async def test_what_a_handler_raises_is_told_with_its_name_the_tool_and_the_cause() -> None:
    with pytest.raises(HandlerError) as caught:
        await run_handler(with_handler(Handlers.fails), CONTENT)
    error = caught.value
    assert str(error) == (
        f"the response handler {__name__}:Handlers.fails of home__play failed: ValueError: no words"
    )
    assert (error.handler, error.tool_id) == (f"{__name__}:Handlers.fails", "home__play")
    assert isinstance(error.__cause__, ValueError)


async def test_the_failure_of_a_patterns_handler_names_the_tool_that_was_called() -> None:
    config = create_tool_config("home", "*", response_handler=Handlers.fails)
    with pytest.raises(HandlerError, match="of home__play failed") as caught:
        await run_handler(config, CONTENT)
    assert caught.value.tool_id == "home__play"


async def test_a_failure_that_quotes_the_whole_text_is_cut() -> None:
    def fails(content: ToolContent) -> NoReturn:
        raise ValueError("x" * 100_000)

    with pytest.raises(HandlerError) as caught:
        await run_handler(with_handler(fails), CONTENT)
    assert len(str(caught.value)) < 1000


async def test_what_an_async_handler_raises_from_a_nursery_is_told_too() -> None:
    async def fails(content: ToolContent) -> ToolResponse:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_trio, content)
            raise KeyError("k")

    with pytest.raises(HandlerError, match="failed: ExceptionGroup"):
        await run_handler(with_handler(fails), CONTENT)


@pytest.mark.parametrize("came", [None, "text", {"message": "x"}])
async def test_an_answer_of_another_type_is_refused(came: object) -> None:
    def answers(content: ToolContent) -> Any:
        return came

    with pytest.raises(HandlerError, match=rf"returned {type(came).__name__}; expected a playhead"):
        await run_handler(with_handler(answers), CONTENT)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"message": 5}, "message: expected a string, got int"),
        ({"message": "x", "text_for_model": b"x"}, "text_for_model: expected a string, got bytes"),
        ({"message": "x", "paths": ["a"]}, "paths: expected a mapping of formats to paths, got list"),
        ({"message": "x", "paths": {"txt": None}}, "paths: expected a string and a path, got 'txt': None"),
    ],
)
async def test_a_response_with_a_field_of_another_type_is_the_handlers_failure(
    fields: dict[str, Any], said: str
) -> None:
    def answers(content: ToolContent) -> ToolResponse:
        return ToolResponse(**fields)

    with pytest.raises(HandlerError) as caught:
        await run_handler(with_handler(answers), CONTENT)
    assert said in str(caught.value)


async def test_a_path_may_be_a_text() -> None:
    assert dict(ToolResponse("x", paths={"srt": "a.srt"}).paths) == {"srt": Path("a.srt")}  # type: ignore[dict-item]


async def test_without_a_handler_there_is_nothing_to_run() -> None:
    with pytest.raises(UsageError, match="home__play has no response_handler"):
        await run_handler(create_tool_config("home", "play"), CONTENT)


async def test_cancellation_passes_through_an_async_handler(autojump_clock: trio.abc.Clock) -> None:
    seen = []

    async def waits(content: ToolContent) -> ToolResponse:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            seen.append("cancelled")
            raise

    with trio.move_on_after(1) as scope:
        await run_handler(with_handler(waits), CONTENT)
    assert scope.cancelled_caught
    assert seen == ["cancelled"]


async def test_a_sync_handler_that_hangs_holds_up_nobody_who_cancels() -> None:
    release = threading.Event()
    started = trio.Event()

    def hangs(content: ToolContent) -> ToolResponse:
        trio.from_thread.run_sync(started.set)
        release.wait()
        return ToolResponse("late")

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_handler, with_handler(hangs), CONTENT)
            await started.wait()
            nursery.cancel_scope.cancel()
    finally:
        release.set()


# --- by name ----------------------------------------------------------------------------------------


def from_file(folder: Path, reference: str) -> ToolConfig:
    file = folder / "tools.toml"
    file.write_text(f'[tools.home__play]\nresponse_handler = "{reference}"\n')
    config = load_tool_configs(file).resolve("home", "play").config
    assert config is not None
    return config


async def test_a_file_names_a_handler_by_its_module() -> None:
    config = from_file_reference("playhead.config.examples", "summarise")
    assert (await run_handler(config, CONTENT)).message == "Transcript of 2 words: one two"


def from_file_reference(module: str, function: str) -> ToolConfig:
    return with_handler(HandlerReference(module=module, function=function, where="tools.toml: x"))


async def test_a_handler_beside_the_file_is_read_anew_when_it_has_changed(tmp_path: Path) -> None:
    source = (
        "from playhead.config.tools import ToolResponse\ndef f(content):\n    return ToolResponse({!r})\n"
    )
    (tmp_path / "mine.py").write_text(source.format("one"))
    config = from_file(tmp_path, "mine.py:f")
    assert (await run_handler(config, CONTENT)).message == "one"
    (tmp_path / "mine.py").write_text(source.format("two"))
    assert (await run_handler(config, CONTENT)).message == "two"
    assert handler_name(config.response_handler or in_trio) == "mine.py:f"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("not_installed_at_all:f", "can't import not_installed_at_all (ModuleNotFoundError: No module named"),
        ("wrong.py:f", "can't import wrong.py (ZeroDivisionError: division by zero)"),
        ("missing.py:f", "missing.py can't be read (No such file or directory)"),
        ("textwrap:nothing", "textwrap has no nothing"),
        ("string:digits", "expected a function, string:digits is a str"),
    ],
)
async def test_a_handler_that_cannot_be_loaded_is_told_with_its_key(
    tmp_path: Path, reference: str, said: str
) -> None:
    (tmp_path / "wrong.py").write_text("1 / 0")
    with pytest.raises(HandlerLoadError) as caught:
        await run_handler(from_file(tmp_path, reference), CONTENT)
    assert isinstance(caught.value, ConfigError)
    assert (caught.value.handler, caught.value.tool_id) == (reference, "home__play")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'tools.toml'}: tools.home__play.response_handler: ")
    assert said in message


@pytest.mark.parametrize(
    ("handler", "name"),
    [
        (in_trio, f"{__name__}:in_trio"),
        (partial(in_trio), f"{__name__}:in_trio"),
        (Handlers(), f"{__name__}:Handlers"),
    ],
)
def test_a_handler_is_named_as_one_would_look_for_it(handler: Any, name: str) -> None:
    assert handler_name(handler) == name
