"""Questions that a server has for the user in the middle of a call: elicitation, in both protocol eras.

MCP 2025-11-25, "Elicitation". Revisions with a handshake send `elicitation/create` as a request of their own.
Since 2026-07-28 the call is answered with `input_required` and is sent again with the answers (rounds.py).
Either way the question goes to the one function that the program gave, one question at a time: a person reads
one form, however many calls are under way. It runs in a task of the session, not of the SDK, so that what it
raises is not swallowed and sent to the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import trio
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from playhead.errors import UsageError

Value = str | int | float | bool | list[str]
"""What a field of a form can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a server wants to know. All of it is the server's own text: show it as such, and escaped."""

    server: str
    """Who asks, in messages."""
    message: str
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The form: field name → its JSON schema (text, number, boolean, choice). Empty where `url` is given."""
    required: frozenset[str] = frozenset()
    url: str | None = None
    """A page on which the user is to answer instead, out of this program's sight. Show it whole, and open it
    only when the user has agreed: it may ask for secrets, and the server chose it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the user did. `content` belongs to `accept`; a field left out gets its default, if it has one."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Value] = field(default_factory=dict)


OnElicitation = Callable[[Question], Awaitable[Reply]]

NO: Final = Reply(action="cancel")


@dataclass(slots=True, eq=False)
class _Slot:
    """Where the task that asks leaves the reply for the task that waits."""

    question: Question
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    reply: Reply = NO


class Asker:
    """Puts a session's questions to `on_elicitation`. It is the SDK's callback for them, too."""

    def __init__(self, on_elicitation: OnElicitation, *, nursery: trio.Nursery, server: str) -> None:
        self._on_elicitation = on_elicitation
        self._nursery = nursery
        self._server = server
        self._turn = trio.Lock()
        self._open = 0
        self._last = 0.0

    @property
    def last_asked(self) -> float:
        """Until when a question was open, on trio's clock (0.0: there was none): a person who thinks is no
        server that is silent."""
        return trio.current_time() if self._open else self._last

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return await self.ask(params)

    async def ask(self, params: ElicitRequestParams) -> ElicitResult:
        """The user's answer. Cancelling it cancels the asking. What `on_elicitation` raises, and `UsageError`
        for a reply without a field that is required, leaves the session's block and not this."""
        slot = _Slot(question_of(params, server=self._server))
        self._open += 1
        try:
            async with self._turn:
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
    """The question in `params`. Fields whose schema is no object are left out."""
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
    """`reply` with the defaults of the fields it leaves out (SEP-1034), where they can be a field's value.

    Raises `UsageError` where a required field is then still missing.
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
            f"on_elicitation accepted a question of {question.server} without {', '.join(missing)};"
            " expected a value for each required field, or the action 'decline'"
        )
    return Reply(action="accept", content=content)


def is_value(value: object) -> bool:
    """Whether `value` can be a field's."""
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, str | int | float | bool)
