"""Text for people: escapes for third-party text, shortening, counts, and suggestions for misspelt names.

A server's string may contain escape sequences that move the cursor or retitle the window, and characters that
are invisible or reorder the surrounding text. `escape` makes all of these visible, so that a person who
approves a call sees exactly what will run.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final

_KEPT: Final = frozenset("\n\t")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls (ESC, BEL, BS, CR, C1), format characters (zero width, bidirectional, tags), lone surrogates,
private use, unassigned, and the two line separators."""
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks without a visible glyph."""
_SELECTORS: Final = frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Variation selectors: any number of them can follow a character, invisibly, and spell a message."""
_JOINER: Final = "\u200d"
_PICTURE_SELECTORS: Final = frozenset("\ufe0e\ufe0f")


def is_hidden(char: str) -> bool:
    """Return True for a character that is invisible or controls the display."""
    return char in _BLANK or char in _SELECTORS or unicodedata.category(char) in _HIDDEN_CATEGORIES


def escape(text: str) -> str:
    """Make a third-party string safe to print: `\\x1b` for a control, `\\u{200B}` for what is invisible.

    Newline and tab stay, and so do the joiner and the selector inside an emoji.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in _KEPT or not is_hidden(char) or _in_emoji(text, index) else _shown(char)
        for index, char in enumerate(text)
    )


def escape_line(text: str) -> str:
    """Like `escape`, for one line: newlines and tabs are shown too."""
    return escape(text).replace("\n", "\\n").replace("\t", "\\t")


def shortened(text: str, chars: int = 200) -> str:
    """Cut `text` after `chars` characters, and mark the cut with an ellipsis."""
    return text if len(text) <= chars else f"{text[:chars]}…"


def counted(number: int, noun: str) -> str:
    """Format `1 item`, `2,000 items`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def did_you_mean(
    name: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    show: Callable[[str], str] = repr,
    lead: str = "",
    most: int = 1,
    joint: str = " or ",
    likeness: float = 0.6,
) -> str:
    """Suggest the known names closest to `name`, or return `otherwise` if none is close.

    Args:
        show: how a name is written.
        lead: what the question follows, such as a semicolon.
        most: the limit on the names, which `joint` joins.
        likeness: the least ratio of equal characters, from 0 to 1.
    """
    near = get_close_matches(name, known, n=most, cutoff=likeness)
    return f"{lead}did you mean {joint.join(map(show, near))}?" if near else otherwise


def _in_emoji(text: str, index: int) -> bool:
    """Return True if the joiner or selector at `index` is part of an emoji: behind a picture, and a joiner
    before another one."""
    char, before = text[index], text[index - 1 : index]
    if char in _PICTURE_SELECTORS:
        return _is_picture(before)
    if char != _JOINER:
        return False
    if before == "\ufe0f":
        before = text[index - 2 : index - 1]
    return _is_picture(before) and _is_picture(text[index + 1 : index + 2])


def _is_picture(char: str) -> bool:
    return bool(char) and char not in _BLANK and unicodedata.category(char) in {"So", "Sk"}


def _shown(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{{{code:04X}}}"
