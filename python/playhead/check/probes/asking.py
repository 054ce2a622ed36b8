"""Ask the server: send a request, record it and its answer in the test, validate blocks, read pages.

The rules for a block are those for results of tools (`content.validation`), also in a prompt and in a read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from playhead._core import decode_base64
from playhead.cache import ETAG_META, OFFSET_META, SIZE_META
from playhead.check.results import Json, TestDraft
from playhead.check.target import RequestOutcome, Target
from playhead.client.transports.rpc_errors import PAST_END, text_of
from playhead.content import Finding, validate_tool_response
from playhead.content.revisions import LATEST, REVISIONS
from playhead.errors import Base64Error, DeadlineError, PlayheadError, ProtocolError
from playhead.limits import MIB
from playhead.protocol.messages import RpcError
from playhead.stream.strategies import ReadStrategy, ResourceFacts, candidate_strategies

_SHOWN_CHARS: Final = 300
_SHOWN_FINDINGS: Final = 5
_SHOWN_ITEMS: Final = 20
_SHOWN_KEYS: Final = 50
_SHOWN_DEPTH: Final = 12
_SHOWN_TOTAL: Final = 16_384
"""Characters of one answer in a report, which may have thousands of answers."""
_SENT_TOTAL: Final = 65_536
"""Of one request. It is recorded completely, so that it can be repeated, or not at all."""
TOO_OFTEN: Final = "the server limits the rate of requests and still refused after pauses: undecided"


async def ask(target: Target, draft: TestDraft, params: Mapping[str, Any] | None = None) -> RequestOutcome:
    """Send `draft.method` with `params`, and record the request and the answer in the draft."""
    assert draft.method is not None, "a draft of a request names its method"
    draft.input = sent(params or {})
    answer = await target.request(draft.method, params)
    note(draft, answer)
    return answer


def note(draft: TestDraft, answer: RequestOutcome) -> None:
    """Record `answer` in the draft."""
    draft.latency_ms = answer.latency_ms
    if answer.too_often:
        draft.void = TOO_OFTEN
    if answer.result is not None:
        draft.output = shown(answer.result)
    elif answer.error is not None:
        draft.output = error_shown(answer.error)


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


def said(error: RpcError) -> str:
    """Format an error for a message."""
    return f"error {error.code}: {error.message[:_SHOWN_CHARS]}"


def error_shown(error: RpcError) -> Json:
    return {"code": error.code, "message": shown(error.message), "data": shown(error.data)}


def block_findings(path: str, block: object, revision: str, *, inner: str = "") -> list[Finding]:
    """Validate a content block, or only what is at `inner` in it, which is then at `path`."""
    result = {"content": [block], "resultType": "complete"}
    known = revision if revision in REVISIONS else LATEST
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


def sent(params: object) -> Json:
    """Copy the parameters of a request for the report, completely, so that they can be sent again."""
    room = _Room(left=_SENT_TOTAL)
    kept = room.copied(params)
    return kept if room.left >= 0 else f"… (more than {_SENT_TOTAL} characters, not recorded)"


def shown(value: object) -> Json:
    """Copy an answer for the report: long strings and lists are truncated, and the total is bounded."""
    return _Room(left=_SHOWN_TOTAL).shown(value)


@dataclass(slots=True)
class _Room:
    """The number of characters left."""

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


MOST_BYTES: Final = 4 * MIB
"""Compared from the start of a resource; its end is tested separately."""
DONE: Final = b"[DONE]"
TELLING_BYTES: Final = 64
"""This many bytes occur twice only in a resource that repeats itself."""
_PAGE_BYTES: Final = 100 * 1024
_MOST_PAGES: Final = 64
"""Of the sequential read: a server with 1 KiB pages does not get 4,000 requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPage:
    """The answer to a read of `[start, end)`."""

    start: int
    end: int
    data: bytes | None = None
    """The received bytes; empty at the end. None if there are none, with the reason in `why`."""
    why: str = ""
    failure: PlayheadError | None = None
    declared: Mapping[str, Json] = field(default_factory=dict)
    """`playhead/offset`, `playhead/size` and `playhead/etag` of its first contents, as far as it has them."""
    past_end: bool = False
    """True if the answer says that `start` is past the end: empty, `[DONE]`, or 416."""


class Pages:
    """Request pages of one resource."""

    def __init__(self, target: Target, strategy: ReadStrategy, *, uri: str) -> None:
        self._target = target
        self._strategy = strategy
        self._uri = uri
        self.strategy = strategy.name

    async def page(self, start: int, end: int, draft: TestDraft | None = None) -> ReadPage:
        """Read `[start, end)`; `draft` records the request and the answer."""
        params = self._strategy.request(start, end).params()
        if draft is not None:
            answer = await ask(self._target, draft, params)
        else:
            answer = await self._target.request("resources/read", params)
        if answer.failure is not None:
            return ReadPage(start=start, end=end, why=str(answer.failure), failure=answer.failure)
        if answer.error is not None:
            past = PAST_END.search(text_of(answer.error)) is not None
            return ReadPage(
                start=start, end=end, data=b"" if past else None, why=said(answer.error), past_end=past
            )
        assert answer.result is not None
        if draft is not None:
            note(draft, answer)
        data, why = blobs_of(answer.result)
        if data == DONE and start > 0:
            data = b""
        return ReadPage(
            start=start,
            end=end,
            data=data,
            why=why,
            declared=_declared(answer.result),
            past_end=data == b"",
        )

    async def plain(self) -> bytes | None:
        """Read without a range. None if the result has no bytes."""
        answer = await self._target.request("resources/read", {"uri": self._uri})
        return blobs_of(answer.result)[0] if answer.result is not None else None

    async def in_series(self) -> tuple[bytes, bool]:
        """Read pages in sequence, each from the end of the previous one. Return the bytes, and if all."""
        whole = bytearray()
        for _ in range(_MOST_PAGES):
            page = await self.page(len(whole), len(whole) + _PAGE_BYTES)
            if page.data is None or len(page.data) > _PAGE_BYTES:
                return bytes(whole), False
            if page.past_end:
                return bytes(whole), True
            whole += page.data
            if len(whole) >= MOST_BYTES:
                break
        return bytes(whole), False


def offered_strategy(item: Mapping[str, Any], templates: list[str]) -> ReadStrategy:
    """Choose how to request ranges of a link or listed resource, by its fields and the templates.

    `query` is only a guess, so a server is not judged by it.
    """
    facts = ResourceFacts(
        uri=item["uri"],
        description=text_in(item, "description"),
        templates=templates,
        meta_key=meta_key_of(item),
    )
    candidates = candidate_strategies(facts)
    return next(it for it in candidates if isinstance(it, ReadStrategy) and it.name != "query")


def text_in(item: Mapping[str, Any], key: str) -> str | None:
    """Return a field of unvalidated JSON if it is a string."""
    value = item.get(key)
    return value if isinstance(value, str) else None


def meta_key_of(item: Mapping[str, Any]) -> str | None:
    """Return the key of `_meta` named `range` in any namespace: `com.example/range`."""
    meta = item.get("_meta")
    keys = meta if isinstance(meta, dict) else {}
    return next((key for key in keys if key.rpartition("/")[2] == "range"), None)


def blobs_of(result: Mapping[str, Any]) -> tuple[bytes | None, str]:
    """Return the bytes of all blobs, in order, or None and the reason."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return None, "no array of contents"
    whole = bytearray()
    for index, part in enumerate(contents):
        blob = part.get("blob") if isinstance(part, dict) else None
        if not isinstance(blob, str):
            return None, f"contents[{index}] has no blob"
        try:
            whole += decode_base64(blob)
        except Base64Error as error:
            return None, f"contents[{index}].blob is not base64: {error}"
    return bytes(whole), ""


def _declared(result: Mapping[str, Any]) -> Mapping[str, Json]:
    contents = result.get("contents")
    first = contents[0] if isinstance(contents, list) and contents else None
    meta = first.get("_meta") if isinstance(first, dict) else None
    found = meta if isinstance(meta, dict) else {}
    return {key: found[key] for key in (OFFSET_META, SIZE_META, ETAG_META) if key in found}


def place_of(data: bytes, whole: bytes) -> int | None:
    """Find `data` in `whole`. None if absent, or too short to be unique."""
    if len(data) < TELLING_BYTES:
        return None
    if (place := whole.find(data)) >= 0:
        return place
    place = whole.find(data[:TELLING_BYTES])  # they may extend past the known part
    return place if place >= 0 and data.startswith(whole[place : place + len(data)]) else None
