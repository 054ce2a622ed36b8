"""Planted servers: one defect each, which one row finds and no other; in sound ones nothing is found."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from playhead.check.results import Report
from playhead.check.run import check_server
from playhead.config.servers import ServerConfig
from tests.servers.raw_http import MALFORMED, Exchange, raw_http
from tests.unit.check.check_kit import FULL, Json, defects, failures, text
from tests.unit.check.talkative import (
    CAPABILITIES,
    READ_ONLY,
    HttpShelf,
    SerialServer,
    Talkative,
    answers,
    log,
    notice,
    planted,
    progress,
    saying,
    tool,
)
from tests.unit.raw_server import NEVER, RawServer, Refusal, Said

ANY: Json = {"type": "object"}
OPTIONS = replace(FULL, examples=0, calls_at_once=2, mine="all", timeout_seconds=3.0)


AUTHORIZED = {"authorization": "Bearer a-key"}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a big request that is small: no server of the table dies of it."""
    monkeypatch.setattr("playhead.check.probes.server.BIG_BYTES", 64 * 1024)


async def over_http(shelf: HttpShelf) -> Report:
    async def nothing(_: object) -> None:
        raise AssertionError("the shelf answers everything")

    async with raw_http(nothing) as raw:
        raw.greet = shelf.handle
        return await check_server(ServerConfig(url=raw.url, headers=AUTHORIZED), OPTIONS)


# --- sound and unusual ------------------------------------------------------------------------------------


def growing(server: Talkative) -> None:
    """Each reading of the resources has one more."""
    numbers = count()

    def listed(params: Json) -> Any:
        if "cursor" in params:
            return Refusal(-32602, "no such cursor")
        extra = [{"uri": "shelf://items/item-1", "name": f"{n}"} for n in range(min(1, next(numbers)))]
        return {"resources": [{"uri": "shelf://items", "name": "items"}, *extra]}

    server.answers["resources/list"] = listed


def pages(server: Talkative) -> None:
    """34 pages of tools, one each."""
    names = [f"tool_{number}" for number in range(34)]
    server.tools = {name: ({"inputSchema": ANY}, lambda arguments: text("fine")) for name in names}

    def listed(params: Json) -> Any:
        at = params.get("cursor", "0")
        if at not in map(str, range(34)):
            return Refusal(-32602, "no such cursor")
        following = {"nextCursor": str(int(at) + 1)} if int(at) < 33 else {}
        return {"tools": [{"name": names[int(at)], "inputSchema": ANY}], **following}

    server.answers["tools/list"] = listed


def pinging(server: Talkative) -> None:
    numbers = count(1000)
    saying(before=lambda params: [{"id": next(numbers), "method": "ping"}])(server)


def in_order(server: Talkative) -> None:
    """Nothing but a ping is answered before `notifications/initialized`."""
    is_ready = False

    def ready(params: Json) -> None:
        nonlocal is_ready
        is_ready = True

    for method, own in list(server.answers.items()):
        server.answers[method] = lambda params, own=own: (
            (own(params) if callable(own) else own) if is_ready else Refusal(-32002, "not initialized")
        )
    server.answers["notifications/initialized"] = ready


def dynamic(server: Talkative) -> None:
    """A tool appears at the first call of another, and the server says so."""

    def run(arguments: Json) -> Any:
        if "late" in server.tools:
            return text("again")
        server.tools["late"] = ({"inputSchema": ANY}, lambda arguments: text("late"))
        return Said(text("added"), after=[notice("tools/list_changed")])

    tool("add", run)(server)


def logging_early(server: Talkative) -> None:
    initialize = {
        "protocolVersion": "2025-11-25",
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "raw", "version": "1"},
    }
    server.answers["initialize"] = Said(initialize, after=[log("info"), {"id": 7, "method": "ping"}])


def announced(server: Talkative) -> None:
    growing(server)
    saying(after=lambda params: [notice("resources/list_changed")])(server)


def of_cursors(server: Talkative) -> None:
    """A tool with pages of its own, which refuses every cursor that it has not given."""
    schema = {"type": "object", "properties": {"cursor": {"type": "string"}}}

    def run(arguments: Json) -> Any:
        match arguments.get("cursor"):
            case None:
                return text('{"items": [1, 2], "next_cursor": "page-2"}')
            case "page-2":
                return text('{"items": [3]}')
        return text("invalid cursor", isError=True)

    tool("browse", run, inputSchema=schema, **READ_ONLY)(server)


def only(*methods: str) -> Any:
    def change(server: Talkative) -> None:
        server.answers = {name: it for name, it in server.answers.items() if name.startswith(methods)}

    return change


def quiet(server: Talkative) -> None:
    """Tools without log messages, and nothing else."""
    server.level = "emergency"
    only("tools/")(server)


EXPRESSION: Json = {
    "type": "object",
    "properties": {"expression": {"type": "string"}},
    "required": ["expression"],
}
NOTHING: dict[str, Any] = dict.fromkeys(CAPABILITIES)
SOUND: dict[str, RawServer] = {
    "everything": planted(),
    "34 pages of tools": planted(pages),
    "pings during calls": planted(pinging),
    "strict order": planted(in_order),
    "dynamic tools": planted(dynamic),
    "2024-11-05 only": planted(version="2024-11-05"),
    "2025-03-26 only": planted(version="2025-03-26"),
    "2025-06-18 only": planted(version="2025-06-18"),
    "logs and pings before the handshake is over": planted(logging_early),
    "a listing that grows and says so": planted(announced),
    "a tool with cursors": planted(of_cursors),
    "prompts only": planted(only("prompts/", "logging/"), **{**NOTHING, "prompts": {}}),
    "tools only": planted(quiet, **{**NOTHING, "tools": {}}),
    "progress in small steps of a growing total": planted(
        saying(before=lambda p: [*progress(p, 1, total=1), *progress(p, 1.5, total=9), *progress(p, 2)])
    ),
    "one request at a time": SerialServer(Talkative().answers, capabilities=CAPABILITIES),
    "no completions": planted(answers("completion/complete", {"completion": {"values": []}})),
    "a calculator that names exceptions": planted(
        tool(
            "calculate",
            lambda arguments: text("NameError: name 'example' is not defined", isError=True),
            inputSchema=EXPRESSION,
        )
    ),
    "a tool without a network": planted(
        tool(
            "fetch",
            lambda arguments: Refusal(-32603, "TypeError: fetch failed: getaddrinfo ENOTFOUND a.example"),
        )
    ),
    "a tool without a key": planted(
        tool("search", lambda arguments: text("API key is not set", isError=True))
    ),
    "a tool that refuses every city": planted(
        tool("weather", lambda arguments: Refusal(-32602, "no such city, though the schema allows it"))
    ),
    "updates of what is below a subscribed resource": planted(
        answers(
            "resources/subscribe",
            lambda params: Said({}, after=[notice("resources/updated", uri=params["uri"] + "/item-1")]),
        )
    ),
}


@pytest.mark.parametrize("name", SOUND)
async def test_nothing_is_found_in_a_sound_server(name: str) -> None:
    report = await check_server(SOUND[name], OPTIONS)
    assert failures(report.tests) == []
    assert not [test.error for test in report.tests if "the checker itself" in (test.error or "")]


async def _priming(self: HttpShelf, exchange: Exchange, answer: Any) -> None:
    message = {"jsonrpc": "2.0", "id": exchange.message["id"]}
    message |= {"error": vars(answer.data)} if isinstance(answer, Refusal) else {"result": answer}
    await exchange.begin()
    await exchange.chunk(f"id: {next(self.events)}\nretry: 100\ndata:\n\n: a comment\n\n".encode())
    await exchange.chunk(f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode(), last=True)


async def _listening(self: HttpShelf, exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.chunk(b": hello\n\n")


async def _undeletable(self: HttpShelf, exchange: Exchange, session: str | None) -> None:
    await exchange.body(b"", status=405)


SOUND_HTTP: dict[str, dict[str, Any]] = {
    "json": {},
    "server-sent events": {"sse": True},
    "events with an empty first one": {"reply": _priming},
    "a stream of its own": {"get": _listening},
    "sessions that can't be deleted": {"delete": _undeletable},
    "sessions with a long prefix": {"new_session": lambda self: f"mcp-session-{uuid4()}"},
    "405 in words": {"get": lambda self, exchange: exchange.body(b"no", status=405, kind="text/plain")},
}


@pytest.mark.parametrize("name", SOUND_HTTP)
async def test_nothing_is_found_in_a_sound_server_over_http(name: str) -> None:
    report = await over_http(HttpShelf(**SOUND_HTTP[name]))
    assert failures(report.tests) == []


# --- planted in process -----------------------------------------------------------------------------------


def fails(code: int, message: str) -> Any:
    return lambda arguments: Refusal(code, message)


def is_error(message: str) -> Any:
    return lambda arguments: text(message, isError=True)


def forgetful(server: Talkative) -> None:
    server.tools["write_note"] = (server.tools["write_note"][0], lambda arguments: text("written"))


def garbled(server: Talkative) -> None:
    server.tools["read_note"] = (server.tools["read_note"][0], lambda arguments: text("something else"))


def shrinking(server: Talkative) -> None:
    """Each listing but the first lacks a tool, which still works."""
    listings = count()
    own = server.list_tools

    def listed(params: Json) -> Any:
        result = own(params)
        if next(listings) and isinstance(result, dict):
            del result["tools"][-1]
        return result

    server.answers["tools/list"] = listed


def handshake(before: Json | None = None, **changes: Any) -> Any:
    """A change: another answer to `initialize`, and a message before it."""
    own = {
        "protocolVersion": "2025-11-25",
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "raw", "version": "1"},
    }
    return answers("initialize", Said({**own, **changes}, before=[] if before is None else [before]))


def nameless(server: Talkative) -> None:
    """A call without a name is answered."""
    own = server.call
    server.answers["tools/call"] = lambda params: (
        own(params) if isinstance(params.get("name"), str) else text("fine")
    )


def paged(key: str, *items: Json, cursor: object, refusal: bool) -> Any:
    """A listing whose first page has a cursor. Any other one is refused, or answered with the last page."""
    return lambda params: (
        {key: list(items), "nextCursor": cursor}
        if "cursor" not in params
        else {key: []}
        if params["cursor"] == cursor or not refusal
        else Refusal(-32602, "no such cursor")
    )


TEMPLATE: Json = {"uriTemplate": "shelf://items/{item_id}", "name": "item"}
PROMPT: Json = {"name": "describe", "arguments": [{"name": "item_id", "required": True}]}


def asking(method: str) -> Any:
    return saying(before=lambda params: [{"id": 900, "method": method, "params": {}}])


PLANTED: list[tuple[str, str, Any]] = [
    # tools
    ("a-crash-with-an-exception", "tools.crashed", planted(tool("broken", fails(-32603, "KeyError: 'x'")))),
    (
        "a-crash-in-a-result",
        "tools.crashed",
        planted(tool("broken", is_error("Cannot read properties of undefined (reading 'x')"))),
    ),
    (
        "a-nil-pointer",
        "tools.crashed",
        planted(tool("broken", fails(-32603, "invalid memory address or nil pointer"))),
    ),
    (
        "a-traceback",
        "tools.crashed",
        planted(tool("broken", is_error("Traceback (most recent call last):\n  File x"))),
    ),
    (
        "none-in-python",
        "tools.crashed",
        planted(tool("broken", is_error("'NoneType' object has no attribute 'x'"))),
    ),
    (
        "a-listed-tool-is-unknown",
        "tools.crashed",
        planted(tool("broken", fails(-32602, "Unknown tool: broken"))),
    ),
    (
        "a-listed-tool-is-not-found",
        "tools.crashed",
        planted(tool("broken", is_error("MCP error -32602: Tool broken not found"))),
    ),
    ("an-internal-error", "tools.error-form", planted(tool("broken", fails(-32603, "no such city")))),
    (
        "an-internal-error-in-words",
        "tools.error-form",
        planted(tool("broken", fails(-32000, "Internal error"))),
    ),
    (
        "a-listed-item-is-unknown",
        "tools.mined-known",
        planted(tool("get_item", is_error("item not found"))),
    ),
    (
        "a-defect-behind-a-real-id",
        "tools.crashed",
        planted(
            tool(
                "get_item",
                lambda arguments: (
                    text("'NoneType' object has no attribute 'name'", isError=True)
                    if arguments["item_id"].startswith("item-")
                    else text("no such item", isError=True)
                ),
            )
        ),
    ),
    ("a-write-that-is-lost", "tools.read-back", planted(forgetful)),
    ("a-write-that-is-read-as-another", "tools.read-back", planted(garbled)),
    # progress
    ("progress-goes-back", "progress.increases", planted(saying(before=lambda p: progress(p, 0.5, 0.2)))),
    ("progress-stands-still", "progress.increases", planted(saying(before=lambda p: progress(p, 1, 1)))),
    ("progress-after-the-answer", "progress.ends", planted(saying(after=lambda p: progress(p, 2)))),
    (
        "a-progress-token-of-another-type",
        "progress.token",
        planted(
            saying(
                before=lambda p: [
                    notice("progress", progressToken=str(p["_meta"]["progressToken"]), progress=1)
                ]
            )
        ),
    ),
    (
        "a-progress-token-of-nobody",
        "progress.token",
        planted(saying(before=lambda p: [notice("progress", progressToken="nobody", progress=1)])),
    ),
    ("progress-in-words", "progress.shape", planted(saying(before=lambda p: progress(p, "half")))),
    (
        "progress-without-a-token",
        "progress.shape",
        planted(saying(before=lambda p: [notice("progress", progress=1)])),
    ),
    ("a-total-in-words", "progress.shape", planted(saying(before=lambda p: progress(p, 1, total="two")))),
    (
        "a-progress-message-that-is-a-list",
        "progress.shape",
        planted(saying(before=lambda p: progress(p, 1, message=[]))),
    ),
    # log messages
    ("an-unknown-log-level", "logging.shape", planted(saying(before=lambda p: [log("loud")]))),
    (
        "a-log-message-without-data",
        "logging.shape",
        planted(saying(before=lambda p: [notice("message", level="error")])),
    ),
    ("a-logger-that-is-a-number", "logging.shape", planted(saying(before=lambda p: [log(logger=7)]))),
    ("logs-undeclared", "logging.declared", planted(saying(before=lambda p: [log()]), logging=None)),
    ("logs-below-the-level", "logging.threshold", planted(saying(before=lambda p: [log("debug")]))),
    ("no-set-level", "logging.set-level", planted(answers("logging/setLevel", Refusal(-32601, "no")))),
    ("any-level-is-taken", "logging.unknown-level", planted(answers("logging/setLevel", {}))),
    # completions
    (
        "101-completions",
        "completion.values",
        planted(answers("completion/complete", {"completion": {"values": ["item-1", "item-2"] * 51}})),
    ),
    (
        "completions-that-are-numbers",
        "completion.shape",
        planted(answers("completion/complete", {"completion": {"values": [1]}})),
    ),
    (
        "a-completion-without-its-object",
        "completion.shape",
        planted(answers("completion/complete", {"values": ["item-1"]})),
    ),
    (
        "a-total-of-completions-in-words",
        "completion.shape",
        planted(answers("completion/complete", {"completion": {"values": ["item-1"], "total": "one"}})),
    ),
    (
        "completions-declared-and-unknown",
        "completion.answered",
        planted(answers("completion/complete", Refusal(-32601, "no"))),
    ),
    (
        "completions-that-fail",
        "completion.answered",
        planted(answers("completion/complete", Refusal(-32603, "no"))),
    ),
    # subscriptions and changes
    (
        "no-subscribe",
        "subscriptions.answered",
        planted(answers("resources/subscribe", Refusal(-32601, "no"))),
    ),
    (
        "no-unsubscribe",
        "subscriptions.answered",
        planted(answers("resources/unsubscribe", Refusal(-32601, "no"))),
    ),
    (
        "updates-undeclared",
        "subscriptions.declared",
        planted(saying(before=lambda p: [notice("resources/updated", uri="shelf://items")]), resources={}),
    ),
    (
        "updates-of-what-nobody-wanted",
        "subscriptions.wanted",
        planted(saying(before=lambda p: [notice("resources/updated", uri="shelf://other")])),
    ),
    (
        "updates-after-unsubscribing",
        "subscriptions.wanted",
        planted(
            answers(
                "prompts/get",
                lambda params: Said(
                    Talkative().prompt(params), before=[notice("resources/updated", uri="shelf://items")]
                ),
            )
        ),
    ),
    (
        "tools-changed-undeclared",
        "lists.declared",
        planted(saying(before=lambda p: [notice("tools/list_changed")]), tools={}),
    ),
    (
        "resources-changed-undeclared",
        "lists.declared",
        planted(saying(before=lambda p: [notice("resources/list_changed")]), resources={"subscribe": True}),
    ),
    (
        "prompts-changed-undeclared",
        "lists.declared",
        planted(saying(before=lambda p: [notice("prompts/list_changed")]), prompts={}),
    ),
    ("tools-vanish-without-a-word", "lists.announced", planted(shrinking)),
    ("tools-vanish-undeclared", "lists.announced", planted(shrinking, tools={})),
    ("resources-grow-without-a-word", "lists.announced", planted(growing)),
    (
        "a-null-cursor",
        "lists.null-cursor",
        planted(answers("prompts/list", lambda params: {"prompts": [], "nextCursor": None})),
    ),
    # requests to the client, codes
    ("asks-for-sampling", "client.requests-declared", planted(asking("sampling/createMessage"))),
    ("asks-for-elicitation", "client.requests-declared", planted(asking("elicitation/create"))),
    ("asks-for-roots", "client.requests-declared", planted(asking("roots/list"))),
    ("asks-for-what-no-client-has", "client.requests-known", planted(asking("client/reboot"))),
    (
        "asks-before-it-is-initialized",
        "client.requests-early",
        planted(handshake({"id": 7, "method": "tasks/list"})),
    ),
    ("instructions-that-are-a-number", "handshake.shape", planted(handshake(instructions=7))),
    ("completions-undeclared", "completion.declared", planted(completions=None)),
    # listings and malformed requests
    ("a-name-with-spaces", "tools.name", planted(tool("odd (tool)", lambda arguments: text("fine")))),
    (
        "tools-declared-and-refused",
        "tools.list-answered",
        planted(answers("tools/list", Refusal(-32603, "no"))),
    ),
    (
        "an-output-schema-that-is-none",
        "tools.output-schema",
        planted(
            tool(
                "odd",
                lambda arguments: text("{}", structuredContent={}),
                outputSchema={"type": "object", "properties": 7},
            )
        ),
    ),
    (
        "templates-that-fail",
        "resources.templates-answered",
        planted(answers("resources/templates/list", Refusal(-32603, "no"))),
    ),
    (
        "templates-with-a-cursor-that-is-a-number",
        "resources.templates-ends",
        planted(
            answers("resources/templates/list", paged("resourceTemplates", TEMPLATE, cursor=7, refusal=True))
        ),
    ),
    (
        "templates-with-any-cursor",
        "resources.templates-unknown-cursor",
        planted(
            answers(
                "resources/templates/list", paged("resourceTemplates", TEMPLATE, cursor="2", refusal=False)
            )
        ),
    ),
    (
        "prompts-with-a-cursor-that-is-a-number",
        "prompts.list-ends",
        planted(answers("prompts/list", paged("prompts", PROMPT, cursor=7, refusal=True))),
    ),
    (
        "prompts-with-any-cursor",
        "prompts.list-unknown-cursor",
        planted(answers("prompts/list", paged("prompts", PROMPT, cursor="2", refusal=False))),
    ),
    ("a-call-without-a-name-works", "server.malformed-params", planted(nameless)),
    ("code-0", "wire.error-codes", planted(tool("odd", fails(0, "no such city")))),
    # resources
    (
        "a-listed-resource-fails",
        "resources.read-answered",
        planted(
            answers(
                "resources/read",
                lambda params: (
                    Refusal(-32000, "broken")
                    if params.get("uri") == "shelf://items"
                    else Talkative().read(params)
                ),
            )
        ),
    ),
    (
        "a-template-that-cannot-be-read",
        "resources.template-read",
        planted(
            answers(
                "resources/read",
                lambda params: (
                    Refusal(-32002, "Resource not found")
                    if params.get("uri") != "shelf://items"
                    else Talkative().read(params)
                ),
            )
        ),
    ),
]


@pytest.mark.parametrize(
    ("row", "server"), [pytest.param(row, server, id=name) for name, row, server in PLANTED]
)
async def test_a_planted_defect_is_found_and_nothing_else(row: str, server: RawServer) -> None:
    report = await check_server(server, OPTIONS)
    assert defects(report.tests) == {row}, [check.message for check in failures(report.tests)]
    assert not report.passed


async def test_prompts_that_are_never_answered_are_found() -> None:
    server = planted(answers("prompts/get", NEVER))
    report = await check_server(server, replace(OPTIONS, timeout_seconds=0.3))
    assert defects(report.tests) == {"prompts.get-answered"}


async def test_a_server_that_falls_silent_is_found_at_the_end() -> None:
    """It answers nothing once a prompt was asked for."""

    def change(server: Talkative) -> None:
        own = dict(server.answers)
        is_silent = False

        def silent(params: Json) -> Any:
            nonlocal is_silent
            is_silent = True
            return NEVER

        for method, answer in own.items():
            server.answers[method] = lambda params, answer=answer: (
                NEVER if is_silent else answer(params) if callable(answer) else answer
            )
        server.answers["prompts/get"] = silent

    report = await check_server(planted(change), replace(OPTIONS, timeout_seconds=0.3))
    assert {"prompts.get-answered", "connection.stays"} <= defects(report.tests)


# --- planted over HTTP ------------------------------------------------------------------------------------


async def _sse_without_end(self: HttpShelf, exchange: Exchange, answer: Any) -> None:
    message = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": answer}
    if exchange.method != "ping":
        return await HttpShelf.reply(self, exchange, answer)
    await exchange.begin()
    await exchange.chunk(f"data: {json.dumps(message)}\n\ndata: {{}}\n".encode(), last=True)
    return None


def _indented(self: HttpShelf, message: Json) -> bytes:
    lines = json.dumps(message, indent=1).replace("\n", "\ndata: ")
    return f"data: {lines}\nnote {{\n\n".encode()


def same_session(self: HttpShelf) -> str:
    return "5d0b7a0e-4c1e-4f0a-9d3e-2b8a6f1c7e55"


def counted_session(self: HttpShelf) -> str:
    return f"session-of-the-shelf-{len(self.sessions):06}"


async def gone(self: HttpShelf, exchange: Exchange, session: str | None) -> None:
    await exchange.body(b"", status=200)


async def _replays_another(self: HttpShelf, exchange: Exchange) -> None:
    if "last-event-id" not in exchange.headers:
        await exchange.body(b"", status=405)
        return
    message = {"jsonrpc": "2.0", "id": 9999, "result": {}}
    await exchange.begin()
    await exchange.chunk(f"id: x\ndata: {json.dumps(message)}\n\n".encode(), last=True)


def _same_event(self: HttpShelf, message: Json) -> bytes:
    return f"id: 1\ndata: {json.dumps(message)}\n\n".encode()


def _sends(status: int, body: bytes = b"", kind: str = "text/plain") -> Any:
    async def send(self: HttpShelf, exchange: Exchange, *_: object) -> None:
        await exchange.body(body, status=status, kind=kind)

    return send


def _first(answer: Any) -> Any:
    """A handler of all requests that answers some of them by `answer`, which returns True for those."""

    async def handle(self: HttpShelf, exchange: Exchange) -> bool:
        return await answer(self, exchange) or await HttpShelf.handle(self, exchange)

    return handle


def _status(status: int, applies: Any, *, headers: str = "") -> Any:
    async def answer(self: HttpShelf, exchange: Exchange) -> bool:
        applies_now = applies(self, exchange)
        if applies_now:
            await exchange.body(b"", status=status, headers=headers)
        return bool(applies_now)

    return _first(answer)


async def _unhealthy(self: HttpShelf, exchange: Exchange) -> bool:
    if exchange.target == "/health":
        await exchange.json({"status": "down"})
    return exchange.target == "/health"


async def _dies_of_size(self: HttpShelf, exchange: Exchange) -> bool:
    self.is_dead = self.is_dead or len(exchange.content) > 60_000
    if self.is_dead:
        await exchange.hang_up()
    return self.is_dead


async def _plain(self: HttpShelf, exchange: Exchange, answer: Any) -> None:
    if exchange.method != "ping" or not exchange.headers["user-agent"].startswith("python-httpx"):
        return await HttpShelf.reply(self, exchange, answer)
    message = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": answer}
    return await exchange.body(json.dumps(message).encode(), kind="text/plain")


def _calls(name: str) -> Any:
    return lambda self, exchange: exchange.message.get("params", {}).get("name") == name


def _is_foreign(self: HttpShelf, exchange: Exchange) -> bool:
    return exchange.headers.get("authorization") != AUTHORIZED["authorization"]


METADATA = 'www-authenticate: Bearer resource_metadata="http://{host}/metadata"\r\n'


async def _unknown_metadata(self: HttpShelf, exchange: Exchange) -> bool:
    if exchange.target == "/metadata":
        await exchange.body(b"", status=404)
        return True
    if _is_foreign(self, exchange):
        headers = METADATA.format(host=exchange.headers["host"])
        await exchange.body(b"", status=401, headers=headers)
        return True
    return False


TRACE = b'Traceback (most recent call last):\n  File "app.py", line 7, in handle\nKeyError: 1'
HTTP: list[tuple[str, str, dict[str, Any]]] = [
    ("an-unhealthy-server", "connection.health", {"handle": _first(_unhealthy)}),
    (
        "one-client-only",
        "connection.second",
        {"handle": _status(503, lambda self, it: it.method == "initialize" and self.sessions)},
    ),
    ("calls-that-are-faults", "tools.call-answered", {"handle": _status(500, _calls("read_note"))}),
    (
        "an-unknown-method-is-a-fault",
        "server.answered",
        {"handle": _status(500, lambda self, it: it.method == "playhead/no-such-method")},
    ),
    ("a-big-request-is-the-end", "server.alive", {"handle": _first(_dies_of_size)}),
    ("json-that-is-plain-text", "http.content-type", {"reply": _plain}),
    ("401-without-a-challenge", "http.challenge", {"handle": _status(401, _is_foreign)}),
    ("401-with-unknown-metadata", "http.authorization", {"handle": _first(_unknown_metadata)}),
    ("any-origin", "http.origin", {"origin_status": lambda self, headers: None}),
    ("any-host", "http.host", {"host_status": lambda self, headers: None}),
    ("any-version", "http.protocol-version", {"version_status": lambda self, headers: None}),
    (
        "version-refused-as-a-fault",
        "http.protocol-version",
        {
            "version_status": lambda self, headers: (
                500 if headers.get("mcp-protocol-version") == "1999-12-31" else None
            )
        },
    ),
    (
        "one-order-of-accept",
        "http.accept",
        {"accept_status": lambda self, headers: 406 if ";q" in headers.get("accept", "") else None},
    ),
    (
        "an-unknown-session-works",
        "http.session-unknown",
        {
            "session_status": lambda self, exchange, session: (
                400
                if session is None
                and exchange.method not in ("initialize", "server/discover")
                and exchange.message is not MALFORMED
                else 404
                if session in self.ended
                else None
            )
        },
    ),
    (
        "no-session-is-a-fault",
        "http.session-required",
        {
            "session_status": lambda self, exchange, session: (
                500
                if session is None and exchange.method == "ping"
                else HttpShelf.session_status(self, exchange, session)
            )
        },
    ),
    ("short-sessions", "http.session-guessable", {"new_session": lambda self: uuid4().hex[:8]}),
    ("counted-sessions", "http.session-guessable", {"new_session": counted_session}),
    (
        "a-session-with-a-space",
        "http.session-characters",
        {"new_session": lambda self: f"a session {uuid4()}"},
    ),
    ("a-deleted-session-works", "http.session-ended", {"delete": gone}),
    ("delete-is-a-fault", "http.session-delete", {"delete": _sends(500)}),
    ("a-notification-gets-200", "http.notification", {"notified": _sends(200)}),
    ("a-notification-gets-a-body", "http.notification", {"notified": _sends(202, b"{}", "application/json")}),
    ("get-is-a-page", "http.get", {"get": _sends(200, b"<html></html>", "text/html")}),
    ("get-is-not-found", "http.get", {"get": _sends(404)}),
    ("malformed-is-a-fault", "http.malformed", {"malformed_status": lambda self: 500}),
    ("errors-with-stack-traces", "http.error-body", {"error_body": lambda self, status: TRACE}),
    ("no-blank-line-at-the-end", "http.sse-framing", {"reply": _sse_without_end, "sse": True}),
    ("another-field-in-an-event", "http.sse-framing", {"event": _indented, "sse": True}),
    ("the-same-event-id", "http.event-ids", {"event": _same_event, "sse": True}),
    ("another-stream-is-replayed", "http.resumption", {"get": _replays_another, "sse": True}),
]


@pytest.mark.parametrize(("row", "changes"), [pytest.param(row, it, id=name) for name, row, it in HTTP])
async def test_a_planted_defect_is_found_over_http(row: str, changes: dict[str, Any]) -> None:
    report = await over_http(HttpShelf(**changes))
    assert defects(report.tests) == {row}, [check.message for check in failures(report.tests)]
