"""The source of a decoder: a stream read in small steps, with the few seeks that miniaudio needs.

miniaudio's wrapper reports success to its decoders even if `seek` returned False, and they then lose audio
(FLAC), tags and gapless trims (MP3) or fail to start (WAV). They seek rarely: to the end and back (to look
for trailing tags, which a stream does not have), back to a place read a moment ago, and forward over a tag or
a picture. So this source remembers the newest 128 KiB until the first audio, serves seeks within it, reads
forward for the others, and *raises* if it cannot: the wrapper turns only an exception into a failed seek.
"""

from __future__ import annotations

from collections.abc import Callable

import miniaudio

from playhead.errors import ClosedError, PlayheadError, SeekError, UnsupportedFormatError
from playhead.limits import DEFAULT_LIMITS
from playhead.playback.decoding_time import DecodingTime
from playhead.playback.formats import LARGE_PIECE_SECONDS
from playhead.stream.live_source import LiveSource
from playhead.stream.source import Reader

STEP_BYTES = 2048
"""The number of bytes that a decoder gets per read, except at the end. With larger steps the MP3 decoder,
which requests 64 KiB, would start later: now it needs 6,189 bytes. With smaller steps it gives up on a frame,
and the FLAC decoder loses bytes if a step is not a multiple of 8."""
LARGE_STEP_BYTES = 4096
"""The number of bytes per read while a decoder decodes a large piece of audio, because each read takes the
GIL. Larger steps would distort the measured byte rate, which the start gate uses."""
WHOLE_STEP_BYTES = 1 << 20
"""The number of bytes per read of the WAV decoder: more than it requests (4096 frames), because it loses
partial frames."""
TAKE_BYTES = 64 * 1024
"""Limits the bytes to take from the reader at once. The source never waits for more than is available."""
MOST_HEADER_BYTES = 16 * 1024 * 1024
"""Limits the bytes before the first audio, for formats with a signature. Headers may have a cover picture."""
REMEMBERED_BYTES = 128 * 1024
"""The distance that a decoder may seek back before the first audio."""
SEEK_BYTES = 128 * 1024
"""The shortest skip for which the reader seeks, if it can, so that a cover picture is never fetched. With a
shorter skip, the round trip of new reads would cost more than it saves."""


class DecoderSource(miniaudio.StreamableSource):  # type: ignore[misc]  # miniaudio has no types
    """A `Reader` for one miniaudio decoder, used by one thread.

    `search_bytes` bounds what a decoder may read (skips not counted) before `audio_began()`: a stream in
    another format would otherwise be read to its end in search of a frame. `step_bytes` is the size of one
    read. `on_taken` is called whenever bytes have arrived from the reader.

    The wrapper swallows what `read` raises, and a decoder may take it for the end (FLAC does): check
    `failure` whenever the decoder stops.
    """

    def __init__(self, reader: Reader) -> None:
        self.on_taken: Callable[[], None] = lambda: None
        self.on_wait: Callable[[], None] = lambda: None
        """Called before a wait for bytes."""
        self.on_read: Callable[[int, bytes], None] = lambda offset, chunk: None
        """Called with the bytes that a decoder reads of the stream, and their offset."""
        self.keeps_waiting: Callable[[], bool] = lambda: False
        """Called after an interrupt. Returns True if the seek that caused it is already done, so that reading
        goes on."""
        self.time = DecodingTime()
        self.step_bytes = STEP_BYTES
        self.search_bytes = REMEMBERED_BYTES
        self._reader = reader
        self._buffer = memoryview(bytearray(TAKE_BYTES))
        self._memory = bytearray()
        self._memory_start = 0
        self._position = 0
        self._shift = 0
        """The offset in the stream of position 0. It changes with each `restart`."""
        self._prefix_bytes = 0
        """The position up to which the bytes do not precede those after it in the stream."""
        self._skipped_bytes = 0
        self._skipped_at = 0
        self.restarts = 0
        self._searching = True
        self._searched_bytes = 0
        self.read_bytes = 0
        """Bytes that the decoder has read."""
        self._ended = False
        self._deferred: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """The error that ended the bytes early: the stream's own, or the search's. None at a real
        end."""
        error: Exception | None = self.error_in_readcallback  # set by the wrapper to what `read` raised
        return error

    @property
    def broken(self) -> Exception | None:
        """`failure`, or the error that follows the bytes in hand. It is the cause if a decoder lacks
        bytes."""
        return self.failure or self._deferred

    @property
    def ahead_bytes(self) -> int:
        """Bytes taken from the reader and not read by the decoder."""
        return self._memory_start + len(self._memory) - self._position

    @property
    def in_hand_bytes(self) -> int:
        """Bytes that the decoder can read without waiting."""
        return self.ahead_bytes + self._reader.buffered_bytes

    def holds_large_piece(self, bytes_per_second: float) -> bool:
        """Return whether a decoder may decode `LARGE_PIECE_SECONDS` of audio at once. While it waits for
        bytes it holds back decoded audio, so it must not have to wait."""
        return self.in_hand_bytes >= 2 * int(LARGE_PIECE_SECONDS * bytes_per_second) + LARGE_STEP_BYTES

    def seek_or_stay(self, seek: Callable[[int], None], frame: int, *, before: int) -> None:
        """Call `seek(frame)`. If it raises `SeekError` after a `restart`, go back by `seek(before)` first."""
        restarts = self.restarts
        try:
            seek(frame)
        except SeekError:
            if self.restarts != restarts:
                seek(before)
            raise

    @property
    def offset(self) -> int:
        """Offset in the stream of the next byte that the decoder reads."""
        return self._position + self._shift

    def take_skipped(self, held_bytes: int = 0) -> int:
        """Return how many bytes the stream lacks before the newest audio of a decoder, once: its server has
        dropped them. The decoder holds `held_bytes`, of which it has made no audio."""
        if not self._skipped_bytes or self._position - held_bytes <= self._skipped_at:
            return 0
        skipped_bytes, self._skipped_bytes = self._skipped_bytes, 0
        return skipped_bytes

    def leave_gap(self) -> int:
        """Drop the bytes ahead that end at a gap, in the middle of a frame. Return how many bytes are missing
        with these; 0 if no gap is ahead."""
        dropped_bytes = max(0, self._skipped_at - self._position) if self._skipped_bytes else 0
        self._position += dropped_bytes
        return dropped_bytes + self.take_skipped(-1)

    @property
    def is_at_end(self) -> bool:
        """True once everything was read."""
        return self._ended and not self.ahead_bytes

    @property
    def size_bytes(self) -> int | None:
        """Size of the stream, as far as it is known: a hint."""
        return self._reader.size_bytes

    @property
    def free_range(self) -> tuple[int, int]:
        """The offsets (first, last) between which `restart` needs no new reads."""
        first, last = self._reader.buffered_range
        start = max(self._memory_start, self._prefix_bytes) + self._shift
        end = self._memory_start + len(self._memory) + self._shift
        return (start, end) if first == last else (min(first, start), max(last, end))

    def restart(self, offset: int, prefix: bytes = b"") -> None:
        """Start again at an offset of the stream, for another decoder, which reads `prefix` first.

        Raises `SeekError`, and changes nothing, if the stream cannot continue there, and the stream's own
        error if it is broken.
        """
        start = offset - self._shift
        if max(self._memory_start, self._prefix_bytes) <= start <= self._memory_start + len(self._memory):
            rest = bytes(self._memory[start - self._memory_start :])
        elif self._reader.can_seek(offset):
            self._reader.seek_from_thread(offset)
            self._ended, self._deferred, rest = False, None, b""
        else:
            raise SeekError(
                f"expected a stream that can continue at byte {offset}, got one that the server hands out "
                "once, or only as a whole; let it play, or start it again"
            )
        self.restarts += 1
        self._memory = bytearray(prefix + rest)
        self._memory_start = self._position = 0
        self._prefix_bytes = len(prefix)
        self._shift = offset - len(prefix)
        self._skipped_bytes = 0
        self._searching, self._searched_bytes = True, 0
        self.error_in_readcallback: Exception | None = None

    @property
    def live(self) -> LiveSource | None:
        """See `Reader.live`."""
        return self._reader.live

    def begin_part(self, offset: int) -> None:
        """Begin the next part of a live stream, at `offset`, for another decoder. No byte of the part before
        is read any more."""
        self.restarts += 1
        self._memory.clear()
        self._memory_start = self._position = self._prefix_bytes = 0
        self._shift = offset
        self._searching, self._searched_bytes, self._ended = True, 0, False
        self.error_in_readcallback = self._deferred = None
        self.on_read = lambda offset, chunk: None
        self.step_bytes = STEP_BYTES

    def seek_time(self, seconds: float) -> tuple[float, float] | None:
        """See `Reader.seek_time`; then call `begin_part`."""
        return self._reader.seek_time(seconds)

    def audio_began(self) -> None:
        """End the search: after the first PCM, decoders only read forward."""
        self._searching = False
        self._forget()

    def discard_errors(self) -> None:
        """Drop the errors so far, whose frames hold this source in a cycle."""
        for error in (self.error_in_readcallback, self._deferred):
            if isinstance(error, ClosedError):
                error.__traceback__ = None  # the reader's pipe holds that error itself
        self.error_in_readcallback = self._deferred = None

    def peek(self, wanted_bytes: int) -> bytes:
        """Return the next `wanted_bytes`, or fewer at the end, without reading them. Raises what the reader
        raises."""
        self._fill(wanted_bytes)
        start = self._position - self._memory_start
        return bytes(self._memory[start : start + wanted_bytes])

    def take(self, most_bytes: int = TAKE_BYTES) -> bytes:
        """Read the available bytes, at least one; empty at the end. Not for miniaudio: `on_read` is
        called, and `read_bytes` does not grow."""
        self.time.check()
        self._fill(1)
        start = self._position - self._memory_start
        chunk = bytes(self._memory[start : start + most_bytes])
        self.on_read(self.offset, chunk)
        self._position += len(chunk)
        self._forget()
        return chunk

    def read_ahead(self) -> bool:
        """Wait for more bytes and keep them for later reads. Returns False at the end of the stream, and if
        it breaks while bytes are ahead: those are read first."""
        if self._ended or self._deferred is not None:
            return False
        if not self._reader.buffered_bytes:
            self.on_wait()
        try:
            n_bytes = self._reader.readinto(self._buffer)
        except TimeoutError:  # an interrupt: nothing is lost
            if self.keeps_waiting():
                return self.read_ahead()
            raise
        except Exception as error:  # whatever a reader raises
            if not self.ahead_bytes:
                raise
            self._deferred = error
            return False
        if n_bytes:
            self._join()
        self._memory += self._buffer[:n_bytes]
        self._ended = n_bytes == 0
        self.on_taken()
        return not self._ended

    # --- called by the decoder -----------------------------------------------------------------------

    def read(self, num_bytes: int) -> bytes:
        """Return `num_bytes`, or `step_bytes` if that is less; fewer only before the end."""
        self.time.check()
        wanted = min(num_bytes, self.step_bytes)
        if self._searching:
            if self._searched_bytes >= self.search_bytes:
                raise UnsupportedFormatError(
                    f"expected audio, got none in the first {self._searched_bytes} bytes: the stream is not "
                    "in the format that its first bytes or its MIME type say"
                )
            self._searched_bytes += wanted
        self._fill(wanted)
        start = self._position - self._memory_start
        chunk = bytes(self._memory[start : start + wanted])
        prefix_bytes = max(0, self._prefix_bytes - self._position)
        self.on_read(self.offset + prefix_bytes, chunk[prefix_bytes:])
        self._position += len(chunk)
        self.read_bytes += len(chunk)
        self._forget()
        return chunk

    def seek(self, offset: int, origin: miniaudio.SeekOrigin) -> bool:
        """Return True, or raise if the seek is not possible (see this file's header)."""
        if origin is miniaudio.SeekOrigin.END:
            if offset == 0:
                return True  # the decoder looks for trailing tags, and seeks back before it reads
            raise _CannotSeekError
        target = offset if origin is miniaudio.SeekOrigin.START else self._position + offset
        # A WAV with a chunk of 2 ** 63 bytes is skipped in steps of 2 ** 31. Stop once such a step begins at
        # the end.
        is_lost = target > DEFAULT_LIMITS.stream_bytes or (target > self._position and self.is_at_end)
        if target < self._memory_start or is_lost:
            raise _CannotSeekError
        try:
            self.time.check()
            self._skip_to(target)
        except Exception as error:  # the wrapper drops every error, so save it
            self.error_in_readcallback = error
            raise
        return True

    # -------------------------------------------------------------------------------------------------

    def _fill(self, wanted_bytes: int) -> None:
        """Read from the reader until `wanted_bytes` are ahead, or to the end. An error is raised only once
        the bytes before it were read."""
        if self._deferred is not None and not self.ahead_bytes:
            raise self._deferred
        while self.ahead_bytes < wanted_bytes and self.read_ahead():
            pass

    def _join(self) -> None:
        """Count the next bytes from where the stream goes on. The bytes ahead are a prefix of these."""
        end = self._memory_start + len(self._memory)
        skipped_bytes = self._reader.joined(end + self._shift) - end - self._shift
        if skipped_bytes:
            # A decoder that was started here holds nothing.
            self._skipped_at = end if end > self._prefix_bytes else -MOST_HEADER_BYTES
            self._shift += skipped_bytes
            self._skipped_bytes += skipped_bytes
            self._prefix_bytes = end

    def _skip_to(self, target: int) -> None:
        """Skip forward. Past the end is not an error: the next read returns the end."""
        if (
            target - self._memory_start - len(self._memory) >= SEEK_BYTES
            and self._searching
            and self._reader.can_seek(target + self._shift)
        ):
            self._reader.seek_from_thread(target + self._shift)
            self._memory.clear()
            self._memory_start = self._position = target
            return
        while target > self._position:
            place = self._position - self._memory_start
            skipped = bytes(self._memory[place : place + target - self._position])
            self.on_read(self.offset, skipped)
            self._position += len(skipped)
            self._forget()
            if not self.ahead_bytes and not self.read_ahead():
                return
        self._position = target

    def _forget(self) -> None:
        """Drop the bytes that no seek needs. After the first audio these are all bytes that were read."""
        behind = self._position - self._memory_start
        keep_bytes = REMEMBERED_BYTES if self._searching else 0
        # Dropping moves the rest, so it waits until as much is dropped as stays.
        if behind > 2 * keep_bytes:
            del self._memory[: behind - keep_bytes]
            self._memory_start += behind - keep_bytes


class _CannotSeekError(PlayheadError):
    """Reports a failed seek to miniaudio's wrapper; it never leaves the decoder."""
