"""Read byte ranges of a web resource with HTTP Range requests (RFC 9110, section 14).

Used for `http(s):` links that the MCP server does not list as a resource (`HttpRangeReader`, a `ReadRange`),
and by the example audio server, which fetches its pages from an origin (`fetch_range`). The HTTP client must
be a guarded one (`playhead.net_guard`), because others chose these URLs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

import httpx2
import trio

from playhead.client.session.response_tap import Arrivals
from playhead.client.transports.http_errors import is_retryable, retry_after_seconds
from playhead.errors import (
    AccessDeniedError,
    ConnectError,
    ConnectionLostError,
    ContradictionError,
    DeadlineError,
    HttpRefusedError,
    HttpStatusError,
    LimitError,
    ProtocolError,
    RangeNotHonouredError,
    RangePastEndError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.net_guard import check_url
from playhead.stream.answer import Page

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(?:(\d{1,18})|\*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRange:
    """The answer to one ranged GET. `body` begins at the requested byte."""

    body: bytes
    total_bytes: int | None
    """The size of the resource, if the origin reports it."""
    mime_type: str | None
    etag: str | None


class HttpRangeReader:
    """Reads `[start, end)` of one URL; an instance is a `playhead.stream.answer.ReadRange`.

    Several reads may run at once. The entity tag of the first answer is remembered, and a later answer with a
    different one is refused: pages of two versions must not be mixed.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        arrivals: Arrivals | None = None,
    ) -> None:
        """`arrivals` is notified of the bytes of the answers.

        Raises `errors.BlockedAddressError` if the URL itself cannot be fetched; see `check_url`.
        """
        self._client = client
        self._url = str(check_url(url))
        self._limits = limits
        self._arrivals = arrivals
        self._etag: str | None = None

    async def __call__(self, start: int, end: int) -> Page:
        """Read one page. An origin that ignores ranges delivers its whole body once, at offset 0.

        Raises:
            RangePastEndError: the resource ends at or before `start` (HTTP 416, or a shorter whole body).
            ConnectError, ConnectionLostError, DeadlineError, HttpStatusError: a retry may help.
            HttpRefusedError: another status; AccessDeniedError: 401 or 403.
            ContradictionError: the resource changed since the first page.
            LimitError: the body is longer than `limits.block_bytes`.
            ProtocolError, RangeNotHonouredError: the answer violates HTTP.
            BlockedAddressError: the URL or a redirect leads to a blocked address.

        Cancelled, it closes the connection of this read and no other.
        """
        answer = await fetch_range(
            self._client,
            self._url,
            start,
            end,
            etag=self._etag,
            limits=self._limits,
            may_give_whole=True,
            arrivals=self._arrivals,
        )
        self._etag = _same_version(self._url, start, self._etag, answer.etag)
        return Page(blobs=(answer.body,), mime_type=answer.mime_type, total_bytes=answer.total_bytes)


async def fetch_range(
    client: httpx2.AsyncClient,
    url: str,
    start: int,
    end: int,
    *,
    etag: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    may_give_whole: bool = False,
    arrivals: Arrivals | None = None,
) -> HttpRange:
    """Send one `GET` with `Range: bytes=start-(end-1)` and read the answer within the limits.

    A 206 is used as it is. A 200 is the whole resource from byte 0: the requested part is cut out of it and
    the rest is not downloaded. With `may_give_whole`, a 200 to a range that begins at 0 is returned whole
    instead, so that the caller need not fetch it again for every page. `etag` is the expected one, sent as
    `If-Range`.

    Raises and cancellation: as `HttpRangeReader.__call__`.
    """
    headers = {"range": f"bytes={start}-{end - 1}", "accept-encoding": "identity"}
    if etag is not None and not etag.startswith("W/"):
        headers["if-range"] = etag
    checked = check_url(url)
    with _as_playhead_errors(url):
        async with client.stream("GET", checked, headers=headers) as response:
            _check_status(response, url, start)
            _same_version(url, start, etag, response.headers.get("etag"))
            total_bytes: int | None
            if response.status_code == 206:
                offset, promised, total_bytes = _content_range(response, url, start)
                body = await _read(response, url, skip=0, take=None, limits=limits, arrivals=arrivals)
                if len(body) < promised:
                    raise ConnectionLostError(
                        f"{url} promised {promised} bytes at {offset} and sent {len(body)}; read them again"
                    )
            else:
                total_bytes = _content_length(response)
                if total_bytes is not None and total_bytes <= start and start > 0:
                    raise _past_end(url, start)
                whole = may_give_whole and start == 0
                take = None if whole else end - start
                body = await _read(response, url, skip=start, take=take, limits=limits, arrivals=arrivals)
                if start and not body:
                    raise _past_end(url, start)
            return HttpRange(
                body=body,
                total_bytes=total_bytes,
                mime_type=response.headers.get("content-type"),
                etag=response.headers.get("etag"),
            )


def _check_status(response: httpx2.Response, url: str, start: int) -> None:
    status = response.status_code
    said = f"{url} answered HTTP {status} {response.reason_phrase} to a read at byte {start}"
    if status == 416:
        # "bytes */N" tells the size; a size beyond `start` would contradict the status.
        match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        if match is not None and match[3] is not None and int(match[3]) > start:
            raise ProtocolError(f"{said}, but says that it has {match[3]} bytes")
        raise RangePastEndError(f"{said}: it ends before", code=status)
    if is_retryable(status):
        raise HttpStatusError(
            f"{said}; the read can be repeated",
            status=status,
            retry_after_seconds=retry_after_seconds(response.headers, now=time.time()),
        )
    if status in (401, 403):
        raise AccessDeniedError(f"{said}; expected a link that needs no credentials", status=status)
    if status not in (200, 206):
        raise HttpRefusedError(f"{said}; expected 206 or 200. Check the link", status=status)
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ProtocolError(f"{url} sent content-encoding {encoding!r} although only identity was accepted")


def _same_version(url: str, start: int, expected: str | None, got: str | None) -> str | None:
    """Compare entity tags; return the one to expect from now on."""
    if expected is not None and got is not None and expected != got:
        raise ContradictionError(
            f"{url} changed while it was read: its entity tag was {expected} and is {got} at byte {start}; "
            "read it again from the start",
            offset=start,
        )
    return expected or got


def _past_end(url: str, start: int) -> RangePastEndError:
    return RangePastEndError(f"{url} ends before byte {start}: its whole body is shorter", code=416)


def _content_range(response: httpx2.Response, url: str, start: int) -> tuple[int, int, int | None]:
    """The offset, the length and the total that a 206 claims."""
    text = response.headers.get("content-range", "")
    match = _CONTENT_RANGE.fullmatch(text)
    if match is None or match[1] is None or int(match[2]) < int(match[1]):
        raise ProtocolError(f"{url} answered 206 with Content-Range {text!r}; expected 'bytes {start}-…/…'")
    first, last = int(match[1]), int(match[2])
    if first != start:
        raise RangeNotHonouredError(f"{url} was asked for byte {start} and sent {text!r}", offset=start)
    return first, last - first + 1, int(match[3]) if match[3] is not None else None


def _content_length(response: httpx2.Response) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() else None


async def _read(
    response: httpx2.Response,
    url: str,
    *,
    skip: int,
    take: int | None,
    limits: Limits,
    arrivals: Arrivals | None,
) -> bytes:
    """Read a body: drop `skip` bytes, keep `take` (None: all), and stop there."""
    allowed = limits.block_bytes
    length = _content_length(response)
    ends = [end for end in (length, skip + take if take is not None else None) if end is not None]
    if ends and min(ends) > allowed:
        raise _too_long(url, min(ends), allowed)
    kept = bytearray()
    seen = 0
    # Closed at once if the loop is left early: trio warns about generators left to the garbage collector.
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            if arrivals is not None:
                arrivals.note(trio.current_time())
            kept += chunk[max(skip - seen, 0) :]
            seen += len(chunk)
            if take is not None and len(kept) >= take:
                del kept[take:]
                break
            if seen > allowed:
                raise _too_long(url, seen, allowed)
    return bytes(kept)


def _too_long(url: str, got: int, allowed: int) -> LimitError:
    return LimitError(
        f"{url} would take a body of {got} bytes or more for one read; {allowed} are allowed (block_bytes). "
        "An origin that honours ranges does not need it",
        limit="block_bytes",
        allowed=allowed,
        got=got,
    )


@contextmanager
def _as_playhead_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise ConnectError(f"no connection to {url}: {str(error) or type(error).__name__}") from error
    except httpx2.TimeoutException as error:
        raise DeadlineError(f"{url} sent nothing in time ({type(error).__name__})") from error
    except httpx2.TransportError as error:
        raise ConnectionLostError(f"{url} broke off: {str(error) or type(error).__name__}") from error
    except (httpx2.TooManyRedirects, httpx2.InvalidURL) as error:
        raise ProtocolError(f"{url} redirects in a way that is not followed: {error}") from error
