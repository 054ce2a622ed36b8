"""Calls in a model's text: `<tool_use><name>…</name><arguments>{JSON}</arguments></tool_use>`.

Text goes in by `feed`, in pieces cut anywhere; events come out. Any cutting gives the same events (`TextRun`s
that touch are one). What is held back of text is only what may begin a tag, and each character is looked at
a bounded number of times, however small the pieces are.

The rules, where models differ from what they were told:

* Tags are read in any case, with blanks and attributes (up to 200 characters, ignored) before the `>`.
* `<name>` and `<arguments>` come in any order. Inside a string of the arguments nothing is a tag; inside the
  arguments only `</arguments>` and `</tool_use>` are. Blank arguments are `{}`, a code fence around the JSON
  is taken off, and line breaks inside strings are allowed.
* A block that is not closed ends with the text, or at the next `<tool_use>` outside of its arguments. It
  counts where its name and its JSON are complete; what follows its last element is text.
* What else stands inside a closed block is dropped. What stands around blocks is kept as it is, also a code
  fence: whether it belongs to a call is known only after it was shown.
* Whatever else begins as a block is told as a `CallBroken`, never dropped: no or two names, no or two
  arguments, no JSON object, a block over the limit, and a `<tool_use_result>` that the model made up (skipped
  up to its end). A closing tag without a block becomes a blank, so that no two halves around it make a tag.
* A string that never ends takes the rest of the reply with it: to look for calls in there would run what the
  model only quotes.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never

import regex

from playhead.agent.tool_use_block import Block, CallBroken, CallNamed, CallWritten, TextRun, ToolUseEvent
from playhead.limits import DEFAULT_LIMITS

__all__ = ["CallBroken", "CallNamed", "CallWritten", "TextRun", "ToolUseEvent", "ToolUseParser"]

_FLAGS = regex.IGNORECASE | regex.ASCII
_REST = r"(?P<rest>[\s/][^<>]{0,199})?>"
_OUTER = regex.compile(r"<(?P<close>/?)(?P<name>tool_use_result|tool_use)" + _REST, _FLAGS)
_INNER = regex.compile(r"<(?P<close>/?)(?P<name>tool_use_result|tool_use|name|arguments)" + _REST, _FLAGS)
_JSON_MARK = regex.compile(r'["<]')
_STRING_MARK = regex.compile(r'["\\]')

_MADE_UP = (
    "expected no <tool_use_result> from you, came one: results come from the tools alone; yours was dropped. "
    "Call the tool and wait for its result"
)


class _Where(Enum):
    TEXT = "outside of blocks"
    MADE_UP = "in a result that the model made up"
    BLOCK = "in a block, between its elements"
    NAME = "in <name>"
    ARGUMENTS = "in <arguments>, outside of strings"
    STRING = "in a string of the arguments"
    ESCAPE = "after a backslash in that string"


class ToolUseParser:
    """Finds the calls in one reply: `feed` its text, then `finish`.

    `limit_chars` bounds what is held of one block (`Limits.tool_use_chars`, 1,048,576): a longer one is told
    as broken when it passes the limit, and skipped to its end.
    """

    def __init__(self, *, limit_chars: int = DEFAULT_LIMITS.tool_use_chars) -> None:
        self._limit_chars = limit_chars
        self._where = _Where.TEXT
        self._held = ""
        self._block = Block(limit_chars=limit_chars)
        self._text: list[str] = []
        self._events: list[ToolUseEvent] = []

    def feed(self, chunk: str) -> list[ToolUseEvent]:
        """The events that `chunk` makes certain."""
        data = self._held + chunk
        self._held = ""
        at = 0
        while at < len(data):
            at = self._step(data, at)
        return self._told()

    def finish(self) -> list[ToolUseEvent]:
        """The events of what is still open, now that the text is over. Afterwards the parser is as new."""
        held, self._held = self._held, ""
        if self._where is _Where.TEXT:
            self._text.append(held)
        elif self._where is not _Where.MADE_UP:
            self._cut_short(self._block.size)  # without `held`: the beginning of a tag is nobody's text
        self._where = _Where.TEXT
        return self._told()

    def _told(self) -> list[ToolUseEvent]:
        self._flush()
        events, self._events = self._events, []
        return events

    def _flush(self) -> None:
        if text := "".join(self._text):
            self._events.append(TextRun(text=text))
        self._text.clear()

    def _tell(self, event: ToolUseEvent) -> None:
        self._flush()
        self._events.append(event)

    def _step(self, data: str, at: int) -> int:
        """Read `data` from `at` up to where the next step begins."""
        match self._where:
            case _Where.TEXT | _Where.MADE_UP:
                return self._read_outside(data, at)
            case _Where.BLOCK | _Where.NAME:
                return self._read_inside(data, at, data.find("<", at))
            case _Where.ARGUMENTS:
                found = _JSON_MARK.search(data, at)
                if found is None or found[0] == "<":
                    return self._read_inside(data, at, found.start() if found else -1)
                self._where = _Where.STRING
                end: int = found.end()
                self._take(data[at:end])
                return end
            case _Where.STRING:
                found = _STRING_MARK.search(data, at)
                end = found.end() if found else len(data)
                self._take(data[at:end])
                if found:
                    self._where = _Where.ARGUMENTS if found[0] == '"' else _Where.ESCAPE
                return end
            case _Where.ESCAPE:
                self._where = _Where.STRING
                self._take(data[at])
                return at + 1
            case _:
                assert_never(self._where)

    # --- outside of blocks ---

    def _read_outside(self, data: str, at: int) -> int:
        tag = data.find("<", at)
        self._say(data[at:] if tag < 0 else data[at:tag])
        if tag < 0:
            return len(data)
        found = _OUTER.match(data, tag, partial=True)
        if found is None:
            self._say("<")
            return tag + 1
        if found.partial:
            self._held = data[tag:]
            return len(data)
        name, closes, empty = _read_tag(found)
        if self._where is _Where.TEXT:
            self._outer_tag(name, closes=closes, empty=empty)
        elif closes and name == "tool_use_result":
            self._where = _Where.TEXT
        return tag + len(found[0])

    def _say(self, text: str) -> None:
        if self._where is _Where.TEXT:
            self._text.append(text)

    def _outer_tag(self, name: str, *, closes: bool, empty: bool) -> None:
        if closes:
            self._say(" ")
        elif name == "tool_use_result":
            self._tell(CallBroken(name="", source="", reason=_MADE_UP))
            self._where = _Where.TEXT if empty else _Where.MADE_UP
        else:
            self._block = Block(limit_chars=self._limit_chars)
            self._where = _Where.BLOCK
            if empty:
                self._end_block()

    # --- inside a block ---

    def _read_inside(self, data: str, at: int, tag: int) -> int:
        """Take what stands before the `<` at `tag` (-1: there is none), and the tag, if it is one."""
        if tag < 0:
            self._take(data[at:])
            return len(data)
        self._take(data[at:tag])
        found = _INNER.match(data, tag, partial=True)
        if found is None:
            self._take("<")
            return tag + 1
        if found.partial:
            self._held = data[tag:]
            return len(data)
        before = self._block.size
        self._take(found[0])
        name, closes, empty = _read_tag(found)
        if self._where is _Where.NAME:
            self._tag_in_name(name, before, closes=closes, empty=empty)
        elif self._where is _Where.ARGUMENTS:
            self._tag_in_arguments(name, before, closes=closes)
        else:
            self._tag_between(name, before, closes=closes, empty=empty)
        return tag + len(found[0])

    def _take(self, text: str) -> None:
        if broken := self._block.take(text):
            self._tell(broken)

    def _tag_in_name(self, name: str, before: int, *, closes: bool, empty: bool) -> None:
        if closes and name == "name":
            self._name(self._block.since_mark(before).strip())
            self._between_elements()
        elif name == "tool_use" or (name == "arguments" and not closes):
            self._block.wrong("expected </name> after the tool's name, came another tag")
            self._between_elements()
            self._tag_between(name, before, closes=closes, empty=empty)

    def _name(self, name: str) -> None:
        block = self._block
        block.names.append(name)
        if name and "<" not in name and len(block.names) == 1 and not block.over:
            self._tell(CallNamed(name=name))

    def _tag_in_arguments(self, name: str, before: int, *, closes: bool) -> None:
        if closes and name in ("arguments", "tool_use"):
            self._block.arguments.append(self._block.since_mark(before))
            self._between_elements()
            if name == "tool_use":
                self._end_block()

    def _tag_between(self, name: str, before: int, *, closes: bool, empty: bool) -> None:
        if name in ("tool_use", "tool_use_result") and not closes:
            self._cut_short(before)
            self._outer_tag(name, closes=False, empty=empty)
        elif name == "tool_use":
            self._end_block()
        elif closes or name == "tool_use_result":
            self._block.mark()
        elif empty:
            (self._block.names if name == "name" else self._block.arguments).append("")
            self._block.mark()
        else:
            self._block.mark()
            self._where = _Where.NAME if name == "name" else _Where.ARGUMENTS

    def _between_elements(self) -> None:
        self._block.mark()
        self._where = _Where.BLOCK

    def _end_block(self) -> None:
        self._where = _Where.TEXT
        if not self._block.over:
            self._tell(self._block.verdict())

    def _cut_short(self, end: int) -> None:
        """The block was never closed: its text, or the next block, ends it at `end`."""
        block = self._block
        where = self._where
        rest = block.since_mark(end)
        if where is _Where.NAME:
            block.wrong("expected </name> after the tool's name, came the end of the reply")
        elif where is not _Where.BLOCK:
            block.arguments.append(rest)
            if not rest.strip():
                block.wrong("expected a JSON object inside <arguments>, came the end of the reply")
        self._end_block()
        if where is _Where.BLOCK:
            self._say(rest)


def _read_tag(found: regex.Match[str]) -> tuple[str, bool, bool]:
    """A tag's name, whether it closes, whether it opens and closes at once."""
    closes = bool(found["close"])
    return found["name"].lower(), closes, not closes and (found["rest"] or "").endswith("/")
