"""Sanitize untrusted text for a model: strip inline data, and reduce labels to one line.

Inline data is a `data:` URI of any length; a JSON string of 64 or more base64 characters under a key such as
`data`, `blob` or `base64`; or, elsewhere, a run of 512 or more, in one piece or wrapped. Hexadecimal digits
are not inline data, because they are hashes and calldata. Nor are bare runs of letters in a single case
(sequences), or short words separated by `-`, `_` and `/` (paths and names).

Each pattern scans the text once, and only after a cheaper check, which takes a tenth of the time, finds a
hint of a match.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Final

_KEYED_CHARS: Final = 64
"""48 bytes: audio and images are never shorter, names are rarely longer."""
_RUN_CHARS: Final = 512
"""384 bytes. Identifiers, paths and tokens are shorter."""
_LABEL_RUN: Final = 64
_LINE_CHARS: Final = 60
"""Wrapped base64 has lines of 64 or 76 characters."""
_ALPHABET: Final = frozenset(f"{string.ascii_letters}{string.digits}+/_-\\")
"""Both alphabets of RFC 4648, and the backslash of JSON escapes."""
URI_RUN: Final = _RUN_CHARS
"""A path without dots can be as long as a run of base64."""

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
"""Without `;base64`, only registered types match: `{data:n/100,labels:o}` is JavaScript."""
_KEYED: Final = re.compile(
    r'((?:data|blob|base64|b64)\\{0,9}"\s{0,9}:\s{0,9}\\{0,9}")'
    r'((?:[A-Za-z0-9+/_=-]|\\{1,9}(?:[/nr]|u00[0-9a-f]{2}))*+)(?=\\{0,9}"|\Z)',
    re.IGNORECASE,
)
"""Matches from quote to quote, because a path or token continues after a dot. .NET escapes `+`."""
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
"""Transitions between lower case, upper case and digits: 45% of positions in random base64, few in words."""
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def without_inline_data(text: str, *, run_chars: int = _RUN_CHARS) -> str:
    """Replace inline data with a note of its length, and lone surrogates with U+FFFD."""
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
    """Quote a server's title or name as one bounded line, without control characters or base64.

    Quotes and backslashes are escaped, so that a title cannot end the line it appears in.
    """
    # Truncated twice: the first cut bounds the work on a title of megabytes.
    kept = without_inline_data(text, run_chars=run_chars)[: 4 * limit_chars]
    line = " ".join("".join(map(_printable, kept)).split())
    if len(line) > limit_chars:
        line = f"{line[: limit_chars - 1]}…"
    escaped = line.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _printable(char: str) -> str:
    return " " if unicodedata.category(char)[0] == "C" else char  # `split` collapses the spaces


def _keyed(found: re.Match[str]) -> str:
    value = found[2]
    if len(value) < _KEYED_CHARS or _HEX.fullmatch(value) or _is_words(value):
        return found[0]
    return f"{found[1]}{_mark(value)}"


def _is_mixed(run: str) -> bool:
    return all(kind.search(run) for kind in _KINDS) and not _is_words(run)


def _is_words(run: str) -> bool:
    """Return True for short, mostly lower-case words: a path, a name, or a list of them."""
    words = [word for word in _BETWEEN_WORDS.split(run) if word]
    if max(map(len, words), default=0) > _WORD_CHARS:
        return False
    letters = "".join(words)
    small = sum(map(str.islower, letters))
    turns = sum(len(_TURNS.findall(word)) for word in words)
    return small > 0.6 * sum(map(str.isalpha, letters)) and turns < 0.3 * len(letters)


def _mark(data: str) -> str:
    return f"[{len(data):,} characters of inline data left out]"
