"""Text of a result without isError that reads like an error. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final


def texts_of(result: Mapping[str, Any]) -> str:
    """Return the text of a result, one line per block."""
    blocks = result.get("content")
    texts = []
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif isinstance(block, dict) and isinstance(inner := block.get("resource"), dict):
            texts += [inner["text"]] if isinstance(inner.get("text"), str) else []
    return "\n".join(texts)


_ERROR_CHARS: Final = 4_000
"""Limits the characters that are searched for an error, from the beginning of the text."""
_DECORATION: Final = " \t\r\n#*>`\u274c\u26a0\ufe0f\U0001f6ab\U0001f534"
"""Lists the characters that may precede the words of an error: white space, Markdown, and warning signs."""
_ERROR_TEXT: Final = re.compile(
    r"<?error\b|(?:fatal|failed|failure|panic):|(?:failed|unable) to\b"
    r"|(?:[\w.-]+ ){1,4}(?:error|exception|failure):"
    r"|[\w.]*(?:error|exception)\s*[:(]"
    r"|traceback \(most recent call last\)"
    r"|(?:http(?:/[\d.]+)?\s+)?(?:status\s+|error\s+)?(?:code\s+)?[45]\d\d\b[\s:-]*(?:bad|not|un|for|pay|method|req|conf|gone"
    r"|too|internal|serv|gate|err|client)"
    r"|request failed\b",
    re.IGNORECASE,
)
_STACK: Final = re.compile(
    r"^(?:Traceback \(most recent call last\):|\s+at .{1,300}:\d+:\d+\)?$|goroutine \d+ \[running\]:)",
    re.MULTILINE,
)
_ERROR_PAGE: Final = re.compile(
    r"<(?:title|h1)[^>]*>[^<]{0,200}?"
    r"(?:\b[45]\d\d\b|error|not found|forbidden|denied|bad gateway|unavailable)",
    re.IGNORECASE,
)


def error_text(result: Mapping[str, Any], arguments: object) -> str | None:
    """Return the text of a result without isError that reads like an error; None if it doesn't.

    This is a hint and no proof: a log may begin with an error. Text that is part of `arguments` is an echo
    and does not count.
    """
    if result.get("isError", False) is not False:
        return None
    text = texts_of(result)[:_ERROR_CHARS].strip(_DECORATION)
    beginning = json.dumps(text[:_ECHO_CHARS])[1:-1]
    if not text or beginning in json.dumps(arguments):
        return None
    is_page = text[:200].lstrip().lower().startswith(("<!doctype html", "<html"))
    match = _ERROR_PAGE.search(text) if is_page else _ERROR_TEXT.match(text) or _STACK.search(text)
    return text if match or _is_error_object(text) else None


_ECHO_CHARS: Final = 60


def _is_error_object(text: str) -> bool:
    try:
        value = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    is_error = value.get("success") is False or value.get("status") in ("error", "failed")
    return is_error or bool(value.get("error"))
