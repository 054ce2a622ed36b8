"""The faultless server with one thing wrong, as the comment above each row of `DEFECTS` says.

`finds` names the check that has to fail; no other may.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tests.servers.planted.faultless import (
    NOISE,
    PICTURE,
    SONG,
    FailedError,
    Faultless,
    Message,
)


class Planted(Faultless):
    finds: ClassVar[str]
    """The name of the check that has to fail, and alone."""


def planted(finds: str, **methods: Any) -> type[Planted]:
    """The server with these methods in place of its own; a dict changes fields of what its own answers."""
    made = {
        name: _changed(getattr(Faultless, name), method) if isinstance(method, dict) else method
        for name, method in methods.items()
    }
    return type("Planted", (Planted,), {"finds": finds, **made})


def _changed(own: Callable[..., Message], fields: Message) -> Callable[..., Message]:
    return lambda *arguments, **more: {**own(*arguments, **more), **fields}


def _fails(code: int, message: str) -> Callable[..., Message]:
    def fail(*_: object) -> Message:
        raise FailedError(code, message)

    return fail


def _dies(*_: object) -> Any:
    os._exit(1)


def _answers(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def _tool(number: int, **fields: Any) -> Callable[[Faultless], list[Message]]:
    """The list of tools, with fields of one of them changed."""

    def tools(server: Faultless) -> list[Message]:
        tools = Faultless.tools(server)
        tools[number].update(fields)
        return tools

    return tools


def _without(field: str, message: Message) -> Message:
    return {key: value for key, value in message.items() if key != field}


def _second_resource(**fields: Any) -> Callable[[Faultless], list[Message]]:
    def resources(server: Faultless) -> list[Message]:
        one, two = Faultless.resources(server)
        return [one, {**two, **fields}]

    return resources


def _second_blob(change: Callable[[Message], Message]) -> Callable[..., Message]:
    def blob(server: Faultless, uri: str, data: bytes, mime_type: str) -> Message:
        own = Faultless.blob(server, uri, data, mime_type)
        return change(own) if uri == "notes://two" else own

    return blob


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- what takes more than a line -------------------------------------------------------------------------


class LogOnStdout(Planted):
    finds = "wire.messages"

    def on_line(self, line: bytes) -> None:
        sys.stdout.write("INFO a request came\n")
        sys.stdout.flush()
        super().on_line(line)


class AnswersTwice(Planted):
    finds = "wire.answered-once"

    def send(self, message: Message) -> None:
        super().send(message)
        if "content" in message.get("result", {}):
            super().send(message)


class NeverEnds(Planted):
    finds = "connection.stops"

    def run(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().run()
        threading.Event().wait()


class PingHangs(Planted):
    finds = "connection.ping"

    def ping(self, cancelled: threading.Event) -> Message:
        cancelled.wait()
        raise FailedError(-32603, "cancelled")


class DiesOfABigRequest(Planted):
    finds = "server.big-request"

    def on_line(self, line: bytes) -> None:
        if len(line) > 1_000_000:
            os._exit(1)
        super().on_line(line)


class DiesOfGarbage(Planted):
    finds = "server.garbage"

    def on_line(self, line: bytes) -> None:
        try:
            json.loads(line)
        except ValueError:
            os._exit(1)
        super().on_line(line)


class Hangs(Planted):
    finds = "tools.deadline"

    def slow(self, cancelled: threading.Event) -> Message:
        cancelled.wait()
        return self.text("too late")


class MixesAnswers(Planted):
    finds = "tools.concurrent"

    def __init__(self) -> None:
        super().__init__()
        self._under_way: list[str] = []
        self._guard = threading.Lock()

    def echo(self, arguments: Mapping[str, Any]) -> Message:
        text = arguments.get("text")
        if not isinstance(text, str) or not 1 <= len(text) <= 200:
            return super().echo(arguments)
        with self._guard:
            answer = self._under_way[0] if self._under_way else text
            self._under_way.append(text)
        time.sleep(0.1)
        with self._guard:
            self._under_way.remove(text)
        return self.text(answer)


class RepeatedPage(Planted):
    finds = "reads.page-repeated"

    def page(self, start: int, end: int) -> bytes:
        middle = len(SONG) // 2
        if start < middle:
            return super().page(start, end)
        return SONG[start - middle : end - middle] if start < len(SONG) else b""


class PastTheEndFails(Planted):
    finds = "reads.past-end"

    def page(self, start: int, end: int) -> bytes:
        if start >= len(SONG):
            raise FailedError(-32603, "IndexError")
        return super().page(start, end)


class ArgumentsDemanded(Planted):
    finds = "tools.without-arguments"

    def call(self, params: Mapping[str, Any], cancelled: threading.Event) -> Message:
        if "arguments" not in params and "name" in params:
            raise FailedError(-32602, "arguments are missing")
        return super().call(params, cancelled)


class OnlyItsOwnRevision(Planted):
    finds = "handshake.negotiates"

    def initialize(self, params: Mapping[str, Any]) -> Message:
        if params.get("protocolVersion") != "2025-11-25":
            raise FailedError(-32602, "Unsupported protocol version")
        return super().initialize(params)


class DiesOfDiscovery(Planted):
    finds = "handshake.unknown-method"

    def answer(self, method: str, params: Any, cancelled: threading.Event) -> Message:
        if method == "server/discover":
            os._exit(1)
        return super().answer(method, params, cancelled)


WHOLE = (0, len(SONG))
DEFECTS: dict[str, type[Planted]] = {
    # --- the wire and the handshake ---
    # Its log goes to stdout, among the messages.
    "log-on-stdout": LogOnStdout,
    # Every answer of a tool is sent twice.
    "answers-twice": AnswersTwice,
    # The id of each answer is a string, whatever the request's was.
    "ids-of-text": planted(
        "wire.same-ids", send=lambda self, it: Faultless.send(self, {**it, "id": str(it["id"])})
    ),
    # Its process goes on when its stdin is closed, and at SIGTERM.
    "never-ends": NeverEnds,
    # A ping is never answered.
    "ping-hangs": PingHangs,
    # It says that it has prompts, and knows no method for them.
    "capability-without-method": planted(
        "prompts.list-answered",
        list_prompts=lambda self, _: self.unknown_method("prompts/list"),
        get_prompt=lambda self, _: self.unknown_method("prompts/get"),
    ),
    # It has tools, and doesn't say so in the handshake.
    "capability-not-declared": planted(
        "capabilities.declared", initialize={"capabilities": {"resources": {}, "prompts": {}}}
    ),
    # Its JSON-RPC errors have a code and nothing else.
    "error-without-message": planted("wire.messages", error_object=lambda _, failed: {"code": failed.code}),
    # A method that does not exist is answered with an empty result, but not a completion: another defect.
    "unknown-method-succeeds": planted(
        "server.unknown-method",
        unknown_method=lambda self, method: (
            Faultless.unknown_method(self, method) if method == "completion/complete" else {}
        ),
    ),
    # A method that doesn't exist is an internal error.
    "unknown-method-code": planted("server.unknown-method", unknown_method=_fails(-32603, "unknown method")),
    # A line of over a megabyte ends it.
    "dies-of-a-big-request": DiesOfABigRequest,
    # A line that is not JSON ends it.
    "dies-of-garbage": DiesOfGarbage,
    # --- the list of tools ---
    # The second page of the tools names its own cursor as the next: the list never ends.
    "repeated-cursor": planted("tools.list-ends", list_tools={"nextCursor": "rest"}),
    # A cursor that it never gave is answered with the first page.
    "unknown-cursor-accepted": planted(
        "tools.list-unknown-cursor",
        list_tools=lambda self, it: Faultless.list_tools(self, it if it.get("cursor") == "rest" else {}),
    ),
    # Two tools have the same name.
    "duplicate-tool": planted(
        "tools.list-unique",
        tools=lambda self: [*Faultless.tools(self), self.plain_tool("slow", "Takes a while.")],
    ),
    # A tool's inputSchema is not a JSON Schema.
    "broken-input-schema": planted(
        "tools.input-schema",
        tools=_tool(2, inputSchema={"type": "object", "properties": {"size": {"type": "nummer"}}}),
    ),
    # A tool's inputSchema asks for an array, where arguments are an object.
    "input-schema-of-a-list": planted("tools.input-schema", tools=_tool(2, inputSchema={"type": "array"})),
    # readOnlyHint is a string in place of a boolean.
    "annotation-of-text": planted("tools.annotations", tools=_tool(0, annotations={"readOnlyHint": "yes"})),
    # --- what tools answer ---
    # The structured content breaks the tool's outputSchema.
    "structured-content-of-another-type": planted(
        "tools.structured-content", structured=lambda _, total: {"structuredContent": {"sum": str(total)}}
    ),
    # A tool with an outputSchema answers without structured content.
    "structured-content-missing": planted("tools.structured-content", structured=_answers({})),
    # The picture's data is not base64.
    "bad-base64": planted("tools.content", picture={"data": "iVBORw0KGgo*AAAA"}),
    # The picture's MIME type is none.
    "bad-mime-type": planted("tools.content", picture={"mimeType": "a picture"}),
    # The picture's bytes are no PNG, whatever the MIME type says.
    "picture-is-none": planted("tools.image", picture={"data": _encoded(b"no picture at all")}),
    # A block's priority is 2.
    "priority-out-of-range": planted("tools.content", picture={"annotations": {"priority": 2}}),
    # A block of a type that no revision has.
    "unknown-block": planted("tools.content", picture=_answers({"type": "hologram", "data": "AAAA"})),
    # A resource link has no name.
    "link-without-name": planted("tools.content", song=lambda self: _without("name", Faultless.song(self))),
    # Errors in the arguments are described, but the result isn't marked as an error.
    "is-error-missing": planted("tools.invalid-refused", bad_arguments=lambda self, why: self.text(why)),
    # isError is a string.
    "is-error-of-text": planted(
        "tools.result",
        text=lambda self, text, is_error=False: {
            **Faultless.text(self, text, is_error=is_error),
            "isError": str(is_error),
        },
    ),
    # A result has no content.
    "content-missing": planted(
        "tools.result", slow=lambda self, cancelled: _without("content", Faultless.slow(self, cancelled))
    ),
    # A result's content is one block in place of a list of them.
    "content-is-an-object": planted(
        "tools.result", slow=lambda self, it: {"content": Faultless.slow(self, it)["content"][0]}
    ),
    # A call of a tool that doesn't exist succeeds.
    "unknown-tool-succeeds": planted(
        "server.unknown-tool", unknown_tool=lambda self, name: self.text(f"called {name}")
    ),
    # A call of a tool that doesn't exist is a parse error.
    "unknown-tool-code": planted("server.unknown-tool", unknown_tool=_fails(-32700, "unknown tool")),
    # One tool never answers.
    "hangs": Hangs,
    # Being told that a call is cancelled ends it.
    "dies-of-a-cancellation": planted("tools.cancel-survives", on_cancelled=_dies),
    # A call that comes while another is on its way gets the other's answer.
    "mixes-answers": MixesAnswers,
    # Arguments that break the schema end it.
    "dies-of-wrong-arguments": planted("tools.survives", bad_arguments=_dies),
    # A tool reports an error whenever it is called, in a result that isn't marked as one.
    "errors-as-success": planted(
        "tools.errors-marked", slow=lambda self, _: self.text("Database error: no such table: naps")
    ),
    # Half a picture: a viewer shows its upper part.
    "picture-cut-short": planted(
        "image.whole",
        picture={"data": _encoded(base64.b64decode(PICTURE)[: len(base64.b64decode(PICTURE)) // 2])},
    ),
    # --- resources and ranges ---
    # Two resources have the same URI.
    "duplicate-resource": planted(
        "resources.list-unique",
        resources=lambda self: [*Faultless.resources(self), {"uri": "notes://one", "name": "one again"}],
    ),
    # The answer to a read doesn't name its resource.
    "contents-without-uri": planted(
        "resources.contents", blob=lambda self, *asked: _without("uri", Faultless.blob(self, *asked))
    ),
    # A resource's blob is not base64.
    "blob-of-bad-base64": planted(
        "resources.contents", blob=_second_blob(lambda own: {**own, "blob": "*" + own["blob"][1:]})
    ),
    # A listed resource is longer than its size says.
    "size-of-a-resource-wrong": planted("resources.size", resources=_second_resource(size=100)),
    # A resource that doesn't exist can be read.
    "unknown-resource-succeeds": planted(
        "resources.unknown", unknown_resource=lambda _, uri: {"contents": [{"uri": uri, "text": ""}]}
    ),
    # A resource that doesn't exist is a method that doesn't exist.
    "unknown-resource-code": planted(
        "resources.error-code", unknown_resource=_fails(-32601, "Resource not found")
    ),
    # A page is never longer than 4,096 bytes, whatever was asked for.
    "page-cap": planted(
        "reads.page-cap",
        page=lambda _, *span: SONG if span == WHOLE else SONG[span[0] : min(span[1], span[0] + 4096)],
    ),
    # From the middle on, every page is one that was given before.
    "repeated-page": RepeatedPage,
    # The last bytes of a song can't be reached by ranges.
    "lost-tail": planted(
        "reads.tail", page=lambda _, *span: SONG if span == WHOLE else SONG[: len(SONG) - 1000][slice(*span)]
    ),
    # A range is answered with the whole song.
    "ranges-ignored": planted("reads.range-honoured", page=_answers(SONG)),
    # A page has some bytes more than was asked for.
    "page-too-long": planted("reads.page-length", page=lambda _, start, end: SONG[start : end + 10]),
    # A read past the end is an internal error.
    "past-the-end-fails": PastTheEndFails,
    # A read past the end gives the last bytes again, for ever.
    "past-the-end-repeats": planted(
        "reads.past-end", page=lambda _, start, end: SONG[start:end] if start < len(SONG) else SONG[-100:]
    ),
    # A link's size is less than what can be read.
    "size-of-a-link-wrong": planted("reads.size", song={"size": len(SONG) - 1000}),
    # --- sound ---
    # The sound's bytes can't be decoded.
    "sound-is-none": planted("audio.decodes", sound={"data": _encoded(b"no sound at all" * 100)}),
    # The sound is a WAV file, and is called an MP3.
    "sound-mislabelled": planted("audio.mime-type", sound={"mimeType": "audio/mpeg"}),
    # Two thirds of the sound: a player plays them and stops.
    "sound-cut-short": planted("audio.whole", sound={"data": _encoded(NOISE[: len(NOISE) * 2 // 3])}),
    # A song whose last third is missing everywhere: in pages, in a whole read and in the size.
    "song-cut-short": planted(
        "audio.whole",
        song={"size": len(SONG) * 2 // 3},
        page=lambda _, start, end: SONG[: len(SONG) * 2 // 3][start:end],
    ),
    # --- prompts ---
    # A prompt's message has no role.
    "prompt-without-role": planted(
        "prompts.messages", prompt_message=lambda _, text: {"content": {"type": "text", "text": text}}
    ),
    # A prompt's message is of a role that the protocol doesn't have.
    "prompt-of-an-unknown-role": planted("prompts.messages", prompt_message={"role": "system"}),
    # A prompt that doesn't exist can be had.
    "unknown-prompt-succeeds": planted("prompts.unknown", unknown_prompt=_answers({"messages": []})),
    # A prompt is given although a required argument is missing.
    "missing-argument-accepted": planted(
        "prompts.missing-argument",
        missing_argument=lambda self: {"messages": [self.prompt_message("Greet .")]},
    ),
    # Two prompts have the same name.
    "duplicate-prompt": planted("prompts.list-unique", prompts=lambda self: Faultless.prompts(self) * 2),
    # --- more that servers in the field do ---
    # A ping is answered with null in place of an empty object.
    "ping-gives-null": planted("wire.messages", ping=_answers(None)),
    # The handshake doesn't say which version of the server it is.
    "server-without-version": planted("connection.connect", initialize={"serverInfo": {"name": "planted"}}),
    # A tool has no inputSchema.
    "input-schema-missing": planted(
        "tools.input-schema",
        tools=lambda self: [
            _without("inputSchema", tool) if tool["name"] == "picture" else tool
            for tool in Faultless.tools(self)
        ],
    ),
    # A property says by itself that it is required, as in the third draft of JSON Schema.
    "required-of-an-old-draft": planted(
        "tools.input-schema",
        tools=_tool(2, inputSchema={"type": "object", "properties": {"size": {"required": True}}}),
    ),
    # A tool without a description has null there.
    "description-is-null": planted("tools.list-shape", tools=_tool(2, description=None)),
    # The structured content is a list, where the revision has objects only.
    "structured-content-is-a-list": planted(
        "tools.structured-content", structured=lambda _, total: {"structuredContent": [total]}
    ),
    # The text of a block is a number.
    "text-is-a-number": planted("tools.content", slow={"content": [{"type": "text", "text": 42}]}),
    # A call without `arguments` is refused, whatever the tool needs.
    "arguments-demanded": ArgumentsDemanded,
    # A client that asks for a revision it doesn't know is refused, in place of being offered another.
    "only-its-own-revision": OnlyItsOwnRevision,
    # Whatever revision a client asks for, the server says that it speaks it.
    "echoes-the-revision": planted(
        "handshake.negotiates",
        initialize=lambda self, params: {
            **Faultless.initialize(self, params),
            "protocolVersion": params.get("protocolVersion"),
        },
    ),
    # A method that it doesn't know ends it, if it arrives before the handshake.
    "dies-of-discovery": DiesOfDiscovery,
    # A resource's size is a string.
    "size-of-text": planted("resources.list-shape", resources=_second_resource(size="256")),
    # A URI template has a brace that is never closed.
    "broken-template": planted(
        "resources.templates-shape",
        templates=lambda self: [
            *Faultless.templates(self),
            {"name": "note", "uriTemplate": "notes://{name"},
        ],
    ),
    # A resource's contents have neither text nor a blob.
    "contents-of-nothing": planted(
        "resources.contents", blob=_second_blob(lambda own: _without("blob", own))
    ),
    # A prompt's message has a list of blocks in place of one.
    "prompt-content-is-a-list": planted(
        "prompts.messages",
        prompt_message=lambda _, text: {"role": "user", "content": [{"type": "text", "text": text}]},
    ),
    # A prompt's `required` is a string in place of a boolean.
    "prompt-argument-of-text": planted(
        "prompts.list-shape",
        prompts=lambda self: [
            {**greet, "arguments": [{"name": "who", "required": "true"}]} for greet in Faultless.prompts(self)
        ],
    ),
}
