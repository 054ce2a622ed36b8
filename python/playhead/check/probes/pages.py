"""How the pages of one resource are asked for, and what came for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from playhead.check.probes.asking import ask, note, said
from playhead.check.probes.contents import blobs_of
from playhead.check.results import TestDraft
from playhead.check.target import Target
from playhead.client.failures import PAST_END
from playhead.errors import PlayheadError
from playhead.limits import MIB
from playhead.stream.ranges import RangeStrategy, ResourceRequest, choose_strategy

MOST_BYTES: Final = 4 * MIB
"""Compared from the beginning of a resource; its end is looked at apart."""
DONE: Final = b"[DONE]"
TELLING_BYTES: Final = 64
"""So many bytes are somewhere by chance only where a resource repeats itself."""
_PAGE_BYTES: Final = 100 * 1024
_MOST_PAGES: Final = 64
"""Of the reading in series: a server that caps its pages at 1 KiB is not asked 4,000 times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to a read of `[start, end)`."""

    start: int
    end: int
    data: bytes | None = None
    """The bytes that came; empty at the end. None where none could be had, and `why`."""
    why: str = ""
    failure: PlayheadError | None = None
    past_end: bool = False
    """Whether it says that nothing is at `start`: empty, `[DONE]`, or 416."""


class Pages:
    """Asks for pages of one resource."""

    def __init__(self, target: Target, strategy: RangeStrategy, *, uri: str) -> None:
        self._target = target
        self._strategy = strategy
        self._uri = uri
        self.strategy = strategy.name

    async def page(self, start: int, end: int, draft: TestDraft | None = None) -> Page:
        """Read `[start, end)`; `draft` keeps what was sent and what came."""
        params = _params(self._strategy.request(start, end))
        if draft is not None:
            answer = await ask(self._target, draft, params)
        else:
            answer = await self._target.request("resources/read", params)
        if answer.failure is not None:
            return Page(start=start, end=end, why=str(answer.failure), failure=answer.failure)
        if answer.error is not None:
            past = PAST_END.search(answer.error.message) is not None
            return Page(
                start=start, end=end, data=b"" if past else None, why=said(answer.error), past_end=past
            )
        assert answer.result is not None
        if draft is not None:
            note(draft, answer)
        data, why = blobs_of(answer.result)
        if data == DONE and start > 0:
            data = b""
        return Page(start=start, end=end, data=data, why=why, past_end=data == b"")

    async def plain(self) -> bytes | None:
        """A read without a range; None where it gives no bytes."""
        answer = await self._target.request("resources/read", {"uri": self._uri})
        return blobs_of(answer.result)[0] if answer.result is not None else None

    async def in_series(self) -> tuple[bytes, bool]:
        """The beginning, one page after the other by what came, and whether that is all of it."""
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


def offered_strategy(item: Mapping[str, Any], templates: list[str]) -> RangeStrategy:
    """How ranges of a link or listed resource can be asked for, as it and the server's templates say."""
    description = item.get("description")
    return choose_strategy(
        uri=item["uri"],
        description=description if isinstance(description, str) else None,
        templates=templates,
        meta_key=meta_key_of(item),
    )


def meta_key_of(item: Mapping[str, Any]) -> str | None:
    """A key of `_meta` that is called `range`, whoever's it is: `com.example/range`."""
    meta = item.get("_meta")
    keys = meta if isinstance(meta, dict) else {}
    return next((key for key in keys if key.rpartition("/")[2] == "range"), None)


def _params(request: ResourceRequest) -> dict[str, Any]:
    params: dict[str, Any] = {"uri": request.uri}
    if request.arguments is not None:
        params["arguments"] = request.arguments
    if request.meta is not None:
        params["_meta"] = request.meta
    return params


def place_of(data: bytes, whole: bytes) -> int | None:
    """Where in `whole` the bytes are from; None for bytes of nowhere, or so few that they are everywhere."""
    if len(data) < TELLING_BYTES:
        return None
    if (place := whole.find(data)) >= 0:
        return place
    place = whole.find(data[:TELLING_BYTES])  # they may go on past what is known of the whole
    return place if place >= 0 and data.startswith(whole[place : place + len(data)]) else None
