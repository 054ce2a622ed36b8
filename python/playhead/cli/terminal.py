"""What reaches the terminal: foreign strings escaped, results on stdout, progress on stderr.

A server's string may hold escape sequences that move the cursor, retitle the window, hide text or write
right to left. `escape` shows them instead of sending them; everything the CLI prints goes through it.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any, Final

from rich.console import Console
from rich.text import Text

_KEPT: Final = frozenset("\n\t")
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls (ESC, BEL, BS, CR, C1), lone surrogates, private use, unassigned, and the two line separators."""


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
    if char in _KEPT:
        return char
    if char not in _BIDI and unicodedata.category(char) not in _HIDDEN_CATEGORIES:
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


class Terminal:
    """Where one command writes: results to stdout, everything else to stderr."""

    def __init__(self, *, json_output: bool) -> None:
        self.json_output = json_output
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False)

    @property
    def is_live(self) -> bool:
        """Whether a moving progress line makes sense: only on a terminal, never beside `--json`."""
        return self.err.is_terminal and not self.json_output

    def say(self, text: str, *, style: str = "") -> None:
        """A remark for the person watching; silent where the output is for a program."""
        if not self.json_output:
            self.err.print(Text(escape(text), style=style))

    def show(self, text: str) -> None:
        """A part of the result, on stdout; silent with `--json`, which prints one object at the end."""
        if not self.json_output:
            self.out.print(Text(escape(text)))

    def fail(self, text: str) -> None:
        """What went wrong, on stderr."""
        self.err.print(Text.assemble(("error: ", "bold red"), escape(text)), soft_wrap=True)

    def print_json(self, value: dict[str, Any]) -> None:
        """The one JSON object of `--json`: ASCII, so that no terminal can be addressed through it."""
        sys.stdout.write(json.dumps(value, ensure_ascii=True, default=str) + "\n")
        sys.stdout.flush()
