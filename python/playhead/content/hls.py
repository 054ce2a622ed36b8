"""HLS playlists (RFC 8216), parsed with the package `m3u8` of the extra `formats`, without I/O.

`m3u8` has two flaws that this file covers: for a damaged line it raises any of Python's exceptions, and it
refuses a target duration with a fraction, which speech servers send. An unsupported tag that changes the
meaning of a segment is an error with the name of the tag, because a player that ignored the tag would play
noise or leave out audio.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from playhead.content.playlists import WEB_URL
from playhead.errors import BlockedAddressError, ContentError, LimitError, UnsupportedFormatError
from playhead.extras import require_extra
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.redaction import redacted_url

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_BITS_PER_SECOND: Final = 128_000
"""The highest bandwidth to choose before a rate is measured. Most links carry it."""
USED_SHARE: Final = 0.7
"""The share of the measured rate that a variant may use. The rest is a reserve for a slower minute."""
_TARGET_DURATION: Final = re.compile(
    r"(?m)^#EXT-X-TARGETDURATION:[ \t]*([0-9]{1,9}(?:\.[0-9]{1,9})?)[ \t]*\r?$"
)
_UNSUPPORTED_TAG: Final = re.compile(
    r"(?m)^#(EXT-X-(?:GAP|DEFINE|SKIP|I-FRAMES-ONLY)\b|EXT-X-KEY:.*\bMETHOD=(?!NONE\b|AES-128\b)[A-Z0-9-]+)"
)
_UNSUPPORTED_KEY_FORMAT: Final = re.compile(r'(?m)^#EXT-X-KEY:.*\bKEYFORMAT="(?!identity")[^"]*"')


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes `[start, end)` at a URL. If `end` is None, the range has no end."""

    url: str
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """The key of an encrypted segment (AES-128-CBC)."""

    url: str
    iv: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment of a media playlist."""

    number: int
    """The media sequence number, which no other segment of the list ever has."""
    data: ByteRange
    seconds: float
    """The duration; 0 for a separator."""
    title: str
    map: ByteRange | None
    """The header that a decoder needs before the data (`EXT-X-MAP`)."""
    key: SegmentKey | None
    is_discontinuous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPlaylist:
    """The segments of a list at the time when it was read. The list may grow."""

    segments: tuple[Segment, ...]
    target_seconds: float
    is_ended: bool
    keeps_all: bool
    """True for a list that drops no segment: of type `EVENT` or `VOD`, or ended."""

    def starts_at(self) -> int:
        """Return the index of the segment to begin with. It is the first one or, in a live window, the last
        one with three target durations from its start to the end (RFC 8216, section 6.3.3)."""
        if self.keeps_all:
            return 0
        index = len(self.segments)
        seconds_to_end = 0.0
        while index > 0 and seconds_to_end < 3 * self.target_seconds:
            index -= 1
            seconds_to_end += self.segments[index].seconds
        return index


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One encoding that a master playlist offers."""

    url: str
    bits_per_second: int
    audio_urls: tuple[str, ...]
    """The lists of the variant's audio group, the default first; none if its own segments have the audio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPlaylist:
    """The variants of one piece, in the order of the list."""

    variants: tuple[Variant, ...]

    def choose(self, rate_bits_per_second: float | None) -> str:
        """Return the URL of the list to play for the best variant that the link carries: its default audio
        list or, without one, its own."""
        most = FIRST_BITS_PER_SECOND if rate_bits_per_second is None else USED_SHARE * rate_bits_per_second
        fitting = [each for each in self.variants if each.bits_per_second <= most]
        lowest = min(self.variants, key=lambda each: each.bits_per_second)
        best = max(fitting, key=lambda each: each.bits_per_second, default=lowest)
        return best.audio_urls[0] if best.audio_urls else best.url


def parse_hls(data: bytes, url: str, *, limits: Limits = DEFAULT_LIMITS) -> MasterPlaylist | MediaPlaylist:
    """Parse an HLS playlist that was read from `url`.

    Raises:
        UsageError: the extra `formats` is not installed.
        LimitError: it has more than `Limits.playlist_bytes`.
        UnsupportedFormatError: it has a tag that is not supported; the message names it.
        BlockedAddressError: a segment, map or key is not at an http or https URL.
        ContentError: it is damaged, or has no variants.
    """
    shown, allowed = redacted_url(url), limits.playlist_bytes
    if len(data) > allowed:
        raise LimitError(
            f"{shown}: expected a playlist of at most {allowed} bytes (Limits.playlist_bytes), got more",
            limit="playlist_bytes",
            allowed=allowed,
            got=len(data),
        )
    text = data.decode("utf-8-sig", "replace")
    if (refused := _UNSUPPORTED_TAG.search(text) or _UNSUPPORTED_KEY_FORMAT.search(text)) is not None:
        tag = refused[0].lstrip("#")
        raise UnsupportedFormatError(
            f"{shown}: expected HLS with clear segments or AES-128, got {tag[:120]}, which is not supported"
        )
    require_extra("formats", "HLS playlists")
    import m3u8

    target = _TARGET_DURATION.search(text)
    text = _TARGET_DURATION.sub("#EXT-X-TARGETDURATION:1", text)
    try:
        parsed = m3u8.loads(text, uri=url)
        if parsed.is_variant:
            return _master_playlist(parsed)
        return _media_playlist(parsed, float(target[1]) if target is not None else math.inf)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError) as error:
        raise ContentError(
            f"{shown}: expected an HLS playlist (RFC 8216), got a damaged one ({error})", offset=0
        ) from error


def _master_playlist(parsed: Any) -> MasterPlaylist:
    groups: dict[str, list[tuple[bool, str]]] = {}
    for each in parsed.media:
        if each.type == "AUDIO" and each.uri:
            groups.setdefault(each.group_id, []).append(
                (each.default != "YES", _require_web_url(each.absolute_uri))
            )
    variants = tuple(
        Variant(
            url=_require_web_url(each.absolute_uri),
            bits_per_second=each.stream_info.bandwidth or 0,
            audio_urls=tuple(url for _, url in sorted(groups.get(each.stream_info.audio, ()))),
        )
        for each in parsed.playlists
    )
    if not variants:
        raise ValueError("no variants")
    return MasterPlaylist(variants=variants)


def _media_playlist(parsed: Any, target_seconds: float) -> MediaPlaylist:
    segments: list[Segment] = []
    first = parsed.media_sequence or 0
    for number, each in enumerate(parsed.segments, first):
        seconds = float(each.duration or 0.0)
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a segment of {seconds} s")
        segments.append(
            Segment(
                number=number,
                data=_byte_range(each.absolute_uri, each.byterange, segments),
                seconds=seconds,
                title=each.title or "",
                map=None if each.init_section is None else _byte_range_of_map(each.init_section),
                key=_segment_key(each.key, number),
                is_discontinuous=bool(each.discontinuity),
            )
        )
    longest = max((each.seconds for each in segments), default=0.0)
    is_ended = bool(parsed.is_endlist)
    return MediaPlaylist(
        segments=tuple(segments),
        target_seconds=target_seconds if target_seconds < math.inf else longest,
        is_ended=is_ended,
        keeps_all=is_ended or parsed.playlist_type in ("event", "vod"),
    )


def _byte_range(url: str, text: str | None, before: Sequence[Segment]) -> ByteRange:
    """Parse `LENGTH@OFFSET`; without an offset, the range follows the previous segment at the same URL."""
    if not text:
        return ByteRange(_require_web_url(url))
    length, _, offset = text.partition("@")
    start = int(offset) if offset else 0
    if not offset and before and before[-1].data.url == url:
        start = before[-1].data.end or 0
    return ByteRange(_require_web_url(url), start, start + int(length))


def _byte_range_of_map(section: Any) -> ByteRange:
    return _byte_range(section.absolute_uri, section.byterange, ())


def _segment_key(key: Any, number: int) -> SegmentKey | None:
    if key is None or key.method == "NONE":
        return None
    iv = int(key.iv, 16) if key.iv else number
    return SegmentKey(url=_require_web_url(key.absolute_uri), iv=iv.to_bytes(16, "big"))


def _require_web_url(url: str) -> str:
    if not WEB_URL.match(url):
        raise BlockedAddressError(f"expected an http or https URL in an HLS playlist, got {url[:80]!r}")
    return url
