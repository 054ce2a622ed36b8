"""MCP over WebSocket, the server's side: one JSON-RPC message per text frame.

docs/websocket.md describes this transport, which is not in the standard. The SDK answers the messages, in the
protocol version of the client. This module carries them, and limits the cost of one client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketState
from wsproto.frame_protocol import CloseReason

from playhead.limits import KIB, Limits
from playhead.servers.http_connection import HttpServerOptions
from playhead.servers.messages import MESSAGE_LIMITS, ErrorAnswer, decode
from playhead.servers.serving import Serving, Shutdown, Slot
from playhead.servers.websocket_frames import (
    NO_BINARY,
    NO_SLOT,
    OPTIONS_KEY,
    OWN_BYTES,
    SLOT_KEY,
    FrameOptions,
)

SUBPROTOCOL: Final = "mcp"
CANCELLED: Final = "notifications/cancelled"
ANSWERING: Final = object()
"""The key, among the requests in flight, of the request whose answer is being sent. There is at most one,
because only one task sends."""
_SUBSCRIBE: Final = "subscriptions/listen"
"""The method of a request that does not end by itself."""

FromClient = MemoryObjectSendStream[SessionMessage | Exception]
ToClient = MemoryObjectReceiveStream[SessionMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketServerOptions(FrameOptions):
    """Bounds on one connection. Sizes are in bytes, times in seconds."""

    json_depth: int = MESSAGE_LIMITS.json_depth
    """Limits the nesting of a message."""
    json_values: int = MESSAGE_LIMITS.json_values
    """Limits the values of a message."""
    requests_in_flight: int = 8
    """Limits the requests in progress, and those whose answer the client has not taken yet. Further ones
    wait. All but the first of a connection need one of the server's slots (`HttpServerOptions.requests`)."""
    requests_waiting: int = 256
    """Limits the requests in flight and waiting together. One more gets -32603 at once."""
    waiting_bytes: int = 256 * KIB
    """Limits the bytes of these requests together. A single one may be longer."""


DEFAULT_OPTIONS: Final = WebSocketServerOptions()


def websocket_routes(server: Server[Any], path: str) -> list[WebSocketRoute]:
    """Return the routes for `server` at `path`, and one that answers a WebSocket anywhere else with HTTP 404.
    Put them last.

    Starlette would answer 403, as if other credentials could help.
    """
    return [WebSocketRoute(path, websocket_endpoint(server)), WebSocketRoute("/{path:path}", _not_found)]


async def _not_found(websocket: WebSocket) -> None:
    await websocket.send_denial_response(PlainTextResponse("no WebSocket at this path", status_code=404))


def websocket_endpoint(
    server: Server[Any], *, options: WebSocketServerOptions = DEFAULT_OPTIONS
) -> Callable[[WebSocket], Awaitable[None]]:
    """Return the endpoint of a Starlette `WebSocketRoute` that serves `server` to every client that connects.

    Under `serve_app` all of `options` apply, and a shutdown waits for the answers to the requests in flight,
    then closes with 1001. Under another ASGI server that server's own settings bound the frames (size, pings,
    silence, deadlines).

    Close codes: 1003 a binary frame; 1007 text that is not UTF-8; 1002 a malformed frame; 1009 a message too
    long; 1008 a message that is not complete in time, or silence; 1001 shut down; 1011 the server failed;
    1013 no slot for a long message.
    """
    default_serving = Serving(shutdown=Shutdown(), slots=trio.CapacityLimiter(HttpServerOptions().requests))

    async def endpoint(websocket: WebSocket) -> None:
        serving = Serving.of(websocket.scope) or default_serving
        offered = websocket.scope.get("subprotocols") or ()
        await websocket.receive()  # "websocket.connect"
        await websocket.send(
            {
                "type": "websocket.accept",
                "subprotocol": SUBPROTOCOL if SUBPROTOCOL in offered else None,
                "headers": [],
                OPTIONS_KEY: options,
            }
        )
        requests = RequestQueue(options, serving.slots)
        connection = _McpConnection(server, websocket, options, requests)
        try:
            await connection.run(serving.shutdown)
        finally:
            requests.close()

    return endpoint


@dataclass(frozen=True, slots=True)
class _QueuedRequest:
    """A request between its arrival and the end of its answer."""

    request: types.JSONRPCRequest
    size_bytes: int
    slot: Slot


class RequestQueue:
    """The requests of one connection. Each waits, is then in flight, and leaves the queue with its answer.
    The queue uses no clock and no socket.

    A client may send more requests than a server can store, without waiting for answers. So only a few are in
    flight, the next ones wait in order, and one too many is refused. A request is in flight until its answer
    was sent, so a client that does not read makes no progress.

    Limits per connection do not limit the server (200 clients at their limits took 1.9 GB), so connections
    share the slots. The first request of a connection needs none, so every client makes progress, whatever
    others do.
    """

    def __init__(self, options: WebSocketServerOptions, slots: trio.CapacityLimiter) -> None:
        self._options = options
        self._slots = slots
        self._waiting: OrderedDict[types.RequestId, _QueuedRequest] = OrderedDict()
        self._in_flight: dict[object, _QueuedRequest] = {}
        self._bytes = 0
        self.refuses_new = False
        """True during a shutdown. The requests in the queue are then answered, and new ones refused."""

    @property
    def _all(self) -> tuple[_QueuedRequest, ...]:
        return (*self._waiting.values(), *self._in_flight.values())

    @property
    def finished(self) -> bool:
        """True if every request but the subscriptions was answered."""
        return all(each.request.method == _SUBSCRIBE for each in self._all)

    def take(
        self, request: types.JSONRPCRequest, *, size_bytes: int, slot: Slot | None = None
    ) -> ErrorAnswer | None:
        """Add a request of `size_bytes`, with the slot of its message. Returns the error if it is refused."""
        if self.refuses_new:
            return self._refuse(request, "the server is shutting down; ask elsewhere")
        if request.id in self._waiting or request.id in self._in_flight:
            reason = "this id is in use by a request that has no answer yet; give each request its own"
            return ErrorAnswer(types.INVALID_REQUEST, reason, request.id)
        options = self._options
        count = len(self._waiting) + len(self._in_flight)
        if count >= options.requests_waiting or (count and self._bytes + size_bytes > options.waiting_bytes):
            return self._refuse(
                request,
                f"too many requests without an answer: {options.requests_waiting} and {options.waiting_bytes}"
                f" bytes are allowed on one connection, got {count} and {self._bytes} bytes before this one;"
                " wait for answers",
            )
        slot = slot or Slot(self._slots)
        if size_bytes > OWN_BYTES and not slot.take_nowait():
            return self._refuse(request, NO_SLOT)
        slot.adopted = True
        self._waiting[request.id] = _QueuedRequest(request, size_bytes, slot)
        self._bytes += size_bytes
        return None

    def next_due(self) -> types.JSONRPCRequest | None:
        """Put the next request in flight and return it; None if none waits, or no more can be in flight."""
        if not self._waiting or len(self._in_flight) >= self._options.requests_in_flight:
            return None
        request_id, queued = next(iter(self._waiting.items()))
        if self._in_flight and not queued.slot.take_nowait():
            return None
        self._in_flight[request_id] = self._waiting.pop(request_id)
        return queued.request

    def answering(self, request_id: types.RequestId | None) -> None:
        """Free the id of a request whose answer is sent now, because a client may use it again as soon as it
        has the answer. Until the answer was sent, the request stays in flight under the key `ANSWERING`."""
        if (queued := self._in_flight.pop(request_id, None)) is not None:
            self._in_flight[ANSWERING] = queued

    def done(self, request_id: object) -> bool:
        """Forget a request in flight that needs no answer any more. Returns False for an unknown request."""
        return self._remove(self._in_flight.pop(request_id, None))

    def cancel_waiting(self, notification: types.JSONRPCNotification) -> bool:
        """Drop a waiting request that its client cancels, without an answer. Returns False for an unknown
        request."""
        request_id = (notification.params or {}).get("requestId")
        if not isinstance(request_id, str | int):
            return False
        return self._remove(self._waiting.pop(request_id, None))

    def close(self) -> None:
        """Release every slot. The connection has ended."""
        for queued in self._all:
            self._remove(queued)

    def _remove(self, queued: _QueuedRequest | None) -> bool:
        if queued is None:
            return False
        self._bytes -= queued.size_bytes
        queued.slot.release()
        return True

    def _refuse(self, request: types.JSONRPCRequest, reason: str) -> ErrorAnswer:
        return ErrorAnswer(types.INTERNAL_ERROR, reason, request.id)


class _McpConnection:
    """A client's connection, between ASGI's messages and the SDK's streams.

    Four tasks run alongside the SDK's. One reads, one sends, one forwards waiting requests to the SDK, and
    one waits for the shutdown.
    """

    def __init__(
        self,
        server: Server[Any],
        websocket: WebSocket,
        options: WebSocketServerOptions,
        requests: RequestQueue,
    ) -> None:
        self._server = server
        self._websocket = websocket
        self._limits: Limits = replace(
            MESSAGE_LIMITS, json_depth=options.json_depth, json_values=options.json_values
        )
        self._requests = requests
        self._changed = trio.lowlevel.ParkingLot()
        """The parking lot that is woken when a request is done."""

    async def run(self, shutdown: Shutdown) -> None:
        """Serve until the client leaves, breaks a rule or does not read, or until the server is shut down.

        If cancelled, the ASGI server closes the connection.
        """
        # No buffers: a sender waits until its message was taken, so a slow client slows its handlers down.
        from_client, to_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        from_server, to_client = anyio.create_memory_object_stream[SessionMessage](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, to_client)
            nursery.start_soon(self._forward_when_changed, from_client)
            nursery.start_soon(self._read, from_client, from_server.clone())
            nursery.start_soon(self._close_at_shutdown, shutdown, nursery.cancel_scope)
            # When the client has left, this cancels its handlers and returns.
            async with to_server, from_server:
                await self._server.run(to_server, from_server, self._server.create_initialization_options())
            nursery.cancel_scope.cancel()

    async def _read(self, from_client: FromClient, refusals: MemoryObjectSendStream[SessionMessage]) -> None:
        async with from_client, refusals:
            while True:
                event = await self._websocket.receive()
                if event["type"] == "websocket.disconnect":
                    break
                text = event.get("text")
                if text is None:
                    await self._close(CloseReason.UNSUPPORTED_DATA, NO_BINARY)
                    break
                data = text.encode()
                message = decode(data, self._limits)
                if isinstance(message, types.JSONRPCRequest):
                    slot = event.get(SLOT_KEY)
                    message = self._requests.take(message, size_bytes=len(data), slot=slot) or message
                del text, data, event  # free the memory while the next line waits for a slow client
                if isinstance(message, ErrorAnswer):
                    await refusals.send(SessionMessage(message.answer))
                else:
                    await self._forward(message, from_client)

    async def _forward(self, message: types.JSONRPCMessage, from_client: FromClient) -> None:
        match message:
            case types.JSONRPCRequest():
                # Forward it here if possible, not in `_forward_when_changed`, so that the client's later
                # messages stay behind it.
                await self._forward_due_requests(from_client)
            case types.JSONRPCNotification() if message.method == CANCELLED and (
                self._requests.cancel_waiting(message)
            ):
                self._changed.unpark_all()
            case _:
                await from_client.send(SessionMessage(message))

    async def _forward_when_changed(self, from_client: FromClient) -> None:
        while True:
            await self._changed.park()
            try:
                await self._forward_due_requests(from_client)
            except anyio.ClosedResourceError:
                return  # the client has left

    async def _forward_due_requests(self, from_client: FromClient) -> None:
        while (request := self._requests.next_due()) is not None:

            async def unanswered(request_id: types.RequestId = request.id) -> None:
                self._finish_request(request_id)  # the client has cancelled it, so it has no answer

            await from_client.send(
                SessionMessage(
                    request,
                    ServerMessageMetadata(request_context=self._websocket, on_request_unanswered=unanswered),
                )
            )

    async def _send(self, to_client: ToClient) -> None:
        async with to_client:
            async for item in to_client:
                if self._websocket.application_state is not WebSocketState.CONNECTED:
                    continue  # this side has closed the connection
                message = item.message
                answered = (
                    message.id if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) else None
                )
                text = _encode(message)
                del item, message  # free the memory while the client takes the text
                self._requests.answering(answered)
                await self._websocket.send({"type": "websocket.send", "text": text})
                self._finish_request(ANSWERING)

    def _finish_request(self, request_id: object) -> None:
        if self._requests.done(request_id):
            self._changed.unpark_all()

    async def _close_at_shutdown(self, shutdown: Shutdown, scope: trio.CancelScope) -> None:
        await shutdown.requested.wait()
        self._requests.refuses_new = True
        while not self._requests.finished:
            await self._changed.park()
        await self._close(CloseReason.GOING_AWAY, "the server is shutting down")
        scope.cancel()

    async def _close(self, code: int, reason: str) -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED:
            await self._websocket.close(code, reason)


def _encode(message: types.JSONRPCMessage) -> str:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:
        # A lone surrogate, which os.fsdecode can make, must end the request only, not the connection.
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            raise
        reason = "the server's answer cannot be written as JSON in UTF-8"
        return ErrorAnswer(types.INTERNAL_ERROR, reason, message.id).answer.model_dump_json()
