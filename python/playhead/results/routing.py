"""Text of a result for the model.

Text blocks are passed on in order. Media becomes one short line in square brackets with its kind, title,
type, size and what happens to it. Titles and names from the server are quoted, so that they cannot pass for a
line written here. Base64 and `data:` URIs never appear (`inline_data` defines them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from mcp_types import ImageContent, ResourceLink

from playhead.content.blocks import FileContent, UnknownBlock
from playhead.errors import UsageError
from playhead.results.inline_data import URI_RUN, label, without_inline_data
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
    """At most `limit_chars` characters: head and tail if truncated."""
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
    if plan.is_error and not any(isinstance(each, SendText | Respond) for each in plan.dispositions):
        lines.insert(0, "Error: the tool failed and gave no reason")
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
            state = "playing" if playing else "can be played"
            yield _line("audio", disposition.title, disposition.mime_type, disposition.size_bytes, state)
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


def _reference(kept: KeepReference) -> str:
    content = None if kept.block is None else kept.block.outline
    what = (
        "link"
        if isinstance(content, ResourceLink | FileContent)
        else "image"
        if isinstance(content, ImageContent)
        else "data"
    )
    if kept.uri is None:
        return _line(what, kept.title, kept.mime_type, kept.size_bytes, kept.reason)
    # A title that repeats the end of the URI adds nothing.
    title = "" if kept.uri.endswith(kept.title) else kept.title
    return _line(what, title, kept.mime_type, kept.size_bytes, f"{kept.reason}; at {_uri(kept.uri)}")


def _unknown(unknown: ReportUnknown) -> str:
    content = None if unknown.block is None else unknown.block.outline
    kind = content.kind if isinstance(content, UnknownBlock) else ""
    of_type = f" of type {label(kind, _TYPE_CHARS)}" if kind else ""
    return f"[a block{of_type} that is not understood]"


def _line(what: str, title: str, mime_type: str | None, size_bytes: int | None, state: str) -> str:
    parts = [f"{what} {label(title, _TITLE_CHARS)}" if title else what]
    if mime_type:
        parts.append(_bare(mime_type))
    if size_bytes is not None:
        parts.append(_size(size_bytes))
    return f"[{', '.join(parts)}: {state}]"


def _bare(mime_type: str) -> str:
    """Format a MIME type: bare if valid, quoted otherwise."""
    kind = mime_type.partition(";")[0].strip()
    return kind if _MIME.fullmatch(kind) else label(mime_type, _TYPE_CHARS)


def _uri(uri: str) -> str:
    if uri[:5].lower() == "data:":
        return "an inline data URI"
    return label(uri, _URI_CHARS, run_chars=URI_RUN)


def _size(size_bytes: int) -> str:
    """Format a size in decimal units, as players and file managers do."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} bytes"
