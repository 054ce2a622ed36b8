"""Turn the bytes of a stream of messages into events, whatever ends a message: a newline or a frame.

A line that is not a message is counted and dropped, except for the beginning of the first. A long line that
nobody awaits is skipped while it arrives. No clock and no stream: chunks go in with `feed`, events come out
of `next_event` until it returns None ("not yet").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from playhead.errors import LimitError, PlayheadError
from playhead.limits import Limits
from playhead.protocol import framing, messages
from playhead.protocol.exchange import Answered, Event, Exchange, Faulted, Progressed


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxStatistics:
    """Counts of what was received."""

    received_bytes: int
    lines: int
    messages: int


class Leniency(Protocol):
    """The deviations that a transport tolerates (`websocket_compatibility.Compatibility`)."""

    def judge(self, event: Answered | Faulted) -> Iterable[Event]:
        """The events that take the place of an answer or a fault: it, none if its request is sent again
        (`Exchange.repeat`), or it and others (`Exchange.attribute`)."""
        ...


class Inbox:
    """Turns received bytes into the events of one `Exchange`.

    `failure` is set when the peer has done something that ends the connection; no event follows. `is_active`
    is True if the last chunk may belong to the answer to a request in flight, or to its progress: log lines,
    foreign answers and plain notifications do not count, so that chatter cannot keep a request alive.
    """

    def __init__(
        self,
        exchange: Exchange,
        limits: Limits,
        framer: framing.Framer | None = None,
        leniency: Leniency | None = None,
    ) -> None:
        """`framer` finds the end of each message; the default is a newline."""
        self._exchange = exchange
        self._limits = limits
        self._framer = framer or framing.LineFramer(max_bytes=limits.message_bytes)
        self._leniency = leniency
        self._ready = deque[Event]()
        """The rest of the events of the last message."""
        self.failure: PlayheadError | None = None
        self.is_active = False
        self._received_bytes = 0
        self._lines = 0
        self._messages = 0

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take received bytes. Drain `next_event` after each call."""
        self._received_bytes += len(chunk)
        self.is_active = False
        self._framer.feed(chunk)

    def next_event(self) -> Event | None:
        """The next event, or None if more bytes are needed or `failure` is set."""
        while not self._ready:
            if self.failure is not None:
                return None
            frame = self._framer.next_event()
            if frame is None:
                # One awaited answer is arriving, unless the unfinished line begins as something else.
                self.is_active = self.is_active or self._is_awaited(self._framer.head)
                return None
            if isinstance(frame, framing.Line):
                self._lines += 1
                line = frame.data
                events = self._exchange.receive(line) if line.startswith(b"{") else self._on_odd_line(line)
                if self._leniency is not None:
                    events = [judged for event in events for judged in self._judged(event)]
                self._ready.extend(events)
            else:
                self._ready.extend(self._on_long(frame))
        event = self._ready.popleft()
        self._messages += not isinstance(event, Faulted)
        self.is_active = self.is_active or isinstance(event, Answered | Progressed)
        return event

    def statistics(self) -> InboxStatistics:
        """A snapshot."""
        return InboxStatistics(
            received_bytes=self._received_bytes, lines=self._lines, messages=self._messages
        )

    def _on_odd_line(self, line: bytes) -> list[Event]:
        """A line that does not begin as an object: blanks lead it, or it is a batch, or a log line."""
        line = line.lstrip()
        if not line:
            return []
        if not self._exchange.may_begin(line):  # recognized before anything more expensive is tried
            return [self._exchange.ignore(line, "it does not begin as a JSON object")]
        return self._exchange.receive(line)

    def _on_long(self, frame: framing.FrameEvent) -> Iterable[Event]:
        match frame:
            case framing.LongLine():
                if not (frame.head.isspace() or self._is_awaited(frame.head)):
                    self._framer.skip_line()
            case framing.OverlongLine():
                return self._judged(self._overlong_answer(messages.answered_id(frame.head)))
            case framing.SkippedLine():
                self._lines += 1
                return self._judged(self._on_skipped(frame))
            case framing.EndlessLine():
                self.failure = self._overlong(f"a line without an end after {frame.allowed_bytes} bytes")
        return ()

    def _judged(self, event: Event | None) -> Iterable[Event]:
        if event is None:
            return ()
        if self._leniency is None or not isinstance(event, Answered | Faulted):
            return (event,)
        return self._leniency.judge(event)

    def _on_skipped(self, frame: framing.SkippedLine) -> Event | None:
        if not messages.is_answer(frame.head):
            return self._exchange.ignore(
                frame.head, f"{frame.length_bytes} bytes that are not a JSON-RPC message, or too many for one"
            )
        key = messages.answered_id(frame.head, frame.tail)
        failed = self._overlong_answer(key) if frame.overlong else None
        return failed or self._exchange.unclaimed(key, is_result=messages.is_result(frame.head))

    def _is_awaited(self, head: bytes) -> bool:
        """True if a line that begins with `head` may be the answer to a request in flight."""
        if not self._exchange.may_begin(head.lstrip()):
            return False
        key = messages.answered_id(head)
        if key is not None:
            return self._exchange.awaits(key)
        return bool(self._exchange.in_flight) or not messages.is_answer(head)

    def _overlong_answer(self, key: str | None) -> Faulted | None:
        method = None if key is None else self._exchange.method_of(key)
        if key is None or method is None:
            return None
        return self._exchange.fail(key, self._overlong(f"a longer answer to {method}"))

    def _overlong(self, what: str) -> LimitError:
        allowed = self._limits.message_bytes
        return LimitError(
            f"expected a message of at most {allowed} bytes (limit message_bytes), got {what}; "
            f"ask for smaller pages, or raise the limit",
            limit="message_bytes",
            allowed=allowed,
            got=allowed + 1,
        )
