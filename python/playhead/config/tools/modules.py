"""Tool configurations in Python: modules that the user names, and those of installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from playhead.config.tools.layers import ToolConfigs

GROUP: Final = "playhead.tool_configs"
ATTRIBUTE: Final = "TOOL_CONFIGS"


def get_tool_configs(
    *modules: str | ModuleType, entry_points: bool = True, reload: bool = False
) -> ToolConfigs:
    raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfigSources:
    """Where configurations come from; `load` reads them, as often as asked."""

    file: Path | None = None
    modules: tuple[str | ModuleType, ...] = ()
    entry_points: bool = True

    def load(self, *, reload: bool = False) -> ToolConfigs:
        raise NotImplementedError
