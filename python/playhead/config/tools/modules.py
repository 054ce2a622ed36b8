"""Tool configurations in Python: modules that the user names, and those of installed packages.

A module says what it configures in `TOOL_CONFIGS`: one `ToolConfig` or several. Of a package every module is
looked at, so that there can be one a tool. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Final

from playhead.config.tools.config import ToolConfig
from playhead.config.tools.imports import FILE_SUFFIX, import_named
from playhead.config.tools.layers import ToolConfigs
from playhead.errors import ConfigError

GROUP: Final = "playhead.tool_configs"
"""The entry points of installed packages: `NAME = "package.module"` or `"package.module:ATTRIBUTE"`."""
ATTRIBUTE: Final = "TOOL_CONFIGS"


def get_tool_configs(
    *modules: str | ModuleType, entry_points: bool = True, reload: bool = False
) -> ToolConfigs:
    """The configurations of `modules` (names or modules; a package with all that is in it), and of the
    installed packages that offer some (group `playhead.tool_configs`), over which `modules` win.

    `reload` imports again what was imported before. Raises `ConfigError` where a module can't be imported,
    configures nothing, or configures what another of its kind does.
    """
    named: list[ToolConfig] = []
    for module in modules:
        named += configs_of(module, folder=None, where="tool configurations", reload=reload)
    installed: list[ToolConfig] = []
    if entry_points:
        # In an order that does not depend on the order of the folders on sys.path.
        points = importlib.metadata.entry_points(group=GROUP)
        for point in sorted(points, key=lambda point: (point.name, point.value)):
            installed += _of_entry_point(point, reload=reload)
    return ToolConfigs(named).over(ToolConfigs(installed))


def configs_of(
    module: str | ModuleType, *, folder: Path | None, where: str, reload: bool
) -> list[ToolConfig]:
    """What `module`, and the modules in it, configure. Raises `ConfigError`, beginning with `where`."""
    name = module if isinstance(module, str) else module.__name__
    found: list[ToolConfig] = []
    for inner in _modules_of(module, folder=folder, where=where, reload=reload):
        offered = getattr(inner, ATTRIBUTE, None)
        if offered is not None:
            source = name if name.endswith(FILE_SUFFIX) else inner.__name__
            # A package often names again what its modules configure.
            found += [config for config in _several(offered, source, where) if config not in found]
    if not found:
        raise ConfigError(
            f"{where}: {name} configures nothing; expected {ATTRIBUTE} in it: a ToolConfig or several"
        )
    return found


def _modules_of(
    module: str | ModuleType, *, folder: Path | None, where: str, reload: bool
) -> Iterable[ModuleType]:
    if isinstance(module, str):
        module = import_named(module, folder=folder, where=where, reload=reload)
    elif reload:
        module = import_named(module.__name__, folder=folder, where=where, reload=True)
    yield module
    for inner in sorted(info.name for info in pkgutil.iter_modules(getattr(module, "__path__", ()))):
        yield from _modules_of(f"{module.__name__}.{inner}", folder=folder, where=where, reload=reload)


def _of_entry_point(point: importlib.metadata.EntryPoint, *, reload: bool) -> list[ToolConfig]:
    package = point.dist.name if point.dist is not None else "an installed package"
    where = f"entry point {point.name} of {package}"
    if not point.attr:
        return configs_of(point.module, folder=None, where=where, reload=reload)
    found: object = import_named(point.module, folder=None, where=where, reload=reload)
    for name in point.attr.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise ConfigError(f"{where}: {point.module} has no {point.attr}")
    return _several(found, point.module, where)


def _several(offered: object, module: str, where: str) -> list[ToolConfig]:
    items = [offered] if isinstance(offered, ToolConfig) else offered
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise ConfigError(
            f"{where}: {module} offers a {type(offered).__name__}; expected a ToolConfig or several"
        )
    found = []
    for item in items:
        if not isinstance(item, ToolConfig):
            raise ConfigError(
                f"{where}: {module} offers a {type(item).__name__} among its configurations; expected"
                " ToolConfig (create_tool_config makes one)"
            )
        found.append(item if item.source else replace(item, source=module))
    return found
