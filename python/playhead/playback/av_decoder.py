"""Decoders of the extra `formats`, on PyAV: Opus and FLAC in Ogg, AAC (ADTS), MP4 with AAC or ALAC, WebM.

FFmpeg's demuxer reads MP4 and WebM through a file on the source. Ogg and ADTS are cut into packets here,
because FFmpeg's Ogg demuxer reads the end of a stream first, and its ADTS demuxer only estimates times.

After a seek, a codec must decode some audio before the target: its run-up. Opus converges within 80 ms (RFC
7845, section 4.6), but its samples are the same as without a seek only after a second. AAC overlaps one
frame, and gets three. No run-up restores the state from which AAC draws substituted noise, so that noise
differs after a seek.

All containers are in this file, because importing PyAV takes 0.2 s and must stay in one lazy module.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.container import InputContainer
from av.stream import Discard

from playhead._core import OggPage, OggReader
from playhead.content.audio import AudioFormat
from playhead.content.coded_frames import ADTS_BYTES, adts_frame, find_frame
from playhead.errors import DecodeError, SeekError, UnsupportedFormatError
from playhead.playback.byte_rate import ByteRate
from playhead.playback.containers.adts import AAC_RUN_UP, AdtsLocator
from playhead.playback.containers.flac import flac_info
from playhead.playback.containers.mp4 import Mp4Tables
from playhead.playback.containers.ogg import page_before
from playhead.playback.decoder_source import MOST_HEADER_BYTES, STEP_BYTES, DecoderSource
from playhead.playback.formats import PcmFormat, SampleFormat, require_playable
from playhead.playback.seek_search import SeekPoint, look_for

if TYPE_CHECKING:
    from typing_extensions import Buffer

READ_BYTES = 16 * 1024
"""The size of a demuxer's reads: small, so that little is read before the first audio."""
CODECS = ("aac", "alac", "flac", "libopus", "mp3", "mp3float", "opus", "vorbis")
"""The FFmpeg decoders that may run. Files can name hundreds of others, which are used and tested less."""
_OPUS_RUN_UP = 48_000
_RUN_UPS = {"opus": _OPUS_RUN_UP, "libopus": _OPUS_RUN_UP, "alac": 0, "flac": 0}
_OPUS_STEP = 120
"""The samples of Opus's shortest frame: 2.5 ms at 48 kHz, which is Opus's rate."""

_ENCODINGS = {AudioFormat.MP4: "mov", AudioFormat.WEBM: "matroska"}


class _Packets(ABC):
    """Coded audio on a source, decoded to FFmpeg's frames, each with the number of its first PCM frame."""

    duration_seconds: float | None = None
    position_is_exact = True
    lacks_end = False
    end_frame: int | None = None
    """The PCM frame at which the audio ends and padding follows; None while that is not known."""

    @property
    @abstractmethod
    def taken_bytes(self) -> int: ...

    @abstractmethod
    def decode(self) -> list[tuple[AudioFrame, int]] | None:
        """Return the next frames, perhaps none yet; None at the end."""

    @abstractmethod
    def seek(self, frame: int) -> None:
        """Continue far enough before `frame` for it to be decoded correctly."""

    def close(self) -> None:  # noqa: B027 - only a container has something to free
        """Close the file, if any."""


class AvDecoder:
    """A `PcmDecoder` on PyAV. Integers of at most 16 bits become 16-bit integers, all others floats."""

    def __init__(self, source: DecoderSource, audio_format: AudioFormat) -> None:
        self._source = source
        source.time.resume()  # importing PyAV does not count
        self._name = audio_format.value
        self._pending: list[tuple[AudioFrame, int]] = []
        self._is_closed = False
        self.position_frames = 0
        with _DecodeErrors(self._name):
            self._packets = _open(source, audio_format)
            self._fill()
        if not self._pending:
            if source.broken is not None:
                raise source.broken
            raise UnsupportedFormatError(
                f"expected {self._name}, as the first bytes say, got a stream without decodable audio: it is "
                "damaged, cut off, or in another format"
            )
        frame = self._pending[0][0]
        is_small = frame.format.name in ("u8", "u8p", "s16", "s16p")
        sample = SampleFormat.S16 if is_small else SampleFormat.F32
        shape = PcmFormat(rate_hz=frame.rate, channels=frame.layout.nb_channels, sample=sample)
        self.format = require_playable(shape)
        self._resampler = self._new_resampler()
        self.duration_seconds = self._packets.duration_seconds
        self._byte_rate = ByteRate()
        self._started_bytes = self._started_frames = 0
        """The bytes and PCM frames at which the measurement of the byte rate started."""

    @property
    def position_is_exact(self) -> bool:
        return self._packets.position_is_exact

    @property
    def lacks_end(self) -> bool:
        return self._packets.lacks_end

    @property
    def bytes_per_second(self) -> float:
        return self._byte_rate.bytes_per_second

    def read(self) -> Buffer:
        while not self._is_closed:
            with _DecodeErrors(self._name):
                if not self._fill():
                    if (end := self._packets.end_frame) is not None:
                        self.duration_seconds = end / self.format.rate_hz
                    return b""
                frame, begin = self._pending.pop(0)
                if (frame.rate, frame.layout.nb_channels) != (self.format.rate_hz, self.format.channels):
                    raise DecodeError(
                        f"expected audio of {self.format.rate_hz} Hz and {self.format.channels} channels as "
                        f"before, got {frame.rate} Hz and {frame.layout.nb_channels}: the file is damaged"
                    )
                pcm = b"".join(
                    bytes(part.planes[0])[: part.samples * self.format.frame_bytes]
                    for part in self._resampler.resample(frame)
                )
            # Drop the samples before the position: the run-up of the beginning or of a seek.
            end = self._packets.end_frame
            stop = len(pcm) if end is None else max(0, end - begin) * self.format.frame_bytes
            pcm = pcm[max(0, self.position_frames - begin) * self.format.frame_bytes : stop]
            if pcm:
                skipped = max(0, begin - self.position_frames)
                self._started_frames += skipped
                self.position_frames += skipped + len(pcm) // self.format.frame_bytes
                self._byte_rate.add(
                    max(1, self._packets.taken_bytes - self._started_bytes),
                    (self.position_frames - self._started_frames) / self.format.rate_hz,
                )
                return pcm
        return b""

    def seek(self, frame: int) -> None:
        self._source.seek_or_stay(self._seek, frame, before=self.position_frames)

    def _seek(self, frame: int) -> None:
        end = None if self.duration_seconds is None else round(self.duration_seconds * self.format.rate_hz)
        with _DecodeErrors(self._name):
            self._packets.seek(frame if end is None else min(frame, end))
            self._pending.clear()
            self._resampler = self._new_resampler()
            reached = frame
            while self._fill():
                first, begin = self._pending[0]
                if (reached := begin + first.samples) > frame:
                    break
                self._pending.pop(0)  # a run-up
        # Lower than `frame` if the stream ends before it.
        self.position_frames = min(frame, reached, self._packets.end_frame or frame)
        self._byte_rate = ByteRate(self.bytes_per_second)
        self._started_bytes, self._started_frames = self._packets.taken_bytes, frame

    def _fill(self) -> bool:
        while not self._pending:
            self._source.time.check()
            frames = self._packets.decode()
            if frames is None:
                return False
            self._pending += frames
            self._source.time.add_audio(sum(frame.samples / (frame.rate or 1) for frame, _place in frames))
        return True

    def _new_resampler(self) -> av.AudioResampler:
        name = "s16" if self.format.sample is SampleFormat.S16 else "flt"
        return av.AudioResampler(format=name)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._packets.close()


_BYTE_ERRORS = (av.FFmpegError, ValueError, MemoryError, OverflowError, IndexError)
"""PyAV's errors for damaged bytes. `IndexError` means a stream that FFmpeg found while it demuxed."""


class _DecodeErrors:
    """Turns FFmpeg's errors, which damaged bytes cause, into `DecodeError`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _BYTE_ERRORS):
            reason = getattr(error, "strerror", None) or error
            raise DecodeError(
                f"the {self._name} decoder failed ({reason}): the bytes are damaged or cut off"
            ) from error


def _open(source: DecoderSource, audio_format: AudioFormat) -> _Packets:
    source.audio_began()  # nothing here seeks back
    if audio_format in _ENCODINGS:
        return _Container(source, _ENCODINGS[audio_format])
    if audio_format is AudioFormat.AAC:
        return _Adts(source)
    return _Ogg(source)


# --- MP4, WebM -------------------------------------------------------------------------------------------


class _File(io.RawIOBase):
    """The source as a file, for a demuxer. A seek takes effect at the next read.

    FFmpeg continues to read after an error. So after a failed read, `read` returns the end of the file, and
    `reading` raises the failure.
    """

    def __init__(self, source: DecoderSource, *, is_mp4: bool) -> None:
        self._source = source
        self._is_mp4 = is_mp4
        self._position = source.offset
        self._failure: Exception | None = None
        self.tables = Mp4Tables()
        self.taken_bytes = 0
        self.is_open = False
        """True once the headers were read."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise the error of a read in the block, in place of FFmpeg's error."""
        try:
            yield
        finally:
            if self._failure is not None:
                raise self._failure

    @property
    def is_interrupted(self) -> bool:
        """True if a seek has interrupted a read. FFmpeg takes that for the end, and cannot resume."""
        return isinstance(self._failure, TimeoutError)

    def rewind(self) -> None:
        """Begin anew, for another demuxer."""
        self._position, self._failure = 0, None

    def is_end(self, offset: int) -> bool:
        return offset == (self._source.offset if self._source.is_at_end else self._source.size_bytes)

    def read(self, size: int = -1) -> bytes:
        if self._failure is not None:
            return b""
        try:
            if self._position != self._source.offset:
                self._source.restart(self._position)
                self._source.audio_began()
            data = self._source.take(size)
            self._check(data)
            self._position = self._source.offset  # farther on if the server has dropped bytes
        except Exception as error:  # noqa: BLE001  # raised by `reading`
            self._failure = error
            return b""
        return data

    def _check(self, data: bytes) -> None:
        self.taken_bytes += len(data)
        if not self.is_open and self.taken_bytes > MOST_HEADER_BYTES:
            raise UnsupportedFormatError(
                f"expected audio, got none in the first {MOST_HEADER_BYTES} bytes: the file is damaged"
            )
        if self._is_mp4 and (self.tables.is_fragmented or not self.is_open):
            self.tables.feed(self._position, data, taken_bytes=self.taken_bytes)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence != io.SEEK_SET:
            if self._source.size_bytes is None:
                return -1  # unknown; nothing that plays needs it
            offset += self._source.size_bytes
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position


class _Container(_Packets):
    """A file that FFmpeg demuxes; its packets state their times."""

    def __init__(self, source: DecoderSource, name: str) -> None:
        self._file = _File(source, is_mp4=name == "mov")
        self._name = name
        self._open()

    def _open(self) -> None:
        # Without `ignidx` the demuxer visits every fragment of a fragmented file before the first audio.
        try:
            with self._file.reading():
                container = av.open(
                    self._file,
                    format=self._name,
                    buffer_size=READ_BYTES,
                    options={"fflags": "ignidx", "codec_whitelist": ",".join(CODECS)},
                    metadata_errors="ignore",
                )
        except SeekError as error:
            raise UnsupportedFormatError(
                "expected a file whose index comes first, as the source cannot seek, got one with its index "
                "at the end; serve it with ranges, or move the index"
            ) from error
        assert isinstance(container, InputContainer)
        self._container = container
        try:
            self._take_stream(container)
        except BaseException:  # `close` is not called if the constructor fails
            container.close()
            raise

    def _take_stream(self, container: InputContainer) -> None:
        if not container.streams.audio:
            raise UnsupportedFormatError("expected a file with audio, got one without an audio stream")
        self._stream = container.streams.audio[0]
        codec = getattr(self._stream.codec_context, "name", "one that FFmpeg does not know")
        if codec not in CODECS:
            raise UnsupportedFormatError(f"expected audio in a codec of {', '.join(CODECS)}; got {codec}")
        self._stream.codec_context.thread_count = 1
        for stream in container.streams:
            if stream is not self._stream:
                stream.discard = Discard.all
        self._rate_hz = self._stream.rate or self._stream.codec_context.sample_rate
        self._unit = self._stream.time_base
        duration = self._stream.duration
        self.duration_seconds = None
        if duration and self._unit is not None:
            self.duration_seconds = float(duration * self._unit)
        elif container.duration:
            self.duration_seconds = container.duration / av.time_base
        if self._file.tables.is_fragmented:
            self.duration_seconds = None  # the file states only the duration of its first fragment
        head = self._stream.codec_context.extradata or b""
        self._pre_skip = _opus_pre_skip(head) if self._name == "matroska" else None
        self._first_time: int | None = None
        self._demuxed = self._container.demux(self._stream)

    @property
    def taken_bytes(self) -> int:
        return self._file.taken_bytes

    def decode(self) -> list[tuple[AudioFrame, int]] | None:
        with self._file.reading():
            packet = next(self._demuxed, None)
        if packet is None:
            return None
        try:
            frames = packet.decode()
        except av.FFmpegError:
            if not packet.size or packet.pos is None or not self._file.is_end(packet.pos + packet.size):
                raise
            self.lacks_end = True  # the last packet is incomplete, so the file is cut short
            return None
        self._file.is_open |= bool(frames)
        if self._pre_skip is not None and packet.pts is not None and packet.size:
            return [(frame, self._opus_place(packet, frame)) for frame in frames]
        return [(frame, self._place(frame)) for frame in frames]

    def _opus_place(self, packet: av.Packet[av.AudioStream], frame: AudioFrame) -> int:
        """Return the number of the frame's first PCM frame."""
        # WebM rounds times to milliseconds. Opus packets are multiples of 2.5 ms apart, so round to these.
        assert packet.pts is not None
        assert self._unit is not None
        assert self._pre_skip is not None
        if self._first_time is None:
            self._first_time = packet.pts
        samples = (packet.pts - self._first_time) * self._unit * frame.rate
        begin = round(samples / _OPUS_STEP) * _OPUS_STEP - self._pre_skip
        cut = max(0, _opus_samples(bytes(packet)) - frame.samples)
        # The decoder cuts samples from the front at the beginning of a stream, and from the back at its end.
        return begin + cut if begin < 0 else begin

    def _place(self, frame: AudioFrame) -> int:
        if frame.pts is None or frame.time_base is None:
            raise DecodeError("expected packets with times, got one without: the file is damaged")
        return round(frame.pts * frame.time_base * frame.rate)

    def seek(self, frame: int) -> None:
        run_up = _RUN_UPS.get(self._stream.codec_context.name, AAC_RUN_UP * 2048)
        assert self._unit is not None
        begin = (frame - run_up) / self._rate_hz
        # FFmpeg does not seek to the priming before the beginning.
        if begin < 0 or self._file.is_interrupted:
            self._container.close()
            self._file.rewind()
            self._open()
        if begin < 0:
            return
        try:
            with self._file.reading():
                place = int(begin / self._unit)
                self._container.seek(place, stream=self._stream, backward=True, any_frame=False)
        except av.FFmpegError as error:
            raise SeekError(
                f"expected a file with an index to seek by, got none for {frame / self._rate_hz:.1f} s "
                f"({error}); let it play"
            ) from error
        self._demuxed = self._container.demux(self._stream)

    def close(self) -> None:
        self._container.close()


# --- Ogg -------------------------------------------------------------------------------------------------


class _Ogg(_Packets):
    """Opus (RFC 7845) or FLAC in Ogg, one logical stream."""

    taken_bytes = 0
    lacks_end = True

    def __init__(self, source: DecoderSource) -> None:
        self._source = source
        self._reader = OggReader()
        self._serial: int | None = None
        self._begin: int | None = None
        self._is_opus, self._pre_skip = False, 0
        self._frames: int | None = None
        """The frames of the whole file, if its headers state them."""
        self._packets = self._read_packets()
        head = self._header()
        if (pre_skip := _opus_pre_skip(head)) is not None:
            self._codec, self._extradata = "opus", head
            self._is_opus, self._pre_skip = True, pre_skip
            self._header()
        elif head.startswith(b"\x7fFLAC") and (info := flac_info(head[9:])) is not None:
            self._codec, self._extradata = "flac", info.block
            if info.samples and info.rate_hz:
                self._frames, self.duration_seconds = info.samples, info.samples / info.rate_hz
        else:
            raise UnsupportedFormatError("expected Opus or FLAC in Ogg, got incomplete headers")
        self._start = self._reader.offset
        self._page_bytes = 0
        self._next = -self._pre_skip
        self._context = self._new_context()

    def _header(self) -> bytes:
        packet = next(self._packets, None)
        if packet is None:
            if self._source.broken is not None:
                raise self._source.broken
            raise UnsupportedFormatError("expected the headers of an Ogg stream, got its end")
        return packet

    def _new_context(self) -> AudioCodecContext:
        context = AudioCodecContext.create(self._codec, "r")
        assert isinstance(context, AudioCodecContext)
        context.extradata = self._extradata
        context.thread_count = 1
        return context

    def _read_packets(self) -> Generator[bytes, None, None]:
        while (page := self._page()) is not None:
            if self._serial is None:
                self._serial = page.serial
            if page.serial != self._serial:
                if page.is_first and not self.lacks_end:
                    raise DecodeError(
                        f"expected one Opus or FLAC stream, got the begin of another at byte {page.offset}:"
                        " chained files are not played past their first stream; split the file there"
                    )
                continue
            self._page_bytes = page.end - page.offset
            self.lacks_end = not page.is_last
            packets = page.packets
            if page.granule and self._begin is None:
                self._begin = self._begin_granule(page, packets)
            if page.is_last and page.granule is not None:  # the rest of its last packet is padding
                self.end_frame = page.granule - (self._begin or 0)
            if self._is_opus and page.granule is not None and self._source.take_skipped():
                self._next = page.granule - (self._begin or 0) - sum(map(_opus_samples, packets))
            yield from packets

    def _begin_granule(self, page: OggPage, packets: list[bytes]) -> int:
        """Return the time of PCM frame 0: files cut from a longer one do not begin at 0."""
        if not self._is_opus or page.granule is None or page.is_continued or page.is_last or page.is_open:
            return self._pre_skip
        return page.granule - sum(map(_opus_samples, packets)) + self._pre_skip

    def _page(self) -> OggPage | None:
        while (page := self._reader.next_page()) is None:
            chunk = self._source.take(STEP_BYTES)
            self._reader.feed(chunk)
            if not chunk:
                self._reader.finish()
                page = self._reader.next_page()
                break
        if page is not None:
            self.taken_bytes += page.end - page.offset
        return page

    def decode(self) -> list[tuple[AudioFrame, int]] | None:
        packet = next(self._packets, None)
        if packet is None:
            return None
        if not packet or (not self._is_opus and packet[:1] != b"\xff"):
            return []  # an empty packet, which would end the decoder, or another header
        frames = self._context.decode(av.Packet(packet))
        # A new Opus decoder drops as much as the pre-skip from its first packet, so count by packets.
        self._next += _opus_samples(packet) if self._is_opus else sum(frame.samples for frame in frames)
        return [(frame, self._next - frame.samples) for frame in frames]

    def seek(self, frame: int) -> None:
        done = max(1, self._next + self._pre_skip)
        page = page_before(
            frame - _OPUS_RUN_UP if self._is_opus else frame,
            self._source,
            serial=self._serial or 0,
            start=SeekPoint(offset=self._start, frame=-self._pre_skip),
            begin=self._begin or 0,
            bytes_per_frame=(self._reader.offset - self._start) / done if self._next > 0 else 0.25,
            page_bytes=self._page_bytes,
            end_frame=self._frames,
        )
        offset = self._start if page is None else page.offset
        self._source.restart(offset)
        self._source.audio_began()
        self._reader = OggReader(offset=offset, serial=self._serial)
        self._next = -self._pre_skip
        if page is not None and page.granule is not None:
            self._next = page.granule - (self._begin or 0)
            self._page()  # the audio continues after this page
            self.lacks_end = not page.is_last
        self._packets = self._read_packets()
        self._context = self._new_context()


def _opus_pre_skip(head: bytes) -> int | None:
    """Return the samples before the beginning (RFC 7845, section 5.1); None if `head` is not an OpusHead."""
    is_head = head.startswith(b"OpusHead") and len(head) >= 19
    return int.from_bytes(head[10:12], "little") if is_head else None


def _opus_samples(packet: bytes) -> int:
    """Return the duration of a packet at 48 kHz (RFC 6716, section 3.1)."""
    if not packet:
        return 0
    config, code = packet[0] >> 3, packet[0] & 3
    if config < 12:
        samples = (480, 960, 1920, 2880)[config & 3]
    elif config < 16:
        samples = (480, 960)[config & 1]
    else:
        samples = (120, 240, 480, 960)[config & 3]
    if code == 3:  # the next byte has the number of frames
        return samples * (packet[1] & 63) if len(packet) > 1 else 0
    return samples if code == 0 else 2 * samples


# --- ADTS ------------------------------------------------------------------------------------------------


class _Adts(_Packets):
    """AAC frames with headers."""

    taken_bytes = 0

    def __init__(self, source: DecoderSource) -> None:
        self._source = source
        self._locator = AdtsLocator(source.offset)
        source.on_read = self._locator.feed
        self._next = 0
        self._context = AudioCodecContext.create("aac", "r")

    def decode(self) -> list[tuple[AudioFrame, int]] | None:
        data = self._source.peek(ADTS_BYTES)
        header = adts_frame(data, 0)
        if header is not None:
            data = self._source.peek(header.size_bytes)
        if missing_bytes := self._source.leave_gap():
            offset = self._source.offset
            at = look_for(self._source, offset, lambda data: find_frame(data, adts_frame)) or 0
            self._source.take(at)
            missing_bytes += at
            self._next += round(missing_bytes / self._locator.mean_bytes) * self._locator.samples
            self.position_is_exact = False
            return []
        if header is None or len(data) < header.size_bytes:
            if self._source.broken is not None:
                raise self._source.broken
            self.lacks_end = header is not None  # half a frame
            if len(data) < ADTS_BYTES or header is not None or data[:3] in (b"TAG", b"APE"):
                return None
            raise DecodeError(f"expected an ADTS frame, got {data.hex(' ')}: the bytes are damaged")
        self._source.take(header.size_bytes)
        self.taken_bytes += header.size_bytes
        decoded = []
        for frame in self._context.decode(av.Packet(data)):
            self._locator.samples = frame.samples
            decoded.append((frame, self._next))
            self._next += frame.samples
        return decoded

    def seek(self, frame: int) -> None:
        landing = self._locator.locate(frame, self._source)
        self._source.restart(landing.offset)
        self._source.audio_began()
        self._next, self.position_is_exact = landing.frame, landing.is_exact
        self._context = AudioCodecContext.create("aac", "r")
