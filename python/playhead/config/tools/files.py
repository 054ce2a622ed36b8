"""Tool configuration files, in TOML or JSON.

    modules = ["my_tools"]                  # Python that configures tools too

    [tools."home__musicPlayer"]             # an id, or a pattern: "home__*"
    send_result_to_ai = true
    response_handler = "my_tools:summarise"

    [dynamic]
    servers = ["evm-mcp-server"]

    [approvals]
    default = "ask"                         # if no rule matches; default: "allow"

    [[approvals.rules]]                     # the first rule that matches decides
    server = "files"
    tool = "delete*"
    action = "deny"

Strings are taken literally, unlike in the servers file, because a prompt may contain `${...}` and `~`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from playhead.config.directories import user_directory
from playhead.config.document import place, read_document
from playhead.config.tools.config import (
    SEPARATOR,
    WILDCARDS,
    ApprovalPolicy,
    HandlerReference,
    ToolConfig,
    create_dynamic_config,
    create_id_config,
    create_tool_config,
    create_tool_id,
)
from playhead.config.tools.layers import ToolConfigs
from playhead.config.tools.modules import configs_of, get_tool_configs
from playhead.config.trust import TOOL_FILES, ProjectFile, Trust
from playhead.errors import ConfigError

if TYPE_CHECKING:
    from playhead.config.tools.tool_tables import ToolFile, ToolTable

USER_FILES: Final = ("tools.toml", "tools.json")
_HANDLER: Final = re.compile(r"(?P<module>[^:]*[^:\s]):(?P<function>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def load_tool_configs(path: Path, *, reload: bool = False) -> ToolConfigs:
    """Load the configurations in the file at `path` (JSON if its name ends in `.json`, else TOML), and in the
    modules that it lists; the file takes precedence.

    Handlers that the file names are not imported. `reload` imports listed modules again. Raises
    `ConfigError`, with the file and the key path.
    """
    return _configs_with_modules(_read(path), path, reload=reload)


def load_project_configs(file: ProjectFile, *, reload: bool = False) -> ToolConfigs:
    """Load the configurations of an accepted file of the current directory, as `load_tool_configs`."""
    path = Path(file.path.name)
    return _configs_with_modules(_validate_file(file.values, path), path, reload=reload)


def _configs_with_modules(file: ToolFile, path: Path, *, reload: bool) -> ToolConfigs:
    listed: list[ToolConfig] = []
    for index, name in enumerate(file.modules or ()):
        where = place(path, ("modules", index))
        _check_module_name(name, where)
        listed += configs_of(name, folder=path.parent, where=where, reload=reload)
    return ToolConfigs(_configs(file, path)).over(ToolConfigs(listed))


def load_approval_policy(path: Path) -> ApprovalPolicy:
    """Load the `approvals` table of the file at `path`; the default policy if it has none. Raises
    `ConfigError`."""
    return _read(path).approvals.policy(path)


def default_approval_policy(
    file: Path | None = None, *, environment: Mapping[str, str] | None = None, trust: Trust | None = None
) -> ApprovalPolicy:
    """Load the policy of `file`; by default the user's, which `./playhead-tools.toml` can only make stricter.

    Raises `ConfigError`.
    """
    environment = os.environ if environment is None else environment
    chosen = file or default_tool_file(environment)
    policy = ApprovalPolicy() if chosen is None else load_approval_policy(chosen)
    if file is not None:
        return policy
    trust = trust or Trust(environment=environment)
    project = trust.project_file(TOOL_FILES)
    if project is None or not trust.accepts(project):
        return policy
    path = Path(project.path.name)
    return policy.tightened(_validate_file(project.values, path).approvals.policy(path))


def default_tool_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's own `playhead/tools.toml` or `tools.json`, if any.

    Raises `ConfigError` if both exist, because only one would be used.
    """
    paths = [user_directory(environment) / name for name in USER_FILES]
    existing = [path for path in paths if path.is_file()]
    if len(existing) > 1:
        raise ConfigError(f"{existing[0]}: {existing[1].name} exists too; keep one of them")
    return existing[0] if existing else None


def user_tool_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's own tool configuration, which may not exist yet. Raises `ConfigError`."""
    return default_tool_file(environment) or user_directory(environment) / USER_FILES[0]


def _read(path: Path) -> ToolFile:
    return _validate_file(read_document(path, advice="create it, or leave out --tool-config"), path)


def _validate_file(values: object, path: Path) -> ToolFile:
    from playhead.config.tables import validate  # pydantic: not before a file is read
    from playhead.config.tools.tool_tables import ToolFile

    file = validate(ToolFile, values, path=path)
    file.approvals.policy(path)  # check the rules at every read, not only in the first chat
    return file


def _configs(file: ToolFile, path: Path) -> Iterator[ToolConfig]:
    for key, entry in file.tools.items():
        yield _tool_config(key, entry, path)
    dynamic = file.dynamic
    servers = dynamic.servers
    if servers is None and dynamic.model_fields_set:
        raise ConfigError(f"{place(path, ('dynamic',))}: the key 'servers' is missing; list the servers")
    for index, server in enumerate(servers or ()):
        if not server or server in (servers or ())[:index]:
            got = "an empty string" if not server else f"{server!r} again"
            where = place(path, ("dynamic", "servers", index))
            raise ConfigError(f"{where}: expected another server's name, got {got}")
        yield create_dynamic_config(
            server,
            save_output=dynamic.save_output is not False,
            send_result_to_ai=dynamic.send_result_to_ai is not False,
            metadata=dynamic.metadata,
            source=str(path),
        )


def _tool_config(key: str, entry: ToolTable, path: Path) -> ToolConfig:
    where = place(path, ("tools", key))
    server, tool = entry.server, entry.tool
    if (server is None) != (tool is None):
        raise ConfigError(f"{where}: expected both `server` and `tool`, or neither")
    if server is not None and tool is not None and create_tool_id(server, tool) != key:
        raise ConfigError(
            f"{where}: expected the key {create_tool_id(server, tool)!r} for the server {server!r} and the"
            f" tool {tool!r}"
        )
    if SEPARATOR not in key and not WILDCARDS & set(key):
        raise ConfigError(
            f"{where}: expected a key like 'SERVER__TOOL', or a pattern like '{key or 'SERVER'}__*'"
        )
    settings: dict[str, Any] = dict(entry) | {
        "save_output": entry.save_output is not False,
        "send_result_to_ai": entry.send_result_to_ai is True,
        "response_handler": _handler_reference(entry.response_handler, path, f"{where}.response_handler"),
        "source": str(path),
    }
    del settings["server"], settings["tool"]
    if server is None or tool is None:
        return create_id_config(key, **settings)
    if not server or not tool:
        raise ConfigError(f"{where}: `server` and `tool` cannot be empty")
    return create_tool_config(server, tool, **settings)


def _handler_reference(text: str | None, path: Path, where: str) -> HandlerReference | None:
    if text is None:
        return None
    parts = _HANDLER.fullmatch(text)
    if parts is None:
        raise ConfigError(f"{where}: expected 'package.module:function' or 'file.py:function', got {text!r}")
    _check_module_name(parts["module"], where)
    return HandlerReference(
        module=parts["module"], function=parts["function"], where=where, folder=path.parent
    )


def _check_module_name(name: str, where: str) -> None:
    if not name.endswith(".py") and _MODULE.fullmatch(name) is None:
        raise ConfigError(
            f"{where}: expected a module's name (package.module) or a path that ends in .py, got {name!r}"
        )


# --- sources -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfigSources:
    """Sources of tool configurations, in order of precedence: the file, the current directory's file, the
    modules, installed packages."""

    file: Path | None = None
    project: ProjectFile | None = None
    """An accepted file of the current directory."""
    modules: tuple[str | ModuleType, ...] = ()
    entry_points: bool = True

    def load(self, *, reload: bool = False) -> ToolConfigs:
        """Read all sources; call it again to pick up changes.

        The file, and the `.py` files that it names, are read each time; modules named by import path are
        imported again with `reload`. Raises `ConfigError`; configurations loaded before are not affected.
        """
        configs = get_tool_configs(*self.modules, entry_points=self.entry_points, reload=reload)
        if self.project is not None:
            configs = load_project_configs(self.project, reload=reload).over(configs)
        return configs if self.file is None else load_tool_configs(self.file, reload=reload).over(configs)


def default_sources(
    file: Path | None = None, *, environment: Mapping[str, str] | None = None, trust: Trust | None = None
) -> ToolConfigSources:
    """Return the default sources: `file` and installed packages.

    Without `file`: the user's own file, and `./playhead-tools.toml` (or `.json`) if `trust` accepts it.
    `environment` defaults to this process's. Raises `ConfigError`.
    """
    environment = os.environ if environment is None else environment
    if file is not None:
        return ToolConfigSources(file=file)
    trust = trust or Trust(environment=environment)
    project = trust.project_file(TOOL_FILES)
    if project is not None and not trust.accepts(project):
        project = None
    return ToolConfigSources(file=default_tool_file(environment), project=project)
