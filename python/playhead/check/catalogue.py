"""The catalogue of checks: one requirement on every server per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["must", "should"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckKind:
    """A kind of check in the catalogue: one requirement on every server."""

    name: str
    """The stable name, `subject.what` in lower case: `tools.structured-content`."""
    title: str
    """The requirement, as a sentence."""
    level: Level
    """The keyword of the specification (RFC 2119). A violation of either fails the check, unless
    `CheckOptions.level` is `must`."""
    source: str
    """The page of the MCP specification, or of this project, that states the requirement."""


_SPECIFICATION: Final = "https://modelcontextprotocol.io/specification/2025-11-25"
"""Precedes the sources that begin with a slash: pages of the specification."""
_RPC_ERROR: Final = "https://www.jsonrpc.org/specification#error_object"
_RPC_RESPONSE: Final = "https://www.jsonrpc.org/specification#response_object"
_HTTP: Final = "/basic/transports#sending-messages-to-the-server"
_READS_END: Final = "docs/streaming.md#what-ends-a-stream"
_READS_OPEN: Final = "docs/streaming.md#which-ranges-and-how-many"

# fmt: off
_ROWS: Final[Mapping[str, tuple[Level, str, str]]] = {
    "connection.connect": ("must", "/basic/lifecycle", "The server can be reached and completes the handshake"),
    "connection.health": ("should", "docs/check-reference.md", "The health endpoint, if any, reports a healthy server"),
    "handshake.shape": ("must", "/basic/lifecycle#initialization", "The handshake's result has the fields of the schema: serverInfo, capabilities, instructions"),
    "handshake.negotiates": ("must", "/basic/lifecycle#version-negotiation", "A client that asks for an unknown revision is offered another one"),
    "handshake.unknown-method": ("should", _RPC_ERROR, "An unknown method before the handshake is answered with an error, and the connection stays open"),
    "handshake.initialized": ("must", "/basic/lifecycle#initialization", "The notification `notifications/initialized` completes the handshake"),
    "connection.ping": ("must", "/basic/utilities/ping", "A ping is answered with an empty result"),
    "connection.second": ("should", "/basic/transports#streamable-http", "A second client can connect while the first is connected"),
    "connection.stops": ("should", "/basic/lifecycle#shutdown", "The server's process ends when its stdin is closed, or at SIGTERM"),
    "connection.stays": ("must", "docs/check-reference.md#server", "The server stays available until the end of the check"),
    "tools.list-answered": ("must", "/server/tools", "A listing of tools, if declared, is answered with a result in time"),
    "tools.list-shape": ("must", "/server/tools", "The listing has an array of tools, each with the fields of the schema"),
    "tools.list-unique": ("should", "/server/tools", "No two tools have the same name"),
    "tools.list-ends": ("must", "/server/utilities/pagination", "Each page has a new cursor (a string), and the last page has none"),
    "tools.list-unknown-cursor": ("should", "/server/utilities/pagination", "An unknown cursor is refused with -32602"),
    "tools.name": ("should", "/server/tools#tool-names", "A tool's name has 1 to 128 letters, digits, underscores, hyphens and dots"),
    "tools.input-schema": ("must", "/server/tools#tool", "A tool's inputSchema is a valid JSON Schema with type \"object\" at its root"),
    "tools.output-schema": ("must", "/server/tools#output-schema", "A tool's outputSchema, if any, is a valid JSON Schema"),
    "tools.annotations": ("must", "/schema#toolannotations", "A tool's hints are booleans, its title a string"),
    "capabilities.declared": ("must", "/basic/lifecycle#capability-negotiation", "The server declares the capability of everything it lists"),
    "capabilities.answered": ("must", "/basic/lifecycle#capability-negotiation", "The server knows the methods of its declared capabilities"),
    "tools.expected-listed": ("must", "docs/check-reference.md", "Each tool of the expectations file is listed"),
    "tools.call-answered": ("must", "/basic#responses", "A call is answered with a result or a JSON-RPC error"),
    "tools.deadline": ("should", "docs/check-reference.md#tools", "A call is answered, or shows progress, within the time allowed"),
    "tools.survives": ("must", "docs/check-reference.md#tools", "No call terminates the server or its connection"),
    "tools.size": ("should", "docs/safety.md", "A result is within the limits of a client"),
    "tools.result": ("must", "/schema#calltoolresult", "A result has a list of content, and isError is a boolean"),
    "tools.content": ("must", "/server/tools#tool-result", "Each content block is valid in the negotiated revision"),
    "tools.image": ("must", "/server/tools#image-content", "The bytes of an image have the format that its MIME type names"),
    "tools.structured-content": ("must", "/server/tools#output-schema", "A tool with an outputSchema returns structured content that conforms to it"),
    "tools.structured-text": ("should", "/server/tools#structured-content", "Structured content is also sent in a text block, for clients that read only text"),
    "tools.without-arguments": ("should", "/schema#calltoolrequestparams", "A call that needs no arguments may omit `arguments`"),
    "tools.invalid-refused": ("must", "/server/tools#security-considerations", "Arguments that violate the inputSchema are answered with an error"),
    "tools.crashed": ("must", "docs/check-reference.md#crashes", "Arguments that the inputSchema allows do not crash a listed tool"),
    "tools.error-form": ("should", "/server/tools#error-handling", "A tool reports its errors with isError, or -32602, and not as an internal error"),
    "tools.mined-known": ("should", "docs/check-reference.md#mined-arguments", "A tool knows the ids, paths and names that its server lists"),
    "tools.read-back": ("should", "docs/check-reference.md#mined-arguments", "What one tool writes, the tool that reads it returns"),
    "tools.errors-marked": ("should", "/server/tools#error-handling", "A tool that answers every call with an error marks its results as errors (isError)"),
    "tools.error-code": ("must", "/server/tools#error-handling", "A JSON-RPC error has the right code"),
    "tools.expected-outcome": ("must", "docs/check-reference.md#expectations", "A call succeeds or fails as the expectations file says"),
    "tools.expected-content": ("must", "docs/check-reference.md#expectations", "A result has the types of content that the expectations file names"),
    "tools.expected-text": ("must", "docs/check-reference.md#expectations", "The text of a result matches the patterns of the expectations file"),
    "tools.expected-latency": ("must", "docs/check-reference.md#expectations", "A call is answered within the time of the expectations file"),
    "tools.concurrent": ("must", "/basic#responses", "Each of several concurrent calls gets its own result"),
    "tools.cancel-survives": ("must", "docs/check-reference.md#tools", "The server survives a cancellation"),
    "resources.list-answered": ("must", "/server/resources", "A listing of resources, if declared, is answered with a result in time"),
    "resources.list-shape": ("must", "/server/resources", "The listing has an array of resources, each with the fields of the schema"),
    "resources.list-unique": ("must", "/server/resources", "No two resources have the same uri"),
    "resources.list-ends": ("must", "/server/utilities/pagination", "Each page has a new cursor (a string), and the last page has none"),
    "resources.list-unknown-cursor": ("should", "/server/utilities/pagination", "An unknown cursor is refused with -32602"),
    "resources.templates-answered": ("must", "/server/resources", "A listing of resource templates, if declared, is answered with a result in time"),
    "resources.templates-shape": ("must", "/server/resources", "The listing has an array of resource templates, each with the fields of the schema"),
    "resources.templates-ends": ("must", "/server/utilities/pagination", "Each page has a new cursor (a string), and the last page has none"),
    "resources.templates-unknown-cursor": ("should", "/server/utilities/pagination", "An unknown cursor is refused with -32602"),
    "resources.read-answered": ("must", "/server/resources", "A read is answered, with contents or an error, in time; a listed resource is not unknown"),
    "resources.contents": ("must", "/server/resources#resource-contents", "Contents are an array of objects with a URI, and either text or a valid base64 blob"),
    "resources.contents-uri": ("should", "/server/resources#resource-contents", "Contents name the resource that was read, or resources below it"),
    "resources.mime-type": ("should", "/schema#resource", "Contents have the announced MIME type"),
    "resources.size": ("must", "/schema#resource", "The announced size is the number of bytes of the content, before base64"),
    "resources.template-read": ("must", "docs/check-reference.md#mined-arguments", "A listed template can be read with the values that the server completes"),
    "resources.unknown": ("should", "/server/resources#error-handling", "An unknown resource is refused with an error, not with (empty) contents"),
    "resources.error-code": ("should", "https://modelcontextprotocol.io/seps/2164-resource-not-found-error", "The error code of an unknown resource is -32602 since 2026-07-28; -32002 or -32602 before"),
    "reads.answered": ("must", _READS_END, "Each read of a range is answered in time"),
    "reads.range-honoured": ("must", _READS_END, "An offered range is honoured: a part is not answered with the whole"),
    "reads.page-length": ("must", _READS_END, "A page has no more bytes than requested"),
    "reads.page-bytes": ("must", _READS_END, "A page has the same bytes as a whole read"),
    "reads.page-declared": ("must", "docs/ranged-resources.md", "A page has the bytes of the offset, size and version that it declares"),
    "reads.page-repeated": ("must", _READS_END, "A page does not have the bytes of another place"),
    "reads.tail": ("must", _READS_END, "Pages reach the last byte of a whole read"),
    "reads.stream": ("must", _READS_OPEN, "A stream with several reads in flight has the bytes of a whole read"),
    "reads.page-cap": ("should", _READS_END, "A page has the requested length, up to playhead's own 100 KiB, if the resource has the bytes"),
    "reads.size": ("must", _READS_END, "The bytes end at the announced size"),
    "reads.past-end": ("must", _READS_END, "A read past the end is answered with nothing, [DONE], or an error that says 416"),
    "reads.empty-range": ("must", _READS_END, "An empty range has no bytes"),
    "reads.concurrent": ("should", _READS_OPEN, "Concurrent reads are answered concurrently"),
    "audio.decodes": ("must", "docs/check-reference.md#audio", "Audio can be decoded, from its first byte to its last"),
    "audio.whole": ("must", "docs/check-reference.md#audio", "Audio is as long as its headers and index say, and its checksums match"),
    "audio.mime-type": ("must", "/server/tools#audio-content", "The bytes of audio have the format that its MIME type names"),
    "audio.base64": ("must", "/server/tools#audio-content", "The data of audio is base64 (RFC 4648, section 4)"),
    "image.whole": ("must", "docs/check-reference.md#images", "An image is complete, and its checksums match"),
    "prompts.list-answered": ("must", "/server/prompts", "A listing of prompts, if declared, is answered with a result in time"),
    "prompts.list-shape": ("must", "/server/prompts", "The listing has an array of prompts, each with the fields of the schema"),
    "prompts.list-unique": ("must", "/server/prompts", "No two prompts have the same name"),
    "prompts.list-ends": ("must", "/server/utilities/pagination", "Each page has a new cursor (a string), and the last page has none"),
    "prompts.list-unknown-cursor": ("should", "/server/utilities/pagination", "An unknown cursor is refused with -32602"),
    "prompts.get-answered": ("must", "/basic", "A requested prompt is answered in time, with messages or an error"),
    "prompts.messages": ("must", "/server/prompts#promptmessage", "A prompt is a list of messages, each with a role (user or assistant) and one valid content block"),
    "prompts.missing-argument": ("should", "/server/prompts#error-handling", "A prompt without one of its required arguments is refused"),
    "prompts.unknown": ("should", "/server/prompts#error-handling", "An unknown prompt is refused"),
    "prompts.error-code": ("should", "/server/prompts#error-handling", "An invalid request for a prompt is refused with -32602"),
    "load.answered": ("should", "docs/check-reference.md#load", "Requests are answered under load as they are alone"),
    "server.answered": ("must", _RPC_RESPONSE, "A request that can't be fulfilled is answered with a JSON-RPC error or a result"),
    "server.unknown-method": ("must", _RPC_ERROR, "An unknown method is answered with error -32601"),
    "server.unknown-tool": ("must", "/server/tools#error-handling", "A call of an unknown tool is answered with an error about it"),
    "server.malformed-params": ("must", _RPC_ERROR, "A call with invalid parameters is answered with an error"),
    "server.big-request": ("must", "docs/check-reference.md#server", "A request that is too large is answered or refused, and the server survives"),
    "server.alive": ("must", "docs/check-reference.md#server", "The server survives invalid requests"),
    "server.garbage": ("should", _RPC_ERROR, "A line that is not JSON is answered with error -32700 or ignored, and the server survives"),
    "wire.messages": ("must", "/basic/transports#stdio", "The server sends only valid JSON-RPC messages"),
    "wire.answered-once": ("must", _RPC_RESPONSE, "No request is answered twice"),
    "wire.known-ids": ("must", "/basic#responses", "Every answer has the id of a request"),
    "wire.same-ids": ("must", _RPC_RESPONSE, "An answer's id is the request's, of the same type: 7 is not \"7\""),
    "wire.error-ids": ("must", _RPC_RESPONSE, "An error that answers a readable request has its id"),
    "wire.error-codes": ("should", _RPC_ERROR, "The code of an error is not 0"),
    "lists.null-cursor": ("must", "/server/utilities/pagination#response-format", "The last page of a listing has no nextCursor, not even null"),
    "lists.declared": ("must", "/basic/lifecycle#capability-negotiation", "Only a server that declares listChanged sends list_changed"),
    "lists.announced": ("should", "/server/tools#list-changed-notification", "A listing does not change, nor lose tools, without a notification"),
    "http.content-type": ("must", _HTTP, "A request is answered with application/json or text/event-stream"),
    "http.sse-framing": ("must", _HTTP, "Server-sent events are framed as clients parse them, each with one JSON-RPC message"),
    "http.notification": ("must", _HTTP, "A notification is answered with HTTP 202 and no body"),
    "http.accept": ("must", "https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1", "The order of the types in Accept does not matter"),
    "http.origin": ("must", "/basic/transports#security-warning", "A request from a foreign Origin is refused"),
    "http.host": ("should", "/basic/transports#security-warning", "A server on this machine refuses a foreign Host"),
    "http.protocol-version": ("must", "/basic/transports#protocol-version-header", "An unknown MCP-Protocol-Version is refused with HTTP 400"),
    "http.malformed": ("must", _HTTP, "A body that is not JSON is refused with HTTP 400"),
    "http.get": ("must", "/basic/transports#listening-for-messages-from-the-server", "GET is answered with a stream of events, or HTTP 405"),
    "http.event-ids": ("must", "/basic/transports#resumability-and-redelivery", "No two events of a session have the same id"),
    "http.resumption": ("must", "/basic/transports#resumability-and-redelivery", "A resumed stream has no messages of another stream"),
    "http.session-characters": ("must", "/basic/transports#session-management", "A session id has only visible ASCII characters"),
    "http.session-guessable": ("should", "/basic/transports#session-management", "A session id is unique and can't be guessed"),
    "http.session-unknown": ("must", "/basic/transports#session-management", "A request with an unknown session id is refused with HTTP 404"),
    "http.session-required": ("should", "/basic/transports#session-management", "A request without a required session id is refused with HTTP 400"),
    "http.session-delete": ("must", "/basic/transports#session-management", "DELETE ends the session, or is answered with HTTP 405"),
    "http.session-ended": ("must", "/basic/transports#session-management", "A request of an ended session is answered with HTTP 404"),
    "http.error-body": ("should", "docs/safety.md", "The body of an error has no stack trace"),
    "http.challenge": ("should", "/basic/authorization#protected-resource-metadata-discovery-requirements", "HTTP 401 says how to authorize (WWW-Authenticate)"),
    "http.authorization": ("must", "/basic/authorization#authorization-server-location", "The metadata that a 401 names exists, with the resource and its authorization servers"),
    "progress.shape": ("must", "/schema#progressnotification", "A report of progress has a token, a number, and an optional total and message"),
    "progress.token": ("must", "/basic/utilities/progress#behavior-requirements", "Progress has the token of a request in flight, as it was sent"),
    "progress.increases": ("must", "/basic/utilities/progress#progress-flow", "Progress increases with each report"),
    "progress.ends": ("must", "/basic/utilities/progress#behavior-requirements", "Progress stops with the answer"),
    "logging.shape": ("must", "/server/utilities/logging#log-message-notifications", "A log message has one of the eight levels, and data"),
    "logging.declared": ("must", "/server/utilities/logging#capabilities", "Only a server that declares logging sends log messages"),
    "logging.set-level": ("must", "/server/utilities/logging#setting-log-level", "A server that declares logging lets the client set the level"),
    "logging.threshold": ("should", "/server/utilities/logging#setting-log-level", "Log messages have at least the level that the client set"),
    "logging.unknown-level": ("should", "/server/utilities/logging#error-handling", "An unknown log level is refused with -32602"),
    "completion.declared": ("must", "/server/utilities/completion#capabilities", "A server that completes arguments declares completions"),
    "completion.answered": ("must", "/server/utilities/completion", "A server that declares completions completes the arguments of its prompts and templates"),
    "completion.shape": ("must", "/schema#completeresult", "A completion has an array of strings, and an optional total and hasMore"),
    "completion.values": ("must", "/server/utilities/completion#completion-results", "A completion has at most 100 values"),
    "subscriptions.answered": ("must", "/server/resources#subscriptions", "A server that declares resources.subscribe answers subscriptions and their end with an empty result"),
    "subscriptions.declared": ("must", "/server/resources#capabilities", "Only a server that declares resources.subscribe sends updates of resources"),
    "subscriptions.wanted": ("should", "/server/resources#subscriptions", "Updates are sent for subscribed resources only"),
    "client.requests-known": ("must", "/basic/lifecycle#operation", "A server sends only requests of the negotiated revision"),
    "client.requests-declared": ("must", "/basic/lifecycle#capability-negotiation", "A server asks a client only for what the client declared"),
    "client.requests-early": ("should", "/basic/lifecycle#initialization", "Before notifications/initialized, a server sends only pings and log messages"),
    "process.memory": ("should", "docs/check-reference.md#the-process", "A read-only tool does not take more memory with each call"),
    "process.time": ("should", "docs/check-reference.md#the-process", "The same call does not take longer each time"),
    "process.descriptors": ("should", "docs/check-reference.md#the-process", "A read-only tool closes the file descriptors that it opens"),
    "process.files": ("should", "/schema#toolannotations", "A tool with readOnlyHint writes no files"),
    "drift.listed": ("must", "docs/check-reference.md#drift", "Each tool of the baseline is listed"),
    "drift.description": ("should", "docs/check-reference.md#drift", "A tool's title and description are those of the baseline"),
    "drift.input-schema": ("must", "docs/check-reference.md#drift", "A tool's inputSchema is that of the baseline"),
    "drift.output-schema": ("must", "docs/check-reference.md#drift", "A tool's outputSchema is that of the baseline"),
    "drift.annotations": ("should", "docs/check-reference.md#drift", "A tool's annotations are those of the baseline"),
}
# fmt: on
"""Maps each name to the level, source and title of its check, in the order of execution."""

CATALOGUE: Final[Mapping[str, CheckKind]] = {
    name: CheckKind(
        name=name,
        level=level,
        source=_SPECIFICATION + source if source.startswith("/") else source,
        title=title,
    )
    for name, (level, source, title) in _ROWS.items()
}
"""Maps each name to its kind of check, in the order of execution."""
