"""A local decode of Ogg Vorbis: all of its bytes at once, without a source, a thread or a player."""

from __future__ import annotations

from playhead._core import VorbisStream


def decode_vorbis(data: bytes) -> tuple[int, int, bytes]:
    """Return the rate, the channels and the samples of a whole file."""
    stream = VorbisStream()
    stream.feed(data)
    stream.finish()
    pcm = b"".join(iter(lambda: stream.decode(4096) or b"", b""))
    assert stream.rate_hz is not None
    assert stream.channels is not None
    return stream.rate_hz, stream.channels, pcm
