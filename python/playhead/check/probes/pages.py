"""The pages of a resource: ranged reads of it, by the strategy that its server offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from playhead._core import decode_base64
from playhead.cache import ETAG_META, OFFSET_META, SIZE_META
from playhead.check.probes.asking import ask, error_words, text_in
from playhead.check.results import Json, TestDraft
from playhead.check.target import Target
from playhead.client.transports.rpc_errors import PAST_END, text_of
from playhead.errors import Base64Error, PlayheadError
from playhead.limits import MIB
from playhead.stream.options import DEFAULT_OPTIONS
from playhead.stream.strategies import ReadStrategy, ResourceFacts, candidate_strategies

MOST_BYTES: Final = 4 * MIB
"""Limits the bytes to compare, from the start of a resource. Its end is tested separately."""
DONE: Final = b"[DONE]"
TELLING_BYTES: Final = 64
"""A run of this many bytes identifies its place. Only a resource that repeats itself has it twice."""
_PAGE_BYTES: Final = DEFAULT_OPTIONS.page_bytes
_MOST_PAGES: Final = 64
"""Limits the pages of the sequential read, so that a server with 1 KiB pages does not get 4,000 requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPage:
    """The answer to a read of `[start, end)`."""

    start: int
    end: int
    data: bytes | None = None
    """The received bytes. They are empty at the end, and None if the answer has no bytes, for the reason in
    `why`."""
    why: str = ""
    failure: PlayheadError | None = None
    declared: Mapping[str, Json] = field(default_factory=dict)
    """The keys `playhead/offset`, `playhead/size` and `playhead/etag` of the first contents, if present."""
    past_end: bool = False
    """True if the answer says that `start` is past the end: no bytes, `[DONE]`, or 416."""


class Pages:
    """The pages of one resource, requested by one strategy."""

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
                start=start, end=end, data=b"" if past else None, why=error_words(answer.error), past_end=past
            )
        assert answer.result is not None
        data, why = blobs_of(answer.result)
        if data == DONE and start > 0:
            data = b""
        declared = _declared(answer.result)
        return ReadPage(start=start, end=end, data=data, why=why, declared=declared, past_end=data == b"")

    async def read_plain(self) -> bytes | None:
        """Read without a range. None if the result has no bytes."""
        answer = await self._target.request("resources/read", {"uri": self._uri})
        return blobs_of(answer.result)[0] if answer.result is not None else None

    async def read_in_series(self) -> tuple[bytes, bool]:
        """Read pages in sequence, each from the end of the previous one. Return the bytes, and true if they
        are the whole resource."""
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
    keys = (OFFSET_META, SIZE_META, ETAG_META)
    return {key: meta[key] for key in keys if key in meta} if isinstance(meta, dict) else {}


def place_of(data: bytes, whole: bytes) -> int | None:
    """Find `data` in `whole`. None if absent, or too short to be unique."""
    if len(data) < TELLING_BYTES:
        return None
    if (place := whole.find(data)) >= 0:
        return place
    place = whole.find(data[:TELLING_BYTES])  # `data` may extend past the known part
    return place if place >= 0 and data.startswith(whole[place : place + len(data)]) else None
