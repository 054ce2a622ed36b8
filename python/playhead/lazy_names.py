"""Public names of packages that are imported from their modules on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of `package` for the names that each of its `modules` provides.

    Hide it from type checkers (`if not TYPE_CHECKING`), for which a misspelt name is then an error.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def imported(name: str) -> object:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return imported
