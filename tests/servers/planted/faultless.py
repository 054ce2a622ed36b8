"""The server without a defect: revision 2025-11-25 over stdio, one thread a request.

Its methods are the places where a defect can be planted, and are small for that reason.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

from tests.servers.planted.sound import wave

VERSION = "2025-11-25"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNiAAAABgADNjd8qAAAAABJRU5ErkJggg=="
NOISE = wave(0.2)
SONG = wave(20.0)
SONG_URI = "media://song"
SLOW_SECONDS = 0.8

Message = dict[str, Any]


class FailedError(Exception):
    """A JSON-RPC error to be answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Faultless:
    """Reads requests from stdin until it ends. Each is answered in a thread of its own."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._cancelled: dict[Any, threading.Event] = {}

    # --- the wire ----------------------------------------------------------------------------------

    def run(self) -> None:
        for line in sys.stdin.buffer:
            self.on_line(line)
        # Kept for good: a thread that writes while the interpreter shuts down makes it abort.
        self._writing.acquire()

    def on_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON"}})
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or "method" not in message:
            if not (isinstance(message, dict) and ("result" in message or "error" in message)):
                self.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no request"}})
            return
        if "id" not in message:
            self.on_notification(message["method"], message.get("params") or {})
            return
        self._cancelled[message["id"]] = threading.Event()
        threading.Thread(target=self.serve, args=(message,), daemon=True).start()

    def send(self, message: Message) -> None:
        line = self.encode(message)
        with self._writing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def encode(self, message: Message) -> bytes:
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def serve(self, request: Message) -> None:
        request_id = request["id"]
        cancelled = self._cancelled[request_id]
        try:
            params = request.get("params")
            answer = {"result": self.answer(request["method"], {} if params is None else params, cancelled)}
        except FailedError as failed:
            answer = {"error": self.error_object(failed)}
        self._cancelled.pop(request_id, None)
        if not cancelled.is_set() or self.answers_the_cancelled():
            self.send({"jsonrpc": "2.0", "id": request_id, **answer})

    def error_object(self, failed: FailedError) -> Message:
        return {"code": failed.code, "message": str(failed)}

    def answers_the_cancelled(self) -> bool:
        return False

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/cancelled":
            event = self._cancelled.get(params.get("requestId"))
            if event is not None:
                self.on_cancelled(event)

    def on_cancelled(self, event: threading.Event) -> None:
        event.set()

    # --- methods -----------------------------------------------------------------------------------

    def answer(self, method: str, params: Any, cancelled: threading.Event) -> Message:
        if not isinstance(params, dict):
            raise FailedError(-32602, "params must be an object")
        match method:
            case "initialize":
                return self.initialize(params)
            case "ping":
                return self.ping(cancelled)
            case "tools/list":
                return self.list_tools(params)
            case "tools/call":
                return self.call(params, cancelled)
            case "resources/list":
                return self.list_resources(params)
            case "resources/templates/list":
                return {"resourceTemplates": self.templates()}
            case "resources/read":
                return self.read(params)
            case "prompts/list":
                return self.list_prompts(params)
            case "prompts/get":
                return self.get_prompt(params)
        return self.unknown_method(method)

    def unknown_method(self, method: str) -> Message:
        raise FailedError(-32601, f"unknown method {method[:80]}")

    def initialize(self, params: Mapping[str, Any]) -> Message:
        return {
            "protocolVersion": VERSION,
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "planted", "version": "1.0"},
        }

    def ping(self, cancelled: threading.Event) -> Message:
        return {}

    # --- tools -------------------------------------------------------------------------------------

    def tools(self) -> list[Message]:
        return [
            {
                "name": "echo",
                "description": "Gives the text back.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"text": {"type": "string", "minLength": 1, "maxLength": 200}},
                    "required": ["text"],
                },
                "annotations": {"readOnlyHint": True, "idempotentHint": True},
            },
            {
                "name": "add",
                "description": "Adds two whole numbers.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "a": {"type": "integer", "minimum": -1000, "maximum": 1000},
                        "b": {"type": "integer", "minimum": -1000, "maximum": 1000},
                    },
                    "required": ["a", "b"],
                },
                "outputSchema": {
                    "type": "object",
                    "properties": {"sum": {"type": "integer"}},
                    "required": ["sum"],
                },
            },
            self.plain_tool("picture", "Gives a picture."),
            self.plain_tool("sound", "Gives a short sound."),
            self.plain_tool("song", "Gives a link to a song that can be read in ranges."),
            self.plain_tool("slow", "Takes a while."),
            {
                **self.plain_tool("erase", "Erases everything."),
                "annotations": {"destructiveHint": True},
            },
        ]

    def plain_tool(self, name: str, description: str) -> Message:
        return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}

    def list_tools(self, params: Mapping[str, Any]) -> Message:
        """Two pages."""
        tools = self.tools()
        match params.get("cursor"):
            case None:
                return {"tools": tools[:4], "nextCursor": "rest"}
            case "rest":
                return {"tools": tools[4:]}
        raise FailedError(-32602, "unknown cursor")

    def call(self, params: Mapping[str, Any], cancelled: threading.Event) -> Message:
        name, arguments = params.get("name"), params.get("arguments")
        if arguments is None:
            arguments = {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise FailedError(-32602, "expected a name and an object of arguments")
        match name:
            case "echo":
                return self.echo(arguments)
            case "add":
                return self.add(arguments)
            case "picture":
                return {"content": [self.picture()]}
            case "sound":
                return {"content": [self.sound()]}
            case "song":
                return {"content": [self.song()]}
            case "slow":
                return self.slow(cancelled)
            case "erase":
                return self.text("erased")
        return self.unknown_tool(name)

    def text(self, text: str, *, is_error: bool = False) -> Message:
        result: Message = {"content": [{"type": "text", "text": text}]}
        return {**result, "isError": True} if is_error else result

    def unknown_tool(self, name: str) -> Message:
        raise FailedError(-32602, f"unknown tool {name[:80]}")

    def echo(self, arguments: Mapping[str, Any]) -> Message:
        text = arguments.get("text")
        if not isinstance(text, str) or not 1 <= len(text) <= 200:
            return self.bad_arguments("text has to be 1 to 200 characters")
        return self.text(text)

    def bad_arguments(self, why: str) -> Message:
        return self.text(why, is_error=True)

    def add(self, arguments: Mapping[str, Any]) -> Message:
        a, b = arguments.get("a"), arguments.get("b")
        if not (self.is_number(a) and self.is_number(b)):
            return self.bad_arguments("a and b have to be whole numbers from -1000 to 1000")
        assert a is not None
        assert b is not None
        total = int(a) + int(b)
        return {"content": [{"type": "text", "text": json.dumps({"sum": total})}], **self.structured(total)}

    def is_number(self, value: object) -> bool:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return whole and not isinstance(value, bool) and -1000 <= value <= 1000  # type: ignore[operator]

    def structured(self, total: int) -> Message:
        return {"structuredContent": {"sum": total}}

    def picture(self) -> Message:
        return {"type": "image", "data": PICTURE, "mimeType": "image/png"}

    def sound(self) -> Message:
        return {"type": "audio", "data": base64.b64encode(NOISE).decode(), "mimeType": "audio/wav"}

    def song(self) -> Message:
        return {
            "type": "resource_link",
            "uri": SONG_URI,
            "name": "song",
            "mimeType": "audio/wav",
            "size": len(SONG),
        }

    def slow(self, cancelled: threading.Event) -> Message:
        cancelled.wait(SLOW_SECONDS)
        return self.text("that took a while")

    # --- resources ---------------------------------------------------------------------------------

    def resources(self) -> list[Message]:
        return [
            {"uri": "notes://one", "name": "one", "mimeType": "text/plain"},
            {"uri": "notes://two", "name": "two", "mimeType": "application/octet-stream", "size": 256},
        ]

    def list_resources(self, params: Mapping[str, Any]) -> Message:
        """Two pages."""
        resources = self.resources()
        match params.get("cursor"):
            case None:
                return {"resources": resources[:1], "nextCursor": "rest"}
            case "rest":
                return {"resources": resources[1:]}
        raise FailedError(-32602, "unknown cursor")

    def templates(self) -> list[Message]:
        return [{"name": "song", "uriTemplate": SONG_URI + "{?start,end}", "mimeType": "audio/wav"}]

    def read(self, params: Mapping[str, Any]) -> Message:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise FailedError(-32602, "expected a uri")
        if uri == "notes://one":
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "a note"}]}
        if uri == "notes://two":
            return {"contents": [self.blob(uri, bytes(range(256)), "application/octet-stream")]}
        asked = re.fullmatch(re.escape(SONG_URI) + r"(?:\?start=(\d+)&end=(\d+))?", uri)
        if asked is None:
            return self.unknown_resource(uri)
        start, end = (0, len(SONG)) if asked[1] is None else (int(asked[1]), int(asked[2]))
        return {"contents": [self.blob(uri, self.page(start, end), "audio/wav")]}

    def unknown_resource(self, uri: str) -> Message:
        raise FailedError(-32002, "Resource not found")

    def blob(self, uri: str, data: bytes, mime_type: str) -> Message:
        return {"uri": uri, "mimeType": mime_type, "blob": base64.b64encode(data).decode()}

    def page(self, start: int, end: int) -> bytes:
        return SONG[start:end]

    # --- prompts -----------------------------------------------------------------------------------

    def prompts(self) -> list[Message]:
        return [
            {
                "name": "greet",
                "description": "Greets somebody.",
                "arguments": [{"name": "who", "description": "whom", "required": True}],
            }
        ]

    def list_prompts(self, params: Mapping[str, Any]) -> Message:
        if params.get("cursor") is not None:
            raise FailedError(-32602, "unknown cursor")
        return {"prompts": self.prompts()}

    def get_prompt(self, params: Mapping[str, Any]) -> Message:
        if params.get("name") != "greet":
            return self.unknown_prompt(str(params.get("name")))
        arguments = params.get("arguments") or {}
        if not isinstance(arguments, dict) or not isinstance(arguments.get("who"), str):
            return self.missing_argument()
        return {"messages": [self.prompt_message(f"Greet {arguments['who']}.")]}

    def unknown_prompt(self, name: str) -> Message:
        raise FailedError(-32602, f"unknown prompt {name[:80]}")

    def missing_argument(self) -> Message:
        raise FailedError(-32602, "the argument who is missing")

    def prompt_message(self, text: str) -> Message:
        return {"role": "user", "content": {"type": "text", "text": text}}
