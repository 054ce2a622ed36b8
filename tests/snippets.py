"""Code blocks of the documentation, and what to install for each.

A block marked `py` has lines of a program that gives them their names. One marked `python` is a program, and
one marked `console` or `sh` has commands. `<!-- not run: why -->` above a block, or `# not run: why` in an
example, keeps it from being run: it needs a key, a device, or a server of the reader's.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
FENCED = re.compile(r"^```py\n(.*?)^```", re.M | re.S)
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S
)
INSTALL = re.compile(r"pip install ((?:'[^']+'|[\w.-]+)(?: (?:'[^']+'|(?!and )[\w.-]+))*)")
COMMENT = re.compile(r"(?:^|\s+)#\s.*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A program or commands, and the arguments of the `pip install` that is for them."""

    page: str
    line: int
    code: str
    commands: tuple[str, ...]
    installs: frozenset[str]
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> Iterator[Block]:
    """The programs and commands of a page.

    What is for a block is the last `pip install` in its section so far, else the page's first, else playhead
    without extras.
    """
    text = path.read_text("utf-8")
    if path.suffix == ".py":  # an example is one block
        text = re.sub(r"\A(.*?^)# (not run: .+?)$", r"<!-- \2 -->\n```python\n\1", text, flags=re.M | re.S)
        text = f"{text}```" if "```" in text else f"```python\n{text}```"
    for match in BLOCK.finditer(text):
        kind, _, _ = match["kind"].partition(" ")
        if kind not in ("python", "console", "sh"):
            continue
        read = text[: match.end()]
        named = INSTALL.findall(read[read.rfind("\n## ") + 1 :])[-1:] or INSTALL.findall(read)[:1]
        yield Block(
            page=path.name,
            line=text.count("\n", 0, match.start("code")),
            code=match["code"] if kind == "python" else "",
            commands=() if kind == "python" else tuple(commands(match["code"])),
            installs=frozenset(shlex.split(named[0] if named else "playhead")),
            not_run=match["reason"],
        )


def commands(code: str) -> Iterator[str]:
    """The lines that are typed, or those with a prompt (`$`), without comments and what installs."""
    lines = code.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        command = COMMENT.sub("", line).strip()
        if command and not re.search("pip install|-m venv", command):
            yield command


def programs() -> list[tuple[str, str]]:
    """Every program of the pages that needs no framework of servers, by its place."""
    return [
        (str(block), block.code)
        for path in PAGES
        for block in blocks(path)
        if block.code and "fastmcp" not in block.installs
    ]


def snippet(page: str, word: str) -> str:
    """Return the one snippet of a page of docs/ that contains `word`."""
    (code,) = (code for code in FENCED.findall((DOCS / page).read_text("utf-8")) if word in code)
    return str(code)


async def run_snippet(
    code: str, names: dict[str, Any], *, then: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run `code` with `names`, to which it adds its own; `then` runs at the end of its last block."""
    if then is not None:
        names["then"] = then
        code += "    await then()\n"
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    running = eval(compile(code, "snippet", "exec", flags=flags, dont_inherit=True), names)
    if inspect.iscoroutine(running):
        await running
