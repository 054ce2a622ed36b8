"""The listings of a server, read page by page: each ends, and its items are valid and unique."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types import INVALID_PARAMS

from playhead.check.catalogue import CATALOGUE
from playhead.check.probes.asking import (
    ask,
    error_excerpt,
    error_words,
    fault_of,
    require_answered,
    summarize,
)
from playhead.check.results import Json, TestDraft
from playhead.check.target import Target
from playhead.content import Finding
from playhead.content.block_types import Field
from playhead.content.findings import Notes, kind_of
from playhead.content.validation import check_fields
from playhead.limits import MIB

MOST_PAGES: Final = 200
MOST_ITEMS: Final = 10_000
MOST_CHARS: Final = 64 * MIB
"""Limits all pages together. Each message of a server may be this large."""
EMPTY_PAGES: Final = 20
"""A listing counts as endless after this many pages in a row with a new cursor, but no new items."""


def may_have(target: Target, capability: str) -> bool:
    """True unless the server declares other capabilities only. Without a handshake it declares none."""
    capabilities = target.session.capabilities
    return getattr(capabilities, capability) is not None or not capabilities.model_fields_set


def check_items(
    notes: Notes, path: str, item: Mapping[str, object], key: str, fields: tuple[Field, ...]
) -> None:
    """Check the objects in the array under `key` of a listed item."""
    inner = item.get(key)
    for index, value in enumerate(inner if isinstance(inner, list) else ()):
        place = f"{path}.{key}[{index}]"
        if isinstance(value, dict):
            check_fields(notes, place, value, fields)
        else:
            notes.add(place, expected="an object", got=kind_of(value))


JudgeItem = Callable[[str, Mapping[str, object]], list[Finding]]
"""Validates one item of a listing. The first argument is the item's path."""


async def probe_listing(
    target: Target,
    *,
    method: str,
    key: str,
    identity: str,
    judge: JudgeItem,
    checks: str,
    optional: bool = False,
) -> tuple[dict[str, Any], ...]:
    """Read and judge the whole listing. Return its items that are objects, one per identity.

    `checks` is the prefix of its checks' names: `tools.list`. With `optional`, the server need not know the
    method (-32601).
    """

    async def read() -> _Reading:
        draft = TestDraft(subject=f"listing {key}", title="all pages", method=method)
        reading = _Reading(draft=draft, key=key, identity=identity, judge=judge, checks=checks)
        await reading.read(target, optional=optional)
        return reading

    reading = await read()
    # If a list changes while it is read, items may move to the next page and appear twice.
    again = await read() if reading.may_have_moved else None
    reading.judge_unique(again)
    target.on_test(reading.draft.done())
    if reading.paged:
        await _probe_cursor(target, method=method, key=key, kind=f"{checks}-unknown-cursor")
    return tuple(reading.items.values())


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One reading of a listing."""

    draft: TestDraft
    key: str
    identity: str
    judge: JudgeItem
    checks: str
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    paged: bool = False
    _page_of: dict[str, int] = field(default_factory=dict)
    _findings: list[Finding] = field(default_factory=list)
    _twice: set[str] = field(default_factory=set)
    _twice_on_a_page: bool = False
    _ended: bool = False
    _cursors: set[str] = field(default_factory=set)
    _pages: int = 0
    _stale_pages: int = 0
    _listed: int = 0
    _chars: int = 0

    async def read(self, target: Target, *, optional: bool) -> None:
        cursor: str | None = None
        shown_first: Json = None
        latency_ms: float | None = None
        while True:
            answer = await ask(target, self.draft, {"cursor": cursor} if cursor is not None else {})
            latency_ms = latency_ms if latency_ms is not None else answer.latency_ms
            if answer.failure is not None:
                require_answered(self.draft, f"{self.checks}-answered", answer, target)
                return
            if answer.error is not None:
                self._refused(answer.error.code, error_words(answer.error), optional=optional)
                return
            assert answer.result is not None
            self._pages += 1
            if self._pages == 1:
                self.draft.passed(f"{self.checks}-answered")
                shown_first = self.draft.output
            cursor = self._page(answer.result)
            if cursor is None:
                break
        if self._pages > 1 and not any(check.verdict == "failed" for check in self.draft.checks):
            self.draft.input = {}
        self.draft.latency_ms = latency_ms
        self.draft.output = {"pages": self._pages, "items": self._listed, "first": shown_first}
        self._conclude()

    def _refused(self, code: int, words: str, *, optional: bool) -> None:
        draft, kind = self.draft, f"{self.checks}-answered"
        if code == -32601 and optional:
            draft.skipped(kind, f"the server has no {draft.method}")
        else:
            draft.failed(kind, f"expected a result of {draft.method}, which the server declares; got {words}")

    def _page(self, result: Any) -> str | None:
        """Judge one page. Return the cursor of the next page, or None if reading ends here."""
        items = result.get(self.key)
        if not isinstance(items, list):
            got = ", ".join(list(result)[:10]) or "an empty object"
            self.draft.failed(
                f"{self.checks}-shape", f"expected a result with an array {self.key}, got {got}"
            )
            return None
        new = sum(self._item(f"$.{self.key}[{index}]", item) for index, item in enumerate(items))
        self._stale_pages = 0 if new else self._stale_pages + 1
        following = result.get("nextCursor")
        if following is None:
            return None
        self.paged = True
        if not isinstance(following, str):
            self._endless(f"expected nextCursor to be a string or absent, got {kind_of(following)}")
            return None
        if following in self._cursors:
            self._endless(f"expected a new cursor on each page, got {following!r:.80} twice")
            return None
        self._cursors.add(following)
        if self._stale_pages >= EMPTY_PAGES:
            self._endless(
                f"expected an end, got {EMPTY_PAGES} consecutive pages with a cursor and no new items"
            )
            return None
        self._chars += len(json.dumps(result))
        if self._pages >= MOST_PAGES or self._listed >= MOST_ITEMS or self._chars >= MOST_CHARS:
            self.draft.undecided = f"reading stopped after {self._pages} pages with {self._listed} items"
            return None
        return following

    def _item(self, path: str, item: object) -> bool:
        """Judge one item. Return True if it is new."""
        self._listed += 1
        is_full = len(self._findings) >= 100
        if not isinstance(item, dict):
            if not is_full:
                self._findings.append(Finding(path=path, expected="an object", got=kind_of(item)))
            return False
        if not is_full:
            self._findings += self.judge(path, item)
        name = item.get(self.identity)
        if not isinstance(name, str):
            return False
        if name in self.items:
            self._twice.add(name)
            self._twice_on_a_page |= self._page_of[name] == self._pages
            return False
        self.items[name] = item
        self._page_of[name] = self._pages
        return True

    def _endless(self, why: str) -> None:
        """Fail the check of the listing's end."""
        self.draft.failed(f"{self.checks}-ends", why)

    def _conclude(self) -> None:
        draft, checks = self.draft, self.checks
        names = {check.kind.name for check in draft.checks}
        if f"{checks}-shape" not in names:
            draft.require(f"{checks}-shape", not self._findings, summarize(self._findings))
        if f"{checks}-ends" not in names:
            draft.passed(f"{checks}-ends")
            self._ended = True

    @property
    def may_have_moved(self) -> bool:
        """True if items appeared twice, each on different pages."""
        return bool(self._twice) and not self._twice_on_a_page

    def judge_unique(self, again: _Reading | None) -> None:
        """Judge the uniqueness of items; `again` is a second reading that confirms this one, if needed."""
        kind = f"{self.checks}-unique"
        if kind not in CATALOGUE or not self._ended:
            return
        if again is not None and not self._twice & again._twice:
            self.draft.skipped(kind, "the list changed while it was read: repeated items prove nothing")
            return
        names = ", ".join(repr(name)[:100] for name in sorted(self._twice)[:5])
        self.draft.require(kind, not self._twice, f"expected each {self.identity} once, got twice: {names}")


async def _probe_cursor(target: Target, *, method: str, key: str, kind: str) -> None:
    with target.test(f"listing {key}", "an unknown cursor", method=method) as draft:
        answer = await ask(target, draft, {"cursor": "playhead-check-no-such-cursor"})
        expected = f"expected error {INVALID_PARAMS}"
        if answer.failure is not None:
            draft.failed(fault_of(answer.failure, kind), f"{expected}, got no answer: {answer.failure}")
        elif answer.error is None:
            draft.failed(kind, f"{expected}, got a page")
        else:
            draft.output = error_excerpt(answer.error)
            is_expected = answer.error.code == INVALID_PARAMS
            draft.require(kind, is_expected, f"{expected}, got {error_words(answer.error)}")
