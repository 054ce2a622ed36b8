"""Tool configuration files: TOML or JSON of the same shape, and what each mistake in them is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from playhead.config.tools.layers import ToolConfigs

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""A mistaken path leads to a recording more often than to a configuration of this size."""


def load_tool_configs(path: Path) -> ToolConfigs:
    raise NotImplementedError


def default_tool_file(environment: Mapping[str, str]) -> Path | None:
    raise NotImplementedError
