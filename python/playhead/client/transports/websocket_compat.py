"""What WebSocket servers in the field do differently, and what is done about it. No clock, no stream.

MCP never had a WebSocket transport; the servers that speak one were written against revision 2024-11-05 and
against each other. What is forgiven, on this transport alone:

* `initialize` refused with "unsupported protocol version" in place of a counter-offer: asked once more on
  the same connection, for 2024-11-05.
* Requests refused with "handler not initialized", because the server waits for a notification `initialized`
  where the standard has `notifications/initialized`: the bare name is sent once a connection, and each
  request so refused once more. The server has said that nothing was run, so nothing is run twice.
* Errors without an id, for what the server could not read (-32700, -32600; other codes may be about a
  notification). One belongs to one of the requests that waited when it came. It is given to that one as soon
  as the others have been answered: at once where only one waited. Until then nobody is failed, because a
  wrong guess would fail a request whose answer is still coming; a request that ended without an answer
  (cancelled, its deadline over) may have been the one, and then the error belongs to nobody.

Prompts whose messages hold a list of blocks are read as they are by `client.prompts`, whatever carried them.
A request that is repeated keeps its id: these servers echo ids and keep no record of them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import mcp_types as types

from playhead.client.transports.messages import key_of

OLD_REVISION: Final = "2024-11-05"
NAMELESS_ERRORS: Final = 64
"""How many errors without an id are kept at once; each holds the keys that waited when it came."""

_REVISION_REFUSED: Final = re.compile(
    r"(unsupported|invalid)( mcp| protocol)+ version|version .{0,40}not supported", re.IGNORECASE
)
_NOT_INITIALIZED: Final = re.compile(r"not (yet )?initiali[sz]ed", re.IGNORECASE)
_UNREADABLE: Final = (types.PARSE_ERROR, types.INVALID_REQUEST)


@dataclass(slots=True)
class _Nameless:
    """An error, and who it can be about."""

    error: types.ErrorData
    candidates: set[str]


class Compatibility:
    """The leniency of one connection (`inbox.Leniency`). What it wants sent waits in `unsent`."""

    def __init__(self) -> None:
        self.unsent: deque[types.JSONRPCNotification | types.JSONRPCRequest] = deque()
        """To be sent before anything else; at most one message for each request that waits, and one more."""
        self._greeted = False
        self._repeated: set[str] = set()
        self._nameless: list[_Nameless] = []

    def answered(
        self, request: types.JSONRPCRequest, answer: types.JSONRPCResponse | types.JSONRPCError
    ) -> types.JSONRPCMessage | None:
        key = key_of(request.id)
        again = self._again(request, answer) if isinstance(answer, types.JSONRPCError) else None
        if again is not None and key not in self._repeated:
            self._repeated.add(key)
            self.unsent.append(again)
            return None
        self._repeated.discard(key)
        for nameless in self._nameless:
            nameless.candidates.discard(key)
        return answer

    def _again(
        self, request: types.JSONRPCRequest, answer: types.JSONRPCError
    ) -> types.JSONRPCRequest | None:
        said = answer.error.message
        if request.method == "initialize":
            params = request.params or {}
            if params.get("protocolVersion") == OLD_REVISION or not _REVISION_REFUSED.search(said):
                return None
            return request.model_copy(update={"params": {**params, "protocolVersion": OLD_REVISION}})
        if answer.error.code != types.INTERNAL_ERROR or not _NOT_INITIALIZED.search(said):
            return None
        if not self._greeted:
            self._greeted = True
            self.unsent.append(types.JSONRPCNotification(jsonrpc="2.0", method="initialized"))
        return request

    def nameless(self, error: types.ErrorData, awaited: Collection[str]) -> None:
        if error.code in _UNREADABLE and awaited and len(self._nameless) < NAMELESS_ERRORS:
            self._nameless.append(_Nameless(error, set(awaited)))

    def left(self, key: str) -> None:
        self._repeated.discard(key)
        self.unsent = deque(message for message in self.unsent if _key_of(message) != key)
        self._nameless = [nameless for nameless in self._nameless if key not in nameless.candidates]

    def next_named(self) -> tuple[str, types.ErrorData] | None:
        self._nameless = [nameless for nameless in self._nameless if nameless.candidates]
        for nameless in self._nameless:
            # As many errors as there are requests left that they can be about: each has one.
            rivals = sum(other.candidates <= nameless.candidates for other in self._nameless)
            if rivals >= len(nameless.candidates):
                key = nameless.candidates.pop()
                self._nameless.remove(nameless)
                for other in self._nameless:
                    other.candidates.discard(key)
                self._repeated.discard(key)
                return key, nameless.error
        return None


def _key_of(message: types.JSONRPCNotification | types.JSONRPCRequest) -> str | None:
    return key_of(message.id) if isinstance(message, types.JSONRPCRequest) else None
