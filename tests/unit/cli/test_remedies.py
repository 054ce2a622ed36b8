"""The option that the command line names for each kind of error, where the command has it."""

from __future__ import annotations

import pytest

from playhead.cli.runner import remedy
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

ALL = ("--patience", "--timeout", "--max-bytes", "--page-size", "--sink", "--config", "--json")


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
        (BlockedAddressError(""), "--config"),
    ],
)
def test_the_option_that_decides_is_named_if_the_command_has_it(error: PlayheadError, option: str) -> None:
    said = remedy(error, options=ALL)
    assert said.startswith("; ")
    assert remedy(error, options=[option]) == said
    assert remedy(error, options=set(ALL) - {option}) == ""


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
    assert remedy(error, options=ALL) == ""
