"""Moody resources as a process, over stdio or Streamable HTTP, on no SDK: its faults are below any.

    python -m tests.servers.moody_server --transport stdio --log FILE --moods '{"a": {"size_bytes": 9}}'
    python -m tests.servers.moody_server --transport http --moods '{…}'        # prints its URL on stdout

`--moods` maps the name of each resource to its `Mood`. The tool `link` gives a link to one, by `name` (the
first if none is given). Each read is a line of JSON in the log: the piece, when it arrived and was answered
(seconds since the epoch), the range, and the answer. Over HTTP the server lives as long as its stdin is open.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import secrets
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import trio
from pydantic import TypeAdapter

from tests.servers.launch import server_command
from tests.servers.moods import (
    Answer,
    Blobs,
    Cut,
    Entry,
    HangUp,
    HttpStatus,
    Mood,
    MoodyResource,
    RpcError,
    error_of,
)
from tests.servers.raw_http import Exchange, raw_http

Json = dict[str, Any]
Form = Literal["uri-template", "arguments", "both"]

PIECES: Final = "moods://pieces/"
TEMPLATE: Final = f"{PIECES}{{name}}{{?start,end}}"
MOODS: Final = TypeAdapter(dict[str, Mood])
NAME: Final = re.compile(rf"{PIECES}([^?]+)")


def moody_command(
    transport: str, moods: dict[str, Mood], log: Path, *options: object, form: Form = "both"
) -> list[str]:
    script = MOODS.dump_json(moods, exclude_defaults=True).decode("ascii")
    words = ["--transport", transport, "--moods", script, "--log", log, "--form", form, *options]
    return server_command("moody_server", *words)


def read_log(path: Path) -> dict[str, list[Entry]]:
    """The reads of each piece, in the order in which they arrived."""
    pieces: dict[str, list[Entry]] = {}
    for line in path.read_text("ascii").splitlines() if path.exists() else ():
        found = json.loads(line)
        pieces.setdefault(found.pop("piece"), []).append(Entry(**found))
    for entries in pieces.values():
        entries.sort(key=lambda entry: entry.arrived_at)
    return pieces


@dataclass(slots=True, kw_only=True)
class MoodyHost:
    """Answers JSON-RPC requests: a result, an error, or what no JSON-RPC is."""

    moods: dict[str, Mood]
    honours: Form
    offers: Form
    log: Path | None
    resources: dict[str, MoodyResource] = field(default_factory=dict)

    def _write(self, name: str, entry: Entry) -> None:
        if self.log is None:
            return
        resource = self.resources[name]
        started = resource.now() - resource.elapsed()
        answered = None if entry.answered_at is None else started + entry.answered_at
        line = replace(entry, arrived_at=started + entry.arrived_at, answered_at=answered)
        with self.log.open("a", encoding="ascii") as file:
            file.write(json.dumps({"piece": name, **asdict(line)}) + "\n")

    async def answer(self, method: str, params: Json) -> Json | Answer:
        """A result, or the answer of a moody resource."""
        match method:
            case "initialize":
                return {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "resources": {}},
                    "serverInfo": {"name": "moods", "version": "1"},
                }
            case "ping":
                return {}
            case "tools/list":
                schema = {"type": "object", "properties": {"name": {"type": "string"}}}
                return {"tools": [{"name": "link", "inputSchema": schema}]}
            case "tools/call":
                return {"content": [self._link(params.get("arguments", {}))]}
            case "resources/list":
                return {"resources": [{"uri": PIECES + name, "name": name} for name in self.moods]}
            case "resources/templates/list":
                templates = (
                    [{"name": "pieces", "uriTemplate": TEMPLATE}] if self.offers != "arguments" else []
                )
                return {"resourceTemplates": templates}
            case "resources/read":
                return await self._read(params)
            case _:
                return RpcError(code=-32601, message="Method not found")

    def _link(self, arguments: Json) -> Json:
        name = arguments.get("name", next(iter(self.moods)))
        mood = self.moods[name]
        link: Json = {"type": "resource_link", "uri": PIECES + name, "name": name, "mimeType": mood.mime_type}
        if self.offers != "uri-template":
            link["description"] = f"http://127.0.0.1/{name}"
        if mood.announced_bytes is not None:
            link["size"] = mood.announced_bytes
        return link

    async def _read(self, params: Json) -> Json | Answer:
        uri = str(params.get("uri"))
        found = NAME.match(uri)
        if found is None or found[1] not in self.moods:
            return RpcError(code=-32002, message=f"Resource not found: {uri}")
        in_uri = {key: value[0] for key, value in parse_qs(urlsplit(uri).query).items()}
        beside = params.get("arguments") or {}
        wanted = {} if self.honours == "arguments" else in_uri
        if "start" not in wanted and self.honours != "uri-template":
            wanted = beside
        if "start" not in wanted or "end" not in wanted:
            return RpcError(code=-32602, message="Invalid params: start and end are missing")
        name = found[1]
        if name not in self.resources:  # made when first read, so that a process starts fast
            self.resources[name] = MoodyResource(
                self.moods[name], now=time.time, on_answered=partial(self._write, name)
            )
        answer = await self.resources[name].answer(int(wanted["start"]), int(wanted["end"]))
        if isinstance(answer, Blobs):
            return contents(uri, self.moods[name].mime_type, answer.blobs)
        return answer


def contents(uri: str, mime_type: str, blobs: tuple[bytes, ...]) -> Json:
    return {
        "contents": [
            {"uri": uri, "mimeType": mime_type, "blob": base64.b64encode(blob).decode("ascii")}
            for blob in blobs
        ]
    }


def envelope(message_id: object, answer: Json | RpcError | HttpStatus) -> Json:
    """The JSON-RPC answer; HTTP's own errors become a server error without HTTP."""
    if isinstance(answer, dict):
        return {"jsonrpc": "2.0", "id": message_id, "result": answer}
    code, said = (
        (answer.code, answer.message) if isinstance(answer, RpcError) else (-32000, str(error_of(answer)))
    )
    return {"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": said}}


def page_body(message: Json, cut: Cut) -> bytes:
    result = contents(str(message["params"].get("uri")), "application/octet-stream", cut.blobs)
    return json.dumps(envelope(message["id"], result)).encode("ascii")


async def serve_stdio(host: MoodyHost) -> None:
    turn = trio.Lock()
    out = trio.lowlevel.FdStream(os.dup(1))

    async def write(data: bytes) -> None:
        async with turn:
            with trio.CancelScope(shield=True):  # a line is never left half written
                await out.send_all(data)

    async def one(message: Json) -> None:
        answer = await host.answer(message["method"], message.get("params") or {})
        if isinstance(answer, Cut):
            body = page_body(message, answer)
            await write(body[: int(len(body) * answer.share)])
        if isinstance(answer, Cut | HangUp):
            os._exit(4)
        assert not isinstance(answer, Blobs)
        await write(json.dumps(envelope(message["id"], answer)).encode("ascii") + b"\n")

    running: dict[object, trio.CancelScope] = {}

    async def until_cancelled(message: Json) -> None:
        with trio.CancelScope() as scope:
            running[message["id"]] = scope
            await one(message)
        del running[message["id"]]

    buffer = b""
    async with trio.open_nursery() as nursery:
        async for chunk in trio.lowlevel.FdStream(os.dup(0)):
            *lines, buffer = (buffer + chunk).split(b"\n")
            for message in map(json.loads, lines):
                if "id" in message and "method" in message:
                    nursery.start_soon(until_cancelled, message)
                elif message.get("method") == "notifications/cancelled":
                    scope = running.get(message["params"]["requestId"])
                    if scope is not None:
                        scope.cancel()
        os._exit(0)


async def serve_http(host: MoodyHost, *, port: int, lost_status: int) -> None:
    session = secrets.token_hex(8)

    async def handle(exchange: Exchange) -> None:
        if not exchange.headers.get("mcp-session-id", "").startswith(session):
            said = "Session not found" if lost_status == 404 else "Bad Request: No valid session ID provided"
            await exchange.error(-32000, said, status=lost_status)
            return
        answer = await host.answer(exchange.method, exchange.message.get("params") or {})
        if isinstance(answer, HttpStatus):
            wait = answer.retry_after_seconds
            headers = "" if wait is None else f"retry-after: {wait}\r\n"
            await exchange.body(b"busy\n", status=answer.status, kind="text/plain", headers=headers)
        elif isinstance(answer, Cut):
            body = page_body(exchange.message, answer)
            head = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            await exchange.raw(head.encode("ascii") + body[: int(len(body) * answer.share)])
            await exchange.hang_up()
        elif isinstance(answer, HangUp):
            await exchange.hang_up()
        else:
            assert not isinstance(answer, Blobs)
            await exchange.json(envelope(exchange.message["id"], answer))

    async with raw_http(handle, session=session, port=port) as server:
        server.capabilities = {"tools": {}, "resources": {}}
        print(server.url, flush=True)
        await trio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
        os._exit(0)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--transport", choices=["stdio", "http"], default="stdio")
    arguments.add_argument("--moods", type=MOODS.validate_json, required=True, metavar="JSON")
    arguments.add_argument("--log", type=Path)
    arguments.add_argument("--form", default="both", help="the form of range that reads are answered in")
    arguments.add_argument("--offers", help="the form that is listed; default: as --form")
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--lost-status", type=int, default=404, help="for a session that is not known")
    arguments.add_argument("--lifetime", type=float, metavar="SECONDS", help="die after that long")
    arguments.add_argument("--standby", action="store_true", help="serve once a line arrives on stdin")
    options = arguments.parse_args()
    if options.standby:
        print("ready", flush=True)
        os.read(0, 1)
    host = MoodyHost(
        moods=options.moods, honours=options.form, offers=options.offers or options.form, log=options.log
    )

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            if options.lifetime is not None:
                nursery.start_soon(die, options.lifetime)
            if options.transport == "stdio":
                await serve_stdio(host)
            else:
                await serve_http(host, port=options.port, lost_status=options.lost_status)

    trio.run(run)


async def die(seconds: float) -> None:
    await trio.sleep(seconds)
    os._exit(5)


if __name__ == "__main__":
    main()
