"""What a person sees of a turn: its events, and nothing else, so that a recording looks as the turn did.

The model's and the tools' words are foreign: they pass through the terminal's escaping. The answer goes to
stdout as it comes; all that is about it (calls, sound, thinking) to stderr, a line each.
"""

from __future__ import annotations

import json
from typing import Final, assert_never

from playhead.agent.events import (
    AudioEnd,
    AudioStart,
    Event,
    Failed,
    ImageComplete,
    ReplyComplete,
    ReplyCreated,
    TextComplete,
    TextDelta,
    ThinkingDelta,
    ToolCallBegin,
    ToolCallError,
    ToolCallResponse,
    ToolComplete,
    ToolInProgress,
    ToolPending,
    ToolProgress,
    ToolRef,
    Usage,
)
from playhead.cli.progress import human_bytes
from playhead.cli.terminal import Terminal, escape_line

_SHOWN_CHARS: Final = 1000
"""Of a name, arguments or a reason: no line is wider, and they have no bound."""


class View:
    """`verbose` shows what the model thinks, progress and tokens too."""

    def __init__(self, terminal: Terminal, *, verbose: bool) -> None:
        self._terminal = terminal
        self._verbose = verbose
        self._thinking = False
        self._mid_line = False

    def __call__(self, event: Event) -> None:
        """Show `event`. Raises `OSError` where stdout is gone or full."""
        match event:
            case TextDelta():
                self._end_thinking()
                self._write(event.text)
            case TextComplete():
                self.end_line()
            case ThinkingDelta() if self._verbose:
                self._think(event.text)
            case ToolPending():
                self._line(f"? {event.tool.name} waits for your approval", "yellow")
            case ToolCallBegin():
                self._line(f"→ {event.tool.name} {_arguments(event.tool)}".rstrip(), "cyan")
            case ToolProgress() if self._verbose:
                of = "" if event.total is None else f"/{event.total:g}"
                self._line(
                    f"… {event.tool.name} {event.progress:g}{of} {event.message or ''}".rstrip(), "dim"
                )
            case ToolCallResponse():
                self._response(event)
            case ToolCallError():
                self._failure(event.tool.name, event.error)
            case AudioStart():
                self._line(f"♪ {event.title or 'sound'}", "magenta")
            case AudioEnd() if event.error is not None:
                self._failure(event.title or "sound", event.error)
            case ImageComplete():
                self._line(f"image: {event.mime_type}, {human_bytes(event.size_bytes)}", "magenta")
            case Usage() if self._verbose:
                tokens = f"{_count(event.input_tokens)} tokens in, {_count(event.output_tokens)} out"
                self._line(tokens, "dim")
            case Failed():
                self._end_thinking()
                self.end_line()
            case (
                ReplyCreated() | ToolInProgress() | ToolComplete() | ReplyComplete()
                | ThinkingDelta() | ToolProgress() | AudioEnd() | Usage()
            ):  # fmt: skip
                pass
            case _:
                assert_never(event)

    def end_line(self) -> None:
        """Begin a new line, if the text stopped in the middle of one."""
        if self._mid_line:
            self._mid_line = False
            self._terminal.write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._terminal.write(text)
            self._mid_line = not text.endswith("\n")

    def _line(self, text: str, style: str) -> None:
        self._end_thinking()
        self.end_line()
        self._terminal.line(text[:_SHOWN_CHARS], style=style)

    def _failure(self, what: str, why: str) -> None:
        """In as many lines as it needs: the end of a reason says what to do."""
        self._end_thinking()
        self.end_line()
        self._terminal.say(f"✗ {escape_line(what[:_SHOWN_CHARS])}: {why[:_SHOWN_CHARS]}", style="red")

    def _response(self, event: ToolCallResponse) -> None:
        if event.result.status == "done":
            self._line(f"✓ {event.tool.name}", "green")
        else:
            self._failure(event.tool.name, event.result.text)

    def _think(self, text: str) -> None:
        self.end_line()
        self._thinking = True
        self._terminal.prompt(text, style="dim")

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            self._terminal.prompt("\n")


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _arguments(tool: ToolRef) -> str:
    """A call's arguments as a line, without what would only be braces."""
    if not tool.arguments:
        return ""
    return escape_line(json.dumps(dict(tool.arguments), ensure_ascii=False, default=str))
