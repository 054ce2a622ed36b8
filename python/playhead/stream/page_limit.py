"""The largest page that a gateway passes on, learned from the pages that fail.

A page that fails because of its size is read again, half as long, and so are the pages after it. The planner
does not know about the limit.
"""

from __future__ import annotations

import math
import re

from playhead.errors import (
    DeadlineError,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    RangePastEndError,
    ServerEndedError,
    ServerError,
    SessionLostError,
    TransportError,
    WebSocketClosedError,
)
from playhead.limits import KIB
from playhead.stream.answer import Page, ReadRange

SMALLEST_PAGE_BYTES = KIB
"""The smallest page to try: no gateway's limit for a message is so small."""
PAGES_TO_TRIAL = 16
"""Pages of the limit's size after which the double is tried, if no error named the size. Each trial makes the
next one wait for four times as many."""
CONTENT_TOO_LARGE = 413
MESSAGE_TOO_BIG = 1009
"""HTTP's status (RFC 9110) and WebSocket's code (RFC 6455) for a message above the peer's limit."""
_TOO_LARGE = re.compile(
    r"\btoo (large|big|long)\b|\blarger than\b"
    r"|\bexceed\w*\b.{0,40}\b(limit|max\w*|size|length)\b|\b(length|size|buffer) limit\b",
    re.IGNORECASE | re.DOTALL,
)
_OF_ANOTHER_KIND = re.compile(
    r"\b(rate|quota|time|took|takes|taking|requests|calls|range|offset|start|position|file|eof)\b",
    re.IGNORECASE,
)
"""Words of errors about other limits, which smaller pages do not avoid, and about ranges past the end."""


def names_size(error: PlayheadError) -> bool:
    """Return whether an error says that a message was too large, usually for a gateway."""
    if isinstance(error, (HttpRefusedError, HttpStatusError)) and error.status == CONTENT_TOO_LARGE:
        return True
    if isinstance(error, WebSocketClosedError):
        return error.code == MESSAGE_TOO_BIG
    if not isinstance(error, (ServerError, HttpRefusedError, HttpStatusError)):
        return False
    message = error.server_message if isinstance(error, ServerError) and error.server_message else str(error)
    return _TOO_LARGE.search(message) is not None and _OF_ANOTHER_KIND.search(message) is None


class PageLimit:
    """The largest page to request from one server.

    After an error that names the size, half of the page is read at once. After any other failure of a page
    that is larger than all that arrived, the planner's retry reads half of it; as the size may not have been
    the reason, larger pages are tried again later.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None
        """None: no limit is known."""
        self.reads = 0
        """The number of reads sent in addition to those that the planner counts."""
        self._arrived_bytes = 0
        """The size of the largest page that has arrived."""
        self._is_named = False
        """True once an error has named the size, so that the limit is certain."""
        self._arrived_since = 0
        """The number of pages of the limit's size that have arrived since it changed."""
        self._trial_after = PAGES_TO_TRIAL
        self._halved_at = -math.inf
        """The time at which a page last timed out."""

    async def read(self, read: ReadRange, start: int, end: int) -> Page:
        """Read `[start, end)`, or as much of its beginning as the limit allows. Raises the errors of `read`.

        The planner requests the rest. Parts are not joined here, because `RangeSupport` judges each answer of
        the server by itself.
        """
        before = self.bytes
        while True:
            stop = end if self.bytes is None else min(end, start + self.bytes)
            try:
                page = await read(start, stop)
            except PlayheadError as error:
                if not self.failed(stop - start, error):
                    if stop - start <= SMALLEST_PAGE_BYTES:
                        self.bytes = before  # even the smallest page failed, so the size was not the reason
                    raise
                self.reads += 1
                continue
            self._arrived_bytes = max(self._arrived_bytes, page.n_bytes)
            if self.bytes is not None and not self._is_named and page.n_bytes >= self.bytes:
                self._count_full_page(self.bytes)
            return page

    def timed_out(self, n_bytes: int, error: DeadlineError, *, sent_at: float, now: float) -> None:
        """Learn from a read of `n_bytes` to which no byte of an answer arrived in time."""
        if sent_at >= self._halved_at:  # it was sent under the present limit
            self.failed(n_bytes if self.bytes is None else min(n_bytes, self.bytes), error)
            self._halved_at = now

    def failed(self, n_bytes: int, error: PlayheadError) -> bool:
        """Learn from the failure of a page of `n_bytes`. Return whether half of it may be read at once."""
        if n_bytes <= SMALLEST_PAGE_BYTES:
            return False
        is_named = names_size(error)
        if not is_named and not self._is_suspect(n_bytes, error):
            return False
        half = max(n_bytes // 2, SMALLEST_PAGE_BYTES)
        self.bytes = half if self.bytes is None else min(self.bytes, half)
        self._is_named = self._is_named or is_named
        self._arrived_since = 0
        return is_named

    def _is_suspect(self, n_bytes: int, error: PlayheadError) -> bool:
        if isinstance(error, (SessionLostError, ServerEndedError)):
            return False
        is_failure = isinstance(error, (ServerError, TransportError)) and not isinstance(
            error, RangePastEndError
        )
        return is_failure and n_bytes > self._arrived_bytes > 0

    def _count_full_page(self, limit_bytes: int) -> None:
        self._arrived_since += 1
        if self._arrived_since >= self._trial_after:
            self.bytes = 2 * limit_bytes
            self._arrived_since = 0
            self._trial_after *= 4
