"""HLS: the segments of a playlist as one stream, read by our own HTTP client.

    playlist ── again, while it grows ──▶ segments ── range, key, transport stream ──▶ the stream's bytes

FFmpeg would open the URLs in a playlist itself, past the address guard and the limits, so it never gets one.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from playhead.client.session.arrivals import Arrivals
from playhead.client.session.http_range import UNKNOWN_VERSION, RangeBody, ResourceVersion, open_range
from playhead.client.session.http_range_reader import SAVE_BYTES
from playhead.client.transports.http_client import HttpClient
from playhead.content.hls import ByteRange, MasterPlaylist, MediaPlaylist, Segment, SegmentKey, parse_hls
from playhead.content.hls_segments import SegmentAudio, encoding_of
from playhead.errors import (
    ContentError,
    HttpRefusedError,
    LimitError,
    RangePastEndError,
    SeekError,
    StreamBrokenError,
    TransportError,
)
from playhead.limits import KIB, MIB, Limits
from playhead.redaction import redacted_url
from playhead.stream.answer import Page
from playhead.stream.live_source import LinkRate, LiveSource
from playhead.stream.options import StreamSkipped

EMPTY_SECONDS: Final = 0.5
"""Between two readings of a list without a segment: its first one is what the listener waits for."""
LEAST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 30.0
"""Limit the pause between two readings of a list, which is its target duration."""
POLITE_SECONDS: Final = 1.0
"""The shortest pause that the audio in hand asks for."""
NEWEST_SECONDS: Final = 2.0
"""Limits the wait for a newer list before a jump to the newest segment."""
SIGN_SECONDS: Final = 10.0
"""A read that waits for a list to grow gives a sign of life this often, because silence would cancel it."""
MAP_BYTES: Final = MIB
KEY_BYTES: Final = 16
"""The size of a key (AES-128)."""
MEASURED_BYTES: Final = 16 * KIB
"""The smallest segment whose rate counts: a smaller one measures the latency."""


class _Cipher:
    """AES-128-CBC with padding (RFC 8216, section 5.2)."""

    def __init__(self, key: bytes, iv: bytes, *, name: str) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7

        self._decryptor: Any = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
        self._unpadder: Any = PKCS7(128).unpadder()
        self._name = name

    def update(self, data: bytes) -> bytes:
        clear: bytes = self._unpadder.update(self._decryptor.update(data))
        return clear

    def finish(self) -> bytes:
        """Return the last bytes. Raises `ContentError` if the padding is wrong, as with a wrong key."""
        try:
            rest: bytes = self._unpadder.update(self._decryptor.finalize()) + self._unpadder.finalize()
        except ValueError as error:
            raise ContentError(
                f"{self._name}: expected a segment that its key (AES-128) decrypts, got other bytes"
                f" ({error})",
                offset=0,
            ) from error
        return rest


@dataclass(slots=True, kw_only=True, eq=False)
class _Reading:
    """A segment that is being read."""

    segment: Segment
    cipher: _Cipher | None
    started_at: float
    audio: SegmentAudio = field(default_factory=SegmentAudio)
    position: int = 0
    """The bytes read so far: a lost connection goes on there."""
    version: ResourceVersion = UNKNOWN_VERSION
    body: RangeBody | None = None
    has_begun: bool = False
    """True once its first audio was returned."""
    is_over: bool = False


class HlsReader:
    """A `ReadRange` that ignores its range: each answer is the next audio of the list.

    Cancelled: the next call goes on at the same byte.
    """

    def __init__(
        self,
        client: HttpClient,
        url: str,
        data: bytes,
        *,
        limits: Limits,
        patience_seconds: float,
        rate: LinkRate,
        arrivals: Arrivals | None = None,
        read_list: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        """`data` is the playlist that was read from `url`. `read_list` reads it again, by default with a GET.
        Raises as `parse_hls`."""
        self.live = LiveSource(seek=self._seek)
        self.live.requests = 1
        self._client, self._limits, self._arrivals, self._rate = client, limits, arrivals, rate
        self._patience_seconds = patience_seconds
        self._url, self._read_list = url, read_list
        self._list: MediaPlaylist | None = None
        """None until the variant of a master playlist was read."""
        self._read_at = self._grown_at = trio.current_time()
        self._has_grown = True
        """True if the last reading of the list brought a segment."""
        self._first: int | None = None
        """The number of the segment that was played first."""
        self._number = 0
        """The number of the next segment."""
        self._times: dict[int, float] = {}
        """When each listed segment begins, in seconds from the first that was played."""
        self._end_seconds = 0.0
        self._reading: _Reading | None = None
        self._turn = trio.Lock()
        self._left: list[_Reading] = []
        """The segments that seeks have left, to be closed."""
        self._map: ByteRange | None = None
        self._map_data = b""
        self._keys: dict[str, bytes] = {}
        self._encoding: tuple[int, ...] = ()
        self._needs_part = False
        """True if the next segment needs a new decoder in any case."""
        self._live_at: float | None = None
        """The time of the server's newest segment, if that is the next one and the list is old."""
        parsed = parse_hls(data, url, limits=limits)
        if isinstance(parsed, MasterPlaylist):
            self._url, self._read_list = parsed.choose(rate.bits_per_second), None
        else:
            self._take(parsed)

    async def __call__(self, start: int, end: int) -> Page:
        """Return the next audio, or an empty page at the end of the list.

        Raises `StreamBrokenError` for a list that stands still, `UnsupportedFormatError` and `ContentError`
        for what cannot be played, and otherwise as `open_range`.
        """
        async with self._turn:  # after a timeout the next call comes before the end of this one
            return await self._next(start)

    async def _next(self, start: int) -> Page:
        while True:
            while self._left:
                await self._close(self._left.pop())
            reading = self._reading or await self._begin(start)
            if reading is None:
                return Page(blobs=())
            audio = await self._receive(reading)
            if reading is not self._reading:
                continue  # a seek, which also cancels this call
            if reading.is_over:
                self._reading = None
            if not audio:
                continue
            if not reading.has_begun:
                reading.has_begun = True
                encoding = encoding_of(audio)
                if self._needs_part or encoding != self._encoding:
                    self.live.begin_part(start)
                    audio = self._map_data + audio
                self._needs_part, self._encoding = False, encoding
                self.live.set_title(start, reading.segment.title)
            return Page(blobs=(audio,))

    async def aclose(self) -> None:
        for reading in filter(None, (*self._left, self._reading)):
            await self._close(reading)

    # --- the list ------------------------------------------------------------------------------------------

    async def _begin(self, start: int) -> _Reading | None:
        """Begin the next segment, once the list has it; None at the end of the list."""
        if self._live_at is not None:
            await self._take_newest(self._live_at)
        while (segment := self._next_segment()) is None:
            if self._list is not None and self._list.is_ended:
                return None
            await self._read_again()
        if self._first is None:
            self._first = self._number = segment.number
        await self._take_map(segment)
        key = None if segment.key is None else await self._key(segment.key)
        if missed := segment.number - self._number:
            assert self._list is not None
            seconds = missed * self._list.target_seconds
            self.live.notify(StreamSkipped(offset=start, skipped_bytes=0, skipped_seconds=seconds))
        cipher = None
        if key is not None and segment.key is not None:
            cipher = _Cipher(key, segment.key.iv, name=redacted_url(segment.data.url))
        self._reading = _Reading(segment=segment, cipher=cipher, started_at=trio.current_time())
        self._number = segment.number + 1
        return self._reading

    def _next_segment(self) -> Segment | None:
        if self._list is None:
            return None
        if self._first is None:
            return next(iter(self._list.segments[self._list.starts_at() :]), None)
        return next((each for each in self._list.segments if each.number >= self._number), None)

    async def _take_newest(self, at: float) -> None:
        """Go to the server's newest segment, which begins at the time `at`: `_seek` has returned that."""
        with trio.move_on_after(NEWEST_SECONDS):
            await self._read_again()
        self._live_at = None
        assert self._list is not None
        for newest in self._list.segments[-1:]:
            self._number = newest.number
        moved = at - self._times.get(self._number, at)
        self._times = {number: begin + moved for number, begin in self._times.items() if begin + moved >= 0}
        self._end_seconds += moved

    def _take(self, playlist: MediaPlaylist) -> None:
        """Replace the list by a newer reading of it."""
        before, self._list = self._list, playlist
        self._has_grown = (
            before is None or playlist.segments[-1:] != before.segments[-1:] or playlist.is_ended
        )
        if self._has_grown:
            self._grown_at = trio.current_time()
        times: dict[int, float] = {}
        for each in playlist.segments[playlist.starts_at() if not self._times else 0 :]:
            if self._first is None or each.number >= self._first:
                times[each.number] = self._times.get(each.number, self._end_seconds)
                self._end_seconds = max(self._end_seconds, times[each.number] + each.seconds)
        self._times = times
        self.live.duration_seconds = self._end_seconds if playlist.is_ended else None

    async def _read_again(self) -> None:
        """Wait as long as the list asks for, and read it again."""
        if self._list is not None:
            when = self._read_at + self._pause(self._list)
            while (now := trio.current_time()) < when:
                await trio.sleep_until(min(when, now + SIGN_SECONDS))
                if self._arrivals is not None:
                    self._arrivals.note(trio.current_time())
        if self._read_list is not None:
            data = await self._read_list()
        else:
            data = await self._whole(ByteRange(self._url), self._limits.playlist_bytes)
        self._read_at = trio.current_time()
        parsed = parse_hls(data, self._url, limits=self._limits)
        if isinstance(parsed, MasterPlaylist):
            raise ContentError(
                f"{redacted_url(self._url)}: expected a list of segments, got a list of variants", offset=0
            )
        self._take(parsed)
        self._check_patience()

    def _pause(self, playlist: MediaPlaylist) -> float:
        """Return the seconds between two readings of the list: its target duration, but at most half of the
        audio in hand, which a list with a long target duration would outlast."""
        if not playlist.segments:
            return EMPTY_SECONDS
        seconds = min(max(playlist.target_seconds, LEAST_SECONDS), MOST_SECONDS)
        if not self._has_grown:
            seconds = max(seconds / 2, LEAST_SECONDS)
        in_hand = self.live.in_hand_seconds and self.live.in_hand_seconds()
        return seconds if in_hand is None else min(seconds, max(in_hand / 2, POLITE_SECONDS))

    def _check_patience(self) -> None:
        waited = trio.current_time() - self._grown_at
        has_audio = self.live.in_hand_seconds is not None and self.live.in_hand_seconds() > 0
        if waited > self._patience_seconds and not has_audio:
            raise StreamBrokenError(
                f"{redacted_url(self._url)}: expected a live list to grow, or to end with EXT-X-ENDLIST, got"
                f" no new segment for {waited:.0f} s; check the station, and play it again",
                offset=self.live.position,
                advice="raise StreamOptions.patience_seconds to wait longer",
            )

    # --- a segment -----------------------------------------------------------------------------------------

    async def _take_map(self, segment: Segment) -> None:
        """Read the segment's map, if it is another one than before."""
        if segment.map != self._map:
            data = b"" if segment.map is None else await self._whole(segment.map, MAP_BYTES)
            self._map, self._map_data, self._needs_part = segment.map, data, True
        elif segment.is_discontinuous and self._map is not None:
            self._needs_part = True  # its times begin anew

    async def _key(self, key: SegmentKey) -> bytes:
        if key.url not in self._keys:
            data = await self._whole(ByteRange(key.url), KEY_BYTES)
            if len(data) != KEY_BYTES:
                raise ContentError(
                    f"{redacted_url(key.url)}: expected a key of {KEY_BYTES} bytes, got {len(data)}", offset=0
                )
            self._keys = {key.url: data}
        return self._keys[key.url]

    async def _whole(self, data: ByteRange, allowed: int) -> bytes:
        """Read a playlist, a map or a key. Raises `LimitError` for more than `allowed` bytes."""
        self.live.requests += 1
        stop = data.start + allowed + 1 if data.end is None else data.end
        body = await open_range(self._client, data.url, data.start, stop, arrivals=self._arrivals)
        try:
            whole = await body.take(min(stop - data.start, allowed + 1))
        finally:
            await body.aclose()
        if len(whole) > allowed:
            raise LimitError(
                f"{redacted_url(data.url)}: expected a playlist, map or key of at most {allowed} bytes, got"
                " more",
                limit="playlist_bytes",
                allowed=allowed,
                got=len(whole),
            )
        return whole

    async def _receive(self, reading: _Reading) -> bytes:
        """Return the next audio of a segment, perhaps none yet."""
        data = reading.segment.data
        stop = SAVE_BYTES if data.end is None else data.end
        left = stop - data.start - reading.position
        try:
            if reading.body is None and left:
                reading.body = await self._open(reading, data.start + reading.position, stop)
            chunk = b"" if reading.body is None else (await reading.body.receive())[:left]
        except RangePastEndError:
            chunk = b""  # an empty segment, or one that broke off at its very end
        except HttpRefusedError:
            if self._list is None or self._list.is_ended or reading.position:
                raise
            reading.is_over = True  # a live list has just dropped it: the next call goes on with what exists
            return b""
        except (TransportError, trio.Cancelled):
            await self._close(reading)
            raise
        reading.position += len(chunk)
        if chunk:
            return reading.audio.feed(chunk if reading.cipher is None else reading.cipher.update(chunk))
        await self._close(reading)
        reading.is_over = True
        seconds = trio.current_time() - reading.started_at
        if seconds > 0 and reading.position >= MEASURED_BYTES:
            self._rate.bits_per_second = 8 * reading.position / seconds
        rest = b"" if reading.cipher is None else reading.cipher.finish()
        return (reading.audio.feed(rest) if rest else b"") + reading.audio.feed(b"")

    async def _open(self, reading: _Reading, start: int, stop: int) -> RangeBody:
        self.live.requests += 1
        url = reading.segment.data.url
        body = await open_range(
            self._client, url, start, stop, known=reading.version, arrivals=self._arrivals
        )
        try:
            reading.version = reading.version.joined(body.version, url=url, start=start)
        except BaseException:
            await body.aclose()
            raise
        return body

    async def _close(self, reading: _Reading) -> None:
        body, reading.body = reading.body, None
        if body is not None:
            with trio.CancelScope(shield=True):
                await body.aclose()

    # --- seeking -------------------------------------------------------------------------------------------

    def _seek(self, seconds: float) -> tuple[float, float]:
        """See `TimeSeek`: to the segment of that time, if the server still has it, or the nearest."""
        if self._list is None or not self._times:
            raise SeekError(
                "expected a list with segments to seek in, got none yet; wait for the first audio"
            )
        is_old = trio.current_time() >= self._read_at + self._pause(self._list)
        self._live_at = None
        lengths = {each.number: each.seconds for each in self._list.segments}
        if seconds >= self._end_seconds and self._list.is_ended:
            number, begin = self._list.segments[-1].number + 1, self._end_seconds
        elif seconds == math.inf and is_old:
            number, begin = self._number, self._end_seconds
            self._live_at = begin
        else:
            first = next(iter(self._times))
            number = max((each for each, at in self._times.items() if at <= seconds), default=first)
            begin = self._times[number]
        at = seconds if begin <= seconds < begin + lengths.get(number, 0.0) else begin
        if self._reading is not None:
            self._left.append(self._reading)
        self._reading, self._number, self._needs_part = None, number, True
        return begin, at
