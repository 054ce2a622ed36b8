"""The user's Python: modules that configure tools, and response handlers.

A module lists its configurations in `TOOL_CONFIGS`: one `ToolConfig` or several. For a package this includes
all of its modules, so that each may configure one tool. A module is imported only when needed, and no server
can choose one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, cast

import trio

from playhead.config.tools.config import (
    HandlerReference,
    ResponseHandler,
    ToolConfig,
    ToolContent,
    ToolResponse,
    create_tool_id,
)
from playhead.config.tools.layers import ToolConfigs
from playhead.errors import ConfigError, HandlerError, HandlerLoadError, UsageError

FILE_SUFFIX: Final = ".py"


def import_named(name: str, *, folder: Path | None, where: str, reload: bool = False) -> ModuleType:
    """Import the module `name`: a dotted name, or a path that ends in `.py`, relative to `folder`.

    It imports a file again if the file has changed, but a module by name only with `reload`. Raises
    `ConfigError`, beginning with `where`, for any failure.
    """
    try:
        if name.endswith(FILE_SUFFIX):
            return _import_file((folder or Path()) / Path(name).expanduser())
        if reload and name in sys.modules:
            return importlib.reload(sys.modules[name])
        return importlib.import_module(name)
    except OSError as error:
        raise ConfigError(f"{where}: {error.filename or name} can't be read ({error.strerror})") from error
    except Exception as error:  # a module may raise anything while it is imported
        raise ConfigError(f"{where}: can't import {name} ({type(error).__name__}: {error})") from error


def _import_file(path: Path) -> ModuleType:
    source = path.read_bytes()
    # The content is part of the name, so a changed file is a new module, and an unchanged one runs only once.
    digest = hashlib.sha256(str(path.absolute()).encode() + b"\0" + source).hexdigest()
    name = f"playhead_tool_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as the import system does: dataclasses look it up
    try:
        # The loader would reuse stale bytecode of a source with the same second and size.
        exec(compile(source, path, "exec"), module.__dict__)
    except BaseException:  # also on interrupt: the next import must not find an incomplete module
        del sys.modules[name]
        raise
    return module


GROUP: Final = "playhead.tool_configs"
"""The group of entry points: `NAME = "package.module"` or `NAME = "package.module:ATTRIBUTE"`."""
ATTRIBUTE: Final = "TOOL_CONFIGS"


def get_tool_configs(
    *modules: str | ModuleType, entry_points: bool = True, reload: bool = False
) -> ToolConfigs:
    """Collect the configurations of `modules` (names or modules; a package includes its submodules), and of
    installed packages with entry points in the group `playhead.tool_configs`; `modules` take precedence.

    `reload` imports modules again. Raises `ConfigError` if a module can't be imported, configures nothing, or
    configures a tool that another module configures too.
    """
    named: list[ToolConfig] = []
    for module in modules:
        named += configs_of(module, folder=None, where="tool configurations", reload=reload)
    installed: list[ToolConfig] = []
    if entry_points:
        # Sorted, so that the order does not depend on sys.path.
        points = importlib.metadata.entry_points(group=GROUP)
        for point in sorted(points, key=lambda point: (point.name, point.value)):
            installed += _configs_of_entry_point(point, reload=reload)
    return ToolConfigs(named).over(ToolConfigs(installed))


def configs_of(
    module: str | ModuleType, *, folder: Path | None, where: str, reload: bool
) -> list[ToolConfig]:
    """Collect the configurations in `module` and its submodules. Raises `ConfigError`, beginning with
    `where`."""
    name = module if isinstance(module, str) else module.__name__
    configs: list[ToolConfig] = []
    for inner in _modules_of(module, folder=folder, where=where, reload=reload):
        offered = getattr(inner, ATTRIBUTE, None)
        if offered is not None:
            source = name if name.endswith(FILE_SUFFIX) else inner.__name__
            # A package often re-exports the configurations of its modules.
            configs += [config for config in _check_configs(offered, source, where) if config not in configs]
    if not configs:
        raise ConfigError(
            f"{where}: {name} configures nothing; expected {ATTRIBUTE} in it: a ToolConfig or several"
        )
    return configs


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


def _configs_of_entry_point(point: importlib.metadata.EntryPoint, *, reload: bool) -> list[ToolConfig]:
    package = point.dist.name if point.dist is not None else "an installed package"
    where = f"entry point {point.name} of {package}"
    if not point.attr:
        return configs_of(point.module, folder=None, where=where, reload=reload)
    module = import_named(point.module, folder=None, where=where, reload=reload)
    return _check_configs(_member_at(module, point.attr, point.module, where), point.module, where)


def _member_at(module: ModuleType, path: str, name: str, where: str) -> object:
    """Return the member at a dotted `path` in `module`. Raises `ConfigError`, with `name` for the module."""
    member: object = module
    for part in path.split("."):
        member = getattr(member, part, None)
    if member is None:
        raise ConfigError(f"{where}: {name} has no {path}")
    return member


def _check_configs(offered: object, module: str, where: str) -> list[ToolConfig]:
    items = [offered] if isinstance(offered, ToolConfig) else offered
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise ConfigError(
            f"{where}: {module} offers a {type(offered).__name__}; expected a ToolConfig or several"
        )
    configs = []
    for item in items:
        if not isinstance(item, ToolConfig):
            raise ConfigError(
                f"{where}: {module} offers a {type(item).__name__} among its configurations; expected"
                " ToolConfig (create_tool_config makes one)"
            )
        configs.append(item if item.source else replace(item, source=module))
    return configs


MESSAGE_CHARS: Final = 500
"""Limits the quoted text of a handler's exception, because some libraries quote their entire input."""


async def run_handler(config: ToolConfig, content: ToolContent) -> ToolResponse:
    """Run the handler of `config` on `content`.

    An async handler is awaited under trio. A sync one runs in a thread, because it may write files while
    music plays; it must be safe to call from threads. Handlers have no deadline of their own.

    Raises `HandlerError` for any `Exception` that the handler raises (its cause) and for a return value
    other than `ToolResponse`; `HandlerLoadError`, also a `ConfigError`, if a handler named in a file can't
    be loaded; `UsageError` if `config` has no handler.

    If cancelled, an async handler is cancelled too; a sync one runs on in its thread, and its return value is
    dropped.
    """
    handler = config.response_handler
    if handler is None:
        raise UsageError(
            f"{config.tool_id} has no response_handler; check for one before calling run_handler"
        )
    name = handler_name(handler)
    # A pattern's handler may fail for one of its tools, so errors name the tool of the result.
    tool_id = create_tool_id(content.server, content.tool) if content.server else config.tool_id
    function: ResponseHandler
    if isinstance(handler, HandlerReference):
        try:
            # An import reads files and may take seconds.
            function = await trio.to_thread.run_sync(load_handler, handler, abandon_on_cancel=True)
        except ConfigError as error:
            raise HandlerLoadError(str(error), handler=name, tool_id=tool_id) from error
    else:
        function = handler
    try:
        if _is_async(function):
            answer = function(content)
        else:
            # A sync function may return a coroutine. trio refuses one as the result of a thread, but not a
            # tuple that contains it.
            (answer,) = await trio.to_thread.run_sync(lambda: (function(content),), abandon_on_cancel=True)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # third-party code may raise anything
        raise HandlerError(
            f"the response handler {name} of {tool_id} failed: {type(error).__name__}:"
            f" {str(error)[:MESSAGE_CHARS]}",
            handler=name,
            tool_id=tool_id,
        ) from error
    returned: object = answer
    if not isinstance(returned, ToolResponse):
        raise HandlerError(
            f"the response handler {name} of {tool_id} returned {type(returned).__name__}; expected a"
            " playhead.config.tools.ToolResponse",
            handler=name,
            tool_id=tool_id,
        )
    return returned


def handler_name(handler: ResponseHandler | HandlerReference) -> str:
    """Return the name of the handler as `module:function`."""
    if isinstance(handler, HandlerReference):
        return str(handler)
    inner: object = handler.func if isinstance(handler, partial) else handler
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    module = getattr(inner, "__module__", None)
    return f"{module}:{name}" if module else str(name)


def load_handler(reference: HandlerReference) -> ResponseHandler:
    """Import the handler that `reference` names. Raises `ConfigError` with the key path."""
    module = import_named(reference.module, folder=reference.folder, where=reference.where)
    handler = _member_at(module, reference.function, reference.module, reference.where)
    if not callable(handler):
        raise ConfigError(
            f"{reference.where}: expected a function, {reference} is a {type(handler).__name__}"
        )
    return cast("ResponseHandler", handler)


def _is_async(function: Callable[..., object]) -> bool:
    inner = function.func if isinstance(function, partial) else function
    # An object with an async `__call__` is detected only this way.
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)
