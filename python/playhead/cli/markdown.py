"""Markdown of a server, for a terminal: rendered, and nothing of it hidden or sent as it is.

Markdown can hide what it says: HTML and comments vanish, a link shows one address and leads to another, and
`&#x202e;` is text that only the parser turns into a control character. So HTML is shown as text, addresses
stand beside their links, line breaks stay, and what the parser gives is escaped after it, not before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from playhead.escaping import escape, escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from markdown_it.token import Token
    from rich.markdown import Markdown

_SIGNS: Final = re.compile(
    r"^ {0,3}#{1,6} \S|^ {0,3}```|^ {0,3}[-*+] \S|^ {0,3}\d{1,3}[.)] \S|\*\*\S|\]\(\S|^ {0,3}\|.*\|\s*$|^> ",
    re.MULTILINE,
)
_LOOKED_AT_CHARS: Final = 20_000
RENDERED_CHARS: Final = 50_000
"""Longer text is shown plain. The worst of this length, a line break at every other character, takes 2 s."""
_NESTED: Final = 12
"""Levels; at 20 the parser stops and drops the rest."""


def rendered(text: str) -> Markdown | None:
    """`text` for a rich console; None where it is better shown as it is.

    That is text without a sign of Markdown (most tools answer in plain text, which Markdown would reflow),
    text that is long, and text that is nested so deep that the parser leaves out what is inside.
    """
    if len(text) > RENDERED_CHARS or _SIGNS.search(text, 0, _LOOKED_AT_CHARS) is None:
        return None
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    # The reference definitions of links would vanish, and with them where they lead.
    parser.disable(["reference"])
    shown = Markdown("", hyperlinks=False)
    shown.parsed = parser.parse(escape(text))
    if any(token.level > _NESTED for token in shown.parsed):
        return None
    _make_safe(shown.parsed)
    return shown


def _make_safe(tokens: Iterable[Token]) -> None:
    for token in tokens:
        if token.type == "image":  # rich would leave its address out
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
