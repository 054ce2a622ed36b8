"""Foreign text made safe to show: on a terminal, and in the files that a check of a server writes.

A server's string may hold escape sequences that move the cursor, retitle the window, hide text or write
right to left. `escape` shows them instead of sending them.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_KEPT: Final = frozenset("\n\t")
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls (ESC, BEL, BS, CR, C1), lone surrogates, private use, unassigned, and the two line separators."""


def is_hidden(char: str) -> bool:
    """Whether a character does something else than being seen: controls, bidi controls, lone surrogates."""
    return char in _BIDI or unicodedata.category(char) in _HIDDEN_CATEGORIES


def escape(text: str) -> str:
    """Make a foreign string safe to print: a control becomes its visible `\\x1b` or `\\u202e` form.

    Newline and tab stay. Bidi controls are shown (they can reorder what a person reads); other format
    characters, such as the joiner inside an emoji, stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) for char in text)


def escape_line(text: str) -> str:
    """Like `escape`, for a place that has one line: newlines and tabs are shown too."""
    return escape(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(char: str) -> str:
    if char in _KEPT or not is_hidden(char):
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
