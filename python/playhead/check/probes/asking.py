"""Send the requests of a test, and record them in the test with their answers.

Reports may have thousands of answers, so an answer is recorded as an excerpt. Content blocks of prompts and
reads are validated by the rules for results of tools (`content.validation`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from playhead.check.results import Json, TestDraft
from playhead.check.target import RequestOutcome, Target
from playhead.content import Finding, validate_tool_response
from playhead.content.revisions import LATEST, REVISION_NAMES
from playhead.errors import DeadlineError, PlayheadError, ProtocolError
from playhead.protocol.messages import RpcError

_SHOWN_CHARS: Final = 300
_SHOWN_FINDINGS: Final = 5
_SHOWN_ITEMS: Final = 20
_SHOWN_KEYS: Final = 50
_SHOWN_DEPTH: Final = 12
_SHOWN_TOTAL: Final = 16_384
"""Limits the characters of one answer that are recorded."""
_SENT_TOTAL: Final = 65_536
"""Limits the characters of a recorded request. A longer one is left out: a part can't be repeated."""


async def ask(target: Target, draft: TestDraft, params: Mapping[str, Any] | None = None) -> RequestOutcome:
    """Send `draft.method` with `params`, and record the request and the answer in the draft."""
    assert draft.method is not None, "a draft of a request names its method"
    draft.input = request_copy(params or {})
    answer = await target.request(draft.method, params)
    note(draft, answer)
    return answer


def note(draft: TestDraft, answer: RequestOutcome) -> None:
    """Record `answer` in the draft."""
    draft.latency_ms = answer.latency_ms
    draft.void = answer.void or draft.void
    if answer.result is not None:
        draft.output = excerpt(answer.result)
    elif answer.error is not None:
        draft.output = error_excerpt(answer.error)


def require_answered(draft: TestDraft, kind: str, answer: RequestOutcome, target: Target) -> bool:
    """Require an answer: a result or a JSON-RPC error."""
    if answer.failure is None:
        draft.passed(kind)
        return True
    seconds = target.options.timeout_seconds
    if isinstance(answer.failure, DeadlineError):
        why = f"expected an answer to {draft.method} within {seconds:g} s, got none; cancelled it"
    else:
        why = f"expected an answer to {draft.method}, got none that is usable: {answer.failure}"
    draft.failed(fault_of(answer.failure, kind), why)
    return False


def fault_of(failure: PlayheadError | None, kind: str) -> str:
    """Return the check that a missing answer fails: `kind`, unless the server sent an invalid message.

    An invalid message is the same defect for every request.
    """
    return "wire.messages" if isinstance(failure, ProtocolError) else kind


def error_words(error: RpcError) -> str:
    """Format an error for a message."""
    return f"error {error.code}: {error.message[:_SHOWN_CHARS]}"


def error_excerpt(error: RpcError) -> Json:
    return {"code": error.code, "message": excerpt(error.message), "data": excerpt(error.data)}


def block_findings(path: str, block: object, revision: str, *, inner: str = "") -> list[Finding]:
    """Validate a content block that is at `path`. With `inner`, validate only the part there; `path` is then
    the place of that part."""
    result = {"content": [block], "resultType": "complete"}
    known = revision if revision in REVISION_NAMES else LATEST
    place = f"$.content[0]{inner}"
    return [
        Finding(path=path + item.path.removeprefix(place), expected=item.expected, got=item.got)
        for item in validate_tool_response(result, known)
        if item.path.startswith(place)
    ]


def summarize(findings: Sequence[Finding]) -> str:
    """Format the first few findings for a message."""
    more = f"; and {len(findings) - _SHOWN_FINDINGS} more" if len(findings) > _SHOWN_FINDINGS else ""
    return "; ".join(str(finding) for finding in findings[:_SHOWN_FINDINGS]) + more


def request_copy(params: object) -> Json:
    """Copy the parameters of a request for the report, completely, so that they can be sent again."""
    text = json.dumps(params, ensure_ascii=False, default=repr)
    if len(text) > _SENT_TOTAL:
        return f"… (more than {_SENT_TOTAL} characters, not recorded)"
    copied: Json = json.loads(text)
    return copied


def excerpt(value: object) -> Json:
    """Copy an answer for the report: long strings and lists are truncated, and the total is bounded."""
    return _Excerpt(left=_SHOWN_TOTAL).value(value)


@dataclass(slots=True)
class _Excerpt:
    """Makes one bounded copy."""

    left: int
    """The number of characters that may still be copied."""

    def value(self, value: object, depth: int = 0) -> Json:
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
                shown = {str(self._text(str(key))): self.value(item, depth + 1) for key, item in first}
                more = len(value) - _SHOWN_KEYS
                return shown | {"…": f"(and {more} more)"} if more > 0 else shown
            case list() | tuple():
                items = [self.value(item, depth + 1) for item in value[:_SHOWN_ITEMS]]
                more = len(value) - _SHOWN_ITEMS
                return [*items, f"… (and {more} more)"] if more > 0 else items
        return self._text(repr(value))

    def _text(self, text: str) -> str:
        shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"
        self.left -= len(shown) + 4
        return shown


def text_in(item: Mapping[str, Any], key: str) -> str | None:
    """Return a field of unvalidated JSON if it is a string."""
    value = item.get(key)
    return value if isinstance(value, str) else None
