"""Optional dependencies: a missing one is reported with the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from playhead.errors import UsageError

EXTRAS: Final = {
    "cli": ("typer", "rich", "markdown_it"),
    "serve": ("prometheus_client",),
    "formats": ("av", "m3u8"),
    "check": ("rich", "jinja2", "markupsafe", "tomlkit"),
    "langgraph": ("langgraph",),
    "valkey": ("valkey",),
}
"""The modules that each extra of pyproject.toml provides."""


def require_extra(extra: str, user: str) -> None:
    """Raise `UsageError` if a module of `extra` is missing; `user` (plural) is what needs it.

    Modules are looked up, not imported.
    """
    for module in EXTRAS[extra]:
        if not _is_installed(module):
            raise UsageError(f"{user} need {module}, which is not installed: pip install 'playhead[{extra}]'")


def has_extra(extra: str) -> bool:
    """Return whether every module of `extra` is installed."""
    return all(_is_installed(module) for module in EXTRAS[extra])


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # half installed, or blocked
        return False
