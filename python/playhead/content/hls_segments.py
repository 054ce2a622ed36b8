"""The audio in HLS segments: packed audio, a transport stream or fragmented MP4, without I/O."""

from __future__ import annotations

from playhead.content.mpeg_ts import PACKET_BYTES, SYNC, TransportStream
from playhead.content.tags import after_id3


class SegmentAudio:
    """Extracts the audio of one segment, in whatever pieces it arrives. It unpacks the packets of a transport
    stream, and drops the ID3 tag with the time before packed audio (RFC 8216, section 3.4)."""

    def __init__(self) -> None:
        self._head = b""
        """The bytes so far, until they show the kind of the segment."""
        self._skip_bytes = 0
        """The bytes of an ID3 tag that have not arrived yet."""
        self._is_known = False
        """True once the kind of the segment is known."""
        self._transport: TransportStream | None = None

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, empty at the end, and return their audio. Raises as `TransportStream.feed`."""
        if not self._is_known:
            self._head += data
            if data and len(self._head) <= PACKET_BYTES:
                return b""
            data, self._head, self._is_known = self._head, b"", True
            if _is_transport_stream(data):
                self._transport = TransportStream()
            else:
                self._skip_bytes = after_id3(data)
        skipped = min(self._skip_bytes, len(data))
        self._skip_bytes -= skipped
        data = data[skipped:]
        return data if self._transport is None else self._transport.feed(data)


def _is_transport_stream(data: bytes) -> bool:
    sync = bytes([SYNC])
    return data.startswith(sync) and data[PACKET_BYTES : PACKET_BYTES + 1] in (sync, b"")


def encoding_of(audio: bytes) -> tuple[int, ...]:
    """Return the parameters of the encoding in the first frame of a segment. A segment with other parameters
    needs a new decoder."""
    if len(audio) < 4 or audio[0] != 0xFF:
        return ()
    if audio[1] & 0xF6 == 0xF0:  # ADTS: profile, rate, channels
        return 0, audio[2] & 0xFD, audio[3] & 0xC0
    return 1, audio[1] & 0x1E, audio[2] & 0x0C  # MPEG audio: version, layer, rate
