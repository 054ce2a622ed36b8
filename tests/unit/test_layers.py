"""Imports point down only: the layers of the package, held against its source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "playhead"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "limits", "escaping", "_core"}),
    frozenset({"net_guard", "content"}),
    frozenset({"results"}),
    frozenset({"stream", "config"}),
    frozenset({"playback", "client"}),
    frozenset({"agent", "servers"}),
    frozenset({"check"}),
    frozenset({"cli"}),
)
"""Lowest first. A module may import from lower layers, and from its own package."""

MAY_USE_TESTING = frozenset({"testing", "servers", "check"})
TOP = frozenset({"__init__", "__main__"})
SAME_LAYER = frozenset({("_core", "errors"), ("limits", "errors"), ("errors", "limits")})


def level_of(package: str) -> int:
    for level, names in enumerate(LAYERS):
        if package in names:
            return level
    raise AssertionError(f"playhead.{package} is in no layer: add it to LAYERS")


def imported_packages(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("playhead.")}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "relative import: write it absolute, so that the layers can be read"
            if node.module == "playhead":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("playhead."):
                found.add(node.module.split(".")[1])
    return found


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_lower_layers(path: Path) -> None:
    package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if package in TOP:
        return
    for other in imported_packages(path.read_text(encoding="utf-8")) - {package}:
        if other == "testing":
            assert package in MAY_USE_TESTING, f"{path.name} imports playhead.testing"
        elif package != "testing":
            assert level_of(other) < level_of(package) or (package, other) in SAME_LAYER, (
                f"playhead.{package} imports playhead.{other}, which is not below it"
            )


def test_the_core_crate_touches_no_clock_file_net_or_thread() -> None:
    forbidden = ("std::fs", "std::net", "std::thread", "SystemTime", "pyo3", "std::env")
    for path in (PACKAGE.parents[1] / "rust" / "core").glob("*.rs"):
        source = path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
        for word in forbidden:
            assert word not in source, f"{path.name} names {word}"
        if path.name != "pipe.rs":
            assert "Instant" not in source, f"{path.name} reads a clock"
