"""Parse tool calls out of a model's text: `<tool_use><name>…</name><arguments>{JSON}</arguments></tool_use>`.

Text goes in through `feed`, in chunks cut anywhere; events come out. Any chunking gives the same events
(adjacent `TextRun`s count as one). The parser holds back only text that may begin a tag, and reads each
character a bounded number of times, however small the chunks.

Models deviate from their instructions, so the rules are lenient:

* Tags match in any case, with blanks and attributes (up to 200 characters, ignored) before the `>`.
* `<name>` and `<arguments>` may come in either order. Inside a string of the arguments nothing is a tag;
  inside the arguments only `</arguments>` and `</tool_use>` are. Blank arguments mean `{}`, a code fence
  around the JSON is removed, and line breaks inside strings are allowed.
* An unclosed block ends with the text, or at the next `<tool_use>` outside its arguments. It counts if its
  name and JSON are complete; the rest after its last element is text.
* The parser drops anything else inside a closed block. Text around blocks stays as it is, even a code fence,
  because it is shown before the parser knows whether it belongs to a call.
* Everything else that begins as a block becomes a `CallBroken` and is never dropped silently: zero or two
  names, zero or two arguments, arguments that aren't a JSON object, a block over the limit, and a
  `<tool_use_result>` that the model made up (skipped up to its end). A closing tag without a block becomes a
  blank, or `< ` after text that could be the beginning of a tag, so that the text around it can't form one.
  The same separates the text around a call.
* An unterminated string consumes the rest of the reply. Otherwise calls that the model only quotes would run.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

import regex

from playhead.agent.tool_use_block import CallBroken, CallNamed, TextRun, ToolUseBlock, ToolUseEvent
from playhead.limits import DEFAULT_LIMITS

_TAG_FLAGS = regex.IGNORECASE | regex.ASCII
_TAG_REST = r"(?P<rest>[\s/][^<>]{0,199})?>"
_OUTER_TAG = regex.compile(r"<(?P<close>/?)(?P<name>tool_use_result|tool_use)" + _TAG_REST, _TAG_FLAGS)
_TAG_IN_BLOCK = regex.compile(
    r"<(?P<close>/?)(?P<name>tool_use_result|tool_use|name|arguments)" + _TAG_REST, _TAG_FLAGS
)
_TAG_CHARS = len("</tool_use_result") + 200 + len(" >")
"""Limits the length of a tag."""
_JSON_MARK = regex.compile(r'["<]')
_STRING_MARK = regex.compile(r'["\\]')

_FORGED_RESULT = (
    "expected no <tool_use_result> from you, got one: only tools write results, so yours was dropped. Call"
    " the tool and wait for its result"
)


class _Place(Enum):
    TEXT = "outside of blocks"
    MADE_UP = "in a result that the model made up"
    BLOCK = "in a block, between its elements"
    NAME = "in <name>"
    ARGUMENTS = "in <arguments>, outside of strings"
    STRING = "in a string of the arguments"
    ESCAPE = "after a backslash in that string"


class ToolUseParser:
    """Finds the calls in one reply: `feed` its text, then `finish`.

    `limit_chars` bounds the stored part of one block (`Limits.tool_use_chars`, 1,048,576). A longer block
    gives a `CallBroken` as soon as it exceeds the limit, and its rest is skipped.
    """

    def __init__(self, *, limit_chars: int = DEFAULT_LIMITS.tool_use_chars) -> None:
        self._limit_chars = limit_chars
        self._place = _Place.TEXT
        self._partial_tag = ""
        self._block = ToolUseBlock(limit_chars=limit_chars)
        self._text: list[str] = []
        self._tail = ""
        """The text since its last `<`, which may begin a tag."""
        self._events: list[ToolUseEvent] = []

    def feed(self, chunk: str) -> list[ToolUseEvent]:
        """Take a chunk of the text, and return the events that it completes."""
        data = self._partial_tag + chunk
        self._partial_tag = ""
        at = 0
        while at < len(data):
            at = self._step(data, at)
        return self._take_events()

    def finish(self) -> list[ToolUseEvent]:
        """End the text, and return the remaining events. Afterwards the parser can be reused."""
        partial_tag, self._partial_tag = self._partial_tag, ""
        if self._place is _Place.TEXT:
            self._add_text(partial_tag)
        elif self._place is not _Place.MADE_UP:
            self._end_unclosed(self._block.size)  # without `partial_tag`, because half a tag is not text
        self._place = _Place.TEXT
        self._tail = ""
        return self._take_events()

    def _take_events(self) -> list[ToolUseEvent]:
        self._flush()
        events, self._events = self._events, []
        return events

    def _flush(self) -> None:
        if text := "".join(self._text):
            self._events.append(TextRun(text=text))
        self._text.clear()

    def _emit(self, event: ToolUseEvent) -> None:
        self._flush()
        self._events.append(event)

    def _step(self, data: str, at: int) -> int:
        """Read `data` from `at` on, and return the offset at which the next step begins."""
        match self._place:
            case _Place.TEXT | _Place.MADE_UP:
                return self._read_outside(data, at)
            case _Place.BLOCK | _Place.NAME:
                return self._read_inside(data, at, data.find("<", at))
            case _Place.ARGUMENTS:
                mark = _JSON_MARK.search(data, at)
                if mark is None or mark[0] == "<":
                    return self._read_inside(data, at, mark.start() if mark else -1)
                self._place = _Place.STRING
                end: int = mark.end()
                self._add_to_block(data[at:end])
                return end
            case _Place.STRING:
                mark = _STRING_MARK.search(data, at)
                end = mark.end() if mark else len(data)
                self._add_to_block(data[at:end])
                if mark:
                    self._place = _Place.ARGUMENTS if mark[0] == '"' else _Place.ESCAPE
                return end
            case _Place.ESCAPE:
                self._place = _Place.STRING
                self._add_to_block(data[at])
                return at + 1
            case _:
                assert_never(self._place)

    # --- outside of blocks ---

    def _read_outside(self, data: str, at: int) -> int:
        tag = data.find("<", at)
        self._add_text(data[at:] if tag < 0 else data[at:tag])
        if tag < 0:
            return len(data)
        match = _OUTER_TAG.match(data, tag, partial=True)
        if match is None:
            self._add_text("<")
            return tag + 1
        if match.partial:
            self._partial_tag = data[tag:]
            return len(data)
        name, closes, self_closing = _read_tag(match)
        if self._place is _Place.TEXT:
            self._on_outer_tag(name, closes=closes, self_closing=self_closing)
        elif closes and name == "tool_use_result":
            self._place = _Place.TEXT
        return tag + len(match[0])

    def _add_text(self, text: str) -> None:
        if self._place is _Place.TEXT:
            self._text.append(text)
            begin = text.rfind("<")
            if begin >= 0:
                self._tail = text[begin : begin + _TAG_CHARS]
            elif self._tail:
                self._tail = (self._tail + text)[:_TAG_CHARS]

    def _separate_texts(self, *, always_blank: bool) -> None:
        """Prevent that the text before a removed tag forms a tag with the text after it. With `always_blank`,
        add a blank even if the two could not form one."""
        if _may_begin_tag(f"{self._tail} "):
            self._add_text("< ")  # a blank alone would be followed by attributes; "<" prevents that
        elif always_blank or _may_begin_tag(self._tail):
            self._add_text(" ")

    def _on_outer_tag(self, name: str, *, closes: bool, self_closing: bool) -> None:
        self._separate_texts(always_blank=closes)
        if closes:
            return
        if name == "tool_use_result":
            self._emit(CallBroken(name="", source="", reason=_FORGED_RESULT))
            self._place = _Place.TEXT if self_closing else _Place.MADE_UP
        else:
            self._block = ToolUseBlock(limit_chars=self._limit_chars)
            self._place = _Place.BLOCK
            if self_closing:
                self._end_block()

    # --- inside a block ---

    def _read_inside(self, data: str, at: int, tag: int) -> int:
        """Add the text before the `<` at `tag` (-1 for none) to the block, and read that tag."""
        if tag < 0:
            self._add_to_block(data[at:])
            return len(data)
        self._add_to_block(data[at:tag])
        match = _TAG_IN_BLOCK.match(data, tag, partial=True)
        if match is None:
            self._add_to_block("<")
            return tag + 1
        if match.partial:
            self._partial_tag = data[tag:]
            return len(data)
        before = self._block.size
        self._add_to_block(match[0])
        name, closes, self_closing = _read_tag(match)
        if self._place is _Place.NAME:
            self._on_tag_in_name(name, before, closes=closes, self_closing=self_closing)
        elif self._place is _Place.ARGUMENTS:
            self._on_tag_in_arguments(name, before, closes=closes)
        else:
            self._on_tag_between_elements(name, before, closes=closes, self_closing=self_closing)
        return tag + len(match[0])

    def _add_to_block(self, text: str) -> None:
        if broken := self._block.take(text):
            self._emit(broken)

    def _on_tag_in_name(self, name: str, before: int, *, closes: bool, self_closing: bool) -> None:
        if closes and name == "name":
            self._add_name(self._block.since_mark(before).strip())
            self._end_element()
        elif name == "tool_use" or (name == "arguments" and not closes):
            self._block.note_problem("expected </name> after the tool's name, got another tag")
            self._end_element()
            self._on_tag_between_elements(name, before, closes=closes, self_closing=self_closing)

    def _add_name(self, name: str) -> None:
        block = self._block
        block.names.append(name)
        if name and "<" not in name and len(block.names) == 1 and not block.is_too_long:
            self._emit(CallNamed(name=name))

    def _on_tag_in_arguments(self, name: str, before: int, *, closes: bool) -> None:
        if closes and name in ("arguments", "tool_use"):
            self._block.arguments.append(self._block.since_mark(before))
            self._end_element()
            if name == "tool_use":
                self._end_block()

    def _on_tag_between_elements(self, name: str, before: int, *, closes: bool, self_closing: bool) -> None:
        if name in ("tool_use", "tool_use_result") and not closes:
            self._end_unclosed(before)
            self._on_outer_tag(name, closes=False, self_closing=self_closing)
        elif name == "tool_use":
            self._end_block()
        elif closes or name == "tool_use_result":
            self._block.mark()
        elif self_closing:
            elements = self._block.names if name == "name" else self._block.arguments
            elements.append("")
            self._block.mark()
        else:
            self._block.mark()
            self._place = _Place.NAME if name == "name" else _Place.ARGUMENTS

    def _end_element(self) -> None:
        self._block.mark()
        self._place = _Place.BLOCK

    def _end_block(self) -> None:
        self._place = _Place.TEXT
        if not self._block.is_too_long:
            self._emit(self._block.verdict())

    def _end_unclosed(self, end: int) -> None:
        """End an unclosed block at `end`, which is the end of the text or the beginning of the next block."""
        block = self._block
        where = self._place
        rest = block.since_mark(end)
        if where is _Place.NAME:
            block.note_problem("expected </name> after the tool's name, got the end of the reply")
        elif where is not _Place.BLOCK:
            block.arguments.append(rest)
            if not rest.strip():
                block.note_problem("expected a JSON object inside <arguments>, got the end of the reply")
        self._end_block()
        if where is _Place.BLOCK:
            self._add_text(rest)


def _may_begin_tag(text: str) -> bool:
    match = _OUTER_TAG.fullmatch(text, partial=True) if text else None
    return match is not None and match.partial


def _read_tag(match: regex.Match[str]) -> tuple[str, bool, bool]:
    """Return a tag's name, and if it is a closing and a self-closing tag."""
    closes = bool(match["close"])
    return match["name"].lower(), closes, not closes and (match["rest"] or "").endswith("/")
