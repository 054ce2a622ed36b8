"""Tags around the audio of a file: ID3v2 before it, ID3v1 and APE after it."""

from __future__ import annotations

import struct
from typing import Final

ID3_HEADER_BYTES: Final = 10
ID3V1_BYTES: Final = 128
_APE_FOOTER: Final = 32


def after_id3(data: bytes) -> int:
    """Return the length of the ID3v2 tag before the audio (ID3v2.4, section 3.1); 0 without one."""
    if data[:3] != b"ID3" or len(data) < ID3_HEADER_BYTES:
        return 0
    size = 0
    for byte in data[6:10]:
        size = size << 7 | byte & 0x7F
    footer = ID3_HEADER_BYTES if data[5] & 0x10 else 0
    return ID3_HEADER_BYTES + size + footer


def before_tags(data: bytes) -> int:
    """Return the offset of the end of the audio, which is before any ID3v1 and APE tags."""
    end = len(data)
    if data[-ID3V1_BYTES : -ID3V1_BYTES + 3] == b"TAG":
        end -= ID3V1_BYTES
    footer = data[max(0, end - _APE_FOOTER) : end]
    if footer[:8] == b"APETAGEX" and len(footer) == _APE_FOOTER:
        size, flags = struct.unpack_from("<I4xI", footer, 12)  # the size of the items and the footer
        header = _APE_FOOTER if flags >> 31 else 0
        end -= min(end, header + size)
    return end
