"""Elicitation: a server's questions to the user in the middle of a call, in every protocol revision.

MCP 2025-11-25, "Elicitation". Revisions with a handshake send `elicitation/create` as a separate request.
Since 2026-07-28 the call is answered with `input_required` and sent again with the answers (tool_calls.py).
Either way the program's one function gets one question at a time: a person reads one form, however many calls
are in flight. It runs in a task of the session, not of the SDK, which would swallow its exceptions and send
them to the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import trio
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from playhead.errors import UsageError

FieldValue = str | int | float | bool | list[str]
"""The values that a form field can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A server's question. All of it is the server's own text: show it as such, and escaped."""

    server: str
    """The server's name in messages."""
    message: str
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The form: field name → its JSON schema (string, number, boolean, choice). Empty with a `url`."""
    required: frozenset[str] = frozenset()
    url: str | None = None
    """A page on which the user answers instead, out of this program's sight. Show it in full, and open it
    only after the user has agreed: it may ask for secrets, and the server chose it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The user's reply. `content` belongs to `accept`; fields left out get their defaults, if any."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, FieldValue] = field(default_factory=dict)


OnElicitation = Callable[[Question], Awaitable[Reply]]

NO: Final = Reply(action="cancel")


@dataclass(slots=True, eq=False)
class _Slot:
    """Passes the reply from the task that asks to the task that waits."""

    question: Question
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    reply: Reply = NO


class Elicitor:
    """Passes a session's questions to `on_elicitation`. It is also the SDK's callback for them."""

    def __init__(self, on_elicitation: OnElicitation, *, nursery: trio.Nursery, server: str) -> None:
        self._on_elicitation = on_elicitation
        self._nursery = nursery
        self._server = server
        self._lock = trio.Lock()
        self._open = 0
        self._last = 0.0

    @property
    def last_asked(self) -> float:
        """The last time that a question was open, on trio's clock; 0.0 if never. While a person thinks, the
        server is not considered silent."""
        return trio.current_time() if self._open else self._last

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return await self.ask(params)

    async def ask(self, params: ElicitRequestParams) -> ElicitResult:
        """Ask the user. Cancelling this cancels the question. Exceptions of `on_elicitation`, and the
        `UsageError` for a missing required field, are raised from the session's context, not here."""
        slot = _Slot(question_of(params, server=self._server))
        self._open += 1
        try:
            async with self._lock:
                self._nursery.start_soon(self._put, slot)
                await slot.over.wait()
        finally:
            slot.scope.cancel()
            self._open -= 1
            self._last = trio.current_time()
        if slot.reply.action != "accept" or slot.question.url is not None:
            return ElicitResult(action=slot.reply.action)
        return ElicitResult(action="accept", content={**slot.reply.content})

    async def _put(self, slot: _Slot) -> None:
        try:
            with slot.scope:
                reply = await self._on_elicitation(slot.question)
                slot.reply = with_defaults(reply, slot.question)
        finally:
            slot.over.set()


def question_of(params: ElicitRequestParams, *, server: str) -> Question:
    """The question in `params`. Fields without an object as their schema are left out."""
    if not isinstance(params, ElicitRequestFormParams):
        return Question(server=server, message=params.message, url=params.url)
    schema: Mapping[str, Any] = params.requested_schema
    properties, required = schema.get("properties"), schema.get("required")
    fields = properties if isinstance(properties, dict) else {}
    return Question(
        server=server,
        message=params.message,
        fields={name: shape for name, shape in fields.items() if isinstance(shape, dict)},
        required=frozenset(name for name in required if isinstance(name, str))
        if isinstance(required, list)
        else frozenset(),
    )


def with_defaults(reply: Reply, question: Question) -> Reply:
    """`reply` with the defaults of the fields it leaves out (SEP-1034), if these are valid values.

    Raises `UsageError` if a required field is still missing.
    """
    if reply.action != "accept" or question.url is not None:
        return reply
    defaults = {
        name: shape["default"] for name, shape in question.fields.items() if is_value(shape.get("default"))
    }
    content = {**defaults, **reply.content}
    missing = sorted(question.required - content.keys())
    if missing:
        raise UsageError(
            f"on_elicitation accepted a question from {question.server} without {', '.join(missing)};"
            " expected a value for each required field, or the action 'decline'"
        )
    return Reply(action="accept", content=content)


def is_value(value: object) -> bool:
    """True if `value` can be the value of a field."""
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, str | int | float | bool)
