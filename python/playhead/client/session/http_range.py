"""One GET for a byte range of a web resource (RFC 9110, section 14), with its answer checked.

`http_range_reader` reads whole resources with `open_range`; the example audio server fetches its pages with
`fetch_range`. The HTTP client must be a guarded one (`playhead.net_guard`), because servers chose the URLs.
Messages show a URL without its query values, because a signed URL is a secret.
"""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import httpcore2
import trio

from playhead.client.transports.http_client import (
    FOLLOWED,
    TRANSPORT_ERRORS,
    Headers,
    HttpClient,
    HttpRequest,
    HttpResponse,
)
from playhead.client.transports.http_errors import unreachable
from playhead.client.transports.http_network import ICY_REASON
from playhead.client.transports.tls import tls_reason
from playhead.errors import (
    AccessDeniedError,
    BlockedAddressError,
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    HttpRefusedError,
    HttpStatusError,
    ProtocolError,
    RangeNotHonouredError,
    RangePastEndError,
    ResourceChangedError,
    TransportError,
)
from playhead.limits import DEFAULT_LIMITS, Limits, check_block
from playhead.net_guard import REDIRECTS, Origin, check_url
from playhead.redaction import redacted_url
from playhead.retry import is_retryable, retry_after_seconds
from playhead.web_address import WebAddress

if TYPE_CHECKING:
    from playhead.client.session.arrivals import Arrivals

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(?:(\d{1,18})|\*)", re.ASCII)
_NOT_SHARED = re.compile(r"(?:^|[\s,])(?:private|no-store)\b", re.IGNORECASE)
_STRONG_AGE = timedelta(seconds=1)
"""`Last-Modified` is a strong validator if it is a second or more before `Date` (RFC 9110, 8.8.2.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceVersion:
    """The validators (RFC 9110, section 8.8) and the size of a version of a resource."""

    etag: str | None = None
    last_modified: str | None = None
    is_date_strong: bool = False
    total_bytes: int | None = None
    honours_ranges: bool | None = None
    """True if a range was answered with 206, False if with the whole resource; None before the first
    answer."""
    is_private: bool = False
    """True if a shared cache must not store it (`Cache-Control: private`, or `no-store`)."""

    @classmethod
    def of(cls, headers: Mapping[str, str], *, total_bytes: int | None, is_partial: bool) -> ResourceVersion:
        modified, sent = _date(headers.get("last-modified")), _date(headers.get("date"))
        return cls(
            etag=headers.get("etag"),
            last_modified=headers.get("last-modified"),
            is_date_strong=modified is not None and sent is not None and sent - modified >= _STRONG_AGE,
            total_bytes=total_bytes,
            honours_ranges=is_partial,
            is_private=_NOT_SHARED.search(headers.get("cache-control", "")) is not None,
        )

    @property
    def strong_etag(self) -> str | None:
        return None if self.etag is None or self.etag.startswith("W/") else self.etag

    @property
    def if_range(self) -> str | None:
        """The value of `If-Range`: the strong entity tag or, else, a date that is a strong validator.

        None without either, and for a value beyond ASCII, which an answer may contain but a request may not.
        """
        value = self.strong_etag or (self.last_modified if self.is_date_strong else None)
        return value if value is not None and value.isascii() else None

    def difference(self, other: ResourceVersion) -> str | None:
        """Return a phrase for the first difference of `other`; None if both may be the same version."""
        pairs: list[tuple[str, object, object]] = [("total bytes", self.total_bytes, other.total_bytes)]
        if self.strong_etag is None or self.strong_etag != other.etag:
            pairs.append(("entity tag", _opaque(self.etag), _opaque(other.etag)))
            pairs.append(("Last-Modified", self.last_modified, other.last_modified))
            if self.honours_ranges and other.honours_ranges is False:
                return "the whole resource (HTTP 200) in place of a range, as for a changed one"
        for name, ours, theirs in pairs:
            if ours is not None and theirs is not None and ours != theirs:
                return f"{name} {theirs} in place of {ours}"
        return None

    def joined(self, other: ResourceVersion, *, url: str, start: int) -> ResourceVersion:
        """Return this version, completed by `other`, the version of the answer at byte `start`.

        Raises `ResourceChangedError` if they differ.
        """
        if (difference := self.difference(other)) is not None:
            raise changed(url, start, difference)
        preferred = self
        if self.if_range is None and other.if_range is not None:
            preferred = replace(other, total_bytes=self.total_bytes)
        return replace(
            preferred,
            etag=preferred.etag or other.etag,
            last_modified=preferred.last_modified or other.last_modified,
            total_bytes=other.total_bytes if preferred.total_bytes is None else preferred.total_bytes,
            honours_ranges=self.honours_ranges or other.honours_ranges,
            is_private=self.is_private or other.is_private,
        )


def changed(url: str, start: int, difference: str) -> ResourceChangedError:
    """Return the error for an answer at byte `start` that belongs to another version."""
    return ResourceChangedError(
        f"{redacted_url(url)} changed while it was read: got {difference} at byte {start}; read it again from"
        " the start",
        offset=start,
    )


UNKNOWN_VERSION = ResourceVersion()


@dataclass(slots=True, kw_only=True)
class RangeBody:
    """The answer to one ranged GET. Its head was checked, and its body is still arriving.

    `take` returns the bytes from `position` on. Close it with `aclose`.
    """

    url: str
    position: int
    """Offset in the resource of the next byte that `take` returns."""
    end: int | None
    """Offset of the end of the body; None if the answer does not say."""
    version: ResourceVersion
    mime_type: str | None
    arrivals: Arrivals | None
    _response: HttpResponse = field(repr=False)
    _skip: int = 0
    """The number of bytes still to drop, if the origin ignored the range and sends the bytes before it."""
    _rest: bytes = field(default=b"", repr=False)
    """Bytes that have arrived and were not taken yet."""
    failure: TransportError | None = None
    """The error that cut off a body of unknown length, after the bytes that `take` has returned."""
    is_over: bool = False
    """True once the body has ended."""

    @property
    def arrived_up_to(self) -> int:
        """Offset in the resource of the end of the bytes taken or dropped so far. Less than `position` while
        bytes before it are still to be dropped."""
        return self.position - self._skip

    async def take(self, n_bytes: int) -> bytes:
        """Return the next `n_bytes`, or fewer if the body ends before.

        Raises `DeadlineError`, `ConnectionLostError` if the body ends before the promised length, and
        `ProtocolError` if it is longer.
        """
        pieces: list[bytes] = []
        missing = n_bytes
        try:
            with as_playhead_errors(self.url):
                while missing:
                    chunk = self._rest or await self._next()
                    if not chunk:
                        break
                    if self._skip:
                        dropped = min(self._skip, len(chunk))
                        self._skip -= dropped
                        self._rest = chunk[dropped:]
                        continue
                    piece, self._rest = chunk[:missing], chunk[missing:]
                    pieces.append(piece)
                    missing -= len(piece)
                    self.position += len(piece)
                if self.position == self.end and not self._rest and self._is_framed():
                    self._rest = await self._next()  # the end of the message, which frees the connection
        except TransportError as error:
            if not (self.position and self.is_endless):
                raise
            self.failure = error
        if self.end is not None:
            self._check_length(missing)
        return b"".join(pieces)

    async def receive(self) -> bytes:
        """Return the bytes that have arrived, at least one; none at the end of the body. For a body without a
        range. Raises as `take`."""
        if self._rest:
            return self._rest_now()
        first = await self.take(1)
        if not first and self.failure is not None:
            raise self.failure
        return first + self._rest_now()

    def _rest_now(self) -> bytes:
        rest, self._rest = self._rest, b""
        self.position += len(rest)
        return rest

    async def peek(self, n_bytes: int) -> bytes:
        """Return the bytes that `take` will return next. Raises as `take`."""
        piece = await self.take(n_bytes)
        self._rest = piece + self._rest
        self.position -= len(piece)
        self.is_over = False
        return piece

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    @property
    def final_url(self) -> str:
        """The URL that answered, after redirects."""
        return str(self._response.request.url)

    @property
    def is_endless(self) -> bool:
        """True for a whole resource of a length that is not announced."""
        return self.end is None and not self.version.honours_ranges

    @property
    def is_radio(self) -> bool:
        """True for the answer of a radio server: an `icy-*` header, or the status line `ICY 200 OK`."""
        names = ("icy-", "ice-")
        is_icy = self._response.reason.startswith(ICY_REASON) or any(
            it.startswith(names) for it in self.headers
        )
        return is_icy and self.is_endless

    def _is_framed(self) -> bool:
        """Return whether the message has its own end, other than that of the connection."""
        headers = self._response.headers
        return "content-length" in headers or "transfer-encoding" in headers

    async def _next(self) -> bytes:
        if self.failure is not None:
            raise self.failure
        chunk = await self._response.receive()
        if not chunk:
            self.is_over = True
        elif self.arrivals is not None:
            self.arrivals.note(trio.current_time())
        return chunk

    def _check_length(self, missing: int) -> None:
        assert self.end is not None
        if self.is_over and missing and self.position < self.end:
            raise ConnectionLostError(
                f"{redacted_url(self.url)} promised the bytes up to {self.end} and sent those up to"
                f" {self.position}; read them again"
            )
        if self.position > self.end or (self.position == self.end and self._rest):
            raise ProtocolError(
                f"{redacted_url(self.url)} promised the bytes up to {self.end} and sent more; report it to"
                " the author of the origin"
            )
        self.is_over = self.is_over or self.position == self.end

    async def aclose(self) -> None:
        """Close the answer, and its connection too if the body has not ended. Idempotent."""
        await self._response.aclose()


async def open_range(
    client: HttpClient,
    url: str,
    start: int,
    end: int,
    *,
    headers: Mapping[str, str] | None = None,
    known: ResourceVersion = UNKNOWN_VERSION,
    arrivals: Arrivals | None = None,
    http_origins: Container[Origin] | None = None,
    wants_titles: bool = False,
) -> RangeBody:
    """Send `GET` with `Range: bytes=start-(end-1)`, and return the answer when its head has been checked.

    A 206 begins at `start`. A 200 is the whole resource; its bytes before `start` are dropped as they arrive.
    `headers` are sent to the URL's own origin only. `known` is the version of earlier answers, for
    `If-Range`. The caller compares the version of this answer (`ResourceVersion.joined`), because other
    answers may have arrived meanwhile. `wants_titles` asks a radio server for titles between its audio
    (`content.icy`), which every other server ignores. `arrivals` is notified of the bytes. Only
    `http_origins` may be read over http, in redirects too; None allows any.

    Raises:
        RangePastEndError: the resource ends at or before `start` (HTTP 416).
        ResourceChangedError: a 416 for a byte that the known version has.
        ConnectError, ConnectionLostError, DeadlineError, HttpStatusError: a retry may help.
        HttpRefusedError: another status; AccessDeniedError: 401 or 403.
        ProtocolError, RangeNotHonouredError: the answer violates HTTP.
        BlockedAddressError: the URL or a redirect leads to a blocked address.

    Cancelled, it closes the connection of this request and no other.
    """
    ranged = {"range": f"bytes={start}-{end - 1}", "accept-encoding": "identity"}
    if known.if_range is not None:
        ranged["if-range"] = known.if_range
    if wants_titles:
        ranged["icy-metadata"] = "1"
    with as_playhead_errors(url):
        response = await _send(client, url, _encoded(headers or {}), _encoded(ranged), http_origins)
    try:
        return _checked(response, url, start, known=known, arrivals=arrivals)
    except BaseException:  # the answer holds a connection
        await response.aclose()
        raise


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


async def _send(
    client: HttpClient, url: str, own: Headers, ranged: Headers, http_origins: Container[Origin] | None
) -> HttpResponse:
    origin = _checked_origin(url, http_origins)

    def follow(request: HttpRequest, _response: HttpResponse, to: WebAddress) -> HttpRequest:
        is_own = _checked_origin(str(to), http_origins) == origin
        # Another origin must not see these headers. Later redirects do not get them back, even to this
        # origin.
        headers = request.headers if is_own else [pair for pair in request.headers if pair not in own]
        return replace(request, url=to, headers=headers)

    request = HttpRequest(method="GET", url=check_url(url), headers=[*own, *ranged])
    response = await client.send(request, redirect=follow, redirects=REDIRECTS)
    if response.status in FOLLOWED and "location" in response.headers:
        await response.aclose()
        shown = redacted_url(url)
        if response.location is None:
            raise ProtocolError(f"{shown} redirects to an invalid address; check the link")
        raise ProtocolError(f"{shown}: expected at most {REDIRECTS} redirects, got one more; check the link")
    return response


def _checked_origin(url: str, http_origins: Container[Origin] | None) -> Origin:
    origin = Origin.of(check_url(url))
    if http_origins is not None and origin.scheme != "https" and origin not in http_origins:
        raise BlockedAddressError(
            f"will not fetch {redacted_url(url)!r}: expected https, because a download link is a secret; add"
            " its origin to allow_origins to allow http"
        )
    return origin


def _checked(
    response: HttpResponse,
    url: str,
    start: int,
    *,
    known: ResourceVersion,
    arrivals: Arrivals | None,
) -> RangeBody:
    _check_status(response, url, start, known)
    stop: int | None
    total_bytes: int | None
    if response.status == 206:
        first, stop, total_bytes = _content_range(response, url, start)
    else:
        first, stop = 0, _content_length(response)
        total_bytes = stop
        if total_bytes is not None and total_bytes <= start and start > 0:
            if known.total_bytes is not None and known.total_bytes > start:
                raise changed(url, start, f"a total of {total_bytes} bytes in place of {known.total_bytes}")
            raise _past_end(url, start)
    return RangeBody(
        url=url,
        position=start,
        end=stop,
        version=ResourceVersion.of(
            response.headers, total_bytes=total_bytes, is_partial=response.status == 206
        ),
        mime_type=response.headers.get("content-type"),
        arrivals=arrivals,
        _response=response,
        _skip=start - first,
    )


def _check_status(response: HttpResponse, url: str, start: int, known: ResourceVersion) -> None:
    status = response.status
    message = f"{redacted_url(url)} answered HTTP {status} {response.reason} to a read at byte {start}"
    if status == 416:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        total = int(match[3]) if match is not None and match[3] is not None else None
        size = known.total_bytes
        if size is not None and (start < size or total not in {None, size}):
            got = "no total" if total is None else f"a total of {total} bytes"
            raise changed(url, start, f"HTTP 416 with {got} in place of {size}")
        # "bytes */N" gives the size; a size beyond `start` contradicts the status.
        if total is not None and total > start:
            raise ProtocolError(f"{message}, but says that it has {total} bytes")
        raise RangePastEndError(f"{message}: it ends before", code=status)
    if is_retryable(status):
        raise HttpStatusError(
            f"{message}; the read can be repeated",
            status=status,
            retry_after_seconds=retry_after_seconds(response.headers, now=time.time()),
        )
    if status in (401, 403):
        raise AccessDeniedError(f"{message}; expected a link that needs no credentials", status=status)
    if status not in (200, 206):
        raise HttpRefusedError(f"{message}; expected 206 or 200. Check the link", status=status)
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ProtocolError(
            f"{redacted_url(url)} sent content-encoding {encoding!r} although only identity was accepted"
        )


def _past_end(url: str, start: int) -> RangePastEndError:
    return RangePastEndError(
        f"{redacted_url(url)} ends before byte {start}: its whole body is shorter", code=416
    )


def _content_range(response: HttpResponse, url: str, start: int) -> tuple[int, int, int | None]:
    """Return the half-open range and the total size that a 206 claims."""
    text = response.headers.get("content-range", "")
    match = _CONTENT_RANGE.fullmatch(text)
    if match is None or match[1] is None or int(match[2]) < int(match[1]):
        raise ProtocolError(
            f"{redacted_url(url)} answered 206 with Content-Range {text!r}; expected 'bytes {start}-…/…'"
        )
    first, stop, total = int(match[1]), int(match[2]) + 1, None if match[3] is None else int(match[3])
    if first != start:
        raise RangeNotHonouredError(
            f"{redacted_url(url)} was asked for byte {start} and sent {text!r}", offset=start
        )
    if total is not None and stop > total:
        raise ProtocolError(
            f"{redacted_url(url)} answered 206 with Content-Range {text!r}, past its own total; report it to"
            " the author of the origin"
        )
    return first, stop, total


def _content_length(response: HttpResponse) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _opaque(etag: str | None) -> str | None:
    return None if etag is None else etag.removeprefix("W/")


def _date(text: str | None) -> datetime | None:
    try:
        date = None if text is None else parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return None if date is None or date.tzinfo is None else date


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRange:
    """The answer to one ranged GET. `body` begins at the requested byte."""

    body: bytes
    total_bytes: int | None
    """The size of the resource, if the origin reports it."""
    mime_type: str | None
    etag: str | None


async def fetch_range(
    client: HttpClient, url: str, start: int, end: int, *, limits: Limits = DEFAULT_LIMITS
) -> HttpRange:
    """Read `[start, end)` with one GET; fewer bytes if the resource ends before.

    A 200 is the whole resource from byte 0: the requested part is cut out of it, and the rest after it is not
    downloaded. Raises `LimitError`, before the body is read, if more than `limits.block_bytes` would have to
    be downloaded, and otherwise as `open_range`. Cancelled: as `open_range`.
    """
    body = await open_range(client, url, start, end)
    try:
        needed = min(end, end if body.end is None else body.end)
        n_bytes = needed if body.version.honours_ranges is False else needed - start
        what = f"one read of {redacted_url(url)} (an origin that ignores ranges sends what is before it)"
        check_block(n_bytes, allowed=limits.block_bytes, what=what)
        data = await body.take(end - start)
        if start and not data:
            raise _past_end(url, start)
        return HttpRange(
            body=data,
            total_bytes=body.version.total_bytes,
            mime_type=body.mime_type,
            etag=body.version.etag,
        )
    finally:
        await body.aclose()


@contextmanager
def as_playhead_errors(url: str) -> Iterator[None]:
    """Translate the HTTP client's errors about `url`."""
    shown = redacted_url(url)
    try:
        yield
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
        if (reason := tls_reason(error, has_entry=False)) is not None:
            raise ConnectError(f"could not connect to {shown}: {reason}") from error
        raise ConnectError(unreachable(shown, error)) from error
    except httpcore2.TimeoutException as error:
        raise DeadlineError(f"{shown} sent nothing in time ({type(error).__name__})") from error
    except TRANSPORT_ERRORS as error:
        raise ConnectionLostError(f"{shown} broke off: {str(error) or type(error).__name__}") from error
