"""The decoder's thread: from a reader to a PCM buffer, with the start gate.

Decoding begins with the first bytes; the start gate holds back the audio. It opens once enough is in hand to
play without a foreseeable stall: decoded audio that has not been heard, and bytes that were read or can be
read without waiting, at the decoder's byte rate. Bytes inside a decoder do not count: it releases none while
it waits for more. The same gate holds back audio that ran dry.

Its thresholds are in rust/core/planner/tuning.rs ("the start gate").
"""

from __future__ import annotations

from collections.abc import Callable

from playhead._core import Planner
from playhead.errors import ClosedError
from playhead.playback.decoder import PcmDecoder, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.pcm_buffer import BufferPhase, PcmBuffer
from playhead.stream.source import Playable, Reader


class DecoderThread:
    """Decodes one reader into one PCM buffer. `run` blocks: for a thread."""

    def __init__(self, media: Playable, reader: Reader) -> None:
        self._media = media
        self._reader = reader
        self._source = DecoderSource(reader)
        self._piece_seconds = 0.0
        """Audio decoded and not yet in the buffer."""

    def run(self, make_buffer: Callable[[PcmDecoder], PcmBuffer]) -> None:
        """Decode to the end, or until the player closes the buffer. Raises the error that breaks the
        stream."""
        media = self._media
        decoder = open_decoder(
            self._source, mime_type=media.mime_type, uri=media.uri, size_bytes=media.size_bytes
        )
        try:
            self._decode(decoder, make_buffer(decoder))
        finally:
            decoder.close()

    def _decode(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        try:
            offset = 0
            self._source.on_taken = lambda: self._release_if_enough(decoder, buffer)
            while pcm := memoryview(decoder.read()).cast("B"):
                if offset == 0:
                    self._source.audio_began()
                self._piece_seconds = len(pcm) / buffer.format.bytes_per_second
                while not buffer.wait_room(len(pcm)):
                    # The gate is closed and the buffer is full: read on without decoding.
                    if not self._source.read_ahead():
                        buffer.release()
                offset += buffer.pipe.write(offset, pcm)
                self._piece_seconds = 0.0
                self._release_if_enough(decoder, buffer)
        except Exception as error:  # whatever a reader raises must reach the sink too
            if buffer.closed and isinstance(error, ClosedError):
                return
            buffer.finish(error)
            raise
        else:
            buffer.finish()
        finally:
            self._source.on_taken = lambda: None  # no cycle that would keep the reader alive

    def _release_if_enough(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        if buffer.held and buffer.pipe.tail and self._is_enough(decoder, buffer):
            buffer.release()

    def _is_enough(self, decoder: PcmDecoder, buffer: PcmBuffer) -> bool:
        byte_rate = decoder.bytes_per_second
        decoded_seconds = buffer.buffered_seconds + self._piece_seconds
        in_hand_bytes = (
            self._reader.buffered_bytes + self._source.ahead_bytes + int(decoded_seconds * byte_rate)
        )
        least = Planner.REFILL_SECONDS if buffer.phase is BufferPhase.DRY else Planner.START_SECONDS
        return in_hand_bytes >= least * byte_rate and self._reader.can_play(in_hand_bytes, byte_rate)
