"""What every probe of a listing, a read or a prompt needs: a request made, its answer noted in the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import mcp_types as types

from playhead.check.results import CheckKind, Json, TestDraft
from playhead.check.target import Answer, Target
from playhead.errors import DeadlineError, PlayheadError, ProtocolError

SPECIFICATION: Final = "https://modelcontextprotocol.io/specification/2025-11-25"
MESSAGES: Final = CheckKind(
    name="wire.messages",
    title="Nothing comes but valid JSON-RPC messages",
    level="must",
    source=f"{SPECIFICATION}/basic/transports#stdio",
)
_SHOWN_CHARS: Final = 300
_SHOWN_ITEMS: Final = 20
_SHOWN_KEYS: Final = 50
_SHOWN_DEPTH: Final = 12
_SHOWN_TOTAL: Final = 16_384
"""Characters of one answer that a report keeps: there may be thousands of them."""
_SENT_TOTAL: Final = 65_536
"""Of one request. It is kept whole, to be sent again, or not at all."""
TOO_OFTEN: Final = (
    "the server said that it was asked too often, and went on saying so: nothing can be concluded"
)


async def ask(target: Target, draft: TestDraft, params: Mapping[str, Any] | None = None) -> Answer:
    """Send `draft.method` with `params`, and keep in the draft what was sent and what came."""
    assert draft.method is not None, "a draft of a request names its method"
    draft.input = sent(params or {})
    answer = await target.request(draft.method, params)
    note(draft, answer)
    return answer


def note(draft: TestDraft, answer: Answer) -> None:
    """Keep `answer` in the draft."""
    draft.latency_ms = answer.latency_ms
    if answer.too_often:
        draft.void = TOO_OFTEN
    if answer.result is not None:
        draft.output = shown(answer.result)
    elif answer.error is not None:
        draft.output = error_shown(answer.error)


def require_answered(draft: TestDraft, kind: CheckKind, answer: Answer, target: Target) -> bool:
    """Judge whether an answer came at all: a result or a JSON-RPC error."""
    if answer.failure is None:
        draft.passed(kind)
        return True
    seconds = target.options.timeout_seconds
    if isinstance(answer.failure, DeadlineError):
        why = f"expected an answer to {draft.method} within {seconds:g} s, came none; it was cancelled"
    else:
        why = f"expected an answer to {draft.method}, came none that can be used: {answer.failure}"
    draft.failed(fault_of(answer.failure, kind), why)
    return False


def fault_of(failure: PlayheadError | None, kind: CheckKind) -> CheckKind:
    """The check that a missing answer fails: `kind`, unless one came that is no message at all. That is one
    defect, whatever was asked."""
    return MESSAGES if isinstance(failure, ProtocolError) else kind


def said(error: types.ErrorData) -> str:
    """An error in a message."""
    return f"error {error.code}: {error.message[:_SHOWN_CHARS]}"


def error_shown(error: types.ErrorData) -> Json:
    return {"code": error.code, "message": shown(error.message), "data": shown(error.data)}


def sent(params: object) -> Json:
    """A request's parameters as a report keeps them: whole, so that they can be sent again."""
    room = _Room(left=_SENT_TOTAL)
    kept = room.copied(params)
    return kept if room.left >= 0 else f"… (more than {_SENT_TOTAL} characters, not kept)"


def shown(value: object) -> Json:
    """What came as a report keeps it: long texts and lists cut, and the whole of it bounded."""
    return _Room(left=_SHOWN_TOTAL).shown(value)


@dataclass(slots=True)
class _Room:
    """How many characters there is still room for."""

    left: int

    def copied(self, value: object) -> Json:
        self.left -= len(value) if isinstance(value, str) else 4
        if self.left < 0:
            return None
        match value:
            case None | bool() | int() | float() | str():
                return value
            case Mapping():
                return {str(key): self.copied(item) for key, item in value.items()}
            case list() | tuple():
                return [self.copied(item) for item in value]
        return repr(value)

    def shown(self, value: object, depth: int = 0) -> Json:
        if self.left <= 0:
            return "…"
        match value:
            case None | bool() | int() | float():
                self.left -= 4
                return value
            case str():
                return self._text(value)
            case Mapping() | list() | tuple() if depth >= _SHOWN_DEPTH:
                return self._text("… (nested deeper)")
            case Mapping():
                first = islice(value.items(), _SHOWN_KEYS)
                found = {str(self._text(str(key))): self.shown(item, depth + 1) for key, item in first}
                more = len(value) - _SHOWN_KEYS
                return found | {"…": f"(and {more} more)"} if more > 0 else found
            case list() | tuple():
                items = [self.shown(item, depth + 1) for item in value[:_SHOWN_ITEMS]]
                more = len(value) - _SHOWN_ITEMS
                return [*items, f"… (and {more} more)"] if more > 0 else items
        return self._text(repr(value))

    def _text(self, text: str) -> str:
        kept = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"
        self.left -= len(kept) + 4
        return kept
