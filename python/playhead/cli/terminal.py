"""Terminal output: untrusted strings escaped, results on stdout, progress on stderr.

Everything that a command prints goes through `escape`. Markdown from a server can hide its content: HTML and
comments vanish, a link shows one address and leads to another, and the parser turns `&#x202e;` into a control
character. So `rendered` shows HTML literally, shows the address of each link, preserves line breaks, and
escapes the output of the parser instead of its input.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import termios
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import trio

from playhead.escaping import escape, escape_line
from playhead.redaction import redacted_values

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import Console, ConsoleRenderable
    from rich.markdown import Markdown
    from rich.text import Text

__all__ = ["Terminal", "escape", "escape_line", "give_up", "mode_restorer", "naming_stdout"]

View = Callable[[], "str | ConsoleRenderable"]
"""A function that returns the content to draw. A string is escaped and takes one line; anything else draws
itself."""


T = TypeVar("T")

_SHOWN_CHARS: Final = 200
"""Limits the text of an error in a status line. If the stream fails, the command shows the whole error."""
_REDRAW_SECONDS: Final = 0.1
"""The time between two updates of a view, and before the first. Ten per second look smooth, and take under 1
% of a core."""
_HIDE_CURSOR: Final = "\x1b[?25l"
_SHOW_CURSOR: Final = "\x1b[?25h"
_ELAPSED_SECONDS: Final = 1.0
"""The time after which a status line shows the seconds."""


def _console(**options: Any) -> Console:
    # Rich is slow to import, so only the first output does it: a player has none before its audio.
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave the error to the caller, because trio would wrap rich's SystemExit in a group."""
            raise  # the BrokenPipeError that rich is handling

    return PipeConsole(highlight=False, **options)


def _text(*parts: str | tuple[str, str], style: str = "") -> Text:
    from rich.text import Text

    return Text.assemble(*parts, style=style)


def give_up(stream: TextIO) -> None:
    """Discard the unwritten data of `stream`. Otherwise Python would retry at exit, and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def mode_restorer(fd: int) -> Callable[[], None]:
    """Return a function that restores the current mode of the terminal behind `fd`. It does nothing without a
    terminal, and in the terminal's background, where the kernel would stop the process."""
    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        return lambda: None

    def restore() -> None:
        with suppress(OSError, termios.error):  # closed meanwhile
            if os.tcgetpgrp(fd) == os.getpgrp():
                # Not TCSADRAIN: it waits for whoever reads the terminal's output.
                termios.tcsetattr(fd, termios.TCSANOW, before)

    return restore


@contextmanager
def naming_stdout() -> Iterator[None]:
    """Add the name `stdout` to an `OSError` raised by a write to it (a full disk)."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or "stdout"
        raise


class Terminal:
    """The output of one command: results on stdout, everything else on stderr.

    The views of `showing` are drawn below all of it, on stderr.
    """

    def __init__(self, *, json_output: bool) -> None:
        self.json_output = json_output
        self._secrets: set[str] = set()
        self._failures: set[str] = set()
        """The errors that were printed."""
        self._views: list[View] = []
        self._has_view = trio.Event()
        self._drawn_widths: list[int] = []
        """The width in cells of each line that is drawn below the remarks."""

    @cached_property
    def out(self) -> Console:
        return _console(soft_wrap=True)

    @cached_property
    def err(self) -> Console:
        return _console(stderr=True)

    def hide(self, secrets: Iterable[str]) -> None:
        """Leave `secrets` out of everything printed from now on, except the result itself."""
        self._secrets |= {*secrets}

    def redacted(self, value: T) -> T:
        """Return `value` (a string, a JSON value or a dataclass) without the hidden secrets."""
        return redacted_values(value, self._secrets) if self._secrets else value

    @property
    def is_live(self) -> bool:
        """True if views can be drawn: only on a terminal, never with `--json`."""
        return not self.json_output and sys.stderr.isatty()

    # --- remarks, on stderr --------------------------------------------------------------------------

    @contextmanager
    def _writing_remark(self) -> Iterator[None]:
        """Erase the view for a remark. If stderr is full or gone, give it up."""
        self.erase()
        try:
            yield
        except OSError:
            give_up(sys.stderr)

    def say(self, text: str, *, style: str = "", whole: bool = False) -> None:
        """Print a remark on stderr, but not with `--json`. `whole` prints one long line that a user can
        copy."""
        if not self.json_output:
            self.say_anyway(text, style=style, whole=whole)

    def say_anyway(self, text: str, *, style: str = "", whole: bool = False) -> None:
        """Print a remark even with `--json`, because the program waits for its user."""
        with self._writing_remark():
            self.err.print(_text(escape(self.redacted(text)), style=style), soft_wrap=whole)

    def line(self, text: str, *, style: str = "") -> None:
        """Print a remark as exactly one line of stderr, truncated to the width of the terminal."""
        if not self.json_output:
            with self._writing_remark():
                self.err.print(
                    _text(escape_line(self.redacted(text)), style=style), no_wrap=True, overflow="ellipsis"
                )

    def prompt(self, text: str, *, style: str = "") -> None:
        """Print a remark on stderr without a newline."""
        if not self.json_output:
            with self._writing_remark():
                self.err.print(_text(escape(self.redacted(text)), style=style), end="", soft_wrap=True)
                self.err.file.flush()

    def warn(self, text: str) -> None:
        """Print a warning about a successful result on stderr, with `--json` too."""
        with self._writing_remark():
            self.err.print(_text(("warning: ", "yellow"), escape(self.redacted(text))), soft_wrap=True)

    def fail(self, text: str, *, about: str = "") -> None:
        """Print an error on stderr, once. It begins with `about` unless the text contains that."""
        if text in self._failures:
            return
        self._failures.add(text)
        text = text if about in text else f"{escape_line(about)}: {text}"
        with self._writing_remark():
            self.err.print(_text(("error: ", "bold red"), escape(self.redacted(text))), soft_wrap=True)

    # --- the result, on stdout -----------------------------------------------------------------------

    @contextmanager
    def _writing_result(self) -> Iterator[None]:
        self.erase()
        with naming_stdout():
            yield

    def show(self, text: str) -> None:
        """Print a part of the result on stdout; silent with `--json`, which prints one object at the end."""
        if not self.json_output:
            with self._writing_result():
                self.out.print(_text(escape(text)))

    def show_markdown(self, text: str) -> None:
        """Print text that may be Markdown: rendered on a terminal, plain elsewhere."""
        markdown = rendered(text) if not self.json_output and self.out.is_terminal else None
        if markdown is None:
            self.show(text)
            return
        with self._writing_result():
            self.out.print(markdown, soft_wrap=False)

    def write(self, text: str) -> None:
        """Write a piece of the result to stdout immediately; silent with `--json`."""
        if not self.json_output:
            with self._writing_result():
                sys.stdout.write(escape(text))
                sys.stdout.flush()

    def show_rows(self, rows: Iterable[Sequence[str]]) -> None:
        """Print the result in columns. Wide columns are folded, never truncated; only the last may have line
        breaks."""
        if not self.json_output:
            from rich.table import Table

            table = Table(box=None, show_header=False, pad_edge=False)
            for *names, text in rows:
                while len(table.columns) <= len(names):
                    table.add_column(overflow="fold")
                table.add_row(*map(_text, map(escape_line, names)), _text(escape(self.redacted(text))))
            with naming_stdout(), self.out.capture() as captured:
                self.out.print(table, soft_wrap=False)
            lines = [line.rstrip() for line in captured.get().splitlines()]  # rich pads to the column width
            if table.row_count:
                with self._writing_result():
                    self.out.print(_text("\n".join(lines)))

    def print_json(self, value: dict[str, Any]) -> None:
        """Print the one JSON object of `--json`, in ASCII, so that it can't contain terminal controls."""
        with self._writing_result():
            sys.stdout.write(json.dumps(self.redacted(value), ensure_ascii=True, default=str) + "\n")
            sys.stdout.flush()

    # --- views, below the remarks ----------------------------------------------------------------------

    @contextmanager
    def showing(self, view: View) -> Iterator[None]:
        """Draw `view()` during the `with` block, if `is_live`. Only the newest of several views is drawn."""
        self._views.append(view)
        self._has_view.set()
        try:
            yield
        finally:
            self._views.remove(view)
            self.erase()

    def doing(self, text: str) -> AbstractContextManager[None]:
        """Show `text` and the elapsed seconds in one line during a `with` block."""
        began = trio.current_time()

        def line() -> str:
            seconds = trio.current_time() - began
            return self.redacted(text) + (f" · {seconds:.0f} s" if seconds >= _ELAPSED_SECONDS else "")

        return self.showing(line)

    async def draw(self) -> None:
        """Draw the views of `showing` until cancelled, unless the terminal can't move its cursor."""
        if not self.is_live or os.environ.get("TERM", "dumb") in {"", "dumb", "unknown"}:
            return
        while True:
            await self._has_view.wait()
            await trio.sleep(_REDRAW_SECONDS)
            if self._views:
                self._redraw(self._views[-1]())
            else:
                self._has_view = trio.Event()

    def _redraw(self, now: str | ConsoleRenderable) -> None:
        from rich.segment import Segment, SegmentLines
        from rich.text import Text

        if isinstance(now, str):
            now = Text(escape_line(now), no_wrap=True, overflow="ellipsis")
        lines = self.err.render_lines(now, pad=False)
        with self.err.capture() as drawn:
            self.err.print(SegmentLines(lines, new_lines=True), end="")
        # The first drawing has nothing to erase. It hides the cursor, which `erase` shows again.
        before = self._take_erase_codes() or _HIDE_CURSOR
        self._drawn_widths = [Segment.get_line_length(line) for line in lines]
        self._write_codes(before + drawn.get())

    def erase(self) -> None:
        """Erase the view, until it is drawn again."""
        if self._drawn_widths:
            self._write_codes(self._take_erase_codes() + _SHOW_CURSOR)

    def _take_erase_codes(self) -> str:
        """Return the control codes that erase the view, and forget the view. After the terminal has become
        narrower, a line may take several rows. The codes erase row by row, because tmux saves a screen that
        is erased as a whole in its history."""
        columns = self.err.width
        rows = sum(max(1, math.ceil(cells / columns)) for cells in self._drawn_widths)
        self._drawn_widths = []
        return "\r" + "\x1b[1A\x1b[2K" * rows if rows else ""

    def _write_codes(self, text: str) -> None:
        with suppress(OSError):  # the next remark gives up stderr
            self.err.file.write(text)
            self.err.file.flush()


_MARKDOWN_SIGNS: Final = re.compile(
    r"^ {0,3}#{1,6} \S|^ {0,3}```|^ {0,3}[-*+] \S|^ {0,3}\d{1,3}[.)] \S|\*\*\S|\]\(\S|^ {0,3}\|.*\|\s*$|^> ",
    re.MULTILINE,
)
_SEARCHED_CHARS: Final = 20_000
RENDERED_CHARS: Final = 50_000
"""Limits the text to render; longer text is shown plain. The worst case of this length, a line break at every
other character, takes 2 s."""
_MAX_NESTING: Final = 12
"""Limits the nesting to render. At 20 levels the parser stops, and drops the rest."""


def rendered(text: str) -> Markdown | None:
    """Render `text` for a rich console; None if it is better shown unchanged.

    That is the case for text without a sign of Markdown, which rendering would reflow; most tools answer in
    such plain text. It is also the case for very long text, and for text nested so deep that the parser would
    drop some of it.
    """
    if len(text) > RENDERED_CHARS or _MARKDOWN_SIGNS.search(text, 0, _SEARCHED_CHARS) is None:
        return None
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    # Link reference definitions would vanish, and their addresses with them.
    parser.disable(["reference"])
    shown = Markdown("", hyperlinks=False)
    shown.parsed = parser.parse(escape(text))
    if any(token.level > _MAX_NESTING for token in shown.parsed):
        return None
    _make_safe(shown.parsed)
    return shown


def _make_safe(tokens: Iterable[Token]) -> None:
    """Escape the text of tokens, show the addresses of images, and preserve line breaks, in place."""
    for token in tokens:
        if token.type == "image":  # rich would omit its address
            token.type, token.tag = "text", ""
            token.content = f"[image: {token.content}] ({token.attrs.get('src', '')})"
            token.children = None
        elif token.type == "softbreak":
            token.type, token.tag = "hardbreak", "br"
        token.content = escape(token.content)
        token.info = escape_line(token.info)
        token.attrs = {
            name: escape_line(value) if isinstance(value, str) else value
            for name, value in token.attrs.items()
        }
        _make_safe(token.children or ())


def first_line(text: str) -> str:
    """Return the first line of a message, escaped and shortened."""
    first, _, rest = text.partition("\n")
    is_shortened = bool(rest) or len(first) > _SHOWN_CHARS
    return escape_line(first[:_SHOWN_CHARS]) + ("…" if is_shortened else "")


def human_bytes(count: float) -> str:
    """Format `1536` as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def clock(seconds: float) -> str:
    """Format `75.2` as `1:15`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


_CLOCK_TIME: Final = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?)", re.ASCII)


def seconds_of(text: str) -> float | None:
    """Parse `90`, `1:30`, `1:02:03` or `7.5` as seconds; None for anything else."""
    match = _CLOCK_TIME.fullmatch(text)
    if match is None:
        return None
    return sum(float(part) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True) if part)
