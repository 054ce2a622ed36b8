"""The decoder of Ogg Vorbis: `VorbisStream` of the Rust core on a source, and the search for a time.

A `VorbisStream` continues at any page. Pages only state where their audio ends, so the audio of the page
before the wanted frame is decoded too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from playhead._core import VorbisStream
from playhead.errors import DecodeError, UnsupportedFormatError
from playhead.playback.byte_rate import ByteRate
from playhead.playback.containers.ogg import page_before
from playhead.playback.decoder_source import MOST_HEADER_BYTES, STEP_BYTES
from playhead.playback.formats import FIRST_FRAMES, LARGE_PIECE_SECONDS, PIECE_FRAMES, PcmFormat
from playhead.playback.header_parser import not_ready
from playhead.playback.seek_search import SeekPoint

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

_RUN_UPS = (0, 1 << 14, 1 << 17)
"""Distances before the wanted frame at which to look for a page, in turn. The first one may fail: the audio
of a page on which no packet begins starts with a later page. A packet has at most 8192 frames."""


class VorbisDecoder:
    """A `PcmDecoder` of Ogg Vorbis."""

    duration_seconds: float | None = None
    """Unknown before the end: only the last page of the file states it."""
    position_is_exact = True

    def __init__(self, source: DecoderSource) -> None:
        self._source = source
        self._stream = VorbisStream()
        self._is_closed = False
        self._silent_bytes = 0
        """Bytes since the last audio."""
        self._is_joined = False
        """True after a gap in the stream, until a page states the time behind it."""
        self._is_behind_end = False
        """True if the stream was restarted behind its last page."""
        source.audio_began()  # nothing here seeks back
        self._byte_rate = ByteRate()
        self._ahead = self._decode(FIRST_FRAMES)
        """Decoded, and not read yet."""
        if self._stream.rate_hz is None or self._stream.channels is None:
            raise source.broken or UnsupportedFormatError(
                "expected Ogg Vorbis, as the first bytes say, got a stream without its headers: it is "
                "damaged, cut off, or in another format"
            )
        self.format = PcmFormat(rate_hz=self._stream.rate_hz, channels=self._stream.channels)
        self._begin = self._stream.start or 0
        """Granule position of frame 0: files cut from a longer one, and live streams, do not begin at 0."""
        self.position_frames = 0
        self._frames = PIECE_FRAMES
        self._large_frames = max(PIECE_FRAMES, int(LARGE_PIECE_SECONDS * self.format.rate_hz))

    @property
    def lacks_end(self) -> bool:
        return not (self._is_behind_end or self._stream.has_ended)

    @property
    def bytes_per_second(self) -> float:
        return self._byte_rate.bytes_per_second

    def read(self) -> bytes:
        pcm, self._ahead = self._ahead or self._decode(self._frames), b""
        if pcm:
            if self._is_joined and self._stream.start is not None:
                self.position_frames, self._is_joined = self._stream.start - self._begin, False
            self.position_frames += len(pcm) // self.format.frame_bytes
            packet_bytes, frames = self._stream.decoded
            self._byte_rate.add(packet_bytes, frames / self.format.rate_hz)
            is_large = self._source.holds_large_piece(self.bytes_per_second)
            self._frames = self._large_frames if is_large else PIECE_FRAMES
        elif not self.lacks_end:
            whole_frames = self.position_frames + self._stream.lost_frames
            self.duration_seconds = whole_frames / self.format.rate_hz
        return pcm

    def _decode(self, frames: int) -> bytes:
        """Return the next samples; empty at the end."""
        if self._is_closed:
            return b""
        while (pcm := self._stream.decode(frames)) is None:
            if self._silent_bytes > MOST_HEADER_BYTES:
                raise DecodeError(
                    f"expected Ogg Vorbis, got {self._silent_bytes} bytes without audio: the file is damaged"
                )
            chunk = self._source.take(STEP_BYTES)
            self._silent_bytes += len(chunk)
            if self._source.take_skipped():
                self._byte_rate = ByteRate(self.bytes_per_second)
                self._stream.restart(self._source.offset - len(chunk))
                self._is_joined = True
            self._stream.feed(chunk)
            if not chunk:
                self._stream.finish()
        self._silent_bytes = 0
        self._source.time.add_audio(len(pcm) / (self._stream.rate_hz or 1) / 2 / (self._stream.channels or 1))
        return pcm

    def seek(self, frame: int) -> None:
        self._source.seek_or_stay(self._seek, frame, before=self.position_frames)

    def _seek(self, frame: int) -> None:
        for run_up in _RUN_UPS:
            if self._restart_before(frame - run_up) <= frame:
                break
        while self.position_frames < frame and (pcm := self._ahead or self._decode(PIECE_FRAMES)):
            self._ahead = pcm[(frame - self.position_frames) * self.format.frame_bytes :]
            self.position_frames += (len(pcm) - len(self._ahead)) // self.format.frame_bytes
        self._byte_rate = ByteRate(self.bytes_per_second)

    def _restart_before(self, frame: int) -> int:
        """Continue at a page before `frame`, or at the beginning. Returns the position."""
        stream, source = self._stream, self._source
        if stream.audio_offset is None or stream.serial is None:
            raise not_ready("Vorbis")
        nominal = (stream.nominal_bytes_per_second or 0) / self.format.rate_hz
        mean = (self.bytes_per_second or self.format.bytes_per_second / 2) / self.format.rate_hz
        page = page_before(
            frame,
            source,
            serial=stream.serial,
            start=SeekPoint(offset=stream.audio_offset, frame=0),
            begin=self._begin,
            bytes_per_frame=min(mean, nominal or mean),
            page_bytes=stream.page_bytes,
        )
        offset = stream.audio_offset
        if page is not None:
            offset = page.end if page.is_last else page.offset
        source.restart(offset)
        source.audio_began()
        stream.restart(offset)
        self._ahead, self._silent_bytes = b"", 0
        self._is_behind_end = page is not None and page.is_last
        granule = None if page is None else page.granule
        if not self._is_behind_end:  # behind the last page is another stream, or nothing
            self._ahead = self._decode(PIECE_FRAMES)
            granule = granule if stream.start is None else stream.start
        self._is_joined = False
        self.position_frames = 0 if granule is None else granule - self._begin
        return self.position_frames

    def close(self) -> None:
        self._is_closed = True
        self._ahead, self._stream = b"", VorbisStream()
