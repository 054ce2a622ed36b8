"""The text that a model gets for a result.

Text as it came, in the blocks' order; media as one short line in square brackets that says what it is, its
title, type and size, and what becomes of it. What the server chose to call it stands in quotes, so that a
title cannot be taken for a line of ours. Never base64, never a `data:` URI (`redaction` says what counts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from mcp_types import ImageContent, ResourceLink

from playhead.content.blocks import UnknownBlock
from playhead.errors import UsageError
from playhead.results.plan import (
    Disposition,
    KeepReference,
    Plan,
    PlaySound,
    ReportUnknown,
    Respond,
    SendText,
    ShowImage,
)
from playhead.results.redaction import URI_RUN, label, without_inline_data

_TITLE_CHARS: Final = 200
_URI_CHARS: Final = 500
_TYPE_CHARS: Final = 100
_MIME: Final = re.compile(r"[\w.+-]{1,50}/[\w.+-]{1,50}", re.ASCII)
_HEAD_SHARE: Final = 2 / 3
"""Of a text that is cut: beginnings say what something is, ends how it came out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """What the model gets."""

    text: str
    """At most the limit's characters: the head and the tail where it was cut."""
    whole: str
    """All of it, without base64 too; the same object as `text` where nothing was cut."""
    cut: bool


def text_for_model(
    plan: Plan, *, limit_chars: int, handle: str | None = None, playing: bool = True
) -> ModelText:
    """`plan` as text for the model; never empty or blank.

    Args:
        plan: What `classify` gave.
        limit_chars: The most characters of `text` (`Limits.model_text_chars`).
        handle: Where the whole is, in words for the model ("saved as notes.txt"); said where text is cut.
        playing: Whether what can be played is being played; the lines say it.

    Raises:
        UsageError: `limit_chars` has no room for the mark of a cut and a little text (yours).
    """
    lines = [line for each in plan.dispositions for line in _lines(each, playing=playing)]
    if plan.is_error and not any(isinstance(each, SendText | Respond) for each in plan.dispositions):
        lines.insert(0, "Error: the tool failed and gave no reason")
    # Blank text counts as none: some providers refuse a message without a visible character.
    whole = "\n".join(lines)
    if not whole.strip():
        whole = "[the tool answered without content]"
    if len(whole) <= limit_chars:
        return ModelText(text=whole, whole=whole, cut=False)
    return ModelText(text=_cut(whole, limit_chars, handle), whole=whole, cut=True)


def _cut(whole: str, limit_chars: int, handle: str | None) -> str:
    where = f"; the whole is {handle}" if handle else ""
    # The count has at most as many digits as the whole has: its mark bounds every mark.
    room = limit_chars - len(_mark(len(whole), where))
    if room < 2:
        raise UsageError(f"limit_chars={limit_chars} has no room for the mark of a cut: allow 200 or more")
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
        case PlaySound():
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
    content = None if kept.block is None else kept.block.content
    what = (
        "link"
        if isinstance(content, ResourceLink)
        else "image"
        if isinstance(content, ImageContent)
        else "data"
    )
    if kept.uri is None:
        return _line(what, kept.title, kept.mime_type, kept.size_bytes, kept.reason)
    # A title that is the end of its URI says nothing.
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
        parts.append(_size(size_bytes))
    return f"[{', '.join(parts)}: {state}]"


def _bare(mime_type: str) -> str:
    """A MIME type needs no quotes, unless it isn't one."""
    kind = mime_type.partition(";")[0].strip()
    return kind if _MIME.fullmatch(kind) else label(mime_type, _TYPE_CHARS)


def _uri(uri: str) -> str:
    if uri[:5].lower() == "data:":
        return "a URI that holds its data itself"
    return label(uri, _URI_CHARS, run_chars=URI_RUN)


def _size(size_bytes: int) -> str:
    """Decimal units, as players and file managers name them."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} bytes"
