"""Code blocks of the documentation that are marked `py`: lines of a program that gives them their names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
FENCED = re.compile(r"^```py\n(.*?)^```", re.M | re.S)


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
