"""Right messages of the recording with one thing made wrong: none may pass the schema."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.documents.record import RECORDING

Json = dict[str, Any]
Pick = Callable[[Json], bool]
DROP: Final = object()
"""In place of a value: the member is taken away."""


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    pick: Pick
    """The first message of the recording for which this is true."""
    path: Sequence[str | int]
    """Of what is changed, and of what the finding is about; empty for the message itself."""
    value: object


def says(method: str) -> Pick:
    return lambda message: message.get("method") == method


def modern(method: str) -> Pick:
    version = "io.modelcontextprotocol/protocolVersion"
    return lambda message: (
        message.get("method") == method and version in message.get("params", {}).get("_meta", {})
    )


def gives(member: str, *, resolved: bool = False) -> Pick:
    """A result with this member; `resolved`: one of 2026-07-28, with its resultType."""
    return lambda message: (
        bool((message.get("result") or {}).get(member)) and ("resultType" in message["result"]) == resolved
    )


def answers_empty(message: Json) -> bool:
    return message.get("result") == {}


def fails(message: Json) -> bool:
    return "error" in message


def has_block(kind: str) -> Pick:
    return lambda message: any(
        block["type"] == kind
        for block in (message.get("result") or {}).get("content", ())
        if isinstance(block, dict)
    )


def block(index: int, *path: str | int) -> tuple[str | int, ...]:
    return ("result", "content", index, *path)


CALL, LIST, READ, PROMPT = says("tools/call"), says("tools/list"), says("resources/read"), says("prompts/get")
EVERY = has_block("audio")
"""The result with every kind of block: text, image, audio, resource_link, and resource with text and blob."""

MUTATIONS: tuple[Mutation, ...] = (
    Mutation("JSON-RPC 1.0", CALL, ("jsonrpc",), "1.0"),
    Mutation("no jsonrpc", CALL, ("jsonrpc",), DROP),
    Mutation("jsonrpc is a number", gives("tools"), ("jsonrpc",), 2.0),
    Mutation("a request without id", CALL, ("id",), DROP),
    Mutation("a request with id null", CALL, ("id",), None),
    Mutation("a request whose id is a fraction", CALL, ("id",), 1.5),
    Mutation("a request whose id is an object", CALL, ("id",), {}),
    Mutation("a request whose id is true", CALL, ("id",), True),
    Mutation("a result without id", gives("tools"), ("id",), DROP),
    Mutation("a result with id null", gives("tools"), ("id",), None),
    Mutation("a notification with an id", says("notifications/initialized"), ("id",), 7),
    Mutation("an unknown method", CALL, ("method",), "tools/cal"),
    Mutation("a method that is a number", CALL, ("method",), 1),
    Mutation(
        "an unknown notification", says("notifications/initialized"), ("method",), "notifications/ready"
    ),
    Mutation("a request with a result", CALL, ("result",), {}),
    Mutation("a message with a member too many", LIST, ("parameters",), {}),
    Mutation("params are an array", CALL, ("params",), []),
    Mutation("a call without params", CALL, ("params",), DROP),
    Mutation("a call without the tool's name", CALL, ("params", "name"), DROP),
    Mutation("a tool's name that is a number", CALL, ("params", "name"), 5),
    Mutation("arguments that are a list", CALL, ("params", "arguments"), [1]),
    Mutation("arguments that are a string", CALL, ("params", "arguments"), '{"a": 1}'),
    Mutation("a misspelt argument of the call", CALL, ("params", "argumnets"), {}),
    Mutation("a cursor that is a number", modern("tools/list"), ("params", "cursor"), 2),
    Mutation("no protocol version", says("initialize"), ("params", "protocolVersion"), DROP),
    Mutation("a protocol version of no date", says("initialize"), ("params", "protocolVersion"), "1.0"),
    Mutation("no capabilities", says("initialize"), ("params", "capabilities"), DROP),
    Mutation("capabilities that are a list", says("initialize"), ("params", "capabilities"), []),
    Mutation("a client without a version", says("initialize"), ("params", "clientInfo", "version"), DROP),
    Mutation("discover without _meta", says("server/discover"), ("params", "_meta"), DROP),
    Mutation(
        "discover without a protocol version",
        says("server/discover"),
        ("params", "_meta", "io.modelcontextprotocol/protocolVersion"),
        DROP,
    ),
    Mutation(
        "a modern call without capabilities",
        modern("tools/call"),
        ("params", "_meta", "io.modelcontextprotocol/clientCapabilities"),
        DROP,
    ),
    Mutation("_meta that is a string", modern("tools/call"), ("params", "_meta"), "x"),
    Mutation("a read without its URI", READ, ("params", "uri"), DROP),
    Mutation("a URI without a scheme", READ, ("params", "uri"), "/etc/passwd"),
    Mutation("a prompt's argument that is a number", PROMPT, ("params", "arguments"), {"topic": 3}),
    Mutation("an unknown logging level", says("logging/setLevel"), ("params", "level"), "loud"),
    Mutation(
        "a reference of an unknown type", says("completion/complete"), ("params", "ref", "type"), "ref/tool"
    ),
    Mutation(
        "an argument without a value", says("completion/complete"), ("params", "argument", "value"), DROP
    ),
    Mutation("a listening without a filter", says("subscriptions/listen"), ("params", "notifications"), DROP),
    Mutation("progress that is a string", says("notifications/progress"), ("params", "progress"), "half"),
    Mutation("progress of nobody", says("notifications/progress"), ("params", "progressToken"), DROP),
    Mutation("a cancellation of nothing", says("notifications/cancelled"), ("params", "requestId"), DROP),
    Mutation("a log message without data", says("notifications/message"), ("params", "data"), DROP),
    Mutation("a change of no resource", says("notifications/resources/updated"), ("params", "uri"), DROP),
    Mutation("a question without a form", says("elicitation/create"), ("params", "requestedSchema"), DROP),
    Mutation(
        "a form of a list",
        says("elicitation/create"),
        ("params", "requestedSchema", "type"),
        "array",
    ),
    Mutation("sampling without a bound", says("sampling/createMessage"), ("params", "maxTokens"), DROP),
    Mutation(
        "an unknown speaker", says("sampling/createMessage"), ("params", "messages", 0, "role"), "system"
    ),
    Mutation("an empty result with a member", answers_empty, ("result", "ok"), True),
    Mutation("a result that is null", gives("tools"), ("result",), None),
    Mutation("a result that is text", gives("tools"), ("result",), "done"),
    Mutation("a result and an error", gives("tools"), ("error",), {"code": 1, "message": "x"}),
    Mutation("tools that are an object", gives("tools"), ("result", "tools"), {}),
    Mutation("a tool without a name", gives("tools"), ("result", "tools", 0, "name"), DROP),
    Mutation("a tool without inputSchema", gives("tools"), ("result", "tools", 0, "inputSchema"), DROP),
    Mutation(
        "an inputSchema of a list", gives("tools"), ("result", "tools", 0, "inputSchema", "type"), "array"
    ),
    Mutation(
        "an input_schema in snake case",
        gives("tools"),
        ("result", "tools", 0, "input_schema"),
        {"type": "object"},
    ),
    Mutation(
        "a hint that is a string",
        gives("tools"),
        ("result", "tools", 0, "annotations", "readOnlyHint"),
        "yes",
    ),
    Mutation("a misspelt cursor", gives("tools"), ("result", "next_cursor"), "2"),
    Mutation("a modern list without ttlMs", gives("tools", resolved=True), ("result", "ttlMs"), DROP),
    Mutation("a ttlMs below 0", gives("tools", resolved=True), ("result", "ttlMs"), -1),
    Mutation("an unknown cacheScope", gives("tools", resolved=True), ("result", "cacheScope"), "shared"),
    Mutation("an unknown resultType", gives("tools", resolved=True), ("result", "resultType"), "done"),
    Mutation("a server without a name", gives("serverInfo"), ("result", "serverInfo", "name"), DROP),
    Mutation(
        "no versions at all", gives("supportedVersions", resolved=True), ("result", "supportedVersions"), []
    ),
    Mutation("content that is an object", EVERY, ("result", "content"), {}),
    Mutation("content that is text", EVERY, ("result", "content"), "14"),
    Mutation("isError that is a string", EVERY, ("result", "isError"), "false"),
    Mutation("a block of an unknown type", EVERY, block(0, "type"), "txt"),
    Mutation("a block without a type", EVERY, block(0, "type"), DROP),
    Mutation("a text block without text", EVERY, block(0, "text"), DROP),
    Mutation("a text block whose text is a number", EVERY, block(0, "text"), 14),
    Mutation("an image that is not base64", EVERY, block(1, "data"), "not base64!"),
    Mutation("an image with a line end", EVERY, block(1, "data"), "AAAA\n"),
    Mutation("an image without mimeType", EVERY, block(1, "mimeType"), DROP),
    Mutation("audio with mime_type", EVERY, block(2, "mime_type"), "audio/wav"),
    Mutation("a priority above 1", EVERY, block(2, "annotations", "priority"), 2),
    Mutation("an audience of robots", EVERY, block(2, "annotations", "audience", 0), "robot"),
    Mutation("a link without a name", EVERY, block(3, "name"), DROP),
    Mutation("a link of negative size", EVERY, block(3, "size"), -1),
    Mutation("an embedded resource of nothing", EVERY, block(4, "resource"), DROP),
    Mutation("an embedded resource with text and blob", EVERY, block(4, "resource", "blob"), "AAAA"),
    Mutation("an embedded resource with neither", EVERY, block(5, "resource", "blob"), DROP),
    Mutation("contents without a URI", gives("contents"), ("result", "contents", 0, "uri"), DROP),
    Mutation("a prompt's message of nobody", gives("messages"), ("result", "messages", 0, "role"), DROP),
    Mutation("a prompt's message of a list", gives("messages"), ("result", "messages", 0, "content"), []),
    Mutation("a completion of numbers", gives("completion"), ("result", "completion", "values"), [1]),
    Mutation(
        "a completion of too many", gives("completion"), ("result", "completion", "values"), ["x"] * 101
    ),
    Mutation("a person who shrugs", gives("action"), ("result", "action"), "shrug"),
    Mutation("a root that is not a URI", gives("roots"), ("result", "roots", 0, "uri"), "music"),
    Mutation("an error without a code", fails, ("error", "code"), DROP),
    Mutation("an error whose code is a string", fails, ("error", "code"), "-32602"),
    Mutation("an error whose code is a fraction", fails, ("error", "code"), -32602.5),
    Mutation("an error without a message", fails, ("error", "message"), DROP),
    Mutation("an error that is text", fails, ("error",), "failed"),
    Mutation("an error whose id is a fraction", fails, ("id",), 0.5),
    Mutation("a version refused without saying which", fails, ("error",), {"code": -32022, "message": "no"}),
    Mutation(
        "a capability missing, not named", fails, ("error",), {"code": -32021, "message": "no", "data": {}}
    ),
    Mutation("no kind of message", fails, ("error",), DROP),
    Mutation("a batch", LIST, (), [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]),
    Mutation("a number", LIST, (), 7),
    Mutation("an empty object", LIST, (), {}),
)


def recorded() -> list[Json]:
    # Not splitlines: a message may hold U+2028, which is a line's end to Python and not to JSON lines.
    return [json.loads(line) for line in RECORDING.read_text("utf-8").split("\n") if line]


def mutant(mutation: Mutation, messages: Sequence[Json]) -> Any:
    """The wrong message. Raises `LookupError` where the recording has none to start from."""
    message = copy.deepcopy(next(filter(mutation.pick, messages), None))
    if message is None:
        raise LookupError(f"{mutation.name}: no message of the recording fits")
    if not mutation.path:
        return mutation.value
    *parents, last = mutation.path
    place: Any = message
    for key in parents:
        place = place[key]
    if mutation.value is DROP:
        del place[last]
    else:
        place[last] = mutation.value
    return message


WRONG: tuple[object, ...] = (None, True, 7, -0.5, "", "wrong", [], [None], {}, {"type": "text"})


def wrecks(value: Any) -> Iterator[Any]:
    """`value` with one thing wrong, in every place: taken out, or something of another kind put there."""
    if not isinstance(value, dict | list):
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        without = copy.copy(value)
        del without[key]
        yield without
        for wrong in (*WRONG, *wrecks(value[key])):
            changed = copy.copy(value)
            changed[key] = wrong
            yield changed


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(each)
