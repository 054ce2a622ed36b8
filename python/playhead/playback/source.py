"""The bytes of a stream as miniaudio wants them: read in small steps, and sought in without seeking.

miniaudio's wrapper tells its decoders that a seek worked even when `seek` returned False, and they then
lose audio (FLAC), tags and gapless trims (MP3) or fail to start (WAV). Their seeks are few: to the end
and back (to look for trailing tags, which a stream has not), back to a place read a moment ago, and
forward over a tag or a picture. So this source remembers the newest 128 KiB until the first sound,
answers seeks inside it, reads forward through the others, and *raises* where it cannot: the wrapper
turns an exception, and only that, into a failed seek.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import miniaudio

from playhead.errors import PlayheadError, UnsupportedFormatError
from playhead.stream.source import BlockingReader

STEP_BYTES = 2048
"""What a decoder gets at once, and no less before the end. No more: the MP3 decoder asks for 64 KiB, and
starts from 6,189 bytes if it gets them in steps of 2 KiB. No less: it gives up on a frame that comes in
crumbs, and the FLAC decoder loses bytes where a step is not a multiple of 8."""
WHOLE_STEP_BYTES = 1 << 20
"""For the WAV decoder, which loses what is not a whole frame: it gets all that it asks for (4096 frames)."""
TAKE_BYTES = 64 * 1024
"""The most taken from the reader at once: what is there, so this costs no waiting."""
REMEMBERED_BYTES = 128 * 1024
"""How far back a decoder may seek before the first sound."""
SEEK_BYTES = 128 * 1024
"""Skips of this many bytes and more become a seek of the reader, where it can: a cover picture is then never
fetched. Shorter ones would gain less than the round trip that new reads cost."""


@runtime_checkable
class SeekableReader(Protocol):
    """A reader whose next byte can be chosen (`RangeStream`): offsets count from where it began."""

    def seek_from_thread(self, offset: int) -> None: ...


class DecoderSource(miniaudio.StreamableSource):  # type: ignore[misc]  # miniaudio has no types
    """A `BlockingReader` for one miniaudio decoder, used by one thread.

    `search_bytes` bounds what a decoder may read (skips not counted) before `sound_began()`: a stream of
    something else would otherwise be read to its end in search of a frame. `step_bytes` is what it gets
    at once. `on_taken` is called whenever bytes have come from the reader.

    The wrapper swallows what `read` raises, and a decoder may take it for the end (FLAC does): look at
    `failure` whenever the decoder stops.
    """

    def __init__(self, reader: BlockingReader) -> None:
        self.on_taken: Callable[[], None] = lambda: None
        self.step_bytes = STEP_BYTES
        self.search_bytes = REMEMBERED_BYTES
        self._reader = reader
        self._buffer = memoryview(bytearray(TAKE_BYTES))
        self._memory = bytearray()
        self._memory_start = 0
        self._position = 0
        self._searching = True
        self._searched_bytes = 0
        self._taken_bytes = 0
        self._skipped_bytes = 0
        self._ended = False
        self._deferred: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """What ended the bytes early: the stream's own error, or the search's. None at a real end."""
        error: Exception | None = self.error_in_readcallback  # where the wrapper puts what `read` raised
        return error

    @property
    def broken(self) -> Exception | None:
        """What ends the bytes early, as `failure`, or what will once those in hand are read: a decoder that
        stops before them was cut off by it."""
        return self.failure or self._deferred

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
        self._fill(wanted_bytes)
        start = self._position - self._memory_start
        return bytes(self._memory[start : start + wanted_bytes])

    def recent(self, wanted_bytes: int) -> bytes:
        """What was read last, `wanted_bytes` of it or less: for headers that the decoder keeps to itself."""
        end = self._position - self._memory_start
        return bytes(self._memory[max(0, end - wanted_bytes) : end])

    def read_ahead(self) -> bool:
        """Wait for more bytes and keep them for later reads. False at the end of the stream."""
        if not self._ended:
            got = self._reader.readinto(self._buffer)
            self._memory += self._buffer[:got]
            self._taken_bytes += got
            self._ended = got == 0
            self.on_taken()
        return not self._ended

    # --- what the decoder calls ----------------------------------------------------------------------

    def read(self, num_bytes: int) -> bytes:
        """`step_bytes`, or what was asked for if that is less; less than both only before the end."""
        wanted = min(num_bytes, self.step_bytes)
        if self._searching:
            if self._searched_bytes >= self.search_bytes:
                raise UnsupportedFormatError(
                    f"no sound in the first {self._searched_bytes} bytes: the stream is not what its first "
                    "bytes or its MIME type say it is"
                )
            self._searched_bytes += wanted
        self._fill(wanted)
        start = self._position - self._memory_start
        chunk = bytes(self._memory[start : start + wanted])
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

    def _fill(self, wanted_bytes: int) -> None:
        """Have `wanted_bytes` ahead, or all there is; what breaks the stream waits until those are read."""
        if self._deferred is not None and not self._ahead_bytes():
            raise self._deferred
        try:
            while self._ahead_bytes() < wanted_bytes and self._deferred is None and self.read_ahead():
                pass
        except Exception as error:  # whatever a reader raises
            if not self._ahead_bytes():
                raise
            self._deferred = error

    def _skip_to(self, target: int) -> None:
        """Forward by reading. Past the end is not an error: the next read says that it is the end."""
        if (
            target - self._memory_start - len(self._memory) >= SEEK_BYTES
            and self._searching
            and isinstance(self._reader, SeekableReader)
        ):
            self._reader.seek_from_thread(target)
            self._skipped_bytes += self._ahead_bytes()
            self._memory.clear()
            self._memory_start = self._position = target
            return
        while target - self._position > self._ahead_bytes():
            self._skipped_bytes += self._ahead_bytes()
            self._position += self._ahead_bytes()
            self._forget()
            if not self.read_ahead():
                return
        self._skipped_bytes += max(0, target - self._position)
        self._position = target

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
