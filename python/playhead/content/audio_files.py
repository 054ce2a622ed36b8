"""Verify an audio file against its own words: sizes, checksums, totals and indexes.

A decoder plays what is there: miniaudio reads a WAV, a FLAC, an MP3 or an Ogg file that was cut in half as a
shorter piece without an error, and skips a FLAC frame with a wrong checksum (measured with 1.71). A player
wants that; a test of a server doesn't. The containers state enough to notice, and no library among the
dependencies says it, so the parts that carry a length or a checksum are read here:

* WAV: the sizes of RIFF and its chunks. A recorder that writes to a pipe leaves them 0 or at the maximum,
  which claims nothing.
* FLAC (RFC 9639): each frame's CRC-8 and CRC-16, the frame numbers, and the total of STREAMINFO. The MD5 of
  its samples needs a decoder: `flac_info` has it for the caller.
* Ogg (RFC 3533): each page's CRC-32, the page numbers, and the page that ends each stream.
* MP3: the chain of frames to the end, and the frames and bytes of a Xing, Info or VBRI index. A file without
  an index that was cut exactly between two frames can't be told from a shorter one.

Pure functions on a whole file. Time and memory grow with its length, whatever it contains.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from playhead._core import OggReader
from playhead.content.audio import AudioFormat, sniff


def audio_problem(data: bytes) -> str | None:
    """Return the first contradiction between an audio file and its headers, checksums and index.

    None if there is none, and for formats that are not read here. `data` is the whole file.
    """
    start = after_id3(data)
    match sniff(data[start : start + 64]):
        case AudioFormat.WAV:
            return _wav_problem(data)
        case AudioFormat.FLAC:
            return _flac_problem(data, start)
        case AudioFormat.VORBIS | AudioFormat.OPUS | AudioFormat.OGG_FLAC | AudioFormat.OGG:
            return _ogg_problem(data)
        case AudioFormat.MP3:
            return _mp3_problem(data, start)
        case _:
            return (
                f"expected audio after a tag of {start} bytes, got nothing"
                if start >= len(data) > 0
                else None
            )


# --- tags around the audio -----------------------------------------------------------------------------

_ID3V1_BYTES: Final = 128
_APE_FOOTER: Final = 32
_ID3_HEADER: Final = 10


def after_id3(data: bytes) -> int:
    """Return the length of the ID3v2 tag (ID3v2.4, section 3.1); 0 without one."""
    if data[:3] != b"ID3" or len(data) < _ID3_HEADER:
        return 0
    size = 0
    for byte in data[6:10]:
        size = size << 7 | byte & 0x7F
    footer = _ID3_HEADER if data[5] & 0x10 else 0
    return _ID3_HEADER + size + footer


def _before_tags(data: bytes) -> int:
    """Return the end of the audio, before ID3v1 and APE tags."""
    end = len(data)
    if data[-_ID3V1_BYTES : -_ID3V1_BYTES + 3] == b"TAG":
        end -= _ID3V1_BYTES
    footer = data[max(0, end - _APE_FOOTER) : end]
    if footer[:8] == b"APETAGEX" and len(footer) == _APE_FOOTER:
        size, flags = struct.unpack_from("<I4xI", footer, 12)
        end -= min(end, size + (_APE_FOOTER if flags >> 31 else 0))
    return end


# --- WAV -----------------------------------------------------------------------------------------------

_UNKNOWN_FROM: Final = 0x7FFF_F000
"""Sizes from here on come from recorders that could not know them: 0x7FFFFFFF less a header, 0xFFFFFFFF."""
_RIFF_SLACK: Final = 8
"""Many writers count RIFF's own header too, or a padding byte that they omit: no audio is missing then."""


def _wav_problem(data: bytes) -> str | None:
    (riff_size,) = struct.unpack_from("<I", data, 4)
    is_open = riff_size == 0 or riff_size >= _UNKNOWN_FROM
    at, has_data = 12, False
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        got = len(data) - at - 8
        if name == b"data":
            has_data = True
            if size >= _UNKNOWN_FROM or (size == 0 and is_open):
                return None
        if size > got:
            return (
                f"expected {size} bytes in the chunk {_word(name)} at byte {at}, as its header says, got"
                f" {got}: the file is cut short"
            )
        at += 8 + size + size % 2
    if not is_open and riff_size > len(data) - 8 + _RIFF_SLACK:
        return (
            f"expected {riff_size} bytes after the RIFF header, as it says, got {len(data) - 8}: the file is"
            " cut short"
        )
    return None if has_data else "expected a data chunk, got none: the file is cut short"


def _word(name: bytes) -> str:
    return name.decode("latin-1").strip().encode("unicode_escape").decode()


# --- FLAC ----------------------------------------------------------------------------------------------

_STREAMINFO_BYTES: Final = 34
_PADDING: Final = 1
_BLOCK_SIZES: Final = (0, 192, 576, 1152, 2304, 4608, -1, -2, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""By code (RFC 9639, section 9.1.1); -1 and -2: in the next one or two bytes."""
_RATE_EXTRA: Final = {12: 1, 13: 2, 14: 2}
_MOST_CHANNELS_CODE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FlacInfo:
    """STREAMINFO, the first metadata block."""

    rate_hz: int
    channels: int
    bits: int
    samples: int | None
    """Per channel; None if the encoder did not know."""
    md5: bytes | None
    """Of the unencoded samples, interleaved, little-endian, in whole bytes; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlacFrame:
    """The header of one frame."""

    number: int
    """Of the frame, or of its first sample if `is_variable`."""
    is_variable: bool
    samples: int
    header_bytes: int


def flac_info(data: bytes) -> FlacInfo | None:
    """Return the STREAMINFO of a FLAC file; None if it has none."""
    at = after_id3(data)
    block = data[at + 8 : at + 8 + _STREAMINFO_BYTES]
    if data[at : at + 4] != b"fLaC" or data[at + 4 : at + 5] not in (b"\x00", b"\x80"):
        return None
    if len(block) < _STREAMINFO_BYTES:
        return None
    packed = int.from_bytes(block[10:18], "big")
    md5 = block[18:]
    return FlacInfo(
        rate_hz=packed >> 44,
        channels=(packed >> 41 & 7) + 1,
        bits=(packed >> 36 & 31) + 1,
        samples=packed & (1 << 36) - 1 or None,
        md5=md5 if any(md5) else None,
    )


def _flac_problem(data: bytes, start: int) -> str | None:
    info = flac_info(data)
    if info is None:
        return "expected a STREAMINFO block at the beginning of the FLAC file, got none"
    at, is_last = start + 4, False
    while not is_last:
        head = data[at : at + 4]
        size = int.from_bytes(head[1:], "big")
        if len(head) < 4 or at + 4 + size > len(data):
            return f"expected a metadata block at byte {at}, got the end of the file: it is cut short"
        is_last = head[0] & 0x80 != 0
        if head[0] & 0x7F == _PADDING and any(data[at + 4 : at + 4 + size]):
            return f"expected zeros in the padding block at byte {at}, got other bytes: the file is damaged"
        at += 4 + size
    return _flac_frames_problem(data, at, info)


def _flac_frames_problem(data: bytes, at: int, info: FlacInfo) -> str | None:
    end = _before_tags(data)
    frame = flac_frame(data, at, end)
    if frame is None and (at < end or info.samples is not None):
        return f"expected a FLAC frame at byte {at}, got {_bytes_at(data, at)}"
    sync = data[at : at + 2]
    samples = 0
    while frame is not None:
        expected = frame.number + (frame.samples if frame.is_variable else 1)
        following, place = None, at + frame.header_bytes
        crc, done = 0, at
        while done < end:
            # A header in the midst of a frame is possible by chance: then the checksum fails, and one is
            # looked for further on.
            place = data.find(sync, place, end)
            following = flac_frame(data, place, end) if place >= 0 else None
            if place >= 0 and (following is None or following.number != expected):
                place += 1
                continue
            place = end if place < 0 else place
            crc, done = _crc16(data, done, place, crc), place
            if crc == 0:  # a CRC over its own bytes, too, is 0
                break
            place += 1
        if crc != 0:
            return (
                f"expected the CRC-16 of the FLAC frame at byte {at} to match (sample {samples} of"
                f" {info.samples or 'unknown'}): the frame is damaged or cut short"
            )
        samples += frame.samples
        at, frame = done, following if done < end else None
    if info.samples is not None and samples != info.samples:
        return f"expected {info.samples} samples, as STREAMINFO says, got frames with {samples}"
    return None


def flac_frame(data: bytes, at: int, end: int) -> FlacFrame | None:
    """Read the frame header at `at`. None if there is none, by its reserved bits or its CRC-8."""
    head = data[at : min(at + 16, end)]
    if len(head) < 6 or head[0] != 0xFF or head[1] & 0xFE != 0xF8:
        return None
    size_code, rate_code = head[2] >> 4, head[2] & 15
    if size_code == 0 or rate_code == 15 or head[3] >> 4 > _MOST_CHANNELS_CODE or head[3] & 1:
        return None
    number, length = _coded_number(head[4:11])
    if length == 0:
        return None
    place = 4 + length
    samples = _BLOCK_SIZES[size_code]
    if samples < 0:
        extra = -samples
        samples = int.from_bytes(head[place : place + extra], "big") + 1
        place += extra
    place += _RATE_EXTRA.get(rate_code, 0)
    if place >= len(head) or _crc8(head[:place]) != head[place]:
        return None
    return FlacFrame(number=number, is_variable=head[1] & 1 == 1, samples=samples, header_bytes=place + 1)


def _coded_number(coded: bytes) -> tuple[int, int]:
    """Decode a number of 1 to 7 bytes in the manner of UTF-8. Return it with its length, 0 if invalid."""
    first = coded[0]
    if first < 0x80:
        return first, 1
    length = 8 - (first ^ 0xFF).bit_length()
    if not 2 <= length <= 7 or len(coded) < length:
        return 0, 0
    number = first & (1 << 7 - length) - 1
    for byte in coded[1:length]:
        if byte & 0xC0 != 0x80:
            return 0, 0
        number = number << 6 | byte & 0x3F
    return number, length


def _bytes_at(data: bytes, at: int) -> str:
    return data[at : at + 4].hex(" ") if at < len(data) else "the end of the file"


# --- Ogg -----------------------------------------------------------------------------------------------

_OGG_STEP_BYTES: Final = 1 << 20


def _ogg_problem(data: bytes) -> str | None:
    reader, at = OggReader(), 0
    next_page, ended = dict[int, int](), set[int]()
    for start in range(0, len(data), _OGG_STEP_BYTES):
        reader.feed(data[start : start + _OGG_STEP_BYTES])
        while (page := reader.next_page()) is not None and page.offset == at:
            at, serial = page.end, page.serial
            if page.is_first:
                ended.discard(serial)
                next_page[serial] = page.number
            if page.number != next_page.get(serial, page.number) or serial in ended:
                return (
                    f"expected page {next_page[serial]} of the Ogg stream {serial} at byte {page.offset}, got"
                    f" page {page.number}: pages are missing or repeated"
                )
            next_page[serial] = page.number + 1 & 0xFFFF_FFFF
            if page.is_last:
                ended.add(serial)
        if page is not None:
            break
    if at < len(data):
        if not b"OggS".startswith(data[at : at + 4]):
            return f"expected an Ogg page at byte {at}, got {_bytes_at(data, at)}"
        if reader.offset == at:
            return (
                f"expected the whole Ogg page at byte {at}, got {len(data) - at} bytes: the file is cut short"
            )
        return f"expected the CRC-32 of the Ogg page at byte {at} to match: the page is damaged"
    if len(ended) < len(next_page):
        return (
            "expected an Ogg page that is marked as the last of its stream, got none: the file is cut short"
        )
    return None


# --- MP3 -----------------------------------------------------------------------------------------------

_MPEG_KBITS: Final = {
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG-1 layer III
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG-2
    0: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG-2.5
}
_MPEG_RATES_HZ: Final = {
    3: (44_100, 48_000, 32_000),
    2: (22_050, 24_000, 16_000),
    0: (11_025, 12_000, 8_000),
}
_MOST_SEARCHED: Final = 64 * 1024
"""Bytes before the first frame: padding, or a tag that doesn't say its length."""
_VBRI_AT: Final = 36
_MP3_MARKS: Final = (b"LYRICSBEGIN", b"APETAGEX", b"TAG")


@dataclass(frozen=True, slots=True, kw_only=True)
class MpegFrame:
    """The header of one MPEG audio frame of layer III."""

    size_bytes: int
    bytes_per_second: float
    frames_per_second: float
    samples: int
    """Per channel."""
    side_bytes: int
    """From the beginning of the frame to its main data: header, checksum and side information."""


def mpeg_frame(data: bytes, at: int) -> MpegFrame | None:
    """Read the frame header at `at`; None if it is not one of layer III with a known length."""
    if at + 4 > len(data):
        return None
    word = int.from_bytes(data[at : at + 4], "big")
    version, layer = word >> 19 & 3, word >> 17 & 3
    kbits_index, rate_index, padding = word >> 12 & 15, word >> 10 & 3, word >> 9 & 1
    if word >> 21 != 0x7FF or version == 1 or layer != 1 or rate_index == 3 or kbits_index in (0, 15):
        return None
    bytes_per_second = _MPEG_KBITS[version][kbits_index] * 125.0
    samples = 1152 if version == 3 else 576
    frames_per_second = _MPEG_RATES_HZ[version][rate_index] / samples
    is_mono = word >> 6 & 3 == 3
    side = (17 if is_mono else 32) if version == 3 else (9 if is_mono else 17)
    return MpegFrame(
        size_bytes=int(bytes_per_second / frames_per_second) + padding,
        bytes_per_second=bytes_per_second,
        frames_per_second=frames_per_second,
        samples=samples,
        side_bytes=4 + side,
    )


def _mp3_problem(data: bytes, start: int) -> str | None:
    end = _before_tags(data)
    if start >= end:
        return f"expected audio after a tag of {start} bytes, got a file of {len(data)}: it is cut short"
    first = _first_frame(data, start, end)
    if first is None:
        return None  # another layer, or a free bit rate: nothing states a length
    at, frames, cut = first, 0, None
    while at < end:
        frame = mpeg_frame(data, at)
        if frame is None:
            if _is_padding(data, at, end):
                break
            return f"expected an MPEG frame at byte {at}, got {_bytes_at(data, at)}"
        if at + frame.size_bytes > end:
            cut = f"expected {frame.size_bytes} bytes in the MPEG frame at byte {at}, got {end - at}"
            break
        frames += 1
        at += frame.size_bytes
    indexed = _index_problem(data, first, frames=frames, size=at - first)
    found = indexed or cut
    return f"{found}: the file is cut short" if cut else found


def _first_frame(data: bytes, start: int, end: int) -> int | None:
    """Return the place of the first header that another one follows, or the end."""
    place = start
    while (place := data.find(b"\xff", place, min(end, start + _MOST_SEARCHED))) >= 0:
        frame = mpeg_frame(data, place)
        if frame is not None:
            following = place + frame.size_bytes
            if following == end or mpeg_frame(data, following) is not None:
                return place
            if following > end and place == start:
                return place
        place += 1
    return None


def _is_padding(data: bytes, at: int, end: int) -> bool:
    """True for zeros up to the end, and for a tag that was not cut off."""
    return data.startswith(_MP3_MARKS, at) or not any(data[at:end])


def _index_problem(data: bytes, first: int, *, frames: int, size: int) -> str | None:
    """Compare the frames and their bytes with the index in the first frame. Some encoders count that frame,
    some don't."""
    frame = mpeg_frame(data, first)
    assert frame is not None
    name, count, total = _index(data[first : first + frame.size_bytes], frame)
    if count is not None and count not in (frames - 1, frames):
        return f"expected {count} MPEG frames, as the {name} index says, got {frames - 1}"
    # As many bytes as the frames, with or without the first one, and up to a frame of padding or tags.
    if total is not None and not size - 2 * frame.size_bytes <= total <= size + _RIFF_SLACK + _ID3V1_BYTES:
        return f"expected {total} bytes of MPEG frames, as the {name} index says, got {size}"
    return None


def _index(frame: bytes, header: MpegFrame) -> tuple[str, int | None, int | None]:
    """Read the index of the first frame: its name, and its counts of frames and bytes, None if missing."""
    if frame[_VBRI_AT : _VBRI_AT + 4] == b"VBRI" and len(frame) >= _VBRI_AT + 18:
        total, count = struct.unpack_from(">II", frame, _VBRI_AT + 10)
        return "VBRI", count, total
    at = next((place for place in (header.side_bytes, header.side_bytes + 2) if _is_xing(frame, place)), None)
    if at is None or at + 16 > len(frame):
        return "", None, None
    (flags,) = struct.unpack_from(">I", frame, at + 4)
    fields = list(struct.unpack_from(">II", frame, at + 8))
    found = fields.pop(0) if flags & 1 else None
    return frame[at : at + 4].decode(), found, fields.pop(0) if flags & 2 else None


def _is_xing(frame: bytes, at: int) -> bool:
    return frame[at : at + 4] in (b"Xing", b"Info")


# --- checksums -----------------------------------------------------------------------------------------


@cache
def _crc_table(polynomial: int, bits: int) -> Sequence[int]:
    top, mask = 1 << bits - 1, (1 << bits) - 1
    table = array("H", bytes(512))
    for byte in range(256):
        crc = byte << bits - 8
        for _bit in range(8):
            crc = (crc << 1 ^ (polynomial if crc & top else 0)) & mask
        table[byte] = crc
    return table


def _crc8(data: bytes) -> int:
    """Compute FLAC's CRC-8: polynomial 0x07, from 0."""
    table, crc = _crc_table(0x07, 8), 0
    for byte in data:
        crc = table[crc ^ byte]
    return crc


@cache
def _crc16_pairs() -> Sequence[int]:
    """Return the CRC-16 of each pair of bytes: half as many steps, and 16 MiB in half a second."""
    table = _crc_table(0x8005, 16)
    pairs = array("H", bytes(0x20000))
    for high in range(256):
        first = table[high]
        rest, carried = first >> 8, first << 8 & 0xFF00
        for low in range(256):
            pairs[high << 8 | low] = table[rest ^ low] ^ carried
    return pairs


def _crc16(data: bytes, start: int, end: int, crc: int) -> int:
    """Continue FLAC's CRC-16 (polynomial 0x8005, from 0) over `data[start:end]`."""
    pairs = _crc16_pairs()
    even = start + (end - start & ~1)
    for (pair,) in struct.iter_unpack(">H", memoryview(data)[start:even]):
        crc = pairs[crc ^ pair]
    if even < end:
        table = _crc_table(0x8005, 16)
        crc = table[crc >> 8 ^ data[even]] ^ crc << 8 & 0xFF00
    return crc
