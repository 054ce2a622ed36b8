"""Tools under the checker: sound ones pass, and each defect is found by its name and nothing else."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server.mcpserver import MCPServer

from playhead.check.expectations import Expectations, ExpectedCall
from playhead.check.options import CheckOptions
from playhead.check.probes.server import probe_garbage, probe_server
from playhead.check.probes.tools import probe_tool
from playhead.check.results import TestResult
from playhead.check.target import Target
from playhead.config.servers import ServerConfig
from tests.servers.launch import REPOSITORY
from tests.servers.raw_http import Exchange, raw_http
from tests.unit.check.check_kit import FULL, SUM, WORD, Json, failed, failures, target_for, text
from tests.unit.check.check_kit import tests_of as found_by

QUICKLY = replace(FULL, timeout_seconds=1.0, examples=1)


class RpcError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


async def echo(arguments: Any) -> Json:
    """A sound tool."""
    word = arguments.get("word") if isinstance(arguments, dict) else None
    if not isinstance(word, str) or len(word) > 9:
        return text("expected a word", isError=True)
    return text(word)


Tool = Callable[[Any], Awaitable[Json]]


@asynccontextmanager
async def a_target(
    tool: Tool, options: CheckOptions = QUICKLY, **definition: Any
) -> AsyncIterator[tuple[Target, types.Tool]]:
    """A target whose server has one tool, `it`, and answers whatever `tool` says."""
    listed = {"name": "it", "inputSchema": WORD, **definition}

    async def handle(exchange: Exchange) -> None:
        params = exchange.message.get("params") or {}
        match exchange.method:
            case "tools/list":
                await exchange.result({"tools": [listed]})
            case "tools/call" if params.get("name") == "it":
                try:
                    await exchange.result(await tool(params.get("arguments")))
                except RpcError as error:
                    await exchange.error(error.code, "no")
            case "tools/call":
                await exchange.error(-32602, "no such tool")
            case _:
                await exchange.error(-32601, "no such method")

    async with (
        raw_http(handle) as raw,
        target_for(ServerConfig(url=raw.url), options, mode="legacy") as target,
    ):
        yield target, target.tools[0]


async def probed(tool: Tool, options: CheckOptions = QUICKLY, **definition: Any) -> list[TestResult]:
    async with a_target(tool, options, **definition) as (target, it):
        return await found_by(target, partial(probe_tool, tool=it))


def answering(**changes: Any) -> Tool:
    """`echo`, with something else in its results that are no errors."""

    async def tool(arguments: Any) -> Json:
        result = await echo(arguments)
        return result if result.get("isError") else {**result, **changes}

    return tool


# --- sound tools -----------------------------------------------------------------------------------


async def test_a_sound_tool_passes_every_test() -> None:
    tests = await probed(echo)
    assert {test.status for test in tests if "cancelled" not in test.title} == {"success"}
    titles = [test.title for test in tests]
    assert titles[0] == "valid arguments: the least"
    assert "arguments that violate the schema: without `word`" in titles
    assert "8 concurrent calls" in titles
    assert "boundary arguments: `word` of 9 characters, its longest" in titles
    assert "random arguments: random 1" in titles


async def test_each_test_contains_the_request_that_repeats_it() -> None:
    for test in await probed(echo):
        if test.title.startswith("valid"):
            assert (test.method, test.input) == (
                "tools/call",
                {"name": "it", "arguments": {"word": "example"}},
            )
            assert test.output == {"content": [{"type": "text", "text": "example"}]}


async def test_tools_of_the_sdk_pass() -> None:
    server: MCPServer = MCPServer("sample", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int = 2) -> int:
        return a + b

    @server.tool()
    def names(count: int | None = None) -> list[str]:
        return ["name"] * min(max(count or 1, 0), 3)

    for mode in ("auto", "legacy"):
        async with target_for(server, mode=mode) as target:
            for tool in target.tools:
                assert failures(await found_by(target, partial(probe_tool, tool=tool))) == []
            assert failures(await found_by(target, probe_server)) == []


# --- defects ---------------------------------------------------------------------------------------

LINK = {"type": "resource_link", "uri": "notes://one"}
PICTURE = {"type": "image", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("tools.result", {"content": {"type": "text", "text": "one"}}),
        ("tools.result", {"isError": "no"}),
        ("tools.content", {"content": [LINK]}),
        ("tools.content", {"content": [{**PICTURE, "data": "*"}]}),
        ("tools.content", {"content": [{"type": "text", "text": "a", "annotations": {"priority": 2}}]}),
        ("tools.image", {"content": [{**PICTURE, "data": "bm8gcGljdHVyZQ=="}]}),
        ("tools.structured-text", {"content": [], "structuredContent": {"sum": 1}}),
    ],
)
async def test_a_wrong_result_is_found(check: str, changes: Json) -> None:
    tests = await probed(answering(**changes))
    assert failed(tests) == [check]


@pytest.mark.parametrize("changes", [{}, {"structuredContent": {"sum": "1"}}])
async def test_structured_content_is_held_against_the_output_schema(changes: Json) -> None:
    assert failed(await probed(answering(**changes), outputSchema=SUM)) == ["tools.structured-content"]
    good = answering(structuredContent={"sum": 1})
    assert failed(await probed(good, outputSchema=SUM)) == []


async def test_arguments_that_break_the_schema_have_to_be_refused() -> None:
    async def accepts(arguments: Any) -> Json:
        return text("fine")

    tests = await probed(accepts)
    assert failed(tests) == ["tools.invalid-refused"]
    doubtful = next(test for test in tests if "above its maxLength" in test.title)
    assert doubtful.status == "error"  # nobody says that a length has to be enforced


@pytest.mark.parametrize(("code", "names"), [(-32602, []), (-32603, []), (-32601, ["tools.error-code"])])
async def test_the_code_of_a_refusal_is_judged(code: int, names: list[str]) -> None:
    async def tool(arguments: Any) -> Json:
        result = await echo(arguments)
        if result.get("isError"):
            raise RpcError(code)
        return result

    assert failed(await probed(tool)) == names


async def test_a_tool_that_refuses_what_its_schema_allows_proves_nothing() -> None:
    async def refuses(arguments: Any) -> Json:
        return text("unknown word", isError=True)

    tests = await probed(refuses)
    assert failed(tests) == []
    assert tests[0].status == "error"
    assert "unknown word" in (tests[0].error or "")


async def test_a_tool_that_never_answers_is_found_and_soon_left_alone() -> None:
    calls = 0

    async def hangs(arguments: Any) -> Json:
        nonlocal calls
        calls += 1
        await trio.sleep_forever()
        raise AssertionError

    tests = await probed(hangs)
    assert failed(tests) == ["tools.deadline"]
    assert calls == 3
    assert tests[-1].status == "skipped"


async def test_one_that_takes_long_for_odd_arguments_only_proves_nothing() -> None:
    async def counts(arguments: Any) -> Json:
        if arguments == {"word": ""}:
            await trio.sleep_forever()
        return await echo(arguments)

    tests = await probed(counts)
    assert failed(tests) == []
    assert [test.status for test in tests if test.title.endswith("empty")] == ["error"]


async def test_answers_that_go_to_the_wrong_call_are_found() -> None:
    under_way: list[Any] = []

    async def mixes(arguments: Any) -> Json:
        under_way.append(arguments)
        first = under_way[0]
        await trio.sleep(0.02)
        under_way.remove(arguments)
        return await echo(first)

    assert failed(await probed(mixes)) == ["tools.concurrent"]


async def test_calls_that_are_never_answered_together_are_found() -> None:
    under_way = 0

    async def one_at_most(arguments: Any) -> Json:
        nonlocal under_way
        under_way += 1
        with trio.move_on_after(0.02 if under_way == 1 else math.inf):
            await trio.sleep_forever()
        under_way -= 1
        return await echo(arguments)

    assert failed(await probed(one_at_most)) == ["tools.concurrent"]


async def test_a_long_poll_is_not_taken_for_a_tool_that_answers_one_call_at_a_time() -> None:
    """It answers each word once, from what is pending, and then waits for more."""
    polled: list[Any] = []

    async def poll(arguments: Any) -> Json:
        if arguments in polled:
            await trio.sleep_forever()
        polled.append(arguments)
        return await echo(arguments)

    tests = await probed(poll)
    assert failed(tests) == []
    concurrent = next(test for test in tests if test.title == "8 concurrent calls")
    assert (concurrent.status, concurrent.error) == (
        "skipped",
        "one of the calls is not answered alone, or only once",
    )


async def test_answers_that_are_never_the_same_are_not_taken_for_mixed() -> None:
    calls = 0

    async def counts(arguments: Any) -> Json:
        nonlocal calls
        calls += 1
        result = await echo(arguments)
        return result if result.get("isError") else text(str(calls % 3))

    assert failed(await probed(counts)) == []


# --- what is not called ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "definition",
    [{"annotations": {"destructiveHint": True}}, {"execution": {"taskSupport": "required"}}],
)
async def test_a_tool_that_may_not_be_called_is_skipped(definition: Json) -> None:
    async def never(arguments: Any) -> Json:
        raise AssertionError("called")

    tests = await probed(never, **definition)
    assert [test.status for test in tests] == ["skipped"]


async def test_a_destructive_tool_is_called_where_that_is_allowed() -> None:
    options = replace(QUICKLY, allow_destructive=True)
    tests = await probed(echo, options, annotations={"destructiveHint": True})
    assert tests[0].status == "success"


async def test_a_tool_of_a_framework_that_marks_every_tool_as_destructive_is_called() -> None:
    hints = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    tests = await probed(echo, annotations=hints)
    assert tests[0].status == "success"


async def test_a_schema_that_nothing_can_be_made_for_is_a_skipped_test() -> None:
    tests = await probed(echo, inputSchema={"type": "object", "required": ["a"], "maxProperties": 0})
    assert [test.status for test in tests] == ["skipped"]
    assert "no valid arguments could be generated" in (tests[0].error or "")


OWL = {"word": "owl"}

# --- expectations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (
            ExpectedCall(tool="it", arguments=OWL, patterns=("^o.l$",), content_types=("text",)),
            [],
        ),
        (ExpectedCall(tool="it", arguments=OWL, patterns=("cat",)), ["tools.expected-text"]),
        (
            ExpectedCall(tool="it", arguments=OWL, content_types=("image",)),
            ["tools.expected-content"],
        ),
        (ExpectedCall(tool="it", arguments=OWL, is_error=True), ["tools.expected-outcome"]),
        (ExpectedCall(tool="it", arguments=OWL, error_code=-32602), ["tools.expected-outcome"]),
        (ExpectedCall(tool="it", arguments={}), ["tools.expected-outcome"]),
        (ExpectedCall(tool="it", arguments={}, is_error=True), []),
        (ExpectedCall(tool="it", arguments={"word": "a"}, max_latency_ms=0.0), ["tools.expected-latency"]),
        (ExpectedCall(tool="other", arguments={}), []),
    ],
)
async def test_an_answer_is_held_against_the_expectations(call: ExpectedCall, names: list[str]) -> None:
    options = replace(QUICKLY, expectations=Expectations(calls=(call,)))
    assert failed(await probed(echo, options)) == names


# --- what only a process can show ------------------------------------------------------------------


async def of_planted(defect: str, tool: str) -> list[TestResult]:
    command = (sys.executable, "-S", "-m", "tests.servers.planted", *([defect] if defect else []))
    server = ServerConfig(command=command, cwd=str(REPOSITORY))
    async with target_for(server, replace(FULL, calls_at_once=1)) as target:
        it = next(it for it in target.tools if it.name == tool)
        tests = await found_by(target, partial(probe_tool, tool=it))
        return [*tests, *await found_by(target, probe_server)]


@pytest.mark.parametrize(
    ("defect", "tool", "names"),
    [
        ("", "slow", []),
        ("dies-of-a-big-request", "echo", ["server.big-request"]),
        ("dies-of-garbage", "echo", ["server.garbage"]),
    ],
)
async def test_a_process_that_goes_wrong_is_found(defect: str, tool: str, names: list[str]) -> None:
    assert failed(await of_planted(defect, tool)) == names


async def test_a_server_that_runs_once_on_a_machine_is_not_called_wrong(tmp_path: Path) -> None:
    script = tmp_path / "once.py"
    script.write_text(
        f"import os, sys, time\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from tests.servers.planted.faultless import Faultless\n"
        f"lock = {str(tmp_path / 'lock')!r}\n"
        "try:\n    os.close(os.open(lock, os.O_CREAT | os.O_EXCL))\n"
        "except FileExistsError:\n    time.sleep(1000)\n"
        "Faultless().run()\n"
    )
    server = ServerConfig(command=(sys.executable, "-S", str(script)))
    async with target_for(server, QUICKLY) as target:
        (test,) = await found_by(target, probe_garbage)
    assert (test.status, test.error) == ("error", "a second process did not answer initialize")
