"""An MCP server of one paged resource, on the SDK's lowlevel server under trio.

    python -m tests.servers.pages --transport stdio --size 33554432 --behaviour cap64k
    python -m tests.servers.pages --transport http --delay 0.1          # prints its URL on stdout

Over HTTP and WebSocket it lives as long as its stdin is open, so that it never outlives the test that started
it.
Tools: `link` gives a resource link to the resource, `stats` what was asked of the server so far.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from playhead.servers.http import base_url
from playhead.servers.websocket import websocket_endpoint
from tests.servers.behaviours import BEHAVIOURS, Blob, Once, Script
from tests.servers.http_faults import App, FaultyApp
from tests.servers.loopback import app_server
from tests.servers.payload import FilePayload, Payload
from tests.servers.wave import wave_header

URI = "resource://pages"
TEMPLATE = "resource://pages{?url,start,end}"
TEMPLATE_ALONE = "resource://pages{?start,end}"
HTTP_FAULTS = {"fail-once": "unavailable", "drop-connection": "cut"}
ANNOUNCED = {"size-too-small": 0.7, "size-too-big": 1.3}
"""Behaviours whose link lies about the size, and by which factor."""
NAMES = sorted({*BEHAVIOURS, *HTTP_FAULTS, *ANNOUNCED, "template-only", "arguments-only"})


@dataclass(slots=True)
class Counters:
    reads: int = 0
    in_flight: int = 0
    in_flight_max: int = 0


class PagesServer:
    """One resource, one behaviour."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.counters = Counters()
        self.template = UriTemplate.parse(
            TEMPLATE_ALONE if options.behaviour == "template-only" else TEMPLATE
        )
        self.behaviour = BEHAVIOURS.get(options.behaviour, BEHAVIOURS["plain"])
        self.script = Script(payload=payload_of(options), once=Once(options.once))
        self.server: Server[Any] = Server(
            "pages",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read,
        )

    def announced_bytes(self) -> int | None:
        if self.options.no_size:
            return None
        return int(self.script.payload.size_bytes * ANNOUNCED.get(self.options.behaviour, 1))

    async def list_tools(self, _context: object, _params: object) -> types.ListToolsResult:
        schema = {"type": "object"}
        names = ("link", "stats")
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in names])

    async def call_tool(self, _context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name == "stats":
            seen = {"reads": self.counters.reads, "in_flight_max": self.counters.in_flight_max}
            return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(seen))])
        link = types.ResourceLink(
            type="resource_link",
            uri=URI,
            name="pages",
            # A URL here is an offer of the `arguments` form.
            description=None if self.options.behaviour == "template-only" else "http://127.0.0.1/pages",
            mime_type=self.options.mime,
            size=self.announced_bytes(),
        )
        return types.CallToolResult(content=[link])

    async def list_resources(self, _context: object, _params: object) -> types.ListResourcesResult:
        resource = types.Resource(uri=URI, name="pages", mime_type=self.options.mime)
        return types.ListResourcesResult(resources=[resource])

    async def list_templates(self, _context: object, _params: object) -> types.ListResourceTemplatesResult:
        if self.options.behaviour == "arguments-only":
            return types.ListResourceTemplatesResult(resource_templates=[])
        template = types.ResourceTemplate(
            name="pages", uri_template=str(self.template), mime_type=self.options.mime
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    def range_of(self, uri: str, params: dict[str, Any]) -> tuple[int, int]:
        """`start` and `end` from the template's variables, or from the `arguments` beside the URI."""
        found: dict[str, Any] = dict(self.template.match(uri) or {})
        if "start" not in found and self.options.behaviour != "template-only":
            found = params.get("arguments") or {}
        elif self.options.behaviour == "arguments-only":
            found = {}
        if "start" not in found or "end" not in found:
            raise MCPError(-32602, f"a range is needed: start and end, in bytes from 0 (read of {uri})")
        return int(found["start"]), int(found["end"])

    async def read(self, context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        start, end = self.range_of(str(params.uri), dict(context.params or {}))
        seen = self.counters
        seen.reads += 1
        seen.in_flight += 1
        seen.in_flight_max = max(seen.in_flight, seen.in_flight_max)
        try:
            if self.options.delay:
                await trio.sleep(self.options.delay)
            answer = await self.behaviour(self.script, start, end)
        finally:
            seen.in_flight -= 1
        contents: list[types.TextResourceContents | types.BlobResourceContents] = []
        for piece in answer:
            if isinstance(piece, Blob):
                contents.append(
                    types.BlobResourceContents(uri=params.uri, mime_type=self.options.mime, blob=piece.text)
                )
            else:
                contents.append(types.TextResourceContents(uri=params.uri, text=piece.text))
        return types.ReadResourceResult(contents=contents)

    async def run_stdio(self) -> None:
        async with stdio_server() as (read, write):
            await self.server.run(read, write, self.server.create_initialization_options())

    async def run_ws(self) -> None:
        await self._run(Starlette(routes=[WebSocketRoute("/mcp", websocket_endpoint(self.server))]), "ws")

    async def run_http(self) -> None:
        app = cast(App, self.server.streamable_http_app(json_response=not self.options.sse))
        if fault := HTTP_FAULTS.get(self.options.behaviour):
            app = FaultyApp(app=app, fault=fault)
        await self._run(app, "http")

    async def _run(self, app: App, scheme: str) -> None:
        async with app_server(app, port=self.options.port) as sock:
            print(base_url(sock, scheme=scheme) + "/mcp", flush=True)
            await trio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
            # Nobody is left to answer: no grace, no waiting for connections.
            os._exit(0)


def payload_of(options: argparse.Namespace) -> Payload:
    if options.file is not None:
        return FilePayload(options.file.read_bytes())
    prefix = wave_header(options.size) if options.wave else b""
    return Payload(size_bytes=options.size, seed=options.seed, prefix=prefix)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--transport", choices=["stdio", "http", "ws"], default="stdio")
    arguments.add_argument(
        "--sse", action="store_true", help="answer HTTP requests as event streams, not as JSON"
    )
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--behaviour", choices=NAMES, default="plain")
    arguments.add_argument("--size", type=int, default=32 << 20, help="bytes of the resource")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--wave", action="store_true", help="begin with a WAV header: the bytes are music")
    arguments.add_argument("--file", type=Path, help="serve this file in place of made-up bytes")
    arguments.add_argument(
        "--mime", default="application/x-pages", help="one that says what it is not: sound"
    )
    arguments.add_argument("--delay", type=float, default=0.0, help="seconds before each answer to a read")
    arguments.add_argument("--no-size", action="store_true", help="the link does not say how big it is")
    arguments.add_argument(
        "--standby", action="store_true", help="be ready, and serve once a line comes on stdin"
    )
    arguments.add_argument("--once", type=Path, help="where a process that dies once remembers that it did")
    return arguments


def main() -> None:
    logging.disable(logging.CRITICAL)  # the faults are on purpose; a test's output is not the place for them
    server = PagesServer(parser().parse_args())
    if server.options.standby:
        print("ready", flush=True)
        os.read(0, 1)
    runs = {"stdio": server.run_stdio, "http": server.run_http, "ws": server.run_ws}
    trio.run(runs[server.options.transport])


if __name__ == "__main__":
    main()
