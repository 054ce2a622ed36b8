"""Text of a result for the model.

Text blocks are passed on in order. Media becomes one short line in square brackets with its kind, title,
type, size and what happens to it. Titles and names from the server are quoted, so that they cannot pass for a
line written here.

Inline data never appears: a `data:` URI of any length; a JSON string of 64 or more base64 characters under a
key such as `data`, `blob` or `base64`; or, elsewhere, a run of 512 or more, in one piece or wrapped.
Hexadecimal digits are not inline data, because they are hashes and calldata. Nor are bare runs of letters in
a single case (sequences), or short words separated by `-`, `_` and `/` (paths and names). Each pattern scans
the text once, and only after a cheaper check, which takes a tenth of the time, finds a hint of a match.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final, assert_never

from playhead.content.blocks import UnknownBlock
from playhead.content.formats import has_long_run
from playhead.errors import UsageError
from playhead.results.candidates import Candidate
from playhead.results.plan import (
    Disposition,
    KeepReference,
    Plan,
    PlayAudio,
    ReportUnknown,
    Respond,
    SendText,
    ShowImage,
)

_KEYED_CHARS: Final = 64
"""The least length of inline data under a key such as `data`: 48 bytes. Audio and images are never shorter,
and names rarely longer."""
_RUN_CHARS: Final = 512
"""The least length of inline data elsewhere: 384 bytes. Identifiers, paths and tokens are shorter."""
_LABEL_RUN: Final = 64
URI_RUN: Final = _RUN_CHARS
"""The least length of inline data in a URI, whose path without dots can be as long as a run of base64."""

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
"""Matches a `data:` URI without `;base64`, of a registered type only: `{data:n/100,labels:o}` is
JavaScript."""
_KEYED: Final = re.compile(
    r'((?:data|blob|base64|b64)\\{0,9}"\s{0,9}:\s{0,9}\\{0,9}")'
    r'((?:[A-Za-z0-9+/_=-]|\\{1,9}(?:[/nr]|u00[0-9a-f]{2}))*+)(?=\\{0,9}"|\Z)',
    re.IGNORECASE,
)
"""Matches base64 under a key, from quote to quote, because a path or token continues after a dot. .NET
escapes `+`."""
_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9+/_\\-])[A-Za-z0-9+/_\\-]{60,}+(?:\s{1,32}[A-Za-z0-9+/_\\-]{60,}+)*+"
    r"(?:[ \t]{0,32}\r?\n[ \t]{0,32}[A-Za-z0-9+/_-]{1,76}+(?==|[\s\"']*\Z|[ \t\"']*\r?\n))?={0,2}"
)
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
        return found[0] if len(found[0]) < run_chars or not _is_mixed(found[0]) else _left_out(found[0])

    lowered = text.lower()
    if "data:" in lowered:
        if ";base64," in lowered:
            text = _DATA_URI.sub(lambda found: _left_out(found[0]), text)
        text = _PLAIN_DATA_URI.sub(lambda found: _left_out(found[0]), text)
    if '"' in text and any(key in lowered for key in ("data", "blob", "b64", "base64")):
        text = _KEYED.sub(_keyed, text)
    return _RUN.sub(run, text) if has_long_run(text) else text


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
    return f"{found[1]}{_left_out(value)}"


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


def _left_out(data: str) -> str:
    return f"[{len(data):,} characters of inline data left out]"


_TITLE_CHARS: Final = 200
_URI_CHARS: Final = 500
_TYPE_CHARS: Final = 100
_MIME: Final = re.compile(r"[\w.+-]{1,50}/[\w.+-]{1,50}", re.ASCII)
_HEAD_SHARE: Final = 2 / 3
"""Share of truncated text kept from the start: beginnings identify the subject, ends hold the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """Text for the model, truncated and in full."""

    text: str
    """The text in at most `limit_chars` characters: head and tail if truncated."""
    whole: str
    """The full text, also without base64; the same object as `text` if not truncated."""
    cut: bool


def text_for_model(
    plan: Plan, *, limit_chars: int, handle: str | None = None, playing: bool = True
) -> ModelText:
    """Render `plan` as text for the model; never empty or blank.

    Args:
        plan: Plan returned by `classify`.
        limit_chars: Maximum length of `text` (`Limits.model_text_chars`).
        handle: Location of the full text, in words for the model ("saved as notes.txt"); included in the
            truncation mark.
        playing: True if playable audio is being played; the lines say so.

    Raises:
        UsageError: `limit_chars` is too small for the truncation mark and some text.
    """
    lines = [line for each in plan.dispositions for line in _lines(each, playing=playing)]
    if not playing:
        inside = [each for each in plan.parts() if isinstance(each, PlayAudio) and each.is_in_text]
        lines = [reduce(_not_playing, inside, line) for line in lines]
    if plan.is_error and not any(isinstance(each, SendText | Respond) for each in plan.dispositions):
        lines.insert(0, "Error: the tool failed and gave no reason")
    if not any(isinstance(each, PlayAudio) for each in plan.parts()):
        lines += [_refusal(each) for each in plan.refused]
    # Blank text counts as empty: some providers reject a message without a visible character.
    whole = "\n".join(lines)
    if not whole.strip():
        whole = "[the tool returned no content]"
    if len(whole) <= limit_chars:
        return ModelText(text=whole, whole=whole, cut=False)
    return ModelText(text=_cut(whole, limit_chars, handle), whole=whole, cut=True)


def _cut(whole: str, limit_chars: int, handle: str | None) -> str:
    where = f"; the full text is {handle}" if handle else ""
    # The omitted count never has more digits than the full length, so this mark is the longest possible.
    room = limit_chars - len(_mark(len(whole), where))
    if room < 2:
        raise UsageError(f"limit_chars={limit_chars} is too small for the truncation mark; use 200 or more")
    head = int(room * _HEAD_SHARE)
    tail = room - head
    return f"{whole[:head]}{_mark(len(whole) - room, where)}{whole[-tail:]}"


def _mark(chars: int, where: str) -> str:
    return f"\n[… {chars:,} characters left out here{where} …]\n"


def _lines(disposition: Disposition, *, playing: bool) -> Iterator[str]:
    match disposition:
        case SendText():
            if disposition.uri is not None:
                yield f"[text of {_uri(disposition.uri)}]"
            text = without_inline_data(disposition.text)
            yield f"Error: {text}" if disposition.is_error else text
        case PlayAudio():
            if not disposition.is_in_text:
                size_bytes = disposition.size_bytes
                yield audio_line(disposition.title, disposition.mime_type, size_bytes, playing=playing)
        case ShowImage():
            yield _line("image", "", disposition.mime_type, disposition.size_bytes, "shown to the user")
        case KeepReference():
            yield _reference(disposition)
        case ReportUnknown():
            yield _unknown(disposition)
        case Respond():
            for part in disposition.parts:
                yield from _lines(part, playing=playing)
            if not disposition.parts:
                yield f"[a response of type {label(disposition.response.type, _TYPE_CHARS)}]"
        case _:
            assert_never(disposition)


def audio_line(title: str, mime_type: str | None, size_bytes: int | None, *, playing: bool = True) -> str:
    """Describe audio in place of its bytes."""
    return _line("audio", title, mime_type, size_bytes, "playing" if playing else "can be played")


def _not_playing(line: str, audio: PlayAudio) -> str:
    about = (audio.title, audio.mime_type, audio.size_bytes)
    before, after = audio_line(*about), audio_line(*about, playing=False)
    return line.replace(before, after).replace(json.dumps(before)[1:-1], json.dumps(after)[1:-1])


def _refusal(candidate: Candidate) -> str:
    assert candidate.verdict is not None
    assert candidate.verdict.permission is not None
    setting, value = candidate.verdict.permission
    state = f"not played, because it is not allowed ({setting} {_uri(value)}); at {_uri(candidate.key)}"
    return _line("audio", "", None, None, state)


def _reference(kept: KeepReference) -> str:
    what = kept.kind if kept.kind in ("link", "image") else "data"
    if kept.uri is None:
        return _line(what, kept.title, kept.mime_type, kept.size_bytes, kept.reason)
    # A title that repeats the end of the URI adds nothing.
    title = "" if kept.uri.endswith(kept.title) else kept.title
    return _line(what, title, kept.mime_type, kept.size_bytes, f"{kept.reason}; at {_uri(kept.uri)}")


def _unknown(unknown: ReportUnknown) -> str:
    content = None if unknown.block is None else unknown.block.content
    kind = content.kind if isinstance(content, UnknownBlock) else ""
    of_type = f" of type {label(kind, _TYPE_CHARS)}" if kind else ""
    return f"[a block{of_type} that is not understood]"


def _line(what: str, title: str, mime_type: str | None, size_bytes: int | None, state: str) -> str:
    parts = [f"{what} {label(title, _TITLE_CHARS)}" if title else what]
    if mime_type:
        parts.append(_bare(mime_type))
    if size_bytes is not None:
        parts.append(size_words(size_bytes))
    return f"[{', '.join(parts)}: {state}]"


def _bare(mime_type: str) -> str:
    """Format a MIME type: bare if valid, quoted otherwise."""
    kind = mime_type.partition(";")[0].strip()
    return kind if _MIME.fullmatch(kind) else label(mime_type, _TYPE_CHARS)


def _uri(uri: str) -> str:
    if uri[:5].lower() == "data:":
        return "an inline data URI"
    return label(uri, _URI_CHARS, run_chars=URI_RUN)


def size_words(size_bytes: int) -> str:
    """Format a size in decimal units, as players and file managers do."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} bytes"
