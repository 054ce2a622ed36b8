"""What base64 tells about its bytes without being decoded whole."""

from __future__ import annotations

from typing import Final

from playhead._core import decode_base64
from playhead.content.audio import SNIFF_BYTES
from playhead.errors import Base64Error

_HEAD_CHARS: Final = (SNIFF_BYTES + 2) // 3 * 4


def decoded_bytes(base64: str) -> int:
    """How many bytes valid base64 decodes to; of any other text a guess, never less than 0."""
    return max(len(base64) // 4 * 3 - base64[-2:].count("="), 0)


def head_of_base64(base64: str) -> bytes:
    """The first bytes, enough to tell a format from; none where they don't decode."""
    try:
        return decode_base64(base64[:_HEAD_CHARS])
    except (Base64Error, UnicodeEncodeError):
        return b""
