"""Web resources outside of a session: audio and playlists that the user names by their URLs.

`Web.ask` sends one GET with a range and tells from its answer what the URL is. The player goes on reading the
same answer, so that audio costs no second request.
"""

from __future__ import annotations

import string
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from playhead.client.call_results.call_result import as_media
from playhead.client.call_results.media import ResourceMedia
from playhead.client.live.forms import web_form
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.http_range_reader import PLAY_BYTES, HttpRangeReader
from playhead.client.transports.http_client import guarded_client
from playhead.content.audio import SNIFF_BYTES, AudioFormat, is_audio, sniff, split_mime
from playhead.content.playlists import has_playlist_head, is_playlist
from playhead.errors import HttpRefusedError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.net_guard import Origin, check_url
from playhead.redaction import redacted_url
from playhead.results.candidates import title_of
from playhead.stream.live_source import LinkRate
from playhead.stream.negotiation import RangeForm
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.reader import RangeStream, open_forms

if TYPE_CHECKING:
    from typing import Self

    from mcp_types import ResourceLink

REFUSALS: Final = frozenset({400, 404, 405, 406})
"""Statuses with which an MCP endpoint answers a plain GET."""
_SERVER_TYPES: Final = frozenset({"application/json", "application/problem+json", "text/event-stream"})
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})


class WebKind(Enum):
    """The kind of thing that a URL leads to."""

    AUDIO = auto()
    PLAYLIST = auto()
    SERVER = auto()
    """Neither, and the answer may be that of an MCP endpoint."""
    OTHER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """The answer to the first GET for a URL."""

    kind: WebKind
    got: str
    """The answer for a message: `HTTP 404 Not Found`, `a page of HTML (text/html)`."""
    media: ResourceMedia


class Web:
    """Opens web resources from global addresses and `allow_origins`. A context; `aclose` closes it, too."""

    def __init__(self, *, allow_origins: Collection[Origin] = (), limits: Limits = DEFAULT_LIMITS) -> None:
        self._client = guarded_client(allow_origins=allow_origins, limits=limits)
        self._limits = limits
        self._rate = LinkRate()
        self._begun: dict[str, HttpRangeReader] = {}
        """The readers of `ask` that nobody uses yet."""
        self._answered = set[Origin]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def media(self, url: str, *, title: str = "", mime_type: str | None = None) -> ResourceMedia:
        """Make a playable item of a URL; the last segment of its path is its title by default."""
        return ResourceMedia(uri=url, title=title or title_of(url), mime_type=mime_type, streams=self)

    async def ask(self, url: str) -> WebAnswer:
        """Send one GET for the beginning of `url`, and tell what its answer is.

        Raises what opening it raises, but for a status of `REFUSALS`.
        """
        reader = self._reader(url)
        try:
            body = await reader.begin()
            self._answered.add(origin_of(url))
        except HttpRefusedError as error:
            if error.status not in REFUSALS:
                raise
            is_file = is_playlist(None, url) or is_audio(None, url)
            kind = WebKind.OTHER if is_file else WebKind.SERVER
            return WebAnswer(kind=kind, got=f"HTTP {error.status}", media=self.media(url))
        kind, got = WebKind.SERVER, split_mime(body.mime_type or "")[0] or "no content type"
        if got not in _SERVER_TYPES:  # an event stream may send nothing for hours
            head = await body.peek(SNIFF_BYTES)
            kind = kind_of(url, got, head)
            if got in _HTML_TYPES:
                got = f"a page of HTML ({got})"
            elif kind is WebKind.OTHER and sniff(head) is AudioFormat.TEXT:
                got = f"text ({got})"
        media = self.media(url, mime_type=body.mime_type)
        if kind in (WebKind.AUDIO, WebKind.PLAYLIST):
            self._begun[url] = reader
        else:
            await reader.aclose()
        return WebAnswer(kind=kind, got=got, media=media)

    def has_answered(self, url: str) -> bool:
        """Return whether the origin of `url` has answered `ask`, for any URL."""
        return origin_of(url) in self._answered

    async def read_playlist(self, answer: WebAnswer) -> bytes:
        """Read the whole of a playlist, or just more than `Limits.playlist_bytes`."""
        uri = answer.media.uri
        reader = self._begun.pop(uri, None) or self._reader(uri)
        async with aclosing(reader):
            return await (await reader.begin()).take(self._limits.playlist_bytes + 1)

    @asynccontextmanager
    async def open(
        self, what: ResourceMedia | ResourceLink | str, *, options: StreamOptions | None = None
    ) -> AsyncIterator[RangeStream]:
        """Open a stream of one of its media. Raises `BlockedAddressError` for a URL that may not be read."""
        what = as_media(what, streams=self)
        reader = self._begun.pop(what.uri, None) or self._reader(what.uri)
        assert reader.arrivals is not None
        options, name = options or DEFAULT_OPTIONS, redacted_url(what.uri)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(aclosing(reader))

            async def make_plain() -> RangeForm:
                return RangeForm(name="http-range", read=reader)

            form = web_form(
                reader,
                make_plain,
                options=options,
                limits=self._limits,
                rate=self._rate,
                server_name=name,
                stack=stack,
            )
            stream = open_forms(
                [form],
                options=options,
                limits=self._limits,
                size_bytes=None,
                server_name=name,
                last_received=reader.arrivals.last_received,
            )
            async with stream as opened:  # left before what the form opens on `stack`
                yield opened

    def _reader(self, url: str) -> HttpRangeReader:
        return HttpRangeReader(self._client, encoded_url(url), run_bytes=PLAY_BYTES, arrivals=Arrivals())

    async def aclose(self) -> None:
        """Close what was asked and not played, and every connection."""
        async with self._client:
            while self._begun:
                await self._begun.popitem()[1].aclose()


def kind_of(url: str, mime_type: str, head: bytes) -> WebKind:
    """Tell what an answer with this type and these first bytes is. Pure."""
    audio_format = sniff(head)
    if mime_type in _HTML_TYPES:
        return WebKind.OTHER
    if has_playlist_head(head.decode("latin-1")) or is_playlist(mime_type, url):
        return WebKind.PLAYLIST
    if audio_format is AudioFormat.TEXT:
        return WebKind.OTHER
    named = is_audio(mime_type, None)
    is_named = is_audio(None, url) if named is None else named
    return WebKind.AUDIO if is_named or audio_format is not None else WebKind.OTHER


def encoded_url(url: str) -> str:
    """Encode the characters of a URL as people type it that a request can't have: spaces, other letters."""
    return quote(url, safe=string.punctuation)


def origin_of(url: str) -> Origin:
    """The origin of a URL that the user typed. Raises `BlockedAddressError` for an invalid one."""
    return Origin.of(check_url(encoded_url(url)))
