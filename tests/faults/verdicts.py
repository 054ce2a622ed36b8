"""The outcome of reading a moody resource, by name, and whether it is right.

* `exact`: the resource's bytes (where it changes: its old or its new ones).
* `lawful`: fewer bytes, ended by claims that a stream may accept; see `is_lawful_end`.
* the name of a typed error.
* `WRONG …`: anything else, which no cell allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from playhead.errors import LimitError, PlayheadError, RemoteError, StreamBrokenError
from tests.servers.moods import Entry, Mood, truth, truth_after

TAIL_BYTES: Final = 4096
"""The last bytes below a size that is too large, which have to claim an end as well."""

APART_SECONDS: Final = 0.45
"""Half a second between two confirming reads, less what a clock may be off."""

REQUESTS_MAX: Final = 400
"""Beyond three times those that a server's pages need."""
RECEIVED_MAX: Final = 32
"""Times the size: what a server of whole files may make a stream receive before it is refused."""


STREAM_MAX_BYTES: Final = 4 << 20
"""More than that is a stream without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One mood and the verdicts that are right for it."""

    mood: Mood
    right: frozenset[str]
    in_flight: int | None = None
    lies: bool = True
    """The mood must have lied: a lie that was never told proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The outcome of a read: the bytes, or those before the error, and the server's log."""

    data: bytes
    error: PlayheadError | None
    size_was_wrong: bool
    log: Sequence[Entry]
    seconds: float = 0.0


def verdict(mood: Mood, reading: Reading) -> str:
    """The outcome's name, as in this module's docstring."""
    before = truth(mood)
    truths = [before] if mood.change is None else [before, truth_after(mood, mood.change)]
    longest = max(truths, key=len)
    page_bytes = min(mood.cap_bytes or inf, mood.own_page_bytes or inf, 20_000)
    if len(reading.log) > REQUESTS_MAX + 3 * len(longest) / page_bytes:
        return f"WRONG: {len(reading.log)} requests"
    if isinstance(reading.error, LimitError) and reading.error.limit == "stream_bytes":
        return "WRONG: without end"
    if sum(entry.n_bytes for entry in reading.log) > RECEIVED_MAX * max(len(longest), 100_000):
        return "WRONG: received without bound"
    if not longest.startswith(reading.data):
        return f"WRONG BYTES: {len(reading.data)} of {len(longest)}"
    if reading.error is not None:
        return type(reading.error).__name__
    if reading.data in truths:
        wrong = mood.announced_bytes not in (None, 0, len(reading.data))
        if wrong and not reading.size_was_wrong:
            return "WRONG: size_was_wrong is not set"
        return "exact"
    if is_lawful_end(reading.log, len(reading.data), mood.announced_bytes or None):
        if mood.announced_bytes and not reading.size_was_wrong and len(reading.data) != mood.announced_bytes:
            return "WRONG: size_was_wrong is not set"
        return "lawful"
    return f"WRONG: truncated to {len(reading.data)} of {len(before)}"


def is_right(cell: Cell, outcome: str, error: PlayheadError | None) -> bool:
    """Return whether the cell allows the outcome."""
    if outcome in cell.right:
        return True
    typed = isinstance(error, RemoteError | StreamBrokenError) and not outcome.startswith("WRONG")
    return "typed error" in cell.right and typed


def is_lawful_end(log: Sequence[Entry], end: int, size_bytes: int | None) -> bool:
    """Return whether the claims in `log` let a stream end at `end`, by the rules of paged-reads.md."""
    answered = sorted(
        (entry for entry in log if entry.answered_at is not None), key=lambda entry: entry.answered_at or 0
    )
    claims = [entry for entry in answered if _claims(entry, end)]
    if not claims:
        return False
    if end == 0 and not any(entry.n_bytes for entry in answered):
        return True  # every form was tried, and none gave a byte
    first, last = claims[0].answered_at or 0.0, claims[-1].answered_at or 0.0
    bytes_past = [
        entry for entry in answered if entry.kind in {"bytes", "whole"} and entry.start + entry.n_bytes > end
    ]
    if any((entry.answered_at or 0.0) <= last for entry in bytes_past):
        return False
    if size_bytes == end:
        return True
    if size_bytes is None or size_bytes < end:
        return _short_before(answered, end) or any(
            entry.arrived_at >= first and entry.start >= end - 1 and _is_claim(entry) for entry in answered
        )
    at_end = [entry.arrived_at for entry in claims if entry.arrived_at >= first]
    in_tail = [
        entry.arrived_at
        for entry in answered
        if _is_claim(entry)
        and size_bytes - TAIL_BYTES - 1 <= entry.start < size_bytes
        and entry.arrived_at >= first
    ]
    return all(_twice_apart(times) for times in (at_end, in_tail))


def _is_claim(entry: Entry) -> bool:
    return entry.kind in {"end", "false end"}


def _claims(entry: Entry, end: int) -> bool:
    # A confirming read starts one byte earlier and may get that byte.
    one_byte = entry.kind == "bytes" and entry.start == end - 1 and entry.n_bytes == 1
    return one_byte or (_is_claim(entry) and end - 1 <= entry.start <= end)


def _twice_apart(times: Iterable[float]) -> bool:
    found = sorted(times)
    return len(found) >= 2 and found[-1] - found[0] >= APART_SECONDS


def _short_before(answered: Sequence[Entry], end: int) -> bool:
    pages = [entry for entry in answered if entry.kind == "bytes"]
    largest = max((page.n_bytes for page in pages), default=inf)
    return any(
        page.start + page.n_bytes == end and page.n_bytes < min(page.end - page.start, largest)
        for page in pages
    )


def retries_in_the_busiest_second(log: Sequence[Entry], *, until: float = inf) -> int:
    """The most reads within any second that ask anew for what was asked for and not given."""
    failed: set[int] = set()
    times = []
    for entry in log:
        if entry.start in failed and entry.arrived_at < until:
            times.append(entry.arrived_at)
        if entry.kind in {"error", "nothing", "cut", None}:
            failed.add(entry.start)
    return max((sum(start <= time < start + 1 for time in times) for start in times), default=0)
