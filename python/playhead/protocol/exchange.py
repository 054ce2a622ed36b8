"""The requests in flight on a connection: received messages in, events out. No clock, socket or task.

    request, notify, answer, refuse, cancel → bytes to send
    receive(bytes) → Answered | Progressed | Asked | Notified | Faulted

An `Inbox` finds the messages in a stream, and adds `SignOfLife` to the events.

The id of an answer names its request. Ids compare by value: 1.0 is 1, and "7" answers 7 (counted as
`retyped`). An answer is a fault if its id is not in flight, or if it arrives on the POST of another request:
the exchange counts and drops it, if possible by its id alone, before it parses the answer.

An invalid message fails a request only if it shows that it is the answer to that request. Calls in an
impossible order raise `RuntimeError`, because they are bugs of this library.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from playhead._core import Frame
from playhead.errors import LimitError, PlayheadError, ProtocolError, UsageError
from playhead.limits import Limits
from playhead.protocol import messages
from playhead.protocol.faults import ProtocolFaults
from playhead.protocol.messages import RpcError
from playhead.protocol.revisions import Revision, ToolHeaders

_MAX_ENDED: Final = 4096
"""Limits the ended requests to remember. An answer to an older request counts as late."""
_SHOWN_BYTES: Final = 200
"""Limits the beginning of the first invalid message to save, for error messages."""
_ANSWERS: Final = ("result", "error")


Witness = Callable[[Literal["sent", "received"], bytes], None]
"""The exchange calls it with each message that it makes or receives, before it checks the message. It must
not block or raise."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is ready to be sent."""

    id: int | str
    """Numbers from 1; for a subscription a string, `listen-1`."""
    method: str
    params: Mapping[str, Any]
    """The parameters, with the stamps of the revision in `_meta`."""
    data: bytes
    """The message, one line of JSON without a newline."""
    reports: bool = False
    """True if it asks for progress reports."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request, which is no longer in flight: exactly one of `result` and `error`."""

    id: int | str
    result: dict[str, Any] | None
    error: RpcError | None
    request: Outgoing | None = field(default=None, repr=False, compare=False)
    """The request, which may be sent once more (`Exchange.repeat`)."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """A report of the progress of a request in flight that asked for reports."""

    id: int | str
    progress: float
    total: float | None
    message: str | None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """Bytes of an answer have arrived (`inbox` has the rule)."""

    id: int | str | None
    """The request; None if the stream does not tell which one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the server's. Answer it with `Exchange.answer` or `refuse`, or `forget` it."""

    id: int | str
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notified:
    """A notification of the server's."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Faulted:
    """An invalid or unexpected message, which was dropped."""

    reason: str
    id: int | str | None = None
    """The request that fails with `error` because of it, and is no longer in flight; None without one."""
    error: PlayheadError | RpcError | None = None
    """A `PlayheadError` if `id` is set. An `RpcError` for an error answer that names no request."""


Event = Answered | Progressed | SignOfLife | Asked | Notified | Faulted


class Exchange:
    """The requests in flight on one connection, in both directions."""

    def __init__(
        self,
        limits: Limits,
        capabilities: Mapping[str, Any] | None = None,
        *,
        witness: Witness | None = None,
    ) -> None:
        """`capabilities` are this client's. Some revisions send them with every request."""
        self._limits = limits
        self._witness = witness
        self.capabilities: Mapping[str, Any] = capabilities or {}
        self.tool_headers: ToolHeaders = {}
        """The arguments of tools that HTTP repeats in headers, by the last listing."""
        self._revision: Revision | None = None
        self._stamps: dict[str, Any] = {}
        self._in_flight: dict[str, Outgoing] = {}
        """The requests by their ids as strings: a server may echo 7 as "7"."""
        self._open_questions: dict[int | str, int] = {}
        """The number of unanswered requests of the server's by id. A server may use one id for several."""
        self._ended: dict[str, bool] = {}
        """The newest ended requests by key: True if answered, False if cancelled."""
        self._last_id = 0
        self._faults = Counter[str]()
        self._first_invalid: str | None = None
        """The beginning of the first invalid message, with the reason."""

    @property
    def revision(self) -> Revision:
        """The revision in force. The handshake sets the proposed one, then the agreed one."""
        if self._revision is None:
            raise RuntimeError("expected a revision to be set before the first request")
        return self._revision

    @revision.setter
    def revision(self, revision: Revision) -> None:
        self._revision = revision
        self._stamps = revision.stamps(self.capabilities)

    @property
    def _has_batches(self) -> bool:
        return self._revision is not None and self._revision.has_batches

    @property
    def in_flight(self) -> Collection[str]:
        """The keys of the requests in flight: their ids as strings."""
        return self._in_flight.keys()

    def awaits(self, key: str) -> bool:
        """Return True if the request with this key is in flight."""
        return key in self._in_flight

    def may_begin(self, head: bytes) -> bool:
        """Return True if a message of this revision may begin with `head`, which has no leading blanks."""
        return head.startswith(b"{") or (self._has_batches and head.startswith(b"["))

    def headers(self, outgoing: Outgoing | None) -> list[tuple[bytes, bytes]]:
        """Return the HTTP headers of `outgoing`; None for a notification, an answer, GET and DELETE."""
        if outgoing is None:
            return self.revision.headers(None, {}, {})
        return self.revision.headers(outgoing.method, outgoing.params, self.tool_headers)

    # --- out -----------------------------------------------------------------------------------------

    def request(
        self, method: str, params: Mapping[str, Any], *, reports: bool = False, id: str | None = None
    ) -> Outgoing:
        """Begin a request.

        Args:
            reports: ask for progress reports. The id is the progress token.
            id: a string to use as the id, in place of the next number.

        Raises `UsageError` if it cannot be written as JSON. It is not in flight then.
        """
        if self._revision is None:
            raise RuntimeError("expected a revision to be set before the first request")
        chosen: int | str = self._last_id + 1 if id is None else id
        key = str(chosen)
        if key in self._in_flight:
            raise RuntimeError(f"expected an id that is not in flight, got {chosen!r}")
        sent = dict(params)
        if self._stamps or reports:
            meta = sent.get("_meta") or {}
            if not isinstance(meta, Mapping):
                raise UsageError(f"{method}: expected `_meta` to be an object, got {type(meta).__name__}")
            sent["_meta"] = {**self._stamps, **meta}
            if reports:
                sent["_meta"]["progressToken"] = chosen
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": chosen, "method": method}
        if sent:  # `params: null` is not JSON-RPC, and some servers refuse an empty object
            message["params"] = sent
        outgoing = Outgoing(chosen, method, sent, self._encoded(message), reports)
        if id is None:
            self._last_id += 1
        self._in_flight[key] = outgoing
        return outgoing

    def repeat(self, outgoing: Outgoing) -> None:
        """Put a request in flight again. The server has refused it unread, and it is sent once more."""
        key = str(outgoing.id)
        if key in self._in_flight:
            raise RuntimeError(f"expected request {outgoing.id!r} to be answered, but it is in flight")
        self._ended.pop(key, None)
        self._in_flight[key] = outgoing
        if self._witness is not None:
            self._witness("sent", outgoing.data)

    def cancel(self, id: int | str) -> bytes | None:
        """End a request whose answer is no longer awaited.

        Returns the notification to send; None if the request was not in flight, or may not be cancelled.
        """
        request = self._end_request(str(id), answered=False)
        if request is None or request.method in self.revision.never_cancelled:
            return None
        return self.notify("notifications/cancelled", {"requestId": request.id, "reason": "cancelled"})

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> bytes:
        """Return a notification. Raises `UsageError` if it cannot be written as JSON."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        return self._encoded(message)

    def answer(self, id: int | str, result: Mapping[str, Any]) -> bytes:
        """Answer a request of the server's. Raises `UsageError` if it cannot be written as JSON; then the
        request still waits."""
        data = self._encoded({"jsonrpc": "2.0", "id": id, "result": result})
        self.forget(id)
        return data

    def refuse(self, id: int | str, code: int, message: str) -> bytes:
        """Answer a request of the server's with an error."""
        self.forget(id)
        return self._encoded({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    def forget(self, id: int | str) -> None:
        """Drop a request of the server's without an answer, because the server has cancelled it."""
        waiting = self._open_questions.get(id, 0)
        if not waiting:
            raise RuntimeError(f"expected a request of the server's that waits for an answer, got id {id!r}")
        if waiting == 1:
            del self._open_questions[id]
        else:
            self._open_questions[id] = waiting - 1

    def _encoded(self, message: dict[str, Any]) -> bytes:
        data = messages.encode(message)
        if self._witness is not None:
            self._witness("sent", data)
        return data

    # --- in ------------------------------------------------------------------------------------------

    def receive(self, data: bytes, *, only: int | str | None = None) -> list[Event]:
        """Take one message. A batch, in a revision that has them, gives several events.

        Args:
            only: the id of the request on whose POST the message arrived. It may answer no other request, and
                an error without an id answers this one.
        """
        if self._witness is not None:
            self._witness("received", data)
        frame = Frame(data)
        if frame.kind in _ANSWERS and frame.id is not None and str(frame.id) not in self._in_flight:
            return [self.unclaimed(str(frame.id), is_result=frame.kind == "result")]
        try:
            value = messages.decode(data, self._limits, frame)
            if not isinstance(value, list) or not value or not self._has_batches:
                return [self._on_message(value, only)]
        except (ProtocolError, LimitError) as error:
            return [self._on_invalid(data, error, only)]
        events: list[Event] = []
        for each in value:
            try:
                events.append(self._on_message(each, only))
            except ProtocolError as error:
                events.append(self.ignore(data, str(error)))
        return events

    def _on_message(self, value: Any, only: int | str | None) -> Event:
        if not isinstance(value, dict):
            raise ProtocolError(
                f"expected a JSON-RPC message (an object), got JSON of type {type(value).__name__}"
            )
        if value.get("jsonrpc") != "2.0":
            raise ProtocolError(
                f'expected a JSON-RPC 2.0 message, got {value.get("jsonrpc")!r:.40} for its member "jsonrpc"'
            )
        if "method" in value:
            return self._on_request_or_notification(value)
        if "result" not in value and "error" not in value:
            raise ProtocolError(
                'expected a JSON-RPC message, got an object without "method", "result" or "error"'
            )
        return self._on_answer(value, only)

    def _on_answer(self, value: dict[str, Any], only: int | str | None) -> Event:
        result, error = value.get("result"), None
        if not isinstance(result, dict):
            if "error" not in value:
                raise ProtocolError(
                    f"expected a JSON-RPC answer; at 'result': expected an object, got {_type_name(result)}"
                )
            result, error = None, _error_of(value["error"])
        id = value.get("id")
        if type(id) is not int:
            id = _id_of(id)
        if id is None:
            # JSON-RPC 2.0, section 5: null if the server could not read the id; some leave it out.
            if error is None or only is None:
                return Faulted("an answer without an id", error=error)
            id = only
        key = str(id)
        if key not in self._in_flight or (only is not None and key != str(only)):
            return self.unclaimed(key, is_result=error is None)
        request = self._end_request(key, answered=True)
        assert request is not None
        if type(id) is not type(request.id):
            self.count("retyped")
        return Answered(request.id, result, error, request)

    def _on_request_or_notification(self, value: dict[str, Any]) -> Event:
        method, params = value["method"], value.get("params")
        if params is None:
            params = {}
        if not isinstance(method, str) or not isinstance(params, dict):
            raise ProtocolError(
                "expected a method and an object of parameters in a request or notification, got"
                f" {_type_name(method)} and {_type_name(params)}"
            )
        if "id" in value:
            id = _id_of(value["id"])
            if id is None:
                raise ProtocolError(
                    f"expected a number or a string as the id of a request, got {_type_name(value['id'])}"
                )
            self._open_questions[id] = self._open_questions.get(id, 0) + 1
            return Asked(id, method, params)
        if method == "notifications/progress":
            return self._on_progress(params) or Notified(method, params)
        return Notified(method, params)

    def _on_progress(self, params: dict[str, Any]) -> Progressed | None:
        """Return the report; None unless it is valid, and for a request in flight that asked for reports."""
        token = _id_of(params.get("progressToken"))
        request = None if token is None else self._in_flight.get(str(token))
        progress = _number(params.get("progress"))
        if request is None or not request.reports or progress is None:
            return None
        text, meta = params.get("message"), params.get("_meta")
        return Progressed(
            request.id,
            progress,
            _number(params.get("total")),
            text if isinstance(text, str) else None,
            meta if isinstance(meta, dict) else {},
        )

    # --- faults --------------------------------------------------------------------------------------

    def ignore(self, data: bytes, reason: str) -> Faulted:
        """Count bytes that are not a message."""
        self.count("not_messages")
        if self._first_invalid is None:
            begin = bytes(data[:_SHOWN_BYTES]).decode("utf-8", "replace")
            self._first_invalid = f"{begin!r} ({reason})"
        return Faulted(reason)

    def fail(self, key: str, error: PlayheadError) -> Faulted | None:
        """End a request in flight whose answer cannot be used; None if it is not in flight."""
        request = self._end_request(key, answered=True)
        return None if request is None else Faulted(str(error), request.id, error)

    def method_of(self, key: str) -> str | None:
        """Return the method of a request in flight."""
        request = self._in_flight.get(key)
        return None if request is None else request.method

    def attribute(self, key: str, error: RpcError) -> Answered:
        """End the request `key` with `error`, which has no id but can only be about this request."""
        request = self._end_request(key, answered=True)
        if request is None:
            raise RuntimeError(f"expected a request in flight, got {key!r}")
        self.count("nameless_errors")
        return Answered(request.id, None, error, request)

    def unclaimed(self, key: str | None, *, is_result: bool) -> Faulted:
        """Count an answer that nobody awaits; `key` is None if its id is unknown."""
        if key is None:
            return Faulted("an answer that nobody awaits")
        if self._ended.get(key):
            self.count("repeated")
            return Faulted("a second answer")
        if key in self._ended or self._was_forgotten(key):
            self.count("late")
            if is_result:
                self.count("late_results")
            return Faulted("an answer to a request that was given up")
        self.count("unasked")
        return Faulted("an answer to another request, or to none")

    def _was_forgotten(self, key: str) -> bool:
        """Return True if the key is the number of a request that ended too long ago to be remembered."""
        if key in self._in_flight or not key.isdecimal():
            return False
        # A peer's id may have more digits than `int` reads.
        return len(key) <= len(str(self._last_id)) and 0 < int(key) <= self._last_id

    def count(self, fault: str) -> None:
        """Count a fault of the server's, a field of `ProtocolFaults`."""
        self._faults[fault] += 1

    def faults(self) -> ProtocolFaults:
        """Protocol faults received so far."""
        return ProtocolFaults(first=self._first_invalid, **self._faults)

    def _on_invalid(self, data: bytes, error: ProtocolError | LimitError, only: int | str | None) -> Faulted:
        ignored = self.ignore(data, str(error))
        key = messages.broken_answer_id(data)
        if key is None or (only is not None and key != str(only)):
            return ignored
        return self.fail(key, error) or ignored

    def _end_request(self, key: str, *, answered: bool) -> Outgoing | None:
        request = self._in_flight.pop(key, None)
        if request is not None:
            self._ended[key] = answered
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        return request


def _id_of(value: object) -> int | str | None:
    """Return a valid id, else None. JSON has one kind of number, so 1.0 is the id 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    return None


def _error_of(value: object) -> RpcError:
    if isinstance(value, dict):
        code, message = _id_of(value.get("code")), value.get("message")
        if isinstance(code, int) and isinstance(message, str):
            return RpcError(code, message, value.get("data"))
    raise ProtocolError(f"expected an error with a numeric code and a message, got {_type_name(value)}")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return float(value)


def _type_name(value: object) -> str:
    return {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
