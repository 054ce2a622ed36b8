"""Tool configuration files: TOML or JSON of one shape, and what each mistake in them is told.

    modules = ["my_tools"]                  # Python that configures tools too

    [tools."home__musicPlayer"]             # an id, or a pattern: "home__*"
    send_result_to_ai = true
    response_handler = "my_tools:summarise"

    [dynamic]
    servers = ["evm-mcp-server"]

    [[approvals.rules]]                     # see approvals.py
    server = "files"
    action = "ask"

A prompt may hold `${...}` and `~`, so that texts are taken as they are written, unlike in the servers file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from playhead.config.fields import Fields
from playhead.config.tools.approvals import ApprovalPolicy, approval_policy
from playhead.config.tools.config import (
    DECISIONS,
    SEPARATOR,
    STOPPERS,
    WILDCARDS,
    ToolConfig,
    create_dynamic_config,
    create_id_config,
    create_tool_config,
    create_tool_id,
    not_json,
)
from playhead.config.tools.layers import SETTINGS, ToolConfigs
from playhead.config.tools.modules import configs_of
from playhead.config.tools.responses import HandlerReference
from playhead.errors import ConfigError
from playhead.results.plan import Decision
from playhead.results.policy import Stopper

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""A path to something of this size is a slip."""

LOCAL_FILES: Final = ("playhead-tools.toml", "playhead-tools.json")
USER_FILES: Final = ("tools.toml", "tools.json")
_HANDLER: Final = re.compile(r"(?P<module>[^:]*[^:\s]):(?P<function>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def load_tool_configs(path: Path, *, reload: bool = False) -> ToolConfigs:
    """The configurations in the file at `path` (JSON where its name ends in `.json`, else TOML), and in the
    modules that it lists, over which the file wins.

    Handlers that the file names are not imported. `reload` imports listed modules again. Raises
    `ConfigError`, naming the file and the key path, for anything that can't be read or isn't understood.
    """
    top = _top(path)
    found = ToolConfigs(_configs(top, path))
    listed: list[ToolConfig] = []
    for index, name in enumerate(top.items("modules") or ()):
        where = f"{path}: modules[{index}]"
        _module_name(name, where)
        listed += configs_of(name, folder=path.parent, where=where, reload=reload)
    return found.over(ToolConfigs(listed))


def load_approval_policy(path: Path) -> ApprovalPolicy:
    """The `approvals` table of the file at `path`; the default policy where it has none. Raises as
    `load_tool_configs` does."""
    return approval_policy(_top(path))


def default_tool_file(environment: Mapping[str, str]) -> Path | None:
    """The first that exists of `./playhead-tools.toml` and the user's own `playhead/tools.toml`, or of their
    `.json` twins. Raises `ConfigError` where both of a place exist: one would be ignored without a word."""
    folder = Path(environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "playhead"
    for names in ([Path(name) for name in LOCAL_FILES], [folder / name for name in USER_FILES]):
        there = [path for path in names if path.is_file()]
        if len(there) > 1:
            raise ConfigError(
                f"{there[0]}: there is {there[1]} too; keep one of them, or say --tool-config FILE"
            )
        if there:
            return there[0]
    return None


def _top(path: Path) -> Fields:
    top = Fields(_parsed(path), where=str(path), environment=None)
    top.only("tools", "dynamic", "modules", "approvals")
    # Read by whoever asks for either: a rule that is misspelt must not wait for the first chat to be told.
    approval_policy(top)
    return top


# --- the bytes ---------------------------------------------------------------------------------------


def _parsed(path: Path) -> object:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; write one, or leave out --tool-config") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            f"{path}: expected a tool configuration file, came more than {MAX_FILE_BYTES // 1024**2} MiB"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: is not UTF-8 (line {line}, byte {error.start})") from None
    kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
    try:
        if kind == "TOML":
            return tomllib.loads(text)
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except ValueError as error:
        raise ConfigError(f"{path}: is not {kind} ({error})") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply for a tool configuration file") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand in it once: of two, `json` would keep the last without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice in one object; keep one")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


# --- the tables --------------------------------------------------------------------------------------


def _configs(top: Fields, path: Path) -> Iterator[ToolConfig]:
    tools = top.table("tools")
    for key in tools.names():
        yield _tool(key, tools.table(key), path)
    dynamic = top.table("dynamic")
    dynamic.only("servers", "save_output", "send_result_to_ai", "metadata")
    to_model, saved = dynamic.flag("send_result_to_ai"), dynamic.flag("save_output")
    metadata = _metadata(dynamic)
    servers = dynamic.items("servers")
    if servers is None and dynamic.names():
        raise ConfigError(f"{dynamic.where}.servers: is missing; list the servers that this is for")
    for index, server in enumerate(servers or ()):
        if not server or server in (servers or ())[:index]:
            came = "an empty text" if not server else f"{server!r} again"
            raise ConfigError(
                f"{dynamic.where}.servers[{index}]: expected another server's name, came {came}"
            )
        yield create_dynamic_config(
            server,
            save_output=saved is not False,
            send_result_to_ai=to_model is not False,
            metadata=metadata,
            source=str(path),
        )


def _tool(key: str, entry: Fields, path: Path) -> ToolConfig:
    entry.only("server", "tool", *SETTINGS)
    server, tool = entry.text("server"), entry.text("tool")
    if (server is None) != (tool is None):
        raise ConfigError(f"{entry.where}: expected both `server` and `tool`, or neither")
    if server is not None and tool is not None and create_tool_id(server, tool) != key:
        raise ConfigError(
            f"{entry.where}: expected the key {create_tool_id(server, tool)!r} for the server {server!r} and"
            f" the tool {tool!r}"
        )
    if SEPARATOR not in key and not WILDCARDS & set(key):
        raise ConfigError(
            f"{entry.where}: expected a key like 'SERVER__TOOL', or a pattern like '{key or 'SERVER'}__*'"
        )
    saved = entry.flag("save_output")
    settings: dict[str, Any] = {
        "description": entry.text("description"),
        "system_prompt": entry.text("system_prompt"),
        "save_output": saved is not False,
        "send_result_to_ai": entry.flag("send_result_to_ai") is True,
        "response_handler": _handler(entry, path),
        "metadata": _metadata(entry),
        "trust_structured": entry.flag("trust_structured"),
        "turn": cast("Decision | None", entry.choice("turn", DECISIONS)),
        "stops": _stops(entry),
        "source": str(path),
    }
    if server is None or tool is None:
        return create_id_config(key, **settings)
    if not server or not tool:
        raise ConfigError(f"{entry.where}: `server` and `tool` can't be empty")
    return create_tool_config(server, tool, **settings)


def _stops(entry: Fields) -> frozenset[Stopper] | None:
    kinds = entry.items("stops")
    if kinds is None:
        return None
    for index, kind in enumerate(kinds):
        if kind not in STOPPERS:
            near = get_close_matches(kind, STOPPERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(STOPPERS)}"
            raise ConfigError(f"{entry.where}.stops[{index}]: {kind!r} is no kind of block; {hint}")
    return frozenset(cast("tuple[Stopper, ...]", kinds))


def _metadata(entry: Fields) -> dict[str, object]:
    metadata = entry.values("metadata")
    problem = not_json(metadata)
    if problem is not None:
        raise ConfigError(f"{entry.where}.metadata{problem}")
    return metadata


def _handler(entry: Fields, path: Path) -> HandlerReference | None:
    text = entry.text("response_handler")
    if text is None:
        return None
    where = f"{entry.where}.response_handler"
    parts = _HANDLER.fullmatch(text)
    if parts is None:
        raise ConfigError(f"{where}: expected 'package.module:function' or 'file.py:function', came {text!r}")
    _module_name(parts["module"], where)
    return HandlerReference(
        module=parts["module"], function=parts["function"], where=where, folder=path.parent
    )


def _module_name(name: str, where: str) -> None:
    if not name.endswith(".py") and _MODULE.fullmatch(name) is None:
        raise ConfigError(
            f"{where}: expected a module's name (package.module) or a path that ends in .py, came {name!r}"
        )
