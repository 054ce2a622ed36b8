"""A reader of a web resource's pages from its origin: of a web link, or of a file that a server authorises.

    page [a, b) ─┐
    page [b, c) ─┼─▶ one GET from `a` on, whose body is read as the pages ask for it
    page [z, …) ───▶ another GET

A GET per page would cost a round trip each. So consecutive pages share one body: after the first round trip,
bytes arrive at the speed of the link, and if the reader pauses, TCP's flow control stops the origin. A page
that continues no body (a seek, a second read of a late page) starts another GET.

The URL of a file expires (`downloads`). Then the server authorises a new one, and reading goes on at the same
byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from playhead.client.session.downloads import Download
from playhead.client.session.http_range import UNKNOWN_VERSION, RangeBody, changed, open_range
from playhead.client.transports.http_client import HttpClient
from playhead.errors import (
    ConnectionLostError,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    RangePastEndError,
    StreamBrokenError,
    TransportError,
)
from playhead.limits import GIB, MIB
from playhead.net_guard import Origin, check_url
from playhead.stream.answer import Page

if TYPE_CHECKING:
    from playhead.client.session.arrivals import Arrivals
    from playhead.content.types import FileValue

RENEW_SECONDS: Final = 30.0
"""The shortest time between two authorisations after the first."""
EXPIRED: Final = frozenset({401, 403, 410})
"""Statuses of an expired URL: S3, Azure and CloudFront send 403."""
PLAY_BYTES: Final = MIB
"""The length of the range of one GET for a player. It reads in bursts of about this size, and an origin
should not have to hold an answer open while the audio of a burst plays."""
SAVE_BYTES: Final = 16 * GIB
"""The length of the range of one GET for a file to save, so that one GET reads all of it."""
MOST_IDLE: Final = 2
"""Limits the open bodies that no page is reading. A reader that seeks back may continue them."""


class _SharedBody:
    """The body of one GET, which consecutive pages read in turn."""

    def __init__(self, start: int, stop: int) -> None:
        self.stop = stop
        """End of the requested range."""
        self.position = start
        """The next byte of the body."""
        self.claimed = start
        """The next byte of the body after the pages that wait for their turn."""
        self.turn = trio.Lock()
        """Held by the page that reads the body. It is granted in the order of the requests."""
        self.body: RangeBody | None = None
        self.is_over = False


class HttpRangeReader:
    """A `playhead.stream.answer.ReadRange` of one resource.

    Several reads may run at once. All answers must belong to one version of the resource: `If-Range` is sent,
    and validators and size are compared. Close it with `aclose` when no read is running.
    """

    def __init__(
        self,
        client: HttpClient,
        authorize: str | Callable[[], Awaitable[Download]],
        *,
        allow_origins: frozenset[Origin] = frozenset(),
        run_bytes: int = SAVE_BYTES,
        arrivals: Arrivals | None = None,
    ) -> None:
        """`authorize` is a URL, or a function that returns a new one on each call.

        Only origins in `allow_origins` may serve an authorised download over http. `run_bytes` is the length
        of the range of one GET. `arrivals` is notified of the bytes of the answers. Raises
        `errors.BlockedAddressError` if the URL may not be fetched; see `check_url`.
        """
        self.client = client
        self._authorize = None if isinstance(authorize, str) else authorize
        self._download = Download(url=str(check_url(authorize))) if isinstance(authorize, str) else None
        self._allow_origins = allow_origins
        self._authorizing = trio.Lock()
        self._renewed_at = -RENEW_SECONDS
        self._run_bytes = run_bytes
        self.arrivals = arrivals
        self._version = UNKNOWN_VERSION
        self._read_bytes = 0
        """Offset of the end of the furthest page that was read. The resource has at least this many bytes."""
        self._bodies: list[_SharedBody] = []
        self._broken: StreamBrokenError | None = None
        """The error of a body that broke off and must not be asked for again."""
        self.check: Callable[[], Awaitable[None]] | None = None
        """Awaited before each page if `begin` has failed; see `web_form`."""
        self.file: FileValue | None = None
        """The file as the server described it with its first URL; None for a web link."""

    async def __call__(self, start: int, end: int) -> Page:
        """Read one page. It is short if the resource ends in it.

        Raises:
            RangePastEndError: the resource ends at or before `start`.
            ResourceChangedError: an answer belongs to another version of the resource than the first one.
            ConnectError, ConnectionLostError, DeadlineError, HttpStatusError: a retry may help.
            HttpRefusedError: another status; AccessDeniedError: 401 or 403.
            ProtocolError, RangeNotHonouredError: the origin's answer violates HTTP, or the MCP server's
                authorisation is invalid.
            BlockedAddressError: the URL or a redirect leads to a blocked address.
            ServerError: the server does not authorise the download.

        Cancelled, it closes the connection of the body it was reading.
        """
        if self.check is not None:
            await self.check()
        pieces: list[bytes] = []
        at = start
        mime_type: str | None = None
        while at < end and not self._ends_at(at):
            try:
                piece, mime_type = await self._piece(at, end)
            except (RangePastEndError, StreamBrokenError):
                if not pieces:
                    raise
                break
            pieces.append(piece)
            at += len(piece)
        if at == start:
            raise RangePastEndError(f"the resource ends before byte {start}", code=416)
        blob = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return Page(
            blobs=(blob,),
            mime_type=mime_type,
            total_bytes=self._version.total_bytes,
            etag=self._version.if_range,
            cache_scope="private" if self._version.is_private else None,
        )

    async def begin(self) -> RangeBody:
        """Send the first GET, from byte 0, and return its answer. The first pages then read its body.

        A radio server is asked for its titles. Raises as reading the first page; nothing is left open then.
        Another call returns the same answer.
        """
        if self._bodies and (begun := self._bodies[0].body) is not None:
            return begun
        shared = _SharedBody(0, self._run_bytes)
        body = await self._open_body(shared, 0, wants_titles=True)
        self._bodies.append(shared)
        return body

    async def connect(self) -> RangeBody:
        """Send a GET for an endless body from its present on, as `begin` does, apart from all pages."""
        self._version = UNKNOWN_VERSION
        return await self._open(0, SAVE_BYTES, wants_titles=True)

    def leave_body(self) -> None:
        """Leave the body of `begin` to its caller, who closes it: no page reads it."""
        self._bodies.clear()

    async def aclose(self) -> None:
        """Close every answer that is still open. Idempotent."""
        for shared in tuple(self._bodies):
            await self._drop(shared)

    def _ends_at(self, offset: int) -> bool:
        total = self._version.total_bytes
        return total is not None and offset >= total

    # --- bodies ------------------------------------------------------------------------------------------

    async def _piece(self, start: int, end: int) -> tuple[bytes, str | None]:
        """Return bytes from `start` on, at most up to `end`; none at the end of the resource."""
        was_closed = False
        while True:
            if self._broken is not None and start >= self._broken.offset:
                raise self._broken
            # There is no checkpoint between here and the lock, so the lock's queue has the order of the
            # claims.
            shared = self._claim(start, end)
            is_old = shared.body is not None
            try:
                piece = await self._in_turn(shared, start, shared.claimed)
            except ConnectionLostError:
                # An origin may close an answer that was not read for a while. Then another GET is worth a
                # try.
                if not is_old or was_closed:
                    raise
                was_closed = True
                piece = None
            if piece is not None:
                return piece

    def _claim(self, start: int, end: int) -> _SharedBody:
        for shared in self._bodies:
            if shared.claimed == start < shared.stop:
                break
        else:
            shared = _SharedBody(start, start + self._run_bytes)
            self._bodies.append(shared)
        shared.claimed = min(end, shared.stop)
        return shared

    async def _in_turn(self, shared: _SharedBody, start: int, end: int) -> tuple[bytes, str | None] | None:
        """Wait until the pages before `start` are read, and read on; None if the body ended before."""
        is_read = False
        try:
            async with shared.turn:
                if shared.is_over or shared.position != start:
                    return None
                body = shared.body or await self._open_body(shared, start)
                piece = await body.take(end - start)
                if body.failure is not None:
                    self._broken = cut_short(body, body.failure)
                shared.position = body.position
                is_read = not body.is_over
                self._read_bytes = max(self._read_bytes, start + len(piece) if piece else 0)
                if body.is_over and body.end is None:
                    self._end_at(body.arrived_up_to, body.url)
                if not piece and not self._ends_at(start):
                    return None
                return piece, body.mime_type
        finally:
            if not is_read or shared.is_over:
                await self._drop(shared)

    async def _open_body(self, shared: _SharedBody, start: int, *, wants_titles: bool = False) -> RangeBody:
        await self._drop_idle()
        shared.body = body = await self._open(start, shared.stop, wants_titles=wants_titles)
        if body.version.honours_ranges is False:
            shared.stop = start + SAVE_BYTES  # read it to its end, because another GET would begin at 0 again
        return body

    def _end_at(self, size: int, url: str) -> None:
        """Take the end of a body without a length as the end of the resource."""
        known_bytes = max(self._read_bytes, self._version.total_bytes or 0)
        if size < known_bytes:
            raise changed(url, size, f"a total of {size} bytes in place of {known_bytes} or more")
        self._version = replace(self._version, total_bytes=size)

    async def _drop_idle(self) -> None:
        idle = [each for each in self._bodies if not each.turn.locked()]
        for each in idle[: max(0, len(idle) - MOST_IDLE)]:
            await self._drop(each)

    async def _drop(self, shared: _SharedBody) -> None:
        """Let no further page use a body. It is closed at once or, if a page is reading it, by that page."""
        shared.is_over = True
        if shared in self._bodies:
            self._bodies.remove(shared)
        body = shared.body
        if body is not None and not shared.turn.locked():
            shared.body = None
            await body.aclose()

    # --- the URL -----------------------------------------------------------------------------------------

    async def _open(self, start: int, stop: int, *, wants_titles: bool = False) -> RangeBody:
        while True:
            download = await self._authorized()
            total = self._version.total_bytes
            known = self._version
            try:
                body = await open_range(
                    self.client,
                    download.url,
                    start,
                    stop if total is None else min(stop, total),
                    headers=download.headers,
                    known=known,
                    arrivals=self.arrivals,
                    http_origins=None if self._authorize is None else self._allow_origins,
                    wants_titles=wants_titles,
                )
            except HttpRefusedError as error:
                if self._authorize is None or not (error.status in EXPIRED or download.has_expired):
                    raise
                await self._renew(download, error)
                continue
            try:
                # Compare with `self._version`, not `known`: other answers may have arrived meanwhile.
                self._version = self._version.joined(body.version, url=download.url, start=start)
            except PlayheadError:
                await body.aclose()
                raise
            return body

    async def _authorized(self) -> Download:
        async with self._authorizing:
            if self._download is None:
                assert self._authorize is not None
                self._download = await self._authorize()
                self.file = self._download.file
            return self._download

    async def _renew(self, expired: Download, error: HttpRefusedError) -> None:
        """Request a new URL, once for all reads for which the URL `expired`.

        Within `RENEW_SECONDS` of the last request, raises `error` if no URL has ever worked, and else
        `HttpStatusError` with the time to wait.
        """
        async with self._authorizing:
            if self._download is not expired:
                return
            wait = self._renewed_at + RENEW_SECONDS - trio.current_time()
            if wait > 0:
                if self._version is UNKNOWN_VERSION:
                    raise error
                raise HttpStatusError(
                    f"{error}; its URL is authorised again in {wait:.0f} s",
                    status=error.status,
                    retry_after_seconds=wait,
                ) from error
            assert self._authorize is not None
            previous, self._renewed_at = self._renewed_at, trio.current_time()
            try:
                renewed = await self._authorize()
            except TransportError:
                self._renewed_at = previous  # a request without an answer does not count
                raise
            _check_same(self.file, renewed)
            self._download = renewed


def cut_short(body: RangeBody, error: PlayheadError) -> StreamBrokenError:
    """Return the error for a body without an announced length that broke off. It is made while it is sent, so
    another request would make another one: speech would begin again."""
    return StreamBrokenError(
        f"{error}: expected its end, after {body.position} bytes; it announces no length and may be made as"
        " it is sent, so it is not asked for again; play it again to hear it from the start",
        offset=body.position,
    )


def _check_same(first: FileValue | None, renewed: Download) -> None:
    """Raise `ResourceChangedError` if the server's description of the file differs from the first one."""
    second = renewed.file
    if first is None or second is None:
        return
    for name, old, new in (("size", first.size, second.size), ("digest", first.sha256, second.sha256)):
        if old is not None and new is not None and old != new:
            difference = f"the {name} {new} in place of {old}, when it was authorised again,"
            raise changed(renewed.url, 0, difference)
