"""The user's directories (XDG base directory specification, which ignores relative variables)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def user_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory `playhead` in the user's configuration directory."""
    return _directory(environment, "XDG_CONFIG_HOME", "~/.config").expanduser()


def data_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory `playhead` in the user's data directory."""
    return _directory(environment, "XDG_DATA_HOME", "~/.local/share").expanduser()


def state_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory `playhead` in the user's state directory; it may begin with `~`."""
    return _directory(environment, "XDG_STATE_HOME", "~/.local/state")


def _directory(environment: Mapping[str, str], variable: str, default: str) -> Path:
    base = Path(environment.get(variable, ""))
    return (base if base.is_absolute() else Path(default)) / "playhead"
