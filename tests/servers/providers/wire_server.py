"""A server on loopback that is OpenAI, Anthropic and Gemini at once: each at its own path, by one script.

    async with wire_server([Reply(Say("Hi")), Refuse(status=429)]) as server:
        … OpenAIChatModel("gpt-5", api_key=KEY, base_url=server.openai_url)

It answers one request after the other with the next of the script, keeps every request, and notices where a
client goes away while its answer is on the way.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import trio

from tests.servers.loopback import tcp_server
from tests.servers.providers import anthropic, gemini, openai_chat, openai_responses
from tests.servers.providers.script import Broken, Frame, Hold, ProviderName, Refuse, Reply

Json = dict[str, Any]
READ_BYTES = 65536

_PATHS = {
    "/v1/chat/completions": "openai",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}
_GEMINI = re.compile(r"/v1beta/models/([^/:]+):streamGenerateContent\?alt=sse")


@dataclass(slots=True)
class Captured:
    """One request, and how its answer ended."""

    provider: ProviderName
    model: str
    target: str
    headers: dict[str, str]
    body: Json
    answered: bool = False
    """The whole answer was sent."""
    gone: trio.Event = field(default_factory=trio.Event)
    """Set where the client closed the connection before that."""


class _GoneError(Exception):
    """The client closed the connection."""


class WireServer:
    def __init__(self, script: Iterable[Reply | Refuse], port: int) -> None:
        self._script = iter(script)
        self.url = f"http://127.0.0.1:{port}"
        self.openai_url = f"{self.url}/v1"
        self.gemini_url = f"{self.url}/v1beta"
        self.connections = 0
        self.requests: list[Captured] = []
        self.refused: list[str] = []
        """Requests that no provider would take: a wrong path, a missing key, no stream asked for."""

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, as long as it is kept alive."""
        self.connections += 1
        async with stream:
            try:
                wire = _Wire(stream)
                while (came := await wire.receive()) is not None:
                    if not await self._answer(wire, *came):
                        return
            except (_GoneError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                return

    async def _answer(self, wire: _Wire, request: h11.Request, body: bytes) -> bool:
        """The connection continues."""
        captured = _captured(request, body)
        if isinstance(captured, str):
            self.refused.append(captured)
            await wire.respond(400, {"error": {"message": captured}})
            return wire.start_next()
        self.requests.append(captured)
        planned = next(self._script, None)
        if planned is None:
            planned = Refuse(
                status=500, message="the script of this test is over, and here is another request"
            )
        try:
            if isinstance(planned, Refuse):
                await wire.respond(planned.status, _error_body(captured.provider, planned), planned.headers)
            elif not await wire.stream(_frames(planned, captured, len(self.requests))):
                return False
        except (_GoneError, trio.BrokenResourceError):
            captured.gone.set()
            raise
        captured.answered = True
        return wire.start_next()


@asynccontextmanager
async def wire_server(script: Iterable[Reply | Refuse]) -> AsyncIterator[WireServer]:
    """Serve `script` until the block is left."""
    async with tcp_server(lambda stream: server.serve(stream)) as port:
        server = WireServer(script, port)
        yield server


class _Wire:
    """HTTP/1.1 on one connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def receive(self) -> tuple[h11.Request, bytes] | None:
        """The next request, whole; None where the client closed after the last."""
        request: h11.Request | None = None
        body = b""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some(READ_BYTES))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                return request, body
            else:
                return None

    def start_next(self) -> bool:
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def respond(self, status: int, body: Json, headers: Iterable[tuple[str, str]] = ()) -> None:
        content = json.dumps(body).encode()
        length = ("content-length", str(len(content)))
        await self._send(
            h11.Response(
                status_code=status, headers=[("content-type", "application/json"), length, *headers]
            ),
            h11.Data(data=content),
            h11.EndOfMessage(),
        )

    async def stream(self, frames: Iterator[Frame]) -> bool:
        """Send the answer; return if it was complete. Raises `_GoneError` if the client left first."""
        head = h11.Response(status_code=200, headers=[("content-type", "text/event-stream")])
        async with trio.open_nursery() as nursery:
            left, watching = trio.Event(), trio.CancelScope()
            nursery.start_soon(self._watch, left, watching, nursery.cancel_scope)
            is_whole = True
            try:
                for frame in frames:
                    match frame:
                        case bytes():
                            if self._http.our_state is h11.SEND_RESPONSE:
                                await self._send(head)
                            # A packet for each event, and a turn for whoever reads it.
                            await self._send(h11.Data(data=frame))
                        case Hold():
                            frame.reached.set()
                            await frame.released.wait()
                        case Broken(how="garbage"):
                            await self._send(h11.Data(data=b'data: {"choices": [oops\n\n'))
                        case Broken():
                            is_whole = False
                            break
                watching.cancel()  # before the end is sent: the next request may follow at once
                if is_whole:
                    await self._send(h11.EndOfMessage())
            except trio.BrokenResourceError:
                left.set()
                watching.cancel()
        if left.is_set():
            raise _GoneError
        return is_whole

    async def _watch(self, left: trio.Event, watching: trio.CancelScope, answering: trio.CancelScope) -> None:
        """A client that waits for its answer sends nothing: what can be read is the end."""
        with watching:
            try:
                received = await self._stream.receive_some(1)
            except trio.BrokenResourceError:
                received = b""
            assert not received, "a request on top of an unanswered one: no client of ours sends that"
            left.set()
            answering.cancel()

    async def _send(self, *events: h11.Event) -> None:
        for event in events:
            data = self._http.send(event)
            if data:
                await self._stream.send_all(data)


def _captured(request: h11.Request, body: bytes) -> Captured | str:
    """The request, or why no provider would take it."""
    target = request.target.decode("ascii")
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
    if request.method != b"POST" or headers.get("content-type") != "application/json":
        return f"expected a POST of JSON, got {request.method!r} with {headers.get('content-type')}"
    sent: Json = json.loads(body)
    provider: Any = _PATHS.get(target)
    if match := _GEMINI.fullmatch(target):
        provider, model = "gemini", match[1]
        key = headers.get("x-goog-api-key")
    elif provider is not None:
        model = sent["model"]
        if sent.get("stream") is not True:
            return "expected stream: true"
        key = headers.get("authorization") or headers.get("x-api-key")
        if provider == "anthropic" and "anthropic-version" not in headers:
            return "expected the header anthropic-version"
    else:
        return f"there is nothing at {target}"
    if not key:
        return "expected a key, got none"
    return Captured(provider, model, target, headers, sent)


def _frames(reply: Reply, captured: Captured, number: int) -> Iterator[Frame]:
    made = {
        "openai": openai_chat.frames,
        "openai-responses": openai_responses.frames,
        "anthropic": anthropic.frames,
        "gemini": gemini.frames,
    }
    parts = list(reply.parts)
    while parts and isinstance(first := parts[0], Hold):
        yield first
        del parts[0]
    rest = Reply(*parts, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
    yield from made[captured.provider](rest, model=captured.model, number=number)


def _error_body(provider: ProviderName, refusal: Refuse) -> Json:
    match provider:
        case "anthropic":
            return {"type": "error", "error": {"type": "api_error", "message": refusal.message}}
        case "gemini":
            return {
                "error": {"code": refusal.status, "message": refusal.message, "status": "FAILED_PRECONDITION"}
            }
        case "openai" | "openai-responses":
            return {
                "error": {"message": refusal.message, "type": "server_error", "param": None, "code": None}
            }
