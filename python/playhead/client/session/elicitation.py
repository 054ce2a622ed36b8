"""Elicitation: a server's questions to the user in the middle of a request, in every protocol revision.

MCP 2025-11-25, "Elicitation". In revisions with a handshake the server sends `elicitation/create` as a
request of its own. Since 2026-07-28 it answers the client's request with `input_required`, and the client
sends that request again with the user's answers ("Multi round-trip requests", SEP-2322) and the server's
state, unread.

Either way the program's function `on_elicitation` gets one question at a time, however many calls are in
flight, because a person reads one form at a time. It runs in a task of the session, so that its exceptions
are raised in the program and not sent to the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import trio

from playhead.errors import LimitError, ProtocolError, UsageError
from playhead.limits import Limits
from playhead.protocol.messages import INVALID_PARAMS

METHOD: Final = "elicitation/create"
WITH_INPUT: Final = frozenset(["tools/call", "prompts/get", "resources/read"])
"""The requests that a server may answer with `input_required`."""
PAUSE_SECONDS: Final = 0.25
"""The wait before a request is sent again if the server asked no question and only returned a state."""

FieldValue = str | int | float | bool | list[str]
"""The values that a form field can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A server's question. All of it is the server's text, so show it as such, and escaped."""

    server: str
    """The server's name in messages."""
    message: str
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The form: the JSON schema (string, number, boolean, choice) of each field by name. Empty with a
    `url`."""
    required: frozenset[str] = frozenset()
    url: str | None = None
    """A web page on which the user answers instead, unseen by this program. Show the URL in full, and open it
    only after the user has agreed, because the server chose it and it may ask for secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The user's reply. `content` is used with `accept` only; missing fields get their defaults, if any."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, FieldValue] = field(default_factory=dict)


OnElicitation = Callable[[Question], Awaitable[Reply]]

NO: Final = Reply(action="cancel")


@dataclass(slots=True, eq=False)
class _OpenQuestion:
    """A question, and the reply that the session's task passes to the task that waits for it."""

    question: Question
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    reply: Reply = NO


class OpenTime:
    """The time in which a server waits for a person, and does not count as silent: a reentrant context."""

    def __init__(self) -> None:
        self._open = 0
        self._last = 0.0

    def __enter__(self) -> None:
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1
        self._last = trio.current_time()

    @property
    def last(self) -> float:
        """The last time at which a question was open, on trio's clock; 0.0 if never."""
        return trio.current_time() if self._open else self._last


class Elicitor:
    """Passes a session's questions to `on_elicitation`."""

    def __init__(self, on_elicitation: OnElicitation, *, nursery: trio.Nursery, server: str) -> None:
        self._on_elicitation = on_elicitation
        self._nursery = nursery
        self._server = server
        self._lock = trio.Lock()
        self._open = OpenTime()

    @property
    def last_asked(self) -> float:
        """See `OpenTime.last`."""
        return self._open.last

    async def ask(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the user, and return the result of `elicitation/create`.

        Raises `ProtocolError` for invalid `params`. Cancelling this cancels the question. Exceptions of
        `on_elicitation`, and the `UsageError` for a missing required field, are raised from the session's
        context, not here.
        """
        asked = _OpenQuestion(question_of(params, server=self._server))
        try:
            with self._open:
                async with self._lock:
                    self._nursery.start_soon(self._call_program, asked)
                    await asked.over.wait()
        finally:
            asked.scope.cancel()
        if asked.reply.action != "accept" or asked.question.url is not None:
            return {"action": asked.reply.action}
        return {"action": "accept", "content": {**asked.reply.content}}

    async def _call_program(self, asked: _OpenQuestion) -> None:
        try:
            with asked.scope:
                reply = await self._on_elicitation(asked.question)
                asked.reply = with_defaults(reply, asked.question)
        finally:
            asked.over.set()


def question_of(params: Mapping[str, Any], *, server: str) -> Question:
    """Read the question in `params`. Fields whose schema is not an object are left out.

    Raises `ProtocolError` without a message, and without both a schema and a URL.
    """
    match params:
        case {"mode": "url", "message": str() as message, "url": str() as url}:
            return Question(server=server, message=message, url=url)
        case {"message": str() as message, "requestedSchema": dict() as schema} if (
            params.get("mode", "form") == "form"
        ):
            properties, required = schema.get("properties"), schema.get("required")
        case _:
            raise ProtocolError(
                f"{server}: expected a question with a message and a requestedSchema, or with the mode 'url'"
                f" and a url; got {', '.join(params) or 'nothing'}"
            )
    fields = properties if isinstance(properties, dict) else {}
    return Question(
        server=server,
        message=message,
        fields={name: shape for name, shape in fields.items() if isinstance(shape, dict)},
        required=frozenset(name for name in required if isinstance(name, str))
        if isinstance(required, list)
        else frozenset(),
    )


def with_defaults(reply: Reply, question: Question) -> Reply:
    """Return `reply`, with the valid defaults (SEP-1034) of the fields that it leaves out.

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
    """Return whether `value` can be the value of a field."""
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, str | int | float | bool)


# --- a server's own requests, in revisions with a handshake -------------------------------------------


class RefusedError(Exception):
    """The error to send as the answer to a server's request. Attribute: `code`."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


Handler = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a request of the server's, by its parameters. Raises `RefusedError`."""


def handlers(elicitor: Elicitor | None) -> dict[str, Handler]:
    """Return the handlers of the server's requests by method: the one of elicitation if `elicitor` is given,
    else none."""
    if elicitor is None:
        return {}

    async def elicit(params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await elicitor.ask(params)
        except ProtocolError as error:
            raise RefusedError("Invalid request parameters", code=INVALID_PARAMS) from error

    return {METHOD: elicit}


# --- rounds of input, since 2026-07-28 ---------------------------------------------------------------


async def params_with_input(
    params: Mapping[str, Any],
    result: Mapping[str, Any],
    *,
    method: str,
    rounds: int,
    elicitor: Elicitor | None,
    limits: Limits,
    server: str,
) -> dict[str, Any]:
    """Return the parameters with which to repeat a request that was answered with `input_required`.

    `rounds` is the number of such answers, and `result` is the last one. Raises `LimitError` past
    `Limits.input_rounds`, and `ProtocolError` if the server requests something that was not offered.
    """
    if rounds > limits.input_rounds:
        raise LimitError(
            f"expected at most {limits.input_rounds} rounds of input in one call (Limits.input_rounds),"
            f" got {rounds} from {server}",
            limit="input_rounds",
            allowed=limits.input_rounds,
            got=rounds,
        )
    again = {key: value for key, value in params.items() if key not in ("inputResponses", "requestState")}
    match result.get("inputRequests") or {}, result.get("requestState"):
        case dict() as requests, None if requests:
            pass
        case dict() as requests, str() as state:
            again["requestState"] = state
        case _:
            raise ProtocolError(
                f"{server} sent an invalid request for input in the middle of {method}: expected an object of"
                " inputRequests or a string as requestState"
            )
    if requests:
        again["inputResponses"] = await _responses(
            requests, elicitor, limits=limits, server=server, method=method
        )
    else:
        await trio.sleep(PAUSE_SECONDS)
    return again


async def _responses(
    requests: Mapping[str, Any], elicitor: Elicitor | None, *, limits: Limits, server: str, method: str
) -> dict[str, Any]:
    if len(requests) > limits.server_requests:
        raise LimitError(
            f"expected at most {limits.server_requests} questions at once (Limits.server_requests), got"
            f" {len(requests)} from {server}",
            limit="server_requests",
            allowed=limits.server_requests,
            got=len(requests),
        )
    responses: dict[str, Any] = {}
    for key, request in requests.items():
        match request:
            case {"method": str() as question, "params": dict() as parameters} if (
                question == METHOD and elicitor is not None
            ):
                responses[key] = await elicitor.ask(parameters)
            case {"method": str() as question}:
                raise ProtocolError(
                    f"{server} requested {question:.80} in the middle of {method}, which was not offered"
                )
            case _:
                raise ProtocolError(
                    f"{server} sent an invalid request for input in the middle of {method}: expected a"
                    f" method, got none for {key!r:.80}"
                )
    return responses
