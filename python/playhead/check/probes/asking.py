"""What every probe of a listing, a read or a prompt needs: a request made, its answer noted in the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from playhead.check.results import CheckKind, Json, TestDraft
from playhead.check.target import Answer, Target
from playhead.errors import DeadlineError, PlayheadError, ProtocolError

SPECIFICATION: Final = "https://modelcontextprotocol.io/specification/2025-11-25"
METHOD_NOT_FOUND: Final = -32601
MESSAGES: Final = CheckKind(
    name="wire.messages",
    title="Nothing comes but valid JSON-RPC messages",
    level="must",
    source=f"{SPECIFICATION}/basic/transports#stdio",
)
_SHOWN_CHARS: Final = 300
_SHOWN_ITEMS: Final = 20
_SHOWN_DEPTH: Final = 12


async def ask(target: Target, draft: TestDraft, params: Mapping[str, Any] | None = None) -> Answer:
    """Send `draft.method` with `params`, and keep in the draft what was sent and what came."""
    assert draft.method is not None, "a draft of a request names its method"
    draft.input = shown(params or {}, cut=False)
    answer = await target.request(draft.method, params)
    note(draft, answer)
    return answer


def note(draft: TestDraft, answer: Answer) -> None:
    """Keep `answer` in the draft."""
    draft.latency_ms = answer.latency_ms
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
    return {"code": error.code, "message": error.message, "data": shown(error.data)}


def shown(value: object, *, cut: bool = True, depth: int = 0) -> Json:
    """`value` as a report keeps it: long texts and lists cut (unless they are to be sent again)."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            if not cut or len(value) <= _SHOWN_CHARS:
                return value
            return f"{value[:_SHOWN_CHARS]}… ({len(value)} characters)"
        case Mapping() | list() | tuple() if depth >= _SHOWN_DEPTH and cut:
            return "… (nested deeper)"
        case Mapping():
            return {str(key): shown(item, cut=cut, depth=depth + 1) for key, item in value.items()}
        case list() | tuple():
            kept = value if not cut else value[:_SHOWN_ITEMS]
            items = [shown(item, cut=cut, depth=depth + 1) for item in kept]
            more = len(value) - len(kept)
            return [*items, f"… (and {more} more)"] if more else items
        case _:
            return repr(value)
