"""One client's WebSocket, between the ASGI server's messages and the SDK's streams.

Three tasks beside the SDK's: one reads, one sends, one gives the SDK each request when its turn has come.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from starlette.websockets import WebSocket, WebSocketState
from wsproto.frame_protocol import CloseReason

from playhead.servers.shutdown import Shutdown
from playhead.servers.websocket_frames import HELD_KEY
from playhead.servers.websocket_memory import Account, request_bytes
from playhead.servers.websocket_messages import Refusal, decode, structure_limits
from playhead.servers.websocket_requests import CANCELLED, RequestLimits, Requests

FromClient = MemoryObjectSendStream[SessionMessage | Exception]
ToClient = MemoryObjectReceiveStream[SessionMessage]


class WebSocketConnection:
    """Serves one client, from the accepted handshake to the end of the connection."""

    def __init__(
        self,
        server: Server[Any],
        websocket: WebSocket,
        limits: RequestLimits,
        account: Account,
        shutdown: Shutdown | None,
    ) -> None:
        self._server = server
        self._websocket = websocket
        self._limits = structure_limits(json_depth=limits.json_depth, json_values=limits.json_values)
        self._account = account
        self._requests = Requests(limits, account)
        self._shutdown = shutdown
        self._changed = trio.Event()
        """Set, and made anew, when a request came or was done."""

    async def run(self) -> None:
        """Until the client has left, broke a rule or failed to read, or the server was shut down.

        Cancelled, it leaves the closing to the ASGI server, which then says 1011.
        """
        # No room in either: who sends waits until the message was taken, down to the client's own buffers.
        from_client, to_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        from_server, to_client = anyio.create_memory_object_stream[SessionMessage](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, to_client)
            nursery.start_soon(self._give, from_client)
            nursery.start_soon(self._read, from_client, from_server.clone())
            if self._shutdown is not None:
                nursery.start_soon(self._leave, self._shutdown, nursery.cancel_scope)
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
                    await self._close(CloseReason.UNSUPPORTED_DATA, "expected text frames, got a binary one")
                    break
                self._account.give_back(event.get(HELD_KEY, 0))
                message = self._decode(text)
                del text, event  # what follows may wait for a client that does not read
                if isinstance(message, Refusal):
                    await refusals.send(SessionMessage(message.answer))
                else:
                    await self._pass_on(message, from_client)

    def _decode(self, text: str) -> types.JSONRPCMessage | Refusal:
        message = decode(text, self._limits)
        if not isinstance(message, types.JSONRPCRequest):
            return message
        cost_bytes = request_bytes(text, json_values=self._limits.json_values)
        refused = self._requests.take(message, size_bytes=len(text.encode()), cost_bytes=cost_bytes)
        return refused or message

    async def _pass_on(self, message: types.JSONRPCMessage, from_client: FromClient) -> None:
        match message:
            case types.JSONRPCRequest():
                # Here where it can be, not in `_give`: what the client sends next stays behind it.
                await self._give_due(from_client)
            case types.JSONRPCNotification() if message.method == CANCELLED and (
                self._requests.cancel_waiting(message)
            ):
                self._something_changed()
            case _:
                await from_client.send(SessionMessage(message))

    async def _give(self, from_client: FromClient) -> None:
        while True:
            await self._changed.wait()
            try:
                await self._give_due(from_client)
            except anyio.ClosedResourceError:
                return  # the client has left

    async def _give_due(self, from_client: FromClient) -> None:
        while (request := self._requests.next_due()) is not None:

            async def unanswered(request_id: types.RequestId = request.id) -> None:
                self._done(request_id)  # cancelled by the client: it has no answer

            await from_client.send(
                SessionMessage(request, ServerMessageMetadata(on_request_unanswered=unanswered))
            )

    async def _send(self, to_client: ToClient) -> None:
        async with to_client:
            async for item in to_client:
                if self._websocket.application_state is not WebSocketState.CONNECTED:
                    continue  # closed from here; what still comes is of no use to anyone
                message = item.message
                answered = (
                    message.id if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) else None
                )
                text = _encoded(message)
                del item, message  # a page less to be held while the client takes its time
                await self._websocket.send({"type": "websocket.send", "text": text})
                self._done(answered)

    def _done(self, request_id: types.RequestId | None) -> None:
        if self._requests.done(request_id):
            self._something_changed()

    def _something_changed(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _leave(self, shutdown: Shutdown, scope: trio.CancelScope) -> None:
        await shutdown.requested.wait()
        self._requests.closed = True
        while not self._requests.none_left:
            await self._changed.wait()
        await self._close(CloseReason.GOING_AWAY, "the server is shutting down")
        scope.cancel()

    async def _close(self, code: int, reason: str) -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED:
            await self._websocket.close(code, reason)


def _encoded(message: types.JSONRPCMessage) -> str:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:
        # A lone surrogate, as os.fsdecode makes them of file names: it costs the request, not the connection.
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            raise
        why = "the server's answer cannot be written as JSON in UTF-8"
        return Refusal(types.INTERNAL_ERROR, why, message.id).answer.model_dump_json()
