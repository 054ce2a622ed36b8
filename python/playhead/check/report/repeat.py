"""How a reader sees the same again: the message to send, and the command line that sends it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Final

from playhead.check.report.evidence import Shown, cut, plain
from playhead.check.results import Json, Report, TestResult
from playhead.escaping import escape, escape_line

_COMMAND_CHARS: Final = 32_000
"""Linux takes 128 KiB in one argument; shells and terminals that one pastes into take less."""


_SERVER_CHARS: Final = 2_000
_SECRET_OPTION: Final = re.compile(
    r"""([\w-]{0,40}(?:token|secret|passw|api[-_]?key|credential|auth)[\w-]{0,40}(?:=|\s+))(?!-)("[^"]*"|'[^']*'|[^\s"']+)""",
    re.IGNORECASE,
)
"""`--api-key abc`, `TOKEN=abc`: of a server's command line."""


def server_words(report: Report) -> str:
    """The server as the reader named it, without what looks like a secret in its command line."""
    return plain(
        _SECRET_OPTION.sub(r"\1…", cut(report.target or report.server, _SERVER_CHARS)), _COMMAND_CHARS
    )


def lacks_a_secret(report: Report) -> bool:
    """Whether something was left out of `server_words`, so that a command line with them can't be run as it
    stands."""
    named = report.target or report.server
    return server_words(report) != escape(named)


def message(test: TestResult, sent: Shown) -> Json:
    """The JSON-RPC request of a test, None where it sent none."""
    if test.method is None:
        return None
    request: dict[str, Json] = {"jsonrpc": "2.0", "id": 1, "method": test.method}
    return request if sent.value is None else request | {"params": sent.value}


def command(report: Report, test: TestResult, sent: Shown) -> str | None:
    """The `playhead` command line that does the same, quoted for a POSIX shell.

    None where there is none: for a method without a command, for parameters that were cut, where a name has
    characters that a terminal would act on when it is pasted, and for a server that no command line names.
    """
    named = report.target or report.server
    if len(named) > _SERVER_CHARS or (report.target is None and not _ADDRESS.match(named)):
        return None
    server = server_words(report)
    config = () if report.config is None else ("--config", report.config)
    if test.method == "tools/list":
        return _command("tools", config, server)
    params = sent.value
    if not sent.is_whole or not isinstance(params, Mapping):
        return None
    match test.method:
        case "tools/call":
            name, arguments = params.get("name"), params.get("arguments")
            if not isinstance(name, str) or not isinstance(arguments, Mapping | None):
                return None
            options = ("--args", json.dumps(arguments)) if arguments else ()
            return _command("call", (*options, *config), server, name)
        case "resources/read":
            uri = params.get("uri")
            return _command("read", config, server, uri) if isinstance(uri, str) else None
        case _:
            return None


_ADDRESS: Final = re.compile(r"(?:https?|wss?)://", re.IGNORECASE)


def _command(name: str, options: tuple[str, ...], *words: str) -> str | None:
    if not all(_is_plain(word) for word in (*options, *words)):
        return None
    if any(word.startswith("-") for word in words):  # it would be read as an option
        line = f"playhead {name} {_words(*options, '--', *words)}"
    else:
        line = f"playhead {name} {_words(*words, *options)}"
    return line if len(line) <= _COMMAND_CHARS else None


def _words(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _is_plain(text: str) -> bool:
    return escape_line(text) == text
