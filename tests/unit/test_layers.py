"""Imports point down only: the layers of the package, held against its source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "python" / "playhead"
CORE = REPOSITORY / "rust" / "core"

LAYERS: tuple[tuple[str, ...], ...] = (
    (
        *("errors", "limits", "escaping", "redaction", "retry", "concurrency", "strict_json", "trio_thread"),
        *("web_address", "extras", "lazy_names", "_core"),
    ),
    ("content", "protocol", "cache", "net_guard", "redacted_request"),
    ("results",),
    ("stream", "config"),
    ("playback", "client"),
    ("portals",),
    ("adapters", "testing"),
    ("cli", "agent", "check", "servers"),
)
"""Lowest first. A module may import from lower layers, and from its own package; imports for types count. The
highest layer has the frame of the command line, and the wings."""

MAY_USE_TESTING = frozenset({"servers", "check"})
TOP = frozenset({"__init__", "__main__"})
COMMANDS = "commands"
"""The package of a package's commands, which may import the command line. Only its table leads to them."""
SAME_LAYER = frozenset(
    {
        ("_core", "errors"),
        ("limits", "errors"),
        ("errors", "limits"),
        ("concurrency", "errors"),
        ("trio_thread", "errors"),
        ("extras", "errors"),
        ("retry", "errors"),
    }
)


def level_of(package: str) -> int:
    for level, names in enumerate(LAYERS):
        if package in names:
            return level
    raise AssertionError(f"playhead.{package} is in no layer: add it to LAYERS")


def imported_modules(source: str) -> set[str]:
    """The modules that are imported anywhere in `source`, with their names below `playhead`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "relative import: write it absolute, so that the layers can be read"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("playhead.") for name in found if name.startswith("playhead.")}


def violations(module: str, source: str) -> list[str]:
    """Describe each import of one module that breaks the rule; `module` is its name below `playhead`."""
    package, *inside = module.split(".")
    if package in TOP:
        return []
    wrong: set[str] = set()
    for imported in imported_modules(source):
        other, *rest = imported.split(".")
        if rest[:1] == [COMMANDS] and [other, COMMANDS] != [package, *inside[:1]]:
            wrong.add(f"imports playhead.{other}.{COMMANDS}, which only the table of commands may")
        if other == package or (package, other) in SAME_LAYER:
            continue
        if other == "testing":
            if package not in MAY_USE_TESTING:
                wrong.add("imports playhead.testing")
        elif other == "cli" and inside[:1] == [COMMANDS]:
            continue
        elif level_of(other) >= level_of(package):
            wrong.add(f"imports playhead.{other}, which is not below playhead.{package}")
    return sorted(wrong)


def test_modules_import_only_from_lower_layers() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    assert len(modules) > 150, "this is not the whole package"
    found = [
        f"{place}: {violation}"
        for place, path in ((path.relative_to(PACKAGE), path) for path in modules)
        for violation in violations(".".join(place.with_suffix("").parts), path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("content.blocks", "from playhead.client import connect", "playhead.client, which is not below"),
        ("stream.driver", "import playhead.config.servers", "playhead.config, which is not below"),
        ("stream.driver", "from playhead import cli", "playhead.cli, which is not below"),
        ("client.hub.hub", "from playhead.testing import links", "playhead.testing"),
        ("check.run", "def run():\n    from playhead.cli import app", "playhead.cli, which is not below"),
        ("check.commands.fleet", "from playhead.agent import Agent", "playhead.agent, which is not below"),
        (
            "cli.tools",
            "if TYPE_CHECKING:\n    import playhead.servers.audio",
            "playhead.servers, which is not",
        ),
        ("testing.peers", "from playhead.agent import Agent", "playhead.agent, which is not below"),
        ("agent.loop", "import playhead.agent.commands.chat", "playhead.agent.commands, which only"),
        (
            "cli.explain",
            "from playhead.config.commands import outputs",
            "playhead.config.commands, which only",
        ),
    ],
)
def test_an_import_that_points_up_or_sideways_is_named(module: str, source: str, wrong: str) -> None:
    (violation,) = violations(module, source)
    assert violation.startswith(f"imports {wrong}")


def test_a_command_may_import_the_command_line_and_its_own_package() -> None:
    source = "from playhead.cli import parameters\nfrom playhead.check.run import check_server"
    assert violations("check.commands.check", source) == []


def test_contributing_has_the_layers_and_the_packages_that_there_are() -> None:
    text = " ".join((REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").split())
    layers = " → ".join(", ".join(f"`{name}`" for name in names) for names in reversed(LAYERS))
    assert f"{layers}." in text
    listed = re.findall(r"\| `python/playhead/(\w+)` \|", text)
    assert sorted(listed) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


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
