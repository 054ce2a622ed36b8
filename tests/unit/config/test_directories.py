"""The user's directories, by the XDG base directory specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from playhead.config.directories import data_directory, state_directory, user_directory


@pytest.mark.parametrize(
    ("directory", "variable", "default"),
    [
        (user_directory, "XDG_CONFIG_HOME", "~/.config"),
        (data_directory, "XDG_DATA_HOME", "~/.local/share"),
        (state_directory, "XDG_STATE_HOME", "~/.local/state"),
    ],
)
def test_a_variable_moves_a_directory_unless_it_is_relative(
    directory: Callable[[Mapping[str, str]], Path], variable: str, default: str
) -> None:
    assert directory({variable: "/there"}) == Path("/there/playhead")
    for environment in ({}, {variable: ""}, {variable: "here"}):
        assert directory(environment).expanduser() == Path(default, "playhead").expanduser()
