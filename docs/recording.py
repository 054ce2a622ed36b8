"""Record a terminal in which `playhead demo` plays, as an animated SVG: `make recording`.

    build/docs/bin/python docs/recording.py DIRECTORY_OF_PLAYHEAD > docs/recording.svg

A shell runs at a pseudo-terminal and keys are typed into it; all that it shows is real, with its timing.
Needs a sound device, such as a null sink of PulseAudio.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from html import escape
from itertools import groupby

import pyte

COLUMNS, ROWS = 80, 13
RIGHT = "\x1b[C"
KEYS = [
    *((0.08, key) for key in "playhead demo\r"),
    (5.0, RIGHT),
    (2.0, " "),
    (1.0, " "),
    (4.0, "q"),
    (1.0, ""),
]
"""Each key, after a pause of so many seconds."""

FRAME_SECONDS = 0.2
HOLD_SECONDS = 5.0
"""The last frame stays this long before the recording starts again."""

CELL, LINE, MARGIN, BAR = 8.4, 19, 16, 22
FRAME = "#6b7689"
"""Visible on a white page and on a dark one."""
COLORS = {"default": "#d8dee9", "brightblack": "#8b95a7", "green": "#a3be8c", "red": "#e06c75"}

Row = tuple[tuple[int, str, str, bool], ...]
"""The runs of one style in a line of the screen: column, text, colour, bold."""


def frames(directory: str) -> list[tuple[float, list[Row]]]:
    """Run the shell; the screens that differ from the one before, with their times."""
    with tempfile.TemporaryDirectory() as home:
        process, terminal = pty.fork()
        if process == 0:
            kept = {name: os.environ[name] for name in ("PULSE_SERVER",) if name in os.environ}
            path = f"{directory}:/usr/bin:/bin"
            variables = {"PATH": path, "HOME": home, "PS1": "$ ", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
            os.chdir(home)
            os.execve("/bin/sh", ["sh", "-i"], kept | variables)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        screen = pyte.Screen(COLUMNS, ROWS)
        stream = pyte.ByteStream(screen)
        keys = list(KEYS)
        start = time.monotonic()
        due, shown = start + 0.5 + keys[0][0], start
        found: list[tuple[float, list[Row]]] = []
        while keys:
            if select.select([terminal], [], [], 0.02)[0]:
                stream.feed(
                    os.read(terminal, 65_536).replace(b"\x1b[2m", b"\x1b[90m")
                )  # pyte has no dim text
            now = time.monotonic()
            if now >= due:
                os.write(terminal, keys.pop(0)[1].encode())
                due = now + keys[0][0] if keys else now
            if now >= shown:
                shown += FRAME_SECONDS
                rows = [row(screen.buffer[number]) for number in range(ROWS)]
                if not found or rows != found[-1][1]:
                    found.append((now - start, rows))
        os.write(terminal, b"exit\r")
        os.waitpid(process, 0)
    return found


def row(line: dict[int, pyte.screens.Char]) -> Row:
    cells = [line[column] for column in range(COLUMNS)]
    runs = []
    column = 0
    for (color, bold), same in groupby(cells, key=lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in same)
        if text.strip():
            runs.append((column, text.rstrip(), COLORS.get(color, f"#{color}"), bold))
        column += len(text)
    return tuple(runs)


def svg(found: list[tuple[float, list[Row]]]) -> str:
    """The frames side by side, of which one is in view at a time."""
    width, height = round(COLUMNS * CELL + 2 * MARGIN), ROWS * LINE + MARGIN + BAR
    end = found[-1][0] + HOLD_SECONDS
    numbers: dict[Row, int] = {}
    uses = []
    steps = []
    for at, (seconds, rows) in enumerate(found):
        here = [
            f'<use href="#r{numbers.setdefault(runs, len(numbers))}" y="{BAR + LINE * (line + 1)}"/>'
            for line, runs in enumerate(rows)
            if runs
        ]
        uses.append(f'<g transform="translate({at * width})">{"".join(here)}</g>')
        steps.append(f"{seconds / end:.3%}{{transform:translateX({-at * width}px)}}")
    last = f"transform:translateX({-(len(found) - 1) * width}px)"
    dots = "".join(f'<circle cx="{x}" cy="15" r="5"/>' for x in (18, 34, 50))
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = "".join(f'<g id="r{number}">{"".join(map(run, runs))}</g>' for runs, number in numbers.items())
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
<title>playhead demo in a terminal: an MCP server is asked for music, which plays while it arrives</title>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}}
#film{{{last};animation:play {end:.1f}s step-end infinite}}
@keyframes play{{{"".join(steps)}}}
@media (prefers-reduced-motion:reduce){{#film{{animation:none}}}}
</style>
<defs>{lines}</defs>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="#1f2430" stroke="{FRAME}"/>
<g fill="{FRAME}">{dots}</g>
<g id="film">
{chr(10).join(uses)}
</g>
</svg>
"""


def run(piece: tuple[int, str, str, bool]) -> str:
    column, text, color, bold = piece
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{MARGIN + column * CELL:.1f}" textLength="{len(text) * CELL:.1f}"'
    return f'<text {place} fill="{color}"{weight}>{escape(text)}</text>'


if __name__ == "__main__":
    sys.stdout.write(svg(frames(sys.argv[1])))
