"""Decide which received messages reach the session: the filter between a transport's framing and the SDK.

The rules are the same whether a newline ends a message (stdio) or a frame does (WebSocket). One bad line
costs at most the request that it was meant to answer. An unclaimed answer (late, repeated, foreign) is
dropped by its id, before it is parsed. A line that is not a message is counted and dropped, except for the
beginning of the first. No clock and no stream: chunks go in with `feed`, messages come out of `next_message`
until it returns None ("not yet").
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass
from typing import Protocol

import mcp_types as types

from playhead._core import Frame
from playhead.errors import LimitError, PlayheadError, ProtocolError
from playhead.limits import Limits
from playhead.protocol import framing
from playhead.protocol import sdk_messages as messages
from playhead.protocol.faults import PastRequests, ProtocolFaults

_SHOWN_BYTES = 200
"""Saved of the first ignored line, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxStatistics:
    """Counts of what was received. `unclaimed` answers are not among `ignored_lines`."""

    received_bytes: int
    lines: int
    messages: int
    ignored_lines: int
    unclaimed: int
    first_ignored: str | None
    """The beginning of the first ignored line (at most 200 bytes), and why it was ignored."""


class Leniency(Protocol):
    """The deviations that a transport tolerates (`websocket_wire.Compatibility`)."""

    def answered(
        self, request: types.JSONRPCRequest, answer: types.JSONRPCResponse | types.JSONRPCError
    ) -> types.JSONRPCMessage | None:
        """The answer for the session; None if `request` is sent again and stays awaited."""
        ...

    def nameless(self, error: types.ErrorData, awaited: Collection[str]) -> None:
        """An error arrived that does not name the one of the `awaited` that it is about."""
        ...

    def left(self, key: str) -> None:
        """A request is no longer awaited, and the server has not answered it."""
        ...

    def next_named(self) -> tuple[str, types.ErrorData] | None:
        """An error without an id that can only belong to this request."""
        ...


class Inbox:
    """Turns received bytes into messages for one session, and remembers the requests it awaits.

    The long blobs in answers to `views_for` are views of their messages; see `messages.parse_message`.

    `failure` is set when the peer has done something that ends the connection; no message follows.
    `is_active` is True if the last chunk may belong to something awaited: log lines, foreign answers and
    plain notifications do not count, so that chatter cannot keep a request alive for ever.
    """

    def __init__(
        self, limits: Limits, framer: framing.Framer | None = None, leniency: Leniency | None = None
    ) -> None:
        """`framer` finds the end of each message; the default is a newline."""
        self._leniency = leniency
        self._limits = limits
        self._framer = framer or framing.LineFramer(max_bytes=limits.message_bytes)
        self._awaited: dict[str, types.JSONRPCRequest] = {}
        self._past = PastRequests()
        self.views_for: Container[str] = frozenset()
        """Keys of the requests whose senders take views; the SDK's session takes strings only."""
        self.failure: PlayheadError | None = None
        self.is_active = False
        self._received_bytes = 0
        self._lines = 0
        self._messages = 0
        self._ignored_lines = 0
        self._unclaimed = 0
        self._first_ignored: str | None = None

    @property
    def awaited_count(self) -> int:
        """The number of requests without an answer."""
        return len(self._awaited)

    def sending(self, message: types.JSONRPCMessage) -> None:
        """Register a request or its cancellation before it is sent: its answer must not come first."""
        match message:
            case types.JSONRPCRequest():
                key = messages.key_of(message.id)
                self._awaited[key] = message
                self._past.sent(key)
            case types.JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": int() | str() as cancelled}
            ):
                self._leave(messages.key_of(cancelled), answered=False)
            case _:
                pass

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take received bytes. Drain `next_message` after each call."""
        self._received_bytes += len(chunk)
        self.is_active = False
        self._framer.feed(chunk)

    def next_message(self) -> types.JSONRPCMessage | None:
        """The next message for the session, or None if more bytes are needed or `failure` is set."""
        while self.failure is None:
            if (named := self._next_named()) is not None:
                self._messages += 1
                return named
            event = self._framer.next_event()
            if event is None:
                self.is_active = self.is_active or self._partial_counts()
                return None
            message = self._on_event(event)
            if message is not None:
                self._messages += 1
                return message
        return None

    def fail_awaited(self, error_for: PlayheadError) -> Iterator[types.JSONRPCError]:
        """Answer every awaited request with an error; none is awaited afterwards."""
        awaited, self._awaited = self._awaited, {}
        for request in awaited.values():
            yield messages.error_answer(request.id, error_for)

    def fail(self, request: types.JSONRPCRequest, error: PlayheadError) -> types.JSONRPCError | None:
        """Answer one request with an error, if it is still awaited."""
        if self._leave(messages.key_of(request.id), answered=True) is None:
            return None
        return messages.error_answer(request.id, error)

    def statistics(self) -> InboxStatistics:
        """A snapshot."""
        return InboxStatistics(
            received_bytes=self._received_bytes,
            lines=self._lines,
            messages=self._messages,
            ignored_lines=self._ignored_lines,
            unclaimed=self._unclaimed,
            first_ignored=self._first_ignored,
        )

    def faults(self) -> ProtocolFaults:
        """Protocol faults received so far."""
        seen = ProtocolFaults(not_messages=self._ignored_lines, first=self._first_ignored)
        return seen + self._past.faults()

    # --- events of the framer ------------------------------------------------------------------------

    def _on_event(self, event: framing.FrameEvent) -> types.JSONRPCMessage | None:
        match event:
            case framing.Line():
                self._lines += 1
                return self._on_line(event.data)
            case framing.LongLine():
                if self._is_unwanted(event.head):
                    self._framer.skip_line()
                return None
            case framing.OverlongLine():
                return self._fail_overlong(messages.answered_id(event.head))
            case framing.SkippedLine():
                self._lines += 1
                if messages.is_answer(event.head):
                    answer = None
                    key = messages.answered_id(event.head, event.tail)
                    if event.overlong:
                        answer = self._fail_overlong(key)
                    if answer is None:
                        self._drop(key, is_result=messages.is_result(event.head))
                    return answer
                self._ignore(
                    event.head,
                    f"{event.length_bytes} bytes that are not a JSON-RPC message, or too many for one",
                )
                return None
            case framing.EndlessLine():
                self.failure = self._overlong(f"a line without an end after {event.allowed_bytes} bytes")
                return None

    def _on_line(self, line: bytes) -> types.JSONRPCMessage | None:
        line = line.lstrip()  # the same object, unless blanks lead it
        begin = line[:_SHOWN_BYTES]
        if not begin.startswith(b"{"):  # a log line, recognized before anything more expensive is tried
            if begin:
                self._ignore(line, "it does not begin as a JSON object")
            return None
        frame = Frame(line)
        key = messages.answered_plainly(frame)
        if key is not None and key not in self._awaited:
            self._drop(key, is_result=frame.kind == "result")
            return None
        try:
            views = key is not None and key in self.views_for
            message = messages.parse_message(line, self._limits, views=views, frame=frame)
        except (ProtocolError, LimitError) as error:
            return self._fail_broken(line, error)
        return self._on_message(message)

    def _on_message(self, message: types.JSONRPCMessage) -> types.JSONRPCMessage | None:
        match message:
            case types.JSONRPCResponse() | types.JSONRPCError():
                return self._on_answer(message)
            case types.JSONRPCNotification():
                self.is_active = self.is_active or message.method == "notifications/progress"
        return message

    def _on_answer(self, answer: types.JSONRPCResponse | types.JSONRPCError) -> types.JSONRPCMessage | None:
        if answer.id is None:
            self._drop(None, is_result=False)
            if self._leniency is not None and isinstance(answer, types.JSONRPCError):
                self._leniency.nameless(answer.error, self._awaited)
            return None
        key = messages.key_of(answer.id)
        request = self._awaited.pop(key, None)
        if request is None:
            self._drop(key, is_result=isinstance(answer, types.JSONRPCResponse))
            return None
        self.is_active = True
        judged = answer if self._leniency is None else self._leniency.answered(request, answer)
        if judged is None:
            self._awaited[key] = request
        else:
            self._past.over(key, answered=True)
        return judged

    def _next_named(self) -> types.JSONRPCMessage | None:
        named = self._leniency.next_named() if self._leniency is not None else None
        if named is None:
            return None
        key, error = named
        request = self._awaited.pop(key)
        self._past.over(key, answered=True)
        return types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)

    def _leave(self, key: str, *, answered: bool) -> types.JSONRPCRequest | None:
        request = self._awaited.pop(key, None)
        if request is not None:
            self._past.over(key, answered=answered)
            if self._leniency is not None:
                self._leniency.left(key)
        return request

    def _drop(self, key: str | None, *, is_result: bool) -> None:
        self._unclaimed += 1
        self._past.unclaimed(key, is_result=is_result)

    # --- what is wrong -------------------------------------------------------------------------------

    def _is_unwanted(self, head: bytes) -> bool:
        """True if a long line that begins with `head` can be skipped."""
        if not head.isspace() and not head.lstrip().startswith(b"{"):
            return True
        key = messages.answered_id(head)
        if key is not None:
            return key not in self._awaited
        return not self._awaited and messages.is_answer(head)

    def _partial_counts(self) -> bool:
        head = self._framer.head
        return head.lstrip().startswith(b"{") and not self._is_unwanted(head)

    def _fail_broken(self, line: bytes, error: PlayheadError) -> types.JSONRPCMessage | None:
        self._ignore(line, str(error))
        key = messages.broken_answer_id(line)
        request = self._awaited.get(key) if key is not None else None
        return None if request is None else self.fail(request, error)

    def _fail_overlong(self, key: str | None) -> types.JSONRPCMessage | None:
        request = self._awaited.get(key) if key is not None else None
        if request is None:
            return None
        return self.fail(request, self._overlong(f"a longer answer to {request.method}"))

    def _overlong(self, what: str) -> LimitError:
        allowed = self._limits.message_bytes
        return LimitError(
            f"expected a message of at most {allowed} bytes (limit message_bytes), got {what}; "
            f"ask for smaller pages, or raise the limit",
            limit="message_bytes",
            allowed=allowed,
            got=allowed + 1,
        )

    def _ignore(self, line: bytes, why: str) -> None:
        self._ignored_lines += 1
        if self._first_ignored is None:
            begin = line[:_SHOWN_BYTES].decode("utf-8", "replace")
            self._first_ignored = f"{begin!r} ({why})"
