"""The inbox of a connection: turns the bytes of a stream of messages into events.

All transports use it, with a framer that finds the end of each message (a newline, a WebSocket frame, a
server-sent event). The JSON body of an HTTP answer is one message and does not need it.

* A line that is not a message is counted and dropped; the beginning of the first one is saved for error
  messages. A long line that answers no request in flight is skipped while it arrives.
* A *sign of life* is a byte of an awaited answer, or a progress report. Log lines, comments, pings,
  notifications and other answers do not count, so that they cannot keep a request alive. If one stream
  carries all answers, a byte of any of them is a sign of life for all requests.

No clock and no stream. Any chunking of the same bytes gives the same events, apart from the signs of life.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from playhead.errors import LimitError, PlayheadError
from playhead.limits import Limits
from playhead.protocol import framing, messages
from playhead.protocol.exchange import Answered, Event, Exchange, Faulted, Progressed, SignOfLife

UNDECIDED_BYTES: Final = 256
"""The length of the beginning of an answer by which it can be recognized."""


class Leniency(Protocol):
    """The deviations that a transport tolerates (`websocket_compatibility.Compatibility`)."""

    def judge(self, event: Event) -> Iterable[Event]:
        """Return the events that replace `event`: usually only itself; none if its request is sent again
        (`Exchange.repeat`); itself and others if a fault ends requests (`Exchange.attribute`)."""
        ...


class Inbox:
    """Turns received bytes into the events of one `Exchange`."""

    def __init__(
        self,
        exchange: Exchange,
        limits: Limits,
        framer: framing.Framer | None = None,
        *,
        only: int | str | None = None,
        leniency: Leniency | None = None,
    ) -> None:
        """
        Args:
            framer: finds the end of each message; the default is a newline.
            only: the request on whose POST the bytes arrive. They may answer no other request.
        """
        self._exchange = exchange
        self._limits = limits
        self._framer = framer or framing.LineFramer(max_bytes=limits.message_bytes)
        self._only = only
        self._leniency = leniency
        self.failure: PlayheadError | None = None
        """The fault of the peer's that ends the connection, if any. No event follows."""

    def receive(self, chunk: bytes | bytearray | memoryview) -> list[Event]:
        """Take received bytes, and return the events of the messages that are complete."""
        message = self._framer.message
        length_before = message.length_bytes
        self._framer.feed(chunk)
        events: list[Event] = []
        is_alive = False
        while self.failure is None and (line := self._framer.next_event()) is not None:
            if not isinstance(line, framing.Line):
                new_events = self._on_long_line(line)
            elif line.data.startswith(b"{"):
                new_events = self._exchange.receive(line.data, only=self._only)
            else:
                new_events = self._on_odd_line(line.data)
            if self._leniency is not None:
                new_events = [judged for event in new_events for judged in self._leniency.judge(event)]
            for event in new_events:
                is_alive = is_alive or (self._only is None and isinstance(event, Answered | Progressed))
                events.append(event)
        # Not every chunk continues the message: it may be a WebSocket ping between two of its frames.
        if is_alive or (message.length_bytes != length_before and self._may_become_answer(message.head)):
            events.append(SignOfLife(self._only))
        return events

    def _on_odd_line(self, line: bytes) -> list[Event]:
        """Take a line that does not begin with `{`: leading blanks, a batch, or a log line."""
        line = line.lstrip()
        if not line:
            return []
        if not self._exchange.may_begin(line):
            return [self._exchange.ignore(line, "it does not begin as a JSON object")]
        return self._exchange.receive(line, only=self._only)

    def _on_long_line(self, line: framing.LineEvent) -> list[Event]:
        event: Event | None = None
        match line:
            case framing.LongLine():
                if not (line.head.isspace() or self._is_awaited(line.head)):
                    self._framer.message.skip()
            case framing.OverlongLine():
                event = self._fail_overlong(self._answered_key(line.head))
            case framing.SkippedLine():
                event = self._on_skipped_line(line)
            case framing.EndlessLine():
                self.failure = self._overlong_error(f"a line without an end after {line.allowed_bytes} bytes")
        return [] if event is None else [event]

    def _on_skipped_line(self, line: framing.SkippedLine) -> Event:
        if not messages.is_answer(line.head):
            return self._exchange.ignore(
                line.head, f"{line.length_bytes} bytes that are not a JSON-RPC message, or too many for one"
            )
        key = self._answered_key(line.head, line.tail)
        failed = self._fail_overlong(key) if line.overlong else None
        return failed or self._exchange.unclaimed(key, is_result=messages.is_result(line.head))

    def _answered_key(self, head: bytes, tail: bytes = b"") -> str | None:
        """Return the key of the request that a message answers. None if it is not an answer, or if its two
        ends do not show the id."""
        key = messages.answered_id(head, tail)
        if key is None and self._only is not None and messages.is_answer(head):
            return str(self._only)  # the id is at the end, and can only be this one
        return key

    def _is_awaited(self, head: bytes) -> bool:
        """Return True if a message that begins with `head` may be needed: it may answer a request in flight,
        or it is not an answer."""
        if not self._exchange.may_begin(head.lstrip()):
            return False
        key = self._answered_key(head)
        if key is not None:
            return self._may_answer_request(key)
        return bool(self._exchange.in_flight) or not messages.is_answer(head)

    def _may_answer_request(self, key: str) -> bool:
        return self._exchange.awaits(key) and (self._only is None or key == str(self._only))

    def _may_become_answer(self, head: bytes) -> bool:
        """Return True if an unfinished message answers a request in flight, or is too short to show whether
        it does."""
        is_undecided = len(head) < UNDECIDED_BYTES and b'"method"' not in head
        return (is_undecided or messages.is_answer(head)) and self._is_awaited(head)

    def _fail_overlong(self, key: str | None) -> Faulted | None:
        if key is None or not self._may_answer_request(key):
            return None
        return self._exchange.fail(
            key, self._overlong_error(f"a longer answer to {self._exchange.method_of(key)}")
        )

    def _overlong_error(self, what: str) -> LimitError:
        allowed = self._limits.message_bytes
        return LimitError(
            f"expected a message of at most {allowed} bytes (limit message_bytes), got {what}; "
            f"ask for smaller pages, or raise the limit",
            limit="message_bytes",
            allowed=allowed,
            got=allowed + 1,
        )
