"""The requests that a server sends to the client: answered by the program's handlers, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from playhead.client.session.elicitation import Handler, RefusedError
from playhead.client.transports.carrier import Carrier
from playhead.errors import LimitError
from playhead.protocol import messages
from playhead.protocol.exchange import Asked, Exchange

_NOT_OFFERED: Final = {
    "elicitation/create": "Elicitation not supported",
    "roots/list": "List roots not supported",
    "sampling/createMessage": "Sampling not supported",
}
"""The refusals of requests for which the program has no handler, in the words of the SDK."""


class ServerRequests:
    """Answers the server's requests of one connection, each in a task."""

    def __init__(
        self, carrier: Carrier, exchange: Exchange, handlers: Mapping[str, Handler], *, at_once: int
    ) -> None:
        """`at_once` limits the requests in flight, because each costs a task."""
        self._carrier = carrier
        self._exchange = exchange
        self._handlers = handlers
        self._at_once = at_once
        self._in_flight = 0
        """The number of requests whose answers the carrier has not taken yet."""
        self._running: dict[int | str, trio.CancelScope] = {}
        """The scopes of the running handlers, by the ids of their requests."""

    def start(self, request: Asked, nursery: trio.Nursery) -> None:
        """Answer a request in a task of `nursery`. Raises `LimitError` if too many are in flight."""
        if self._in_flight == self._at_once:
            raise LimitError(
                f"expected at most {self._at_once} server requests in flight (limit server_requests), got one"
                " more; a server must read the answers to its requests",
                limit="server_requests",
                allowed=self._at_once,
                got=self._at_once + 1,
            )
        self._in_flight += 1
        nursery.start_soon(self._answer, request)

    def cancel(self, id: object) -> None:
        """Cancel the handler of a request for which the server no longer waits."""
        scope = self._running.get(id) if isinstance(id, int | str) else None
        if scope is not None:
            scope.cancel()

    async def _answer(self, request: Asked) -> None:
        reply = await self._reply(request)
        if reply is None:
            self._exchange.forget(request.id)
        else:
            await self._carrier.tell(reply)
        self._in_flight -= 1

    async def _reply(self, request: Asked) -> bytes | None:
        """Return the answer or refusal; None if the server cancels the request meanwhile."""
        exchange, method = self._exchange, request.method
        if method not in exchange.revision.asks:
            return exchange.refuse(request.id, messages.METHOD_NOT_FOUND, "Method not found")
        if method == "ping":
            return exchange.answer(request.id, {})
        handler = self._handlers.get(method)
        if handler is None:
            return exchange.refuse(request.id, messages.INVALID_REQUEST, _NOT_OFFERED[method])
        with trio.CancelScope() as scope:
            self._running[request.id] = scope
            try:
                return exchange.answer(request.id, await handler(request.params))
            except RefusedError as error:
                return exchange.refuse(request.id, error.code, str(error))
            finally:
                self._running.pop(request.id, None)
        return None
