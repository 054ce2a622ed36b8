"""The checks made on ranged reads. MCP has none: docs/streaming.md says what its servers do."""

from __future__ import annotations

from typing import Final

from playhead.check.results import CheckKind

DOCS: Final = "docs/streaming.md#what-ends-a-stream"


def _kind(name: str, title: str, source: str = DOCS, *, should: bool = False) -> CheckKind:
    return CheckKind(name=f"reads.{name}", title=title, level="should" if should else "must", source=source)


ANSWERED: Final = _kind("answered", "Each read of a range is answered in time")
HONOURED: Final = _kind("range-honoured", "A range that is offered is honoured: not the whole for each part")
LENGTH: Final = _kind("page-length", "A page has no more bytes than were asked for")
SAME: Final = _kind("page-bytes", "A page has the bytes that a whole read has there")
REPEATED: Final = _kind("page-repeated", "A page is not one that belongs elsewhere")
TAIL: Final = _kind("tail", "Pages lead to the last byte that a whole read has")
STREAM: Final = _kind(
    "stream",
    "A stream with several reads in flight gives the bytes that a whole read gives",
    "docs/streaming.md#which-ranges-and-how-many",
)
CAP: Final = _kind(
    "page-cap",
    "A page is as long as was asked for, up to playhead's own 100 KiB, where the resource has the bytes",
    should=True,
)
SIZE: Final = _kind("size", "The announced size is where the bytes end")
PAST_END: Final = _kind("past-end", "A read past the end gives nothing, [DONE], or an error that says 416")
EMPTY: Final = _kind("empty-range", "A range from an offset to itself gives no bytes")
CONCURRENT: Final = _kind(
    "concurrent",
    "Reads that are sent together are answered together",
    "docs/streaming.md#which-ranges-and-how-many",
    should=True,
)
KINDS: Final = (
    ANSWERED,
    HONOURED,
    LENGTH,
    SAME,
    REPEATED,
    TAIL,
    STREAM,
    CAP,
    SIZE,
    PAST_END,
    EMPTY,
    CONCURRENT,
)
