"""The decoder's thread: from a reader to a feed, and when the sound may start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from playhead.errors import ClosedError
from playhead.playback.decoder import PcmDecoder, open_decoder
from playhead.playback.feed import PcmFeed
from playhead.playback.source import DecoderSource
from playhead.stream.source import BlockingReader, Media

GATE_BYTES = 24 * 1024
"""Bytes in hand before the first sound: 1.5 s of 128 kbit/s, and three of the smallest pages."""
FIRST_SOUND_BYTES = 8 * 1024
"""Bytes that any of the decoders needs for its first sound, except FLAC (16 KiB). What a reader that can
foresee its own arrival is asked for."""


@runtime_checkable
class ForeseeingReader(Protocol):
    """A reader that knows how fast its bytes arrive (`RangeStream`)."""

    def can_play(self, needed_bytes: int) -> bool:
        """Whether sound that starts now, once `needed_bytes` more are in hand, will not run dry."""
        ...


class Pump:
    """Decodes one reader into one feed. `run` blocks: for a thread.

    Decoding begins with the first bytes; what the start gate holds back is the sound. It opens at
    `gate_bytes` in hand (tags and pictures not counted), when the reader says that it can play, or at the
    end of a shorter stream.
    """

    def __init__(self, media: Media, reader: BlockingReader, *, gate_bytes: int) -> None:
        self._media = media
        self._reader = reader
        self._gate_bytes = gate_bytes
        self._source = DecoderSource(reader)

    def run(self, make_feed: Callable[[PcmDecoder], PcmFeed]) -> None:
        """To the end of the stream, or of the feed (closed by the player). Raises what breaks the stream."""
        media = self._media
        decoder = open_decoder(
            self._source, mime_type=media.mime_type, uri=media.uri, size_bytes=media.size_bytes
        )
        try:
            feed = make_feed(decoder)
            self._decode(decoder, feed)
        finally:
            decoder.close()

    def _decode(self, decoder: PcmDecoder, feed: PcmFeed) -> None:
        try:
            offset = 0
            self._source.on_taken = lambda: self._open_gate_if_enough(feed)
            while pcm := memoryview(decoder.read()).cast("B"):
                if offset == 0:
                    self._source.sound_began()
                while not feed.gate_open and not feed.pipe.wait_room(len(pcm), 0.0):
                    # The PCM pipe is full and the gate still closed: read on, without decoding.
                    if not self._source.read_ahead():
                        feed.open_gate()
                feed.pipe.wait_room(len(pcm))
                offset += feed.pipe.write(offset, pcm)
                self._open_gate_if_enough(feed)
        except Exception as error:  # whatever a reader raises has to reach the sink too
            if feed.closed and isinstance(error, ClosedError):
                return
            feed.finish(error)
            raise
        else:
            feed.finish()
        finally:
            self._source.on_taken = lambda: None  # no cycle that would keep the reader until a collection

    def _open_gate_if_enough(self, feed: PcmFeed) -> None:
        if feed.gate_open or not feed.pipe.tail:
            return
        sound_bytes = self._source.sound_bytes
        if sound_bytes >= self._gate_bytes or (
            isinstance(self._reader, ForeseeingReader)
            and self._reader.can_play(max(0, FIRST_SOUND_BYTES - sound_bytes))
        ):
            feed.open_gate()
