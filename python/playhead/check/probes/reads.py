"""Ranged reads: pages have the bytes of a whole read, and end where it ends.

MCP has no ranged reads, so these checks follow docs/streaming.md. They apply only if a server offers ranges:
a template with `start` and `end`, a link whose description is a URL, a `_meta` key called `range`. A short
page loses no bytes for a client that continues at its end. A check of its own covers clients that stop there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import trio

from playhead.cache import ETAG_META, LIVE_META, OFFSET_META, SIZE_META
from playhead.check.probes.asking import fault_of, text_in
from playhead.check.probes.media import judge_audio, looks_like_audio
from playhead.check.probes.pages import (
    MOST_BYTES,
    Pages,
    ReadPage,
    meta_key_of,
    offered_strategy,
    place_of,
)
from playhead.check.results import TestDraft
from playhead.check.target import Target
from playhead.client.call_results.media import ResourceMedia
from playhead.errors import PlayheadError
from playhead.limits import KIB, MIB
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions

ODD_PAGE_BYTES: Final = 16_381
"""Is prime, so that no page starts at a base64 group or at a block of the file."""
DEFAULT_PAGE_BYTES: Final = DEFAULT_OPTIONS.page_bytes
WRONG_ALREADY: Final = "single pages are wrong already"
SLOW_SECONDS: Final = 0.1
"""Concurrency is judged from this latency on. Faster reads don't show if they waited for each other."""
AT_ONCE: Final = 4
FOLLOW_UPS: Final = 32
_STREAM_PAGE_BYTES: Final = 32 * KIB
IN_FLIGHT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The bytes that pages and streams are compared with: the start of the resource, or all of it."""

    data: bytes
    complete: bool
    """True if `data` is the whole resource."""


async def probe_ranges(
    target: Target, item: Mapping[str, Any], *, subject: str, tool: str | None = None
) -> bool:
    """Judge the ranged reads of a link or listed resource. False if it offers none."""
    try:
        templates = [template.uri_template for template in await target.session.list_resource_templates()]
    except PlayheadError:
        templates = []
    strategy = offered_strategy(item, templates)
    if strategy.name == "whole":
        return False
    pages = Pages(target, strategy, uri=item["uri"])
    await _Reads(target=target, pages=pages, item=item, subject=subject, tool=tool).probe()
    return True


@dataclass(slots=True, kw_only=True)
class _Reads:
    """Probes one resource."""

    target: Target
    pages: Pages
    item: Mapping[str, Any]
    subject: str
    tool: str | None
    broken: bool = False
    """True if a page was wrong. A stream of pages is then wrong, too."""

    async def probe(self) -> None:
        announced = self.item.get("size")
        size = announced if isinstance(announced, int) and not isinstance(announced, bool) else None
        plain = await self.pages.read_plain() if size is None or size <= MOST_BYTES else None
        known_size = len(plain) if plain else size
        page_bytes = ODD_PAGE_BYTES if known_size is None else max(1, min(ODD_PAGE_BYTES, known_size // 5))
        if not await self._probe_first(page_bytes, plain):
            return
        reference = await self._reference(plain)
        page_bytes = max(1, min(ODD_PAGE_BYTES, len(reference.data) // 5))
        if not await self._probe_samples(reference, page_bytes):
            return
        await self._probe_end(reference, size, page_bytes)
        await self._probe_empty_range()
        await self._probe_concurrency(len(reference.data))
        streamed = await self._probe_stream(reference, size)
        await self._probe_cap(reference)
        if looks_like_audio(self.item, self.item["uri"]) and streamed:
            await self._probe_audio(
                streamed, whole=reference.complete and len(streamed) == len(reference.data)
            )

    @contextmanager
    def _test(self, title: str, method: str | None = "resources/read") -> Iterator[TestDraft]:
        title = f"{title} ({self.pages.strategy})"
        with self.target.test(self.subject, title, tool=self.tool, method=method) as draft:
            yield draft
        self.broken |= any(check.verdict == "failed" for check in draft.checks)

    async def _probe_first(self, page_bytes: int, plain: bytes | None) -> bool:
        """Judge the first page. Return False if the resource has no ranges or no bytes."""
        with self._test(f"the first {page_bytes} bytes") as draft:
            page = await self.pages.page(0, page_bytes, draft)
            if not self._require_answer(draft, page):
                return False
            if page.data is None:
                draft.undecided = f"no bytes: {page.why}"
                return False
            if len(page.data) > page_bytes:
                await self._judge_long_page(draft, page, plain)
                return False
            draft.passed("reads.page-length")
            return bool(page.data)

    async def _judge_long_page(self, draft: TestDraft, page: ReadPage, plain: bytes | None) -> None:
        """Judge a page with more bytes than requested: the whole resource, or a longer page."""
        assert page.data is not None
        later = await self.pages.page(page.end, page.end + page.end - page.start)
        if page.data not in (plain, later.data):
            draft.failed(
                "reads.page-length", f"expected at most {page.end - page.start} bytes, got {len(page.data)}"
            )
        elif self.pages.strategy == "uri-template":
            draft.failed(
                "reads.range-honoured",
                f"expected bytes [{page.start}, {page.end}) of the resource, since the server lists a"
                f" template with start and end; got all {len(page.data)} bytes",
            )
        else:
            draft.skipped(
                "reads.range-honoured", "no ranges: each read returns the whole resource, as in plain MCP"
            )

    async def _reference(self, plain: bytes | None) -> Reference:
        data, complete = (plain, True) if plain is not None else await self.pages.read_in_series()
        meta = self.item.get("_meta")
        complete &= not (isinstance(meta, Mapping) and meta.get(LIVE_META))  # it may have grown since then
        if plain is not None and (more := (await self.pages.page(len(plain), len(plain) + 1)).data):
            # If a page past the plain read has bytes, the plain read is only a part, or the pages never end.
            complete = bool(more) and self.item.get("size") == len(plain)
        return Reference(data=data[:MOST_BYTES], complete=complete and len(data) <= MOST_BYTES)

    async def _probe_samples(self, reference: Reference, page_bytes: int) -> bool:
        """Judge single pages and the end. Return False if reads are no longer answered."""
        size = len(reference.data)
        last = max(0, size - page_bytes)
        starts = sorted({0, page_bytes, size // 2, last})
        for start in starts:
            with self._test(f"bytes [{start}, {start + page_bytes})") as draft:
                page = await self.pages.page(start, start + page_bytes, draft)
                if not self._require_answer(draft, page):
                    return False
                await self._judge_page(draft, page, reference)
        if reference.complete and not self.broken and size:
            await self._probe_tail(reference, last, page_bytes)
        return True

    async def _judge_page(self, draft: TestDraft, page: ReadPage, reference: Reference) -> None:
        whole = reference.data
        expected = whole[page.start : page.end]
        expected_range = f"bytes [{page.start}, {page.end})"
        data = page.data
        self._judge_declared(draft, page)
        if data is not None and expected.startswith(data) and (data or not expected):
            draft.passed("reads.page-length")
            draft.passed("reads.page-bytes")
            return
        if data is not None and not reference.complete and data.startswith(expected):
            draft.passed("reads.page-bytes")  # the reference ends within this page
            return
        again = await self.pages.page(page.start, page.end)
        if again.data != data or (again.data is None and data is None and again.why != page.why):
            etag = page.declared.get(ETAG_META)
            if data and again.data and isinstance(etag, str) and again.declared.get(ETAG_META) == etag:
                draft.failed(
                    "reads.page-declared",
                    f"expected {expected_range} of version {etag} again, got other bytes of the same version",
                )
            else:
                draft.undecided = (
                    "a second read of the range had another outcome: the resource changes, or fails"
                )
            return
        if data is None:
            draft.failed(
                "reads.page-bytes", f"expected {expected_range}, which a whole read has; got {page.why}"
            )
        elif not data:
            kind = "reads.tail" if reference.complete else "reads.page-bytes"
            draft.failed(kind, f"expected {expected_range} of {len(whole)}, got the end")
        elif len(data) > page.end - page.start:
            kind = "reads.range-honoured" if data == whole else "reads.page-length"
            draft.failed(kind, f"expected at most {page.end - page.start} bytes, got {len(data)}")
        elif (place := place_of(data, whole)) is not None and place != page.start:
            draft.failed("reads.page-repeated", f"expected {expected_range}, got those from {place} on")
        else:
            at = next(
                (index for index, (a, b) in enumerate(zip(expected, data, strict=False)) if a != b),
                len(expected),
            )
            draft.failed(
                "reads.page-bytes",
                f"expected {expected_range} as in a whole read; byte {page.start + at} differs",
            )

    def _judge_declared(self, draft: TestDraft, page: ReadPage) -> None:
        """Judge the place that a page declares. A page that declares none is not judged."""
        offset, size = page.declared.get(OFFSET_META), page.declared.get(SIZE_META)
        end = page.start + len(page.data or b"")
        if offset is not None:
            why = f"expected {OFFSET_META} {page.start}, where the read begins, got {offset!r}"
            draft.require("reads.page-declared", offset == page.start, why)
        if size is not None and page.data:
            is_size = isinstance(size, int) and size >= end
            draft.require(
                "reads.page-declared", is_size, f"expected {SIZE_META} of {end} or more, got {size!r}"
            )

    async def _probe_tail(self, reference: Reference, start: int, page_bytes: int) -> None:
        """Read on from the last page, as a stream does, because a short page is not the end."""
        size = len(reference.data)
        at = start
        with self._test(f"from byte {start} to the end") as draft:
            for _ in range(FOLLOW_UPS):
                page = await self.pages.page(at, at + page_bytes, draft)
                if page.data is None or page.past_end or at >= size:
                    break
                at += len(page.data)
            reaches_end = size <= at <= start + page_bytes * FOLLOW_UPS
            why = f"expected bytes up to {size}, as in a whole read; pages end at {at}"
            draft.require("reads.tail", reaches_end, why)

    async def _probe_stream(self, reference: Reference, size: int | None) -> bytes:
        """Read the resource as a stream, up to a limit. Return the bytes."""
        with self._test(f"as a stream, {IN_FLIGHT} reads in flight", None) as draft:
            if not self.broken:
                return await judge_stream(draft, self.target, self.item, reference, size=size)
            draft.skipped("reads.stream", WRONG_ALREADY)
        return b""

    async def _probe_cap(self, reference: Reference) -> None:
        """Judge the largest page. Streams cope with short pages, but some clients take one for the end."""
        wanted = min(DEFAULT_PAGE_BYTES, len(reference.data))
        with self._test(f"bytes [0, {wanted}) in one page") as draft:
            if self.broken:
                draft.skipped("reads.page-cap", WRONG_ALREADY)
                return
            page = await self.pages.page(0, wanted, draft)
            if self._require_answer(draft, page) and page.data:
                draft.require(
                    "reads.page-cap",
                    len(page.data) >= wanted,
                    f"expected the {wanted} requested bytes, which the resource has; got the first"
                    f" {len(page.data)}: a client that takes a short page for the end loses the rest",
                )

    async def _probe_end(self, reference: Reference, size: int | None, page_bytes: int) -> None:
        """Read at the end and far past it, and compare the end with the announced size."""
        end = len(reference.data) if reference.complete else size
        if end is None:
            return
        if not reference.complete:
            await self._probe_last_page(max(0, end - page_bytes), end)
        for start in (end, end + MIB):
            with self._test(f"bytes [{start}, {start + page_bytes}), past the end") as draft:
                page = await self.pages.page(start, start + page_bytes, draft)
                if not self._require_answer(draft, page):
                    continue
                if page.data is None:
                    why = f"expected nothing, [DONE] or 416 at byte {start}; got {page.why}"
                    draft.failed("reads.past-end", why)
                elif page.data and not reference.complete:
                    draft.failed("reads.size", f"expected the end at byte {end} as announced; got more bytes")
                else:
                    why = f"expected nothing at byte {start} of {end}; got {len(page.data)} bytes"
                    draft.require("reads.past-end", not page.data, why)
                if size is not None and start == end and reference.complete:
                    draft.require("reads.size", size == end, f"expected {size} bytes as announced, got {end}")

    async def _probe_last_page(self, start: int, end: int) -> None:
        """Judge the length of the last page below the announced size, which the reference does not reach."""
        with self._test(f"bytes [{start}, {end}), the last announced") as draft:
            page = await self.pages.page(start, end, draft)
            if self._require_answer(draft, page) and page.data is not None:
                why = f"expected {end} bytes as announced; got none at {start}"
                draft.require("reads.size", not page.past_end, why)
                why = f"expected at most {end - start} bytes, got {len(page.data)}"
                draft.require("reads.page-length", len(page.data) <= end - start, why)
            elif page.failure is None:
                draft.undecided = f"no bytes: {page.why}"

    async def _probe_empty_range(self) -> None:
        with self._test("bytes [0, 0)") as draft:
            page = await self.pages.page(0, 0, draft)
            if self._require_answer(draft, page):
                why = f"expected no bytes, or an error; got {len(page.data or b'')} bytes"
                draft.require("reads.empty-range", not page.data, why)

    async def _probe_concurrency(self, size: int) -> None:
        """Time concurrent reads. They are small, so that their transfer takes no time."""
        offsets = [index * 64 % max(1, size - 64) for index in range(AT_ONCE)]
        with self._test(f"{AT_ONCE} reads at once") as draft:
            alone = min([await self._timed([offsets[0]]) for _ in range(2)])
            if alone < SLOW_SECONDS:
                why = f"a read takes {alone * 1000:.0f} ms: too fast to tell"
                draft.skipped("reads.concurrent", why)
                return
            together = min([await self._timed(offsets) for _ in range(2)])
            draft.require(
                "reads.concurrent",
                together < alone * (AT_ONCE - 0.5),
                f"expected {AT_ONCE} reads to take about as long as one ({alone:.2f} s); they took"
                f" {together:.2f} s, one after another",
            )

    async def _timed(self, offsets: list[int]) -> float:
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for offset in offsets:
                nursery.start_soon(self.pages.page, offset, offset + 64)
        return trio.current_time() - started

    async def _probe_audio(self, data: bytes, *, whole: bool) -> None:
        mime_type = text_in(self.item, "mimeType")
        with self._test("its audio", None) as draft:
            await judge_audio(draft, data, mime_type=mime_type, uri=self.item["uri"], whole=whole)

    def _require_answer(self, draft: TestDraft, page: ReadPage) -> bool:
        why = f"expected an answer to a read of [{page.start}, {page.end}); {page.failure}"
        return draft.require(fault_of(page.failure, "reads.answered"), page.failure is None, why)


async def judge_stream(
    draft: TestDraft, target: Target, item: Mapping[str, Any], reference: Reference, *, size: int | None
) -> bytes:
    """Read `item` (a link or listed resource) through a stream, up to `MOST_BYTES`. Return the bytes.

    `size` is the announced size.
    """
    options = StreamOptions(
        page_bytes=_STREAM_PAGE_BYTES,
        in_flight=IN_FLIGHT,
        timeout=target.options.timeout_seconds,
        patience_seconds=target.options.timeout_seconds,
        meta_key=meta_key_of(item),
    )
    media = ResourceMedia(
        uri=item["uri"],
        title=item["uri"],
        description=text_in(item, "description"),
        size_bytes=size if size is not None and size >= 0 else None,
        streams=target.session,
    )
    got = bytearray()
    try:
        with trio.fail_after(target.options.timeout_seconds * IN_FLIGHT):
            async with media.open(options) as stream:
                while len(got) < MOST_BYTES and (chunk := await stream.receive_some()):
                    got += chunk
                draft.output = {"bytes": len(got), "ended_by": stream.statistics().ended_by}
    except trio.TooSlowError:
        draft.undecided = f"took too long; {len(got)} bytes were read"
    except PlayheadError as error:
        draft.failed("reads.stream", f"expected the bytes of a whole read, got an error: {error}")
    else:
        _compare(draft, bytes(got), reference)
    return bytes(got)


def _compare(draft: TestDraft, got: bytes, reference: Reference) -> None:
    expected = reference.data
    common = min(len(got), len(expected))
    if got[:common] != expected[:common]:
        at = next(index for index in range(common) if got[index] != expected[index])
        draft.failed("reads.stream", f"expected the bytes of a whole read; byte {at} differs")
    elif len(got) < len(expected):
        why = f"expected {len(expected)} bytes, as in a whole read; the stream has {common}"
        draft.failed("reads.tail", why)
    elif reference.complete and len(got) > len(expected):
        why = f"expected {len(expected)} bytes, as in a whole read; got {len(got)}"
        draft.failed("reads.stream", why)
    else:
        draft.passed("reads.stream")
