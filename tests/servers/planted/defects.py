"""One defect a class: the faultless server with one thing wrong, as its docstring says.

`finds` names the check that has to fail; no other may.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.servers.planted.faultless import (
    NOISE,
    SONG,
    FailedError,
    Faultless,
    Message,
)


class Planted(Faultless):
    finds: ClassVar[str]
    """The name of the check that has to fail, and alone."""


# --- the wire and the handshake ------------------------------------------------------------------------


class LogOnStdout(Planted):
    """Its log goes to stdout, among the messages."""

    finds = "wire.messages"

    def on_line(self, line: bytes) -> None:
        sys.stdout.write("INFO a request came\n")
        sys.stdout.flush()
        super().on_line(line)


class AnswersTwice(Planted):
    """Every answer of a tool is sent twice."""

    finds = "wire.answered-once"

    def send(self, message: Message) -> None:
        super().send(message)
        if "content" in message.get("result", {}):
            super().send(message)


class IdsOfText(Planted):
    """The id of each answer is a string, whatever the request's was."""

    finds = "wire.same-ids"

    def send(self, message: Message) -> None:
        super().send({**message, "id": str(message["id"])})


class PingHangs(Planted):
    """A ping is never answered."""

    finds = "connection.ping"

    def ping(self, cancelled: threading.Event) -> Message:
        cancelled.wait()
        raise FailedError(-32603, "cancelled")


class CapabilityWithoutMethod(Planted):
    """It says that it has prompts, and knows no method for them."""

    finds = "prompts.list-answered"

    def list_prompts(self, params: Mapping[str, Any]) -> Message:
        return self.unknown_method("prompts/list")

    def get_prompt(self, params: Mapping[str, Any]) -> Message:
        return self.unknown_method("prompts/get")


class CapabilityNotDeclared(Planted):
    """It has tools, and doesn't say so in the handshake."""

    finds = "capabilities.declared"

    def initialize(self, params: Mapping[str, Any]) -> Message:
        return {**super().initialize(params), "capabilities": {"resources": {}, "prompts": {}}}


class ErrorWithoutMessage(Planted):
    """Its JSON-RPC errors have a code and nothing else."""

    finds = "wire.messages"

    def error_object(self, failed: FailedError) -> Message:
        return {"code": failed.code}


class UnknownMethodSucceeds(Planted):
    """A method that doesn't exist is answered with an empty result."""

    finds = "server.unknown-method"

    def unknown_method(self, method: str) -> Message:
        return {}


class UnknownMethodCode(Planted):
    """A method that doesn't exist is an internal error."""

    finds = "server.unknown-method"

    def unknown_method(self, method: str) -> Message:
        raise FailedError(-32603, f"unknown method {method[:80]}")


class DiesOfABigRequest(Planted):
    """A line of over a megabyte ends it."""

    finds = "server.big-request"

    def on_line(self, line: bytes) -> None:
        if len(line) > 1_000_000:
            os._exit(1)
        super().on_line(line)


class DiesOfGarbage(Planted):
    """A line that is not JSON ends it."""

    finds = "server.garbage"

    def on_line(self, line: bytes) -> None:
        try:
            json.loads(line)
        except ValueError:
            os._exit(1)
        super().on_line(line)


# --- the list of tools ---------------------------------------------------------------------------------


class RepeatedCursor(Planted):
    """The second page of the tools names its own cursor as the next: the list never ends."""

    finds = "tools.list-ends"

    def list_tools(self, params: Mapping[str, Any]) -> Message:
        return {**super().list_tools(params), "nextCursor": "rest"}


class UnknownCursorAccepted(Planted):
    """A cursor that it never gave is answered with the first page."""

    finds = "tools.list-unknown-cursor"

    def list_tools(self, params: Mapping[str, Any]) -> Message:
        return super().list_tools(params if params.get("cursor") == "rest" else {})


class DuplicateTool(Planted):
    """Two tools have the same name."""

    finds = "tools.list-unique"

    def tools(self) -> list[Message]:
        return [*super().tools(), self.plain_tool("slow", "Takes a while.")]


class BrokenInputSchema(Planted):
    """A tool's inputSchema is not a JSON Schema."""

    finds = "tools.input-schema"

    def tools(self) -> list[Message]:
        tools = super().tools()
        tools[2]["inputSchema"] = {"type": "object", "properties": {"size": {"type": "nummer"}}}
        return tools


class InputSchemaOfAList(Planted):
    """A tool's inputSchema asks for an array, where arguments are an object."""

    finds = "tools.input-schema"

    def tools(self) -> list[Message]:
        tools = super().tools()
        tools[2]["inputSchema"] = {"type": "array"}
        return tools


class AnnotationOfText(Planted):
    """readOnlyHint is a string in place of a boolean."""

    finds = "tools.annotations"

    def tools(self) -> list[Message]:
        tools = super().tools()
        tools[0]["annotations"] = {"readOnlyHint": "yes"}
        return tools


# --- what tools answer ---------------------------------------------------------------------------------


class StructuredContentOfAnotherType(Planted):
    """The structured content breaks the tool's outputSchema."""

    finds = "tools.structured-content"

    def structured(self, total: int) -> Message:
        return {"structuredContent": {"sum": str(total)}}


class StructuredContentMissing(Planted):
    """A tool with an outputSchema answers without structured content."""

    finds = "tools.structured-content"

    def structured(self, total: int) -> Message:
        return {}


class BadBase64(Planted):
    """The picture's data is not base64."""

    finds = "tools.content"

    def picture(self) -> Message:
        return {**super().picture(), "data": "iVBORw0KGgo*AAAA"}


class BadMimeType(Planted):
    """The picture's MIME type is none."""

    finds = "tools.content"

    def picture(self) -> Message:
        return {**super().picture(), "mimeType": "a picture"}


class PictureIsNone(Planted):
    """The picture's bytes are no PNG, whatever the MIME type says."""

    finds = "tools.image"

    def picture(self) -> Message:
        return {**super().picture(), "data": base64.b64encode(b"no picture at all").decode()}


class PriorityOutOfRange(Planted):
    """A block's priority is 2."""

    finds = "tools.content"

    def picture(self) -> Message:
        return {**super().picture(), "annotations": {"priority": 2}}


class UnknownBlock(Planted):
    """A block of a type that no revision has."""

    finds = "tools.content"

    def picture(self) -> Message:
        return {"type": "hologram", "data": "AAAA"}


class LinkWithoutName(Planted):
    """A resource link has no name."""

    finds = "tools.content"

    def song(self) -> Message:
        return {key: value for key, value in super().song().items() if key != "name"}


class IsErrorMissing(Planted):
    """Errors in the arguments are described, but the result isn't marked as an error."""

    finds = "tools.invalid-refused"

    def bad_arguments(self, why: str) -> Message:
        return self.text(why)


class IsErrorOfText(Planted):
    """isError is a string."""

    finds = "tools.result"

    def text(self, text: str, *, is_error: bool = False) -> Message:
        result = super().text(text, is_error=is_error)
        return {**result, "isError": str(is_error)}


class ContentMissing(Planted):
    """A result has no content."""

    finds = "tools.result"

    def slow(self, cancelled: threading.Event) -> Message:
        super().slow(cancelled)
        return {}


class ContentIsAnObject(Planted):
    """A result's content is one block in place of a list of them."""

    finds = "tools.result"

    def slow(self, cancelled: threading.Event) -> Message:
        return {"content": super().slow(cancelled)["content"][0]}


class UnknownToolSucceeds(Planted):
    """A call of a tool that doesn't exist succeeds."""

    finds = "server.unknown-tool"

    def unknown_tool(self, name: str) -> Message:
        return self.text(f"called {name}")


class UnknownToolCode(Planted):
    """A call of a tool that doesn't exist is a parse error."""

    finds = "server.unknown-tool"

    def unknown_tool(self, name: str) -> Message:
        raise FailedError(-32700, f"unknown tool {name[:80]}")


class Hangs(Planted):
    """One tool never answers."""

    finds = "tools.deadline"

    def slow(self, cancelled: threading.Event) -> Message:
        cancelled.wait()
        return self.text("too late")


class LostCancellation(Planted):
    """A cancelled call goes on to its end, and is answered then."""

    finds = "tools.cancelled"

    def slow(self, cancelled: threading.Event) -> Message:
        return super().slow(threading.Event())

    def answers_the_cancelled(self) -> bool:
        return True


class DiesOfACancellation(Planted):
    """Being told that a call is cancelled ends it."""

    finds = "tools.cancel-survives"

    def on_cancelled(self, event: threading.Event) -> None:
        os._exit(1)


class MixesAnswers(Planted):
    """A call that comes while another is on its way gets the other's answer."""

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


class DiesOfWrongArguments(Planted):
    """Arguments that break the schema end it."""

    finds = "tools.survives"

    def bad_arguments(self, why: str) -> Message:
        os._exit(1)


class ErrorsAsSuccess(Planted):
    """A tool reports an error whenever it is called, in a result that isn't marked as one."""

    finds = "tools.errors-marked"

    def slow(self, cancelled: threading.Event) -> Message:
        return self.text("Database error: no such table: naps")


class PictureCutShort(Planted):
    """Half a picture: a viewer shows its upper part."""

    finds = "image.whole"

    def picture(self) -> Message:
        whole = base64.b64decode(super().picture()["data"])
        return {**super().picture(), "data": base64.b64encode(whole[: len(whole) // 2]).decode()}


# --- resources and ranges ------------------------------------------------------------------------------


class DuplicateResource(Planted):
    """Two resources have the same URI."""

    finds = "resources.list-unique"

    def resources(self) -> list[Message]:
        return [*super().resources(), {"uri": "notes://one", "name": "one again"}]


class ContentsWithoutUri(Planted):
    """The answer to a read doesn't name its resource."""

    finds = "resources.contents"

    def blob(self, uri: str, data: bytes, mime_type: str) -> Message:
        blob = super().blob(uri, data, mime_type)
        del blob["uri"]
        return blob


class BlobOfBadBase64(Planted):
    """A resource's blob is not base64."""

    finds = "resources.contents"

    def blob(self, uri: str, data: bytes, mime_type: str) -> Message:
        blob = super().blob(uri, data, mime_type)
        return {**blob, "blob": "*" + blob["blob"][1:]} if uri == "notes://two" else blob


class SizeOfAResourceWrong(Planted):
    """A listed resource is longer than its size says."""

    finds = "resources.size"

    def resources(self) -> list[Message]:
        one, two = super().resources()
        return [one, {**two, "size": 100}]


class UnknownResourceSucceeds(Planted):
    """A resource that doesn't exist can be read."""

    finds = "resources.unknown"

    def unknown_resource(self, uri: str) -> Message:
        return {"contents": [{"uri": uri, "text": ""}]}


class UnknownResourceCode(Planted):
    """A resource that doesn't exist is a method that doesn't exist."""

    finds = "resources.error-code"

    def unknown_resource(self, uri: str) -> Message:
        raise FailedError(-32601, "Resource not found")


class PageCap(Planted):
    """A page is never longer than 4,096 bytes, whatever was asked for."""

    finds = "reads.page-cap"

    def page(self, start: int, end: int) -> bytes:
        return SONG[start : min(end, start + 4096)] if (start, end) != (0, len(SONG)) else SONG


class RepeatedPage(Planted):
    """From the middle on, every page is one that was given before."""

    finds = "reads.page-repeated"

    def page(self, start: int, end: int) -> bytes:
        middle = len(SONG) // 2
        if start < middle:
            return super().page(start, end)
        return SONG[start - middle : end - middle] if start < len(SONG) else b""


class LostTail(Planted):
    """The last bytes of a song can't be reached by ranges."""

    finds = "reads.tail"

    def page(self, start: int, end: int) -> bytes:
        return SONG if (start, end) == (0, len(SONG)) else SONG[: len(SONG) - 1000][start:end]


class RangesIgnored(Planted):
    """A range is answered with the whole song."""

    finds = "reads.range-honoured"

    def page(self, start: int, end: int) -> bytes:
        return SONG


class PageTooLong(Planted):
    """A page has some bytes more than was asked for."""

    finds = "reads.page-length"

    def page(self, start: int, end: int) -> bytes:
        return SONG[start : end + 10]


class PastTheEndFails(Planted):
    """A read past the end is an internal error."""

    finds = "reads.past-end"

    def page(self, start: int, end: int) -> bytes:
        if start >= len(SONG):
            raise FailedError(-32603, "IndexError")
        return super().page(start, end)


class PastTheEndRepeats(Planted):
    """A read past the end gives the last bytes again, for ever."""

    finds = "reads.past-end"

    def page(self, start: int, end: int) -> bytes:
        return super().page(start, end) if start < len(SONG) else SONG[-100:]


class SizeOfALinkWrong(Planted):
    """A link's size is less than what can be read."""

    finds = "reads.size"

    def song(self) -> Message:
        return {**super().song(), "size": len(SONG) - 1000}


# --- sound ---------------------------------------------------------------------------------------------


class SoundIsNone(Planted):
    """The sound's bytes can't be decoded."""

    finds = "audio.decodes"

    def sound(self) -> Message:
        return {**super().sound(), "data": base64.b64encode(b"no sound at all" * 100).decode()}


class SoundMislabelled(Planted):
    """The sound is a WAV file, and is called an MP3."""

    finds = "audio.mime-type"

    def sound(self) -> Message:
        return {
            "type": "audio",
            "data": base64.b64encode(NOISE).decode(),
            "mimeType": "audio/mpeg",
        }


class SoundCutShort(Planted):
    """Two thirds of the sound: a player plays them and stops."""

    finds = "audio.whole"

    def sound(self) -> Message:
        return {**super().sound(), "data": base64.b64encode(NOISE[: len(NOISE) * 2 // 3]).decode()}


class SongCutShort(Planted):
    """A song whose last third is missing everywhere: in pages, in a whole read and in the size."""

    finds = "audio.whole"

    def song(self) -> Message:
        return {**super().song(), "size": len(SONG) * 2 // 3}

    def page(self, start: int, end: int) -> bytes:
        return SONG[: len(SONG) * 2 // 3][start:end]


# --- prompts -------------------------------------------------------------------------------------------


class PromptWithoutRole(Planted):
    """A prompt's message has no role."""

    finds = "prompts.messages"

    def prompt_message(self, text: str) -> Message:
        return {"content": {"type": "text", "text": text}}


class PromptOfAnUnknownRole(Planted):
    """A prompt's message is of a role that the protocol doesn't have."""

    finds = "prompts.messages"

    def prompt_message(self, text: str) -> Message:
        return {**super().prompt_message(text), "role": "system"}


class UnknownPromptSucceeds(Planted):
    """A prompt that doesn't exist can be had."""

    finds = "prompts.unknown"

    def unknown_prompt(self, name: str) -> Message:
        return {"messages": []}


class MissingArgumentAccepted(Planted):
    """A prompt is given although a required argument is missing."""

    finds = "prompts.missing-argument"

    def missing_argument(self) -> Message:
        return {"messages": [self.prompt_message("Greet .")]}


class DuplicatePrompt(Planted):
    """Two prompts have the same name."""

    finds = "prompts.list-unique"

    def prompts(self) -> list[Message]:
        return [*super().prompts(), *super().prompts()]


# --- more that servers in the field do -----------------------------------------------------------------


class PingGivesNull(Planted):
    """A ping is answered with null in place of an empty object."""

    finds = "wire.messages"

    def ping(self, cancelled: threading.Event) -> Any:
        return None


class ServerWithoutVersion(Planted):
    """The handshake doesn't say which version of the server it is."""

    finds = "connection.connect"

    def initialize(self, params: Mapping[str, Any]) -> Message:
        return {**super().initialize(params), "serverInfo": {"name": "planted"}}


class InputSchemaMissing(Planted):
    """A tool has no inputSchema."""

    finds = "tools.input-schema"

    def tools(self) -> list[Message]:
        tools = super().tools()
        del tools[2]["inputSchema"]
        return tools


class RequiredOfAnOldDraft(Planted):
    """A property says by itself that it is required, as in the third draft of JSON Schema."""

    finds = "tools.input-schema"

    def tools(self) -> list[Message]:
        tools = super().tools()
        tools[2]["inputSchema"] = {"type": "object", "properties": {"size": {"required": True}}}
        return tools


class DescriptionIsNull(Planted):
    """A tool without a description has null there."""

    finds = "tools.list-shape"

    def tools(self) -> list[Message]:
        tools = super().tools()
        tools[2]["description"] = None
        return tools


class StructuredContentIsAList(Planted):
    """The structured content is a list, where the revision has objects only."""

    finds = "tools.structured-content"

    def structured(self, total: int) -> Message:
        return {"structuredContent": [total]}


class TextIsANumber(Planted):
    """The text of a block is a number."""

    finds = "tools.content"

    def slow(self, cancelled: threading.Event) -> Message:
        super().slow(cancelled)
        return {"content": [{"type": "text", "text": 42}]}


class ArgumentsDemanded(Planted):
    """A call without `arguments` is refused, whatever the tool needs."""

    finds = "tools.without-arguments"

    def call(self, params: Mapping[str, Any], cancelled: threading.Event) -> Message:
        if "arguments" not in params and "name" in params:
            raise FailedError(-32602, "arguments are missing")
        return super().call(params, cancelled)


class OnlyItsOwnRevision(Planted):
    """A client that asks for a revision it doesn't know is refused, in place of being offered another."""

    finds = "handshake.negotiates"

    def initialize(self, params: Mapping[str, Any]) -> Message:
        if params.get("protocolVersion") != "2025-11-25":
            raise FailedError(-32602, "Unsupported protocol version")
        return super().initialize(params)


class EchoesTheRevision(Planted):
    """Whatever revision a client asks for, the server says that it speaks it."""

    finds = "handshake.negotiates"

    def initialize(self, params: Mapping[str, Any]) -> Message:
        return {**super().initialize(params), "protocolVersion": params.get("protocolVersion")}


class DiesOfDiscovery(Planted):
    """A method that it doesn't know ends it, if it arrives before the handshake."""

    finds = "handshake.unknown-method"

    def answer(self, method: str, params: Any, cancelled: threading.Event) -> Message:
        if method == "server/discover":
            os._exit(1)
        return super().answer(method, params, cancelled)


class SizeOfText(Planted):
    """A resource's size is a string."""

    finds = "resources.list-shape"

    def resources(self) -> list[Message]:
        one, two = super().resources()
        return [one, {**two, "size": "256"}]


class BrokenTemplate(Planted):
    """A URI template has a brace that is never closed."""

    finds = "resources.templates-shape"

    def templates(self) -> list[Message]:
        return [*super().templates(), {"name": "note", "uriTemplate": "notes://{name"}]


class ContentsOfNothing(Planted):
    """A resource's contents have neither text nor a blob."""

    finds = "resources.contents"

    def blob(self, uri: str, data: bytes, mime_type: str) -> Message:
        blob = super().blob(uri, data, mime_type)
        return {"uri": uri, "mimeType": mime_type} if uri == "notes://two" else blob


class PromptContentIsAList(Planted):
    """A prompt's message has a list of blocks in place of one."""

    finds = "prompts.messages"

    def prompt_message(self, text: str) -> Message:
        return {"role": "user", "content": [{"type": "text", "text": text}]}


class PromptArgumentOfText(Planted):
    """A prompt's `required` is a string in place of a boolean."""

    finds = "prompts.list-shape"

    def prompts(self) -> list[Message]:
        (greet,) = super().prompts()
        return [{**greet, "arguments": [{"name": "who", "required": "true"}]}]


def _dashed(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


DEFECTS: dict[str, type[Planted]] = {_dashed(kind.__name__): kind for kind in Planted.__subclasses__()}
"""By name: `bad-base64` for BadBase64."""
