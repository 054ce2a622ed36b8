"""The bytes of a stream as miniaudio wants them: read in small steps, and sought in without seeking.

miniaudio's wrapper tells its decoders that a seek worked even when `seek` returned False, and they then
lose audio (FLAC), tags and gapless trims (MP3) or fail to start (WAV). Their seeks are few: to the end
and back (to look for trailing tags, which a stream has not), back to a place read a moment ago, and
forward over a tag or a picture. So this source remembers the newest 128 KiB until the first sound,
answers seeks inside it, reads forward through the others, and *raises* where it cannot: the wrapper
turns an exception, and only that, into a failed seek.
"""

from __future__ import annotations

import miniaudio

from playhead.errors import PlayheadError, UnsupportedFormatError
from playhead.stream.source import BlockingReader

FIRST_READ_BYTES = 2048
"""The cap of a read until the first PCM: MP3 then starts from 6,189 bytes. Uncapped, its decoder asks for
64 KiB at once and starts from that; at 512 it starts from 1,581, but pays four times the calls."""
READ_BYTES = 64 * 1024
"""The largest read afterwards: what the MP3 decoder asks for."""
REMEMBERED_BYTES = 128 * 1024
"""How far back a decoder may seek before the first sound."""


class DecoderSource(miniaudio.StreamableSource):  # type: ignore[misc]  # miniaudio has no types
    """A `BlockingReader` for one miniaudio decoder, used by one thread.

    `search_bytes` bounds what may be read (skips not counted) before `sound_began()`: a stream of
    something else would otherwise be read to its end in search of a frame.

    The wrapper swallows what `read` raises, and a decoder may take it for the end (FLAC does): look at
    `failure` whenever the decoder stops.
    """

    def __init__(self, reader: BlockingReader, *, search_bytes: int = REMEMBERED_BYTES) -> None:
        self.search_bytes = search_bytes
        self._reader = reader
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._memory = bytearray()
        self._memory_start = 0
        self._position = 0
        self._searching = True
        self._searched_bytes = 0
        self._taken_bytes = 0
        self._skipped_bytes = 0

    @property
    def failure(self) -> Exception | None:
        """What ended the bytes early: the stream's own error, or the search's. None at a real end."""
        error: Exception | None = self.error_in_readcallback  # where the wrapper puts what `read` raised
        return error

    @property
    def sound_bytes(self) -> int:
        """Bytes taken from the reader so far, without what was skipped (tags and pictures)."""
        return self._taken_bytes - self._skipped_bytes

    def sound_began(self) -> None:
        """The first PCM is out: from here, decoders only read on."""
        self._searching = False
        self._forget()

    def peek(self, wanted_bytes: int) -> bytes:
        """What lies ahead, `wanted_bytes` of it, or less at the end. Raises what the reader raises."""
        while self._ahead_bytes() < wanted_bytes and self.read_ahead():
            pass
        start = self._position - self._memory_start
        return bytes(self._memory[start : start + wanted_bytes])

    def recent(self, wanted_bytes: int) -> bytes:
        """What was read last, `wanted_bytes` of it or less: for headers that the decoder keeps to itself."""
        end = self._position - self._memory_start
        return bytes(self._memory[max(0, end - wanted_bytes) : end])

    def read_ahead(self, cap_bytes: int = FIRST_READ_BYTES) -> bool:
        """Take one more read into memory and stay where we are. False at the end of the stream."""
        got = self._take(cap_bytes)
        self._memory += self._buffer[:got]
        return got > 0

    # --- what the decoder calls ----------------------------------------------------------------------

    def read(self, num_bytes: int) -> memoryview | bytes:
        """At least one byte and at most `num_bytes`; empty at the real end and nowhere else."""
        if self._searching:
            num_bytes = min(num_bytes, FIRST_READ_BYTES)
        if not self._ahead_bytes():
            if not self._searching:
                got = self._take(num_bytes)
                self._position += got
                self._memory_start = self._position
                return self._buffer[:got]
            self._check_search()
            self.read_ahead(num_bytes)
            self._searched_bytes += self._ahead_bytes()
        start = self._position - self._memory_start
        chunk = bytes(self._memory[start : start + num_bytes])
        self._position += len(chunk)
        self._forget()
        return chunk

    def seek(self, offset: int, origin: miniaudio.SeekOrigin) -> bool:
        """True, or raises where it cannot be done (see this file's header)."""
        if origin is miniaudio.SeekOrigin.END:
            if offset == 0:
                return True  # looking for trailing tags: the decoder seeks back before it reads
            raise _CannotSeekError
        target = offset if origin is miniaudio.SeekOrigin.START else self._position + offset
        if target < self._memory_start:
            raise _CannotSeekError
        try:
            self._skip_to(target)
        except Exception as error:  # whatever a reader raises: the wrapper keeps nothing of it
            self.error_in_readcallback = error
            raise
        return True

    # -------------------------------------------------------------------------------------------------

    def _check_search(self) -> None:
        if self._searched_bytes >= self.search_bytes:
            raise UnsupportedFormatError(
                f"no sound in the first {self._searched_bytes} bytes: the stream is not what its first bytes "
                "or its MIME type say it is"
            )

    def _skip_to(self, target: int) -> None:
        """Forward by reading. Past the end is not an error: the next read says that it is the end."""
        while target - self._position > self._ahead_bytes():
            self._position += self._ahead_bytes()
            self._forget()
            if not self.read_ahead(min(target - self._position, READ_BYTES)):
                return
            self._skipped_bytes += self._ahead_bytes()
        self._position = target

    def _take(self, cap_bytes: int) -> int:
        got = self._reader.readinto(self._buffer[: min(cap_bytes, READ_BYTES)])
        self._taken_bytes += got
        return got

    def _ahead_bytes(self) -> int:
        return self._memory_start + len(self._memory) - self._position

    def _forget(self) -> None:
        """Drop what no seek may ask for: nothing behind is needed once there was sound."""
        behind = self._position - self._memory_start
        kept = REMEMBERED_BYTES if self._searching else 0
        # Dropping moves the rest, so it waits until there is as much to drop as to keep.
        if behind > 2 * kept:
            del self._memory[: behind - kept]
            self._memory_start += behind - kept


class _CannotSeekError(PlayheadError):
    """Tells miniaudio's wrapper that a seek failed; it never leaves the decoder."""
