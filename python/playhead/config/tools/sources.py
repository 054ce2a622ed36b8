"""Where configurations are looked for when nobody says where, and how they are read again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from playhead.config.tools.files import default_tool_file, load_tool_configs
from playhead.config.tools.layers import ToolConfigs
from playhead.config.tools.modules import get_tool_configs


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfigSources:
    """Where tool configurations come from. The file wins over the modules, these over installed packages."""

    file: Path | None = None
    modules: tuple[str | ModuleType, ...] = ()
    entry_points: bool = True

    def load(self, *, reload: bool = False) -> ToolConfigs:
        """All of them, read now: call it again for what has changed since.

        The file, and the `.py` files that it names, are read each time; modules by name are imported again
        with `reload`. Raises `ConfigError`; what was loaded before stays as it was.
        """
        in_python = get_tool_configs(*self.modules, entry_points=self.entry_points, reload=reload)
        if self.file is None:
            return in_python
        return load_tool_configs(self.file, reload=reload).over(in_python)


def default_sources(
    file: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> ToolConfigSources:
    """`file`, else the one at the default place, and the installed packages. `environment` is this process's
    by default. Raises `ConfigError` where the default place has two."""
    return ToolConfigSources(
        file=file or default_tool_file(os.environ if environment is None else environment)
    )
