"""Tolerance of the deviations of existing WebSocket servers.

MCP never had a WebSocket transport; the servers that offer one follow revision 2024-11-05 and each other. Two
deviations are tolerated on this transport only:

* Requests refused with "handler not initialized", because the server waits for a notification `initialized`
  instead of `notifications/initialized`. The short name is sent once per connection, and each refused request
  once more. The refusal shows that nothing was run, so nothing is run twice. The words are in the error's
  message or, from the Go template, in its data.
* Errors without an id, for a message that the server could not read (-32700, -32600; other codes may be about
  a notification). Such an error belongs to one of the requests that were in flight when it arrived. It is
  matched to that request once all the others are answered. Until then no request fails, because a wrong guess
  would fail a request that is still being answered. If one of them is cancelled meanwhile, the error is
  dropped, because it may have belonged to that one.

A repeated request keeps its id, because these servers echo ids and do not record them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from playhead.client.transports.rpc_errors import says
from playhead.protocol import messages
from playhead.protocol.exchange import Answered, Event, Exchange, Faulted
from playhead.protocol.messages import RpcError

NAMELESS_ERRORS: Final = 64
"""Limits the errors without an id that wait to be matched."""

_NOT_INITIALIZED: Final = re.compile(
    r"(^|\b(handler|server|session|connection|client) )((is|was|has) )?not (yet )?(been )?initiali[sz]ed",
    re.IGNORECASE,
)
"""Matches errors about the connection: a tool whose database is "not initialized" may have run."""
_UNREADABLE: Final = (messages.PARSE_ERROR, messages.INVALID_REQUEST)


@dataclass(slots=True)
class _Nameless:
    """An error without an id, and the keys of the requests that it may belong to."""

    error: RpcError
    candidates: set[str]


class Compatibility:
    """The leniency of one connection (`inbox.Leniency`)."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._unsent: deque[tuple[str | None, bytes]] = deque()
        """Messages to send before anything else: at most one per request in flight, and one more."""
        self._greeted = False
        self._repeated: set[str] = set()
        self._nameless: list[_Nameless] = []

    @property
    def has_unsent(self) -> bool:
        """True if `next_unsent` may return a message."""
        return bool(self._unsent)

    def next_unsent(self) -> bytes | None:
        """Return the next message to send, if any."""
        while self._unsent:
            key, data = self._unsent.popleft()
            if key is None or self._exchange.awaits(key):
                return data
        return None

    def judge(self, event: Event) -> Iterable[Event]:
        """Yield the events that replace `event`."""
        if not isinstance(event, Answered | Faulted):
            yield event
            return
        if event.id is None:
            if isinstance(event.error, RpcError):
                self._on_nameless(event.error)
        else:
            key = str(event.id)
            if isinstance(event, Answered) and self._is_sent_again(key, event):
                return
            self._repeated.discard(key)
            for nameless in self._nameless:
                nameless.candidates.discard(key)
        yield event
        yield from self._named()

    def _is_sent_again(self, key: str, answered: Answered) -> bool:
        error, request = answered.error, answered.request
        if error is None or request is None or key in self._repeated:
            return False
        if error.code != messages.INTERNAL_ERROR or not says(error, _NOT_INITIALIZED):
            return False
        if not self._greeted:
            self._greeted = True
            self._exchange.count("bare_initialized")
            self._unsent.append((None, self._exchange.notify("initialized")))
        self._exchange.repeat(request)
        self._repeated = {each for each in self._repeated if self._exchange.awaits(each)} | {key}
        self._unsent.append((key, request.data))
        return True

    def _on_nameless(self, error: RpcError) -> None:
        awaited = set(self._exchange.in_flight)
        if error.code in _UNREADABLE and awaited and len(self._nameless) < NAMELESS_ERRORS:
            self._nameless.append(_Nameless(error, awaited))

    def _named(self) -> Iterator[Event]:
        """End each request that is the only one that an error without an id can belong to."""
        awaits = self._exchange.awaits
        self._nameless = [
            each for each in self._nameless if each.candidates and all(map(awaits, each.candidates))
        ]
        for nameless in self._nameless:
            # With as many errors as candidates, each candidate has one of the errors.
            n_errors = sum(other.candidates <= nameless.candidates for other in self._nameless)
            if n_errors >= len(nameless.candidates):
                key = nameless.candidates.pop()
                self._nameless.remove(nameless)
                yield from self.judge(self._exchange.attribute(key, nameless.error))
                return
