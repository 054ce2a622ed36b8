"""Foreign text made fit for a model: without inline data, and labels kept to one line.

What counts as inline data: a `data:` URI of any length; a JSON string under a key like `data`, `blob` or
`base64` that is 64 base64 characters or more from quote to quote; and elsewhere a run of 512 or more, in one
piece or wrapped into lines. Not so hexadecimal digits, which are hashes and calldata, nor, in a bare run,
letters of one case alone, which are sequences: what is not mixed is text to its reader. Nor short words
between `-`, `_` and `/`, which are paths and names.

Every pattern passes over a text once, and only over one with a sign of what it looks for: the signs take a
tenth of the time.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Final

_KEYED_CHARS: Final = 64
"""48 bytes: no sound or image is shorter, hardly any name is longer."""
_RUN_CHARS: Final = 512
"""384 bytes. Identifiers, paths and tokens stay below."""
_LABEL_RUN: Final = 64
_LINE_CHARS: Final = 60
"""Wrapped base64 has lines of 64 or 76."""
_ALPHABET: Final = frozenset(f"{string.ascii_letters}{string.digits}+/_-\\")
"""Both alphabets of RFC 4648, and the backslash of escapes in JSON."""
URI_RUN: Final = _RUN_CHARS
"""A path without dots is as long as a run of base64."""

_DATA_URI: Final = re.compile(
    r"""data:(?:[\w.+-]{1,100}\\?/[\w.+-]{1,100})?(?:;[^,;\s"'<>]{1,100}){0,4};base64,"""
    r"""[^\s"'<>)\]}]*(?:\s{1,32}[A-Za-z0-9+/_-]{60,}+)*+"""
    r"""(?:(?<=[A-Za-z0-9+/_-]{60})[ \t]{0,32}\r?\n[ \t]{0,32}[A-Za-z0-9+/_-]{1,76}+"""
    r"""(?==|["')]|\s*\Z|[ \t]*\r?\n))?={0,2}""",
    re.IGNORECASE,
)
_PLAIN_DATA_URI: Final = re.compile(
    r"""\bdata:(?:application|audio|font|image|message|model|multipart|text|video)\\?/[\w.+-]{1,100}"""
    r"""(?:;[^,;\s"'<>]{1,100}){0,4},[^\s"'<>)\]}]*""",
    re.IGNORECASE,
)
"""Without `;base64`, only of a registered type: `{data:n/100,labels:o}` is JavaScript."""
_KEYED: Final = re.compile(
    r'((?:data|blob|base64|b64)\\{0,9}"\s{0,9}:\s{0,9}\\{0,9}")'
    r'((?:[A-Za-z0-9+/_=-]|\\{1,9}(?:[/nr]|u00[0-9a-f]{2}))*+)(?=\\{0,9}"|\Z)',
    re.IGNORECASE,
)
"""From quote to quote: a path or a token goes on behind a dot. .NET writes `+` as an escape."""
_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9+/_\\-])[A-Za-z0-9+/_\\-]{60,}+(?:\s{1,32}[A-Za-z0-9+/_\\-]{60,}+)*+"
    r"(?:[ \t]{0,32}\r?\n[ \t]{0,32}[A-Za-z0-9+/_-]{1,76}+(?==|[\s\"']*\Z|[ \t\"']*\r?\n))?={0,2}"
)
_SIGNS: Final = bytes(ord("A") if chr(code) in _ALPHABET else ord(" ") for code in range(256))
_SIGN_OF_RUN: Final = b"A" * _LINE_CHARS
_HEX: Final = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9a-f]+)")
_KINDS: Final = (re.compile("[A-Z]"), re.compile("[a-z]"), re.compile("[0-9]"))
_BETWEEN_WORDS: Final = re.compile(r"[-_/\\\s]+")
_WORD_CHARS: Final = 24
_TURNS: Final = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
"""Where letters turn to capitals or digits: 45 of 100 places in base64 of noise, a few in words."""
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def without_inline_data(text: str, *, run_chars: int = _RUN_CHARS) -> str:
    """`text` with inline data replaced by words that say how much it was, and fit to be sent as UTF-8."""
    if not text.isascii():
        text = _LONE_SURROGATE.sub("\ufffd", text)

    def run(found: re.Match[str]) -> str:
        return found[0] if len(found[0]) < run_chars or not _is_mixed(found[0]) else _mark(found[0])

    lowered = text.lower()
    if "data:" in lowered:
        if ";base64," in lowered:
            text = _DATA_URI.sub(lambda found: _mark(found[0]), text)
        text = _PLAIN_DATA_URI.sub(lambda found: _mark(found[0]), text)
    if '"' in text and any(key in lowered for key in ("data", "blob", "b64", "base64")):
        text = _KEYED.sub(_keyed, text)
    signs = text.encode("ascii", "replace").translate(_SIGNS)
    return _RUN.sub(run, text) if _SIGN_OF_RUN in signs else text


def label(text: str, limit_chars: int, *, run_chars: int = _LABEL_RUN) -> str:
    """A server's title or name as data: one line in double quotes, bounded, without controls or base64.

    Quotes and backslashes inside are escaped, so that no title can end the line that it stands in.
    """
    # Cut twice: the first bounds the work on a title of megabytes.
    kept = without_inline_data(text, run_chars=run_chars)[: 4 * limit_chars]
    line = " ".join("".join(map(_printable, kept)).split())
    if len(line) > limit_chars:
        line = f"{line[: limit_chars - 1]}…"
    escaped = line.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _printable(char: str) -> str:
    return " " if unicodedata.category(char)[0] == "C" else char  # `split` has the spaces


def _keyed(found: re.Match[str]) -> str:
    value = found[2]
    if len(value) < _KEYED_CHARS or _HEX.fullmatch(value) or _is_words(value):
        return found[0]
    return f"{found[1]}{_mark(value)}"


def _is_mixed(run: str) -> bool:
    return all(kind.search(run) for kind in _KINDS) and not _is_words(run)


def _is_words(run: str) -> bool:
    """Short words, mostly in small letters: a path, a name, or a list of them."""
    words = [word for word in _BETWEEN_WORDS.split(run) if word]
    if max(map(len, words), default=0) > _WORD_CHARS:
        return False
    letters = "".join(words)
    small = sum(map(str.islower, letters))
    turns = sum(len(_TURNS.findall(word)) for word in words)
    return small > 0.6 * sum(map(str.isalpha, letters)) and turns < 0.3 * len(letters)


def _mark(data: str) -> str:
    return f"[{len(data):,} characters of inline data left out]"
