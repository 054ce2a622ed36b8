"""The evidence in a report: requests and answers, and the command that repeats a test.

A server may answer with megabytes, a million keys, control characters, or the token that it received. Each
format limits the characters per value and per report, and marks truncated values. Credentials are removed.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from playhead.check.results import Json, Report, TestResult
from playhead.escaping import escape, escape_line, is_hidden

DEPTH: Final = 64
"""Limits nesting. It is deeper than people read, and far below the interpreter's recursion limit."""
_ITEM_CHARS: Final = 8
"""Sets the least cost of an item, because a million empty lists have no characters, but a large report."""

_CREDENTIAL_CHARS: Final = 600
"""Sets the number of characters to read beyond a cut. The patterns below look less far ahead."""

_CREDENTIALS: Final = (
    (re.compile(r"(?<=://)[^/?#\s@\"']{1,500}@"), "…@"),
    (re.compile(r"\b(Bearer|Basic)\s+(?=[^\s\"',]{0,500}\d)[\w.~+/-]{12,}=*", re.IGNORECASE), r"\1 …"),
    (
        re.compile(
            r"(?<=[?&])((?:access_|refresh_|id_)?token|api_?key|key|secret|client_secret|password|sig|signature)"
            r"=[^&#\s\"']+",
            re.IGNORECASE,
        ),
        r"\1=…",
    ),
)
"""Maps patterns of credentials to their replacements: user and password in a URL, an Authorization header, a
key in a query. The checker writes no credentials into a report, but a server may echo them."""


@dataclass(slots=True)
class Allowance:
    """The characters that a report has left."""

    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A value as a report shows it."""

    value: Json
    is_whole: bool
    """True if the value is complete, so that it can be sent again."""


def without_credentials(text: str) -> str:
    for pattern, instead in _CREDENTIALS:
        text = pattern.sub(instead, text)
    return text


def cut(text: str, chars: int) -> str:
    """Truncate `text` to about `chars` characters, without credentials."""
    # Read beyond the cut, because a password is not recognized if its `@` is cut off.
    shown = without_credentials(text[: chars + _CREDENTIAL_CHARS])[:chars]
    return shown if len(text) <= chars else f"{shown}… ({len(text) - chars:,} more characters)"


def plain(text: str, chars: int = 4_000) -> str:
    """Format a string for a report: bounded, without credentials, hidden characters as `\\x1b`."""
    return escape(cut(text, chars))


def bounded(value: Json, allowance: Allowance, *, chars: int) -> Shown:
    """Bound `value` to about `chars` characters, fewer if the report is nearly full."""
    most = max(0, min(chars, allowance.left))
    if most == 0 and value is not None:
        return Shown(value="(omitted: the report is full)", is_whole=False)
    bounding = _Bounding(left=most)
    shown = bounding.value(value, 0)
    allowance.left -= most - max(0, bounding.left)
    return Shown(value=shown, is_whole=bounding.is_whole)


def json_text(value: Json, *, indent: int | None = 2) -> str:
    """Format `value` as readable, equivalent JSON: hidden characters are written as `\\u202e`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    hidden = (char for char in set(text) if is_hidden(char) and char != "\n")  # newlines indent
    return text.translate({ord(char): _json_escape(char) for char in hidden})


def _json_escape(char: str) -> str:
    # The one control that `json` does not escape is DEL.
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


@dataclass(slots=True)
class _Bounding:
    """Makes a bounded copy of one value."""

    left: int
    """The number of characters that may still be copied."""
    is_whole: bool = True

    def value(self, value: Json, depth: int) -> Json:
        self.left -= _ITEM_CHARS
        match value:
            case None | bool():
                return value
            case int():
                return self.integer(value)
            case float():
                return self.number(value)
            case str():
                return self.text(value)
            case _ if depth >= DEPTH:
                return self.marked("… (nested deeper)")
            case Mapping():
                return self.mapping(value, depth)
            case _:
                return self.items(value, depth)

    def marked(self, mark: str) -> str:
        """Return `mark`, which stands for an omitted part."""
        self.is_whole = False
        return mark

    def integer(self, value: int) -> Json:
        if value.bit_length() <= 1_024:  # the range of a double; Python refuses to print very long ones
            return value
        return self.marked(f"(an integer of {value.bit_length():,} bits)")

    def number(self, value: float) -> Json:
        return value if math.isfinite(value) else self.marked(f"({value}, not representable in JSON)")

    def text(self, value: str) -> str:
        shown = cut(value, max(0, self.left))
        self.left -= len(shown)
        return shown if shown == value else self.marked(shown)

    def mapping(self, value: Mapping[str, Json], depth: int) -> Json:
        shown: dict[str, Json] = {}
        for number, (key, item) in enumerate(value.items()):
            if self.left <= 0:
                shown["…"] = self.marked(f"({len(value) - number:,} more keys)")
                break
            shown[self.text(str(key))] = self.value(item, depth + 1)
        return shown

    def items(self, value: Sequence[Json], depth: int) -> Json:
        shown: list[Json] = []
        for number, item in enumerate(value):
            if self.left <= 0:
                shown.append(self.marked(f"… ({len(value) - number:,} more items)"))
                break
            shown.append(self.value(item, depth + 1))
        return shown


_COMMAND_CHARS: Final = 32_000
"""Limits a command line. Linux accepts 128 KiB in one argument, but shells and terminals accept less when
pasting."""
_SERVER_CHARS: Final = 2_000
_SECRET_OPTION: Final = re.compile(
    r"""([\w-]{0,40}(?:token|secret|passw|api[-_]?key|credential|auth)[\w-]{0,40}(?:=|\s+))(?!-)("[^"]*"|'[^']*'|[^\s"']+)""",
    re.IGNORECASE,
)
"""Matches a secret in a server's command line, such as `--api-key abc` and `TOKEN=abc`."""


def server_words(report: Report) -> str:
    """Return the server as the user named it, with apparent secrets redacted."""
    named = cut(report.target or report.server, _SERVER_CHARS)
    return plain(_SECRET_OPTION.sub(r"\1…", named), _COMMAND_CHARS)


def lacks_a_secret(report: Report) -> bool:
    """True if `server_words` redacted something, so that the command line can't be run unchanged."""
    named = report.target or report.server
    return server_words(report) != escape(named)


def message(test: TestResult, sent: Shown) -> Json:
    """Return the JSON-RPC request of a test, if any."""
    if test.method is None:
        return None
    request: dict[str, Json] = {"jsonrpc": "2.0", "id": 1, "method": test.method}
    return request if sent.value is None else request | {"params": sent.value}


def command(report: Report, test: TestResult, sent: Shown) -> str | None:
    """Return the `playhead` command line that repeats a test, quoted for a POSIX shell.

    It has the shortest arguments known to fail. None for a method without a command, for truncated
    parameters, for names with characters that a terminal would interpret when pasted, and for a server that
    no command line can name.
    """
    named = report.target or report.server
    if len(named) > _SERVER_CHARS or (report.target is None and not _ADDRESS.match(named)):
        return None
    server = server_words(report)
    config = () if report.config is None else ("--config", report.config)
    if test.method == "tools/list":
        return _command("tools", config, server)
    if test.shortest is not None:
        sent = bounded(test.shortest, Allowance(left=_COMMAND_CHARS), chars=_COMMAND_CHARS)
    params = sent.value
    if not sent.is_whole or not isinstance(params, Mapping):
        return None
    match test.method:
        case "tools/call":
            name, arguments = params.get("name"), params.get("arguments")
            if not isinstance(name, str) or not isinstance(arguments, Mapping | None):
                return None
            options = ("--args", json.dumps(arguments)) if arguments else ()
            force = ("--force",) if arguments and not _declares(report, name, arguments) else ()
            return _command("call", (*options, *force, *config), server, name)
        case "resources/read":
            uri = params.get("uri")
            return _command("read", config, server, uri) if isinstance(uri, str) else None
        case _:
            return None


def _declares(report: Report, tool: str, arguments: Mapping[str, Json]) -> bool:
    """Return False if the tool's schema is known and lacks one of `arguments`. Such a call needs
    `--force`."""
    schema = report.definitions.get(tool, {}).get("inputSchema")
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    return arguments.keys() <= (properties.keys() if isinstance(properties, Mapping) else set())


_ADDRESS: Final = re.compile(r"(?:https?|wss?)://", re.IGNORECASE)


def _command(name: str, options: tuple[str, ...], *words: str) -> str | None:
    if not all(escape_line(word) == word for word in (*options, *words)):
        return None
    if any(word.startswith("-") for word in words):  # the command would parse it as an option
        line = shlex.join(("playhead", name, *options, "--", *words))
    else:
        line = shlex.join(("playhead", name, *words, *options))
    return line if len(line) <= _COMMAND_CHARS else None
