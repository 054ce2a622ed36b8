"""A sound server that uses everything of the protocol: each planted defect is one change of it.

In process it is a `RawServer`, over HTTP a handler of `raw_http`. Its answers are functions of the params.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any
from uuid import uuid4

import trio
from jsonschema import Draft202012Validator
from mcp_types import JSONRPCRequest

from tests.servers.raw_http import MALFORMED, Exchange
from tests.unit.check.check_kit import Json, text
from tests.unit.raw_server import RawServer, Refusal, Said

ITEM_SCHEMA: Json = {"type": "object", "properties": {"item_id": {"type": "string"}}, "required": ["item_id"]}
NOTE_SCHEMA: Json = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "content": {"type": "string"}},
    "required": ["title", "content"],
}
TITLE_SCHEMA: Json = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
READ_ONLY: Json = {"annotations": {"readOnlyHint": True}}
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
Answer = Callable[[Json], Any]


def progress(params: Json, *values: object, **changes: Any) -> list[Json]:
    """Reports of the progress of the request with these params."""
    token = params.get("_meta", {}).get("progressToken")
    return [notice("progress", progressToken=token, progress=value, **changes) for value in values]


def notice(name: str, **params: Any) -> Json:
    return {"method": f"notifications/{name}", "params": params}


def log(level: str = "error", **params: Any) -> Json:
    return notice("message", level=level, data="something", **params)


class Talkative:
    """The answers of the sound server, by method. Change them with `planted`."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.level = "debug"
        self.tools: dict[str, tuple[Json, Answer]] = {
            "list_items": ({"inputSchema": {"type": "object"}, **READ_ONLY}, self.list_items),
            "get_item": ({"inputSchema": ITEM_SCHEMA, **READ_ONLY}, self.get_item),
            "write_note": ({"inputSchema": NOTE_SCHEMA}, self.write_note),
            "read_note": ({"inputSchema": TITLE_SCHEMA, **READ_ONLY}, self.read_note),
        }
        self.answers: dict[str, Any] = {
            "tools/list": self.list_tools,
            "tools/call": self.call,
            "resources/list": page("resources", {"uri": "shelf://items", "name": "items"}),
            "resources/templates/list": page(
                "resourceTemplates", {"uriTemplate": "shelf://items/{item_id}", "name": "item"}
            ),
            "resources/read": self.read,
            "resources/subscribe": lambda params: Said(
                {}, after=[notice("resources/updated", uri=params["uri"])]
            ),
            "resources/unsubscribe": {},
            "prompts/list": page(
                "prompts", {"name": "describe", "arguments": [{"name": "item_id", "required": True}]}
            ),
            "prompts/get": self.prompt,
            "logging/setLevel": self.set_level,
            "completion/complete": {
                "completion": {"values": ["item-1", "item-2"], "total": 2, "hasMore": False}
            },
        }

    # --- tools ---------------------------------------------------------------------------------------

    def list_tools(self, params: Json) -> Any:
        if "cursor" in params:
            return Refusal(-32602, "no such cursor")
        return {"tools": [{"name": name, **definition} for name, (definition, _) in self.tools.items()]}

    def call(self, params: Json) -> Any:
        name = params.get("name")
        if name not in self.tools:
            return Refusal(-32602, f"unknown tool {name}")
        definition, run = self.tools[name]
        arguments = params.get("arguments", {})
        if not Draft202012Validator({"type": "object", **definition["inputSchema"]}).is_valid(arguments):
            return Refusal(-32602, "invalid arguments")
        result = run(arguments)
        logs = [log("warning")] if LEVELS.index(self.level) <= LEVELS.index("warning") else []
        if isinstance(result, Said | Refusal):
            return result
        return Said(result, before=[*progress(params, 0.5, 1), *logs])

    def list_items(self, arguments: Json) -> Any:
        items = [{"id": "item-1"}, {"id": "item-2"}]
        return text(json.dumps(items))

    def get_item(self, arguments: Json) -> Any:
        if arguments["item_id"] not in ("item-1", "item-2"):
            return text("no such item", isError=True)
        return text(f"this is {arguments['item_id']}")

    def write_note(self, arguments: Json) -> Any:
        self.notes[arguments["title"]] = arguments["content"]
        return text("written")

    def read_note(self, arguments: Json) -> Any:
        note = self.notes.get(arguments["title"])
        return text("no such note", isError=True) if note is None else text(note)

    # --- everything else -----------------------------------------------------------------------------

    def read(self, params: Json) -> Any:
        uri = params.get("uri", "")
        if uri not in ("shelf://items", "shelf://items/item-1", "shelf://items/item-2"):
            return Refusal(-32002, "Resource not found")
        return {"contents": [{"uri": uri, "text": "an item"}]}

    def prompt(self, params: Json) -> Any:
        if params.get("name") != "describe" or "item_id" not in params.get("arguments", {}):
            return Refusal(-32602, "unknown prompt, or a missing argument")
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "Describe it."}}]}

    def set_level(self, params: Json) -> Any:
        if params.get("level") not in LEVELS:
            return Refusal(-32602, "unknown level")
        self.level = params["level"]
        return {}


def page(key: str, *items: Json) -> Answer:
    return lambda params: {key: list(items)} if "cursor" not in params else Refusal(-32602, "no such cursor")


class SerialServer(RawServer):
    """Reads a request only once the one before it is answered, which takes some milliseconds."""

    async def run(self, read_stream: Any, write_stream: Any, *_args: Any, **_options: Any) -> None:
        async for message in read_stream:
            if isinstance(message.message, JSONRPCRequest):
                await trio.sleep(0.005)
                await self._answer(message.message, write_stream)


def planted(
    change: Callable[[Talkative], None] = lambda _: None, *, version: str = "2025-11-25", **capabilities: Any
) -> RawServer:
    """The sound server with one change, and with these capabilities in place of its own (None: without)."""
    server = Talkative()
    change(server)
    declared = {name: value for name, value in {**CAPABILITIES, **capabilities}.items() if value is not None}
    return RawServer(server.answers, capabilities=declared, version=version)


def answers(method: str, answer: Any) -> Callable[[Talkative], None]:
    """A change: another answer to `method`."""

    def change(server: Talkative) -> None:
        server.answers[method] = answer

    return change


def tool(name: str, run: Answer, **definition: Any) -> Callable[[Talkative], None]:
    """A change: another function of a tool, and other fields of its definition."""

    def change(server: Talkative) -> None:
        before = server.tools.get(name, ({"inputSchema": {"type": "object"}}, run))[0]
        server.tools[name] = ({**before, **definition}, run)

    return change


def saying(
    *, before: Callable[[Json], list[Json]] | None = None, after: Callable[[Json], list[Json]] | None = None
) -> Callable[[Talkative], None]:
    """A change: what it says around the answer to each call, by the params."""

    def change(server: Talkative) -> None:
        own = server.call

        def call(params: Json) -> Any:
            result = own(params)
            said = result if isinstance(result, Said) else Said(result)
            return Said(
                said.answer,
                before=said.before if before is None else before(params),
                after=said.after if after is None else after(params),
            )

        server.answers["tools/call"] = call

    return change


# --- over HTTP --------------------------------------------------------------------------------------------

Refuse = Callable[["HttpShelf", Exchange], Awaitable[bool]]


class HttpShelf:
    """The sound server over Streamable HTTP, with sessions and server-sent events."""

    def __init__(self, *, sse: bool = False, **changes: Any) -> None:
        self.server = Talkative()
        self.sessions: set[str] = set()
        self.ended: set[str | None] = set()
        self.is_dead = False
        self.sse = sse
        self.events = count(1)
        for name, method in changes.items():
            setattr(self, name, method.__get__(self))

    async def handle(self, exchange: Exchange) -> bool:
        """Answer one HTTP request."""
        session = exchange.headers.get("mcp-session-id")
        if (status := self.refusal(exchange, session)) is not None:
            await exchange.body(self.error_body(status), status=status, kind="text/plain")
        elif exchange.verb == "GET":
            await self.get(exchange)
        elif exchange.verb == "DELETE":
            await self.delete(exchange, session)
        elif exchange.message is MALFORMED or not exchange.message:
            await exchange.body(self.error_body(400), status=self.malformed_status(), kind="text/plain")
        elif "id" not in exchange.message:
            await self.notified(exchange)
        else:
            await self.answer(exchange)
        return True

    def refusal(self, exchange: Exchange, session: str | None) -> int | None:
        """The status of a refusal, if any."""
        checks = (
            self.origin_status(exchange.headers),
            self.host_status(exchange.headers),
            self.version_status(exchange.headers),
            self.accept_status(exchange.headers),
            self.session_status(exchange, session),
        )
        return next((status for status in checks if status is not None), None)

    def origin_status(self, headers: Mapping[str, str]) -> int | None:
        return 403 if "origin" in headers else None

    def host_status(self, headers: Mapping[str, str]) -> int | None:
        return None if headers.get("host", "").startswith("127.0.0.1") else 403

    def version_status(self, headers: Mapping[str, str]) -> int | None:
        return 400 if headers.get("mcp-protocol-version", "2025-11-25") != "2025-11-25" else None

    def accept_status(self, headers: Mapping[str, str]) -> int | None:
        return None

    def session_status(self, exchange: Exchange, session: str | None) -> int | None:
        if exchange.method in ("initialize", "server/discover") or exchange.message is MALFORMED:
            return None
        if session is None:
            return 400
        return None if session in self.sessions else 404

    def error_body(self, status: int) -> bytes:
        return b"refused"

    def malformed_status(self) -> int:
        return 400

    def new_session(self) -> str:
        return str(uuid4())

    async def get(self, exchange: Exchange) -> None:
        await exchange.body(b"", status=405)

    async def delete(self, exchange: Exchange, session: str | None) -> None:
        self.sessions.discard(str(session))
        self.ended.add(session)
        await exchange.body(b"", status=200)

    async def notified(self, exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")

    async def answer(self, exchange: Exchange) -> None:
        method, params = exchange.method, exchange.message.get("params") or {}
        if method == "initialize":
            session = self.new_session()
            self.sessions.add(session)
            info = {"name": "raw", "version": "1"}
            capabilities: Json = {
                "tools": {},
                "resources": {},
                "prompts": {},
                "logging": {},
                "completions": {},
            }
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            await exchange.result(result, headers=f"mcp-session-id: {session}\r\n")
            return
        answer = (
            {} if method == "ping" else self.server.answers.get(method, Refusal(-32601, "no such method"))
        )
        answer = answer(params) if callable(answer) else answer
        said = answer if isinstance(answer, Said) else Said(answer)
        await self.reply(exchange, said.answer)

    async def reply(self, exchange: Exchange, answer: Any) -> None:
        message: Json = {"jsonrpc": "2.0", "id": exchange.message["id"]}
        if isinstance(answer, Refusal):
            message["error"] = {"code": answer.data.code, "message": answer.data.message}
        else:
            message["result"] = answer
        if self.sse:
            await exchange.begin()
            await exchange.chunk(self.event(message), last=True)
        else:
            await exchange.json(message)

    def event(self, message: Json) -> bytes:
        return f"id: {next(self.events)}\ndata: {json.dumps(message)}\n\n".encode()
