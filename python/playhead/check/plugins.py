"""Checks of other packages: one function and its row, found by the entry points of the group
`playhead.checks`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from playhead.check.catalogue import CATALOGUE, CheckKind, Level
from playhead.errors import ConfigError

if TYPE_CHECKING:
    from playhead.check.target import Target

GROUP: Final = "playhead.checks"
Judge = Callable[["Target"], Awaitable[str | None]]
"""Judges a connected server: None if it keeps the requirement, else a message with what was expected and what
arrived. It may send requests (`Target.request`) and read `Target.tools`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlugin:
    """A check of another package."""

    kind: CheckKind
    judge: Judge


def server_check(
    name: str, *, title: str, source: str, level: Level = "should"
) -> Callable[[Judge], CheckPlugin]:
    """Make a check of an async function. The package names the result in the entry points of
    `playhead.checks`.

    `name` is `subject.what` and not one of the catalogue; `title` states the requirement, `source` where it
    is written.
    """
    return lambda judge: CheckPlugin(
        kind=CheckKind(name=name, title=title, level=level, source=source), judge=judge
    )


@cache
def installed_plugins() -> tuple[CheckPlugin, ...]:
    """Load the checks of all installed packages. Raises `ConfigError`, with the entry point."""
    plugins: dict[str, CheckPlugin] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            plugin = entry.load()
        except Exception as error:  # the module of another package may raise anything
            raise ConfigError(
                f"{GROUP}: {entry.value} can't be loaded ({type(error).__name__}: {error})"
            ) from error
        if not isinstance(plugin, CheckPlugin):
            raise ConfigError(
                f"{GROUP}: expected {entry.value} to be made by server_check, got {plugin!r:.80}"
            )
        if plugin.kind.name in CATALOGUE or plugin.kind.name in plugins:
            raise ConfigError(f"{GROUP}: {entry.value} has the name {plugin.kind.name} of another check")
        plugins[plugin.kind.name] = plugin
    return tuple(plugins.values())


async def probe_plugins(target: Target) -> None:
    """Run the checks of all installed packages, a test each."""
    for plugin in installed_plugins():
        with target.test("plug-ins", plugin.kind.name) as draft:
            problem = await plugin.judge(target)
            draft.require(plugin.kind, problem is None, problem or "")
