"""Imports point down only: the layers of the package, held against its source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "python" / "playhead"
CORE = REPOSITORY / "rust" / "core"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "errors",
            "extras",
            "limits",
            "escaping",
            "redaction",
            "retry",
            "concurrency",
            "strict_json",
            "trio_thread",
            "web_address",
            "_core",
        }
    ),
    frozenset({"net_guard", "redacted_request", "content", "protocol", "cache"}),
    frozenset({"results"}),
    frozenset({"stream", "config"}),
    frozenset({"playback", "client"}),
    frozenset({"agent", "servers", "portals", "adapters"}),
    frozenset({"check"}),
    frozenset({"cli"}),
)
"""Lowest first. A module may import from lower layers, and from its own package."""

MAY_USE_TESTING = frozenset({"testing", "servers", "check"})
TOP = frozenset({"__init__", "__main__"})
SAME_LAYER = frozenset(
    {
        ("_core", "errors"),
        ("limits", "errors"),
        ("errors", "limits"),
        ("concurrency", "errors"),
        ("trio_thread", "errors"),
        ("adapters", "portals"),
        ("extras", "errors"),
        ("retry", "errors"),
    }
)


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


def violations(package: str, source: str) -> list[str]:
    """Describe each import of one module of `package` that breaks the rule."""
    if package in TOP:
        return []
    wrong: list[str] = []
    for other in sorted(imported_packages(source) - {package}):
        if other == "testing":
            if package not in MAY_USE_TESTING:
                wrong.append("imports playhead.testing")
        elif package == "testing" or (package, other) in SAME_LAYER:
            continue
        elif level_of(other) >= level_of(package):
            wrong.append(f"imports playhead.{other}, which is not below playhead.{package}")
    return wrong


def test_modules_import_only_from_lower_layers() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    assert len(modules) > 150, "this is not the whole package"
    found = [
        f"{place}: {violation}"
        for place, path in ((path.relative_to(PACKAGE), path) for path in modules)
        for violation in violations(place.parts[0].removesuffix(".py"), path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("package", "source", "wrong"),
    [
        ("content", "from playhead.client import connect", "imports playhead.client, which is not below"),
        ("stream", "import playhead.config.servers", "imports playhead.config, which is not below"),
        ("stream", "from playhead import cli", "imports playhead.cli, which is not below"),
        ("client", "from playhead.testing import links", "imports playhead.testing"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_named(package: str, source: str, wrong: str) -> None:
    (violation,) = violations(package, source)
    assert violation.startswith(wrong)


def test_the_core_crate_touches_no_clock_file_net_or_thread() -> None:
    forbidden = ("std::fs", "std::net", "std::thread", "SystemTime", "pyo3", "std::env", "Instant")
    files = sorted(CORE.rglob("*.rs"))
    assert len(files) > 10, "this is not the whole crate"
    assert {path.parent.name for path in files} >= {"core", "planner"}, "its folders were not looked into"
    found = [
        f"{path.relative_to(CORE)} names {word}"
        for path in files
        for word in forbidden
        if word in path.read_text("utf-8").split("#[cfg(test)]")[0]
    ]
    assert found == []
