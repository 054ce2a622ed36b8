"""What reaches the terminal: foreign strings escaped, results on stdout, progress on stderr.

Everything the CLI prints goes through `escape`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from playhead.escaping import escape, escape_line

__all__ = ["Terminal", "escape", "escape_line", "give_up", "naming_stdout"]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the caller. Rich would raise SystemExit, which trio wraps in groups on its way out."""
        raise  # the BrokenPipeError that rich is handling


def give_up(stream: TextIO) -> None:
    """Drop what Python still holds for `stream`: it would be tried again at exit, with a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _telling() -> Iterator[None]:
    """Write to stderr. Where it is full or gone, nobody can be told, and the exit code still says it."""
    try:
        yield
    except OSError:
        give_up(sys.stderr)


@contextmanager
def naming_stdout() -> Iterator[None]:
    """Give the `OSError` of a write to stdout (a full disk) the name of where it went."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or "stdout"
        raise


class Terminal:
    """Where one command writes: results to stdout, everything else to stderr."""

    def __init__(self, *, json_output: bool) -> None:
        self.json_output = json_output
        self.out = _Console(highlight=False, soft_wrap=True)
        self.err = _Console(stderr=True, highlight=False)

    @property
    def is_live(self) -> bool:
        """Whether a moving progress line makes sense: only on a terminal, never beside `--json`."""
        return self.err.is_terminal and not self.json_output

    def say(self, text: str, *, style: str = "", whole: bool = False) -> None:
        """A remark for the person watching; silent where the output is for a program.

        `whole` keeps a line in one piece, for what is to be copied.
        """
        if not self.json_output:
            with _telling():
                self.err.print(Text(escape(text), style=style), soft_wrap=whole)

    def show(self, text: str) -> None:
        """A part of the result, on stdout; silent with `--json`, which prints one object at the end."""
        if not self.json_output:
            with naming_stdout():
                self.out.print(Text(escape(text)))

    def show_markdown(self, text: str) -> None:
        """Like `show`, for text that may be Markdown: rendered on a terminal, plain elsewhere."""
        from playhead.cli.markdown import rendered

        markdown = rendered(text) if self.out.is_terminal and not self.json_output else None
        if markdown is None:
            self.show(text)
            return
        with naming_stdout():
            self.out.print(markdown, soft_wrap=False)

    def draw(self, sequences: str) -> None:
        """Escape sequences of our own making, to a stdout that is a terminal."""
        if not self.json_output and self.out.is_terminal:
            with naming_stdout():
                self.out.file.write(sequences + "\n")
                self.out.file.flush()

    def write(self, text: str) -> None:
        """A piece of the result as it comes, on stdout and at once; silent with `--json`."""
        if not self.json_output:
            with naming_stdout():
                sys.stdout.write(escape(text))
                sys.stdout.flush()

    def line(self, text: str, *, style: str = "") -> None:
        """A remark in exactly one line of stderr: what is too long for the terminal is cut."""
        if not self.json_output:
            with _telling():
                self.err.print(Text(escape_line(text), style=style), no_wrap=True, overflow="ellipsis")

    def prompt(self, text: str, *, style: str = "") -> None:
        """A remark on stderr after which the line goes on."""
        if not self.json_output:
            with _telling():
                self.err.print(Text(escape(text), style=style), end="", soft_wrap=True)
                self.err.file.flush()

    def show_rows(self, rows: Iterable[tuple[str, str]]) -> None:
        """Two columns of the result, like `show`; names are folded where they are too wide, never cut."""
        if not self.json_output:
            table = Table(box=None, show_header=False, pad_edge=False)
            table.add_column(overflow="fold")
            table.add_column(overflow="fold")
            for name, text in rows:
                table.add_row(Text(escape_line(name)), Text(escape(text)))
            with self.out.capture() as captured:
                self.out.print(table, soft_wrap=False)
            lines = [line.rstrip() for line in captured.get().splitlines()]  # padded to the column's width
            if lines:
                with naming_stdout():
                    self.out.print(Text("\n".join(lines)))

    def fail(self, text: str) -> None:
        """What went wrong, on stderr."""
        with _telling():
            self.err.print(Text.assemble(("error: ", "bold red"), escape(text)), soft_wrap=True)

    def print_json(self, value: dict[str, Any]) -> None:
        """The one JSON object of `--json`: ASCII, so that no terminal can be addressed through it."""
        with naming_stdout():
            sys.stdout.write(json.dumps(value, ensure_ascii=True, default=str) + "\n")
            sys.stdout.flush()
