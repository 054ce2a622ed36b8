"""Containers of audio, one per module, which parses its headers and index.

The player finds the place of a time by them (a `Locator`), and the checker verifies a file (`audio_problem`).

Decoders do not report a damaged file: miniaudio plays a WAV, FLAC, MP3 or Ogg file that was cut in half as a
shorter piece without an error, and skips a FLAC frame with a wrong checksum (measured with 1.71). A player
wants that; a test of a server doesn't. No library among the dependencies verifies a file, so `audio_problem`
compares every length and checksum in it:

* WAV: the sizes of RIFF and its chunks.
* FLAC (RFC 9639): each frame's CRC-8 and CRC-16, the frame numbers, and the total of STREAMINFO.
* Ogg (RFC 3533): each page's CRC-32, the page numbers, and the page that ends each stream.
* MP3: the chain of frames to the end, and the frames and bytes of a Xing, Info or VBRI index.
"""

from __future__ import annotations

from playhead.content.audio import SNIFF_BYTES, AudioFormat, sniff
from playhead.content.tags import after_id3
from playhead.playback.containers.flac import flac_problem
from playhead.playback.containers.mpeg import mpeg_problem
from playhead.playback.containers.ogg import ogg_problem
from playhead.playback.containers.wav import wav_problem

_PROBLEMS = {
    AudioFormat.WAV: wav_problem,
    AudioFormat.FLAC: flac_problem,
    AudioFormat.VORBIS: ogg_problem,
    AudioFormat.OPUS: ogg_problem,
    AudioFormat.OGG_FLAC: ogg_problem,
    AudioFormat.OGG: ogg_problem,
    AudioFormat.MP3: mpeg_problem,
}


def audio_problem(data: bytes) -> str | None:
    """Return the first contradiction between an audio file and its headers, checksums and index.

    None if there is none, and for formats that are not read here. `data` is the whole file. Pure; time and
    memory grow with its length, whatever it contains.
    """
    start = after_id3(data)
    audio_format = sniff(data[start : start + SNIFF_BYTES])
    if audio_format in _PROBLEMS:
        return _PROBLEMS[audio_format](data)
    if start >= len(data) > 0:
        return f"expected audio after a tag of {start} bytes, got nothing"
    return None
