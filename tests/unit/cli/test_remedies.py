"""The option that the command line names for each kind of error, where the command has it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import playhead
from playhead.cli.runner import message_of
from playhead.errors import (
    BlockedAddressError,
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    NoDeviceError,
    PlayheadError,
    ServerError,
    StreamBrokenError,
    UsageError,
)

ALL = (
    "--patience",
    "--timeout",
    "--max-bytes",
    "--page-size",
    "--sink",
    "--allow-origin",
    "--allow-path",
    "--json",
)


def limit(name: str) -> LimitError:
    return LimitError("too much", limit=name, allowed=1, got=2)


def caused(error: PlayheadError, cause: BaseException) -> PlayheadError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "option"),
    [
        (StreamBrokenError("", offset=0), "--patience"),
        (caused(StreamBrokenError("", offset=0), DeadlineError("")), "--patience"),
        (DeadlineError(""), "--timeout"),
        (caused(ConnectError(""), DeadlineError("")), "--timeout"),
        (limit("stream_bytes"), "--max-bytes"),
        (limit("message_bytes"), "--page-size"),
        (limit("block_bytes"), "--page-size"),
        (NoDeviceError(""), "--sink"),
        (BlockedAddressError("", permission=("allow_origins", "http://a.example:1")), "--allow-origin"),
        (BlockedAddressError("", permission=("allow_paths", "/music")), "--allow-path"),
    ],
)
def test_the_option_that_decides_is_named_if_the_command_has_it(error: PlayheadError, option: str) -> None:
    said = message_of(error, options=ALL)
    assert option in said
    assert message_of(error, options=[option]) == said
    assert message_of(error, options=set(ALL) - {option}) == (str(error) or type(error).__name__)


@pytest.mark.parametrize(
    "error",
    [
        ConnectError(""),
        ConnectionLostError(""),
        ServerError("", code=-32603),
        UsageError(""),
        limit("json_depth"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_option_is_named_that_would_not_help(error: PlayheadError) -> None:
    assert message_of(error, options=ALL) == (str(error) or type(error).__name__)


def messages_of_the_library() -> Iterator[str]:
    for path in Path(playhead.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
                yield "".join(map(str, parts))


def test_no_message_contains_a_setting_of_the_library() -> None:
    assert [text for text in messages_of_the_library() if re.search(r" raise [A-Z]\w+\.", text)] == []


def test_the_advice_of_the_library_is_replaced_by_the_option() -> None:
    error = StreamBrokenError("it broke; try again", offset=0, advice="raise StreamOptions.patience_seconds")
    assert str(error) == "it broke; try again; raise StreamOptions.patience_seconds"
    assert message_of(error, options=["--patience"]) == "it broke; try again; --patience SECONDS waits longer"
    assert message_of(error, options=()) == "it broke; try again"
