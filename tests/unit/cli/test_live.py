"""Views below the remarks: drawn after a tenth of a second, and nothing is left behind."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import pytest
import trio
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from playhead.cli.terminal import Terminal


class Screen(io.StringIO):
    """A terminal that understands what we send, and folds wide lines anew when it is resized.

    The cursor is always at the end of `lines`.
    """

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.lines = [""]
        self.has_cursor = True

    def isatty(self) -> bool:
        return True

    def resize(self, columns: int) -> None:
        self.columns = columns
        self.lines = [
            line[at : at + columns] for line in self.lines for at in range(0, max(1, len(line)), columns)
        ]

    def write(self, text: str) -> int:
        for piece in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[\r\n]|[^\r\n\x1b]+", text):
            match piece:
                case "\x1b[1A":
                    self.lines.pop()
                case "\x1b[2K" | "\r":
                    self.lines[-1] = ""
                case "\x1b[?25l" | "\x1b[?25h":
                    self.has_cursor = piece.endswith("h")
                case "\n":
                    self.lines.append("")
                case _ if piece.startswith("\x1b"):
                    assert piece.endswith("m"), f"unexpected control: {piece!r}"
                case _:
                    self.lines[-1] += piece
        assert max(map(len, self.lines)) <= self.columns
        return len(text)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen = Screen(80)
    monkeypatch.setenv("TERM", "xterm")
    return screen


class SizedConsole(Console):
    """A console as wide as its screen."""

    @property  # type: ignore[misc]  # nobody sets it
    def size(self) -> ConsoleDimensions:
        assert isinstance(self.file, Screen)
        return ConsoleDimensions(self.file.columns, 24)


@pytest.fixture
def terminal(screen: Screen) -> Terminal:
    terminal = Terminal(json_output=False)
    vars(terminal)["err"] = SizedConsole(file=screen, force_terminal=True)
    return terminal


@asynccontextmanager
async def drawing(terminal: Terminal, screen: Screen) -> AsyncIterator[None]:
    # Not in a fixture: pytest has a stderr of its own for each phase of a test.
    with patch.object(sys, "stderr", screen):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminal.draw)
            yield
            nursery.cancel_scope.cancel()


async def test_a_status_is_drawn_after_a_tenth_of_a_second_with_its_seconds(
    screen: Screen, terminal: Terminal, autojump_clock: object
) -> None:
    async with drawing(terminal, screen):
        with terminal.doing("connecting to radio\x1b"):
            await trio.sleep(0.05)
            assert screen.lines == [""]
            await trio.sleep(0.1)
            assert screen.lines == ["connecting to radio\\x1b", ""]
            assert not screen.has_cursor
            await trio.sleep(2)
            assert screen.lines == ["connecting to radio\\x1b · 2 s", ""]
        assert screen.lines == [""]
        assert screen.has_cursor


async def test_remarks_are_printed_above_and_the_newest_view_is_drawn(
    screen: Screen, terminal: Terminal, autojump_clock: object
) -> None:
    async with drawing(terminal, screen):
        with terminal.showing(lambda: "outer"):
            await trio.sleep(0.15)
            terminal.say("a remark")
            assert screen.lines == ["a remark", ""]
            await trio.sleep(0.1)
            assert screen.lines == ["a remark", "outer", ""]
            with terminal.showing(lambda: Text("two\nlines")):
                await trio.sleep(0.1)
                assert screen.lines == ["a remark", "two", "lines", ""]
            await trio.sleep(0.1)
            assert screen.lines == ["a remark", "outer", ""]
    assert screen.lines == ["a remark", ""]


@pytest.mark.parametrize("columns", [120, 79, 60, 40, 7])
async def test_a_resize_leaves_nothing_behind(
    columns: int, screen: Screen, terminal: Terminal, autojump_clock: object
) -> None:
    async with drawing(terminal, screen):
        terminal.say("before")
        with terminal.showing(lambda: Text("=" * 500 + "\nshort", no_wrap=True, overflow="crop")):
            await trio.sleep(0.15)
            assert [len(line) for line in screen.lines] == [6, 80, 5, 0]
            screen.resize(columns)
            await trio.sleep(0.1)
            assert screen.lines == ["before", "=" * columns, "short"[:columns], ""]
    assert screen.lines == ["before", ""]


@pytest.mark.parametrize("reason", ["--json", "a pipe", "dumb"])
async def test_elsewhere_nothing_is_drawn(
    reason: str, screen: Screen, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(json_output=reason == "--json")
    if reason == "a pipe":
        monkeypatch.setattr(screen, "isatty", lambda: False)
    if reason == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    async with drawing(terminal, screen):
        with terminal.doing("connecting"):
            await trio.sleep(1)
    assert screen.lines == [""]
