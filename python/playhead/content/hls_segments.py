"""The audio in HLS segments: packed audio, a transport stream or fragmented MP4, without I/O."""

from __future__ import annotations

from playhead.content.mpeg_ts import PACKET_BYTES, SYNC, TransportStream
from playhead.content.tags import after_id3


class SegmentAudio:
    """The audio of one segment, in whatever pieces it arrives: without the packets of a transport stream, and
    without the ID3 tag with the time in front of packed audio (RFC 8216, section 3.4)."""

    def __init__(self) -> None:
        self._head = b""
        """The bytes so far, while the kind of the segment is not known."""
        self._skip_bytes = 0
        self._is_known = False
        self._transport: TransportStream | None = None

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; none at the end. Raises as `TransportStream.feed`."""
        if not self._is_known:
            self._head += data
            if data and len(self._head) <= PACKET_BYTES:
                return b""
            data, self._head, self._is_known = self._head, b"", True
            if data[:1] == bytes([SYNC]) and data[PACKET_BYTES : PACKET_BYTES + 1] in (bytes([SYNC]), b""):
                self._transport = TransportStream()
            else:
                self._skip_bytes = after_id3(data)
        skipped = min(self._skip_bytes, len(data))
        self._skip_bytes -= skipped
        data = data[skipped:]
        return data if self._transport is None else self._transport.feed(data)


def encoding_of(audio: bytes) -> tuple[int, ...]:
    """Return what the first frame of a segment says about its decoder: another value needs another one."""
    if len(audio) < 4 or audio[0] != 0xFF:
        return ()
    if audio[1] & 0xF6 == 0xF0:  # ADTS: profile, rate, channels
        return 0, audio[2] & 0xFD, audio[3] & 0xC0
    return 1, audio[1] & 0x1E, audio[2] & 0x0C  # MPEG audio: version, layer, rate
