"""Servers that are right in ways a checker could take for wrong: a full check finds nothing in any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from playhead.check import target
from playhead.check.options import CheckOptions
from playhead.check.results import Report
from playhead.check.run import check_server
from playhead.config.servers import ServerConfig
from tests.servers.raw_http import Exchange, raw_http
from tests.unit.check.check_kit import FULL, SUM, WORD, Json, failures, text
from tests.unit.raw_server import RawServer, Refusal

Call = Callable[[Json], Any]

ONCE = replace(FULL, examples=1, allow_unproven=True)
"""A tool that answers every call with an error may be right."""


def listing(key: str, *items: Json) -> Callable[[Json], Any]:
    """A listing of one page, which has given nobody a cursor."""
    return lambda params: {key: list(items)} if "cursor" not in params else Refusal(-32602, "no such cursor")


def with_tool(
    call: Call, *, schema: Json = WORD, answers: Json | None = None, **definition: Any
) -> RawServer:
    """A server of one tool, `it`, that validates its arguments and answers what `call` gives."""
    draft7 = "draft-07" in str(schema.get("$schema"))
    valid = (Draft7Validator if draft7 else Draft202012Validator)(schema)

    def called(params: Json) -> Any:
        arguments = params.get("arguments", {})
        if params.get("name") != "it" or not valid.is_valid(arguments):
            return Refusal(-32602, "unknown tool, or invalid arguments")
        return call(arguments)

    listed = {"name": "it", "inputSchema": schema, **definition}
    return RawServer(
        {"tools/list": listing("tools", listed), "tools/call": called, **(answers or {})},
        capabilities={"tools": {}},
    )


async def nothing_wrong(server: Any, options: CheckOptions = ONCE) -> Report:
    report = await check_server(server, options)
    assert failures(report.tests) == []
    assert report.passed
    assert not [test for test in report.tests if "the checker itself" in (test.error or "")]
    return report


# --- tools -------------------------------------------------------------------------------------------


def once_only() -> Call:
    """Makes something of a name, which can be done once: side effects break later calls."""
    made: set[str] = set()

    def make(arguments: Json) -> Any:
        word = arguments["word"]
        if word in made:
            return text(f"there is a {word} already", isError=True)
        made.add(word)
        return text(f"made {word}")

    return make


def never_the_same() -> Call:
    numbers = count()
    return lambda arguments: text(f"{next(numbers)}")


def closed_by_a_call() -> Call:
    numbers = count()
    return lambda arguments: text("closed") if next(numbers) == 0 else text("it is closed", isError=True)


NAIVE = {
    "type": "object",
    "properties": {"at": {"type": "string", "format": "date-time"}},
    "required": ["at"],
}
ELSEWHERE = {"type": "object", "properties": {"a": {"$ref": "https://example.com/schemas/a.json"}}}
HUGE = {"type": "object", "properties": {"a": {"enum": [str(n) for n in range(6000)]}}}


@pytest.mark.parametrize(
    "server",
    [
        with_tool(once_only()),
        with_tool(never_the_same()),
        with_tool(closed_by_a_call()),
        with_tool(lambda arguments: text("no such city", isError=True), outputSchema=SUM),
        with_tool(
            lambda arguments: text("{}", structuredContent={"at": "2026-01-12T10:00:00"}), outputSchema=NAIVE
        ),
        with_tool(lambda arguments: text("{}", structuredContent={"a": 1}), outputSchema=ELSEWHERE),
        with_tool(lambda arguments: text("{}", structuredContent={"a": "7"}), outputSchema=HUGE),
        with_tool(lambda arguments: {"content": []}),
    ],
    ids=[
        "once only",
        "never the same",
        "closed by a call",
        "an error has no structure",
        "a date without a zone",
        "a schema elsewhere",
        "a schema too large to check",
        "nothing to say",
    ],
)
async def test_a_tool_that_is_right(server: RawServer) -> None:
    await nothing_wrong(server)


STRICT: Json = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "definitions": {"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}},
    "properties": {
        "code": {"$ref": "#/definitions/code"},
        "mail": {"type": "string", "format": "email"},
        "pair": {
            "type": "array",
            "items": [{"type": "integer"}, {"type": "boolean"}],
            "additionalItems": False,
        },
        "size": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    },
    "required": ["code", "size"],
    "additionalProperties": False,
}
DEFAULTED: Json = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "default": 10}},
    "required": ["limit"],
}
ANYTHING_BUT_NULL: Json = {
    "type": "object",
    "properties": {"value": {"type": ["string", "number", "boolean", "object", "array"]}},
}


async def test_schemas_of_an_older_draft_are_read_as_such() -> None:
    report = await nothing_wrong(with_tool(lambda arguments: text("fine"), schema=STRICT))
    called = [test for test in report.tests if test.method == "tools/call"]
    assert any(test.status == "success" and test.title.startswith("valid") for test in called)


@pytest.mark.parametrize("schema", [DEFAULTED, ANYTHING_BUT_NULL], ids=["filled in", "null is none"])
async def test_a_server_that_fills_in_what_is_missing_is_not_called_wrong(schema: Json) -> None:
    def call(params: Json) -> Any:
        arguments = params.get("arguments", {})
        if params.get("name") != "it" or not isinstance(arguments, dict):
            return Refusal(-32602, "no")
        given = {name: value for name, value in arguments.items() if value is not None}
        valid = Draft202012Validator({**schema, "required": []}).is_valid(given)
        return text("fine") if valid else Refusal(-32602, "no")

    await nothing_wrong(with_tool(lambda _: None, schema=schema, answers={"tools/call": call}))


async def test_a_tool_that_asks_for_what_is_missing_is_not_called_wrong() -> None:
    question = {"resultType": "input_required", "inputRequests": {}, "content": []}

    def call(params: Json) -> Any:
        arguments = params.get("arguments", {})
        if params.get("name") != "it" or not isinstance(arguments, dict):
            return Refusal(-32602, "no")
        if "word" not in arguments:
            return question
        return text("fine") if Draft202012Validator(WORD).is_valid(arguments) else Refusal(-32602, "no")

    await nothing_wrong(with_tool(lambda _: None, answers={"tools/call": call}))


# --- listings ----------------------------------------------------------------------------------------


def shifting() -> Callable[[Json], Any]:
    """A new tool comes first at every request, and pushes the last of the page to the next one."""
    names: list[str] = ["a", "b", "c", "d"]
    numbers: Iterator[int] = count()

    def page(params: Json) -> Any:
        cursor = params.get("cursor", "0")
        if cursor not in ("0", "2", "4", "6"):
            return Refusal(-32602, "no such cursor")
        at = int(cursor)
        if at and len(names) < 6:
            names.insert(0, f"new{next(numbers)}")
        found = [{"name": name, "inputSchema": {"type": "object"}} for name in names[at : at + 2]]
        return {"tools": found, **({"nextCursor": str(at + 2)} if at + 2 < len(names) else {})}

    return page


def one_a_page(params: Json) -> Any:
    cursor = params.get("cursor", "0")
    if cursor not in ("0", "1", "2"):
        return Refusal(-32602, "no such cursor")
    tool = {"name": f"tool{cursor}", "inputSchema": {"type": "object"}}
    return {"tools": [tool], **({"nextCursor": str(int(cursor) + 1)} if cursor != "2" else {})}


def called_by_name(params: Json) -> Any:
    if not isinstance(params.get("name"), str) or params["name"].startswith("playhead"):
        return Refusal(-32602, "unknown tool")
    return text("fine") if isinstance(params.get("arguments", {}), dict) else Refusal(-32602, "no")


@pytest.mark.parametrize("page", [shifting(), one_a_page], ids=["shifting", "one a page"])
async def test_a_listing_that_is_right(page: Callable[[Json], Any]) -> None:
    answers = {"tools/list": page, "tools/call": called_by_name}
    await nothing_wrong(RawServer(answers, capabilities={"tools": {}}))


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
async def test_a_server_of_nothing(version: str) -> None:
    answers = {
        "tools/list": listing("tools"),
        "resources/list": listing("resources"),
        "prompts/list": listing("prompts"),
    }
    capabilities: Json = {"tools": {}, "resources": {}, "prompts": {}}
    await nothing_wrong(RawServer(answers, capabilities=capabilities, version=version))


async def test_resources_of_text_and_templates_that_need_values() -> None:
    note = {"uri": "notes://one", "name": "one", "mimeType": "text/plain"}

    def read(params: Json) -> Any:
        if params.get("uri") != "notes://one":
            return Refusal(-32002, "Resource not found")
        return {"contents": [{"uri": "notes://one", "mimeType": "text/plain; charset=utf-8", "text": "a"}]}

    template = {"name": "days", "uriTemplate": "notes://{year}/{month}{?day,hour}"}
    answers = {
        "resources/list": listing("resources", note),
        "resources/templates/list": listing("resourceTemplates", template),
        "resources/read": read,
    }
    await nothing_wrong(RawServer(answers, capabilities={"resources": {}}, version="2025-03-26"))


# --- servers that are asked too often ----------------------------------------------------------------


@pytest.mark.parametrize("words", [True, False], ids=["in words", "by status"])
@pytest.mark.parametrize("for_good", [True, False], ids=["for good", "now and then"])
async def test_a_server_that_limits_how_often_it_is_asked(
    words: bool, for_good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "RATE_LIMIT_PAUSES", (0.0, 0.0))
    numbers = count()

    async def handle(exchange: Exchange) -> None:
        number = next(numbers)
        if number > 5 and (for_good or number % 3 == 0):
            if words:
                await exchange.error(-32000, "Rate limit exceeded, try again in 1 s")
            else:
                await exchange.body(b"Too Many Requests", status=429, kind="text/plain")
            return
        params = exchange.message.get("params") or {}
        match exchange.method:
            case "ping":
                await exchange.result({})
            case "tools/list":
                await exchange.result({"tools": [{"name": "it", "inputSchema": WORD}]})
            case "tools/call":
                valid = params.get("name") == "it" and Draft202012Validator(WORD).is_valid(
                    params.get("arguments", {})
                )
                await (exchange.result(text("fine")) if valid else exchange.error(-32602, "no"))
            case _:
                await exchange.error(-32601, "no such method")

    async with raw_http(handle) as raw:
        report = await nothing_wrong(ServerConfig(url=raw.url), replace(ONCE, calls_at_once=2))
    decided = [test for test in report.tests if test.method == "tools/call" and test.status == "success"]
    assert for_good or decided
