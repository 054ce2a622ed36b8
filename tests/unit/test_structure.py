"""File names are unique within a package, class names within the project, and no imports go in a circle.

`python -m tests.unit.test_structure` prints the figures, which nothing limits.
"""

from __future__ import annotations

import ast
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "playhead"


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    tree: ast.Module
    lines: int
    imports: set[str] = field(default_factory=set)

    @property
    def package(self) -> str:
        """The top-level package, or the name of a module directly below `playhead`."""
        return self.name.split(".")[1] if "." in self.name else ""

    @property
    def file_name(self) -> str:
        return self.name.rpartition(".")[2]


@cache
def modules() -> dict[str, Module]:
    found: dict[str, Module] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        text = path.read_text("utf-8")
        found[name] = Module(name, ast.parse(text), len(text.splitlines()))
    for module in found.values():
        for name in imported(module.tree):
            home = name if name in found else name.rpartition(".")[0]
            if home in found and home != module.name:
                module.imports.add(home)
    assert len(found) > 100, "this is not the whole package"
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules, or names in modules, that are imported outside of functions, for the type checker too."""
    unread: list[ast.AST] = [tree]
    while unread:
        node = unread.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            unread.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_package(module: Module) -> bool:
    return module.name == "playhead" or module.name in packages()


def circle(package: str) -> list[str]:
    """A circle of imports between what is directly in `package`, if any. A subpackage is one link."""
    depth = package.count(".") + 2
    links: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        if f"{module.name}.".startswith(f"{package}."):
            near = {name for name in module.imports if f"{name}.".startswith(f"{package}.")}
            link = ".".join(module.name.split(".")[:depth])
            links[link] |= {".".join(name.split(".")[:depth]) for name in near} - {link}
    try:
        TopologicalSorter(links).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


@cache
def packages() -> list[str]:
    """Below `playhead`, by the directories: a worker that runs none of these tests parses nothing."""
    directories = sorted({path.parent.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py")})
    return [".".join(each.parts) for each in directories if each.parts != ("playhead",)]


def repeated_file_names() -> list[str]:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module in modules().values():
        if not is_package(module):
            places[module.package, module.file_name].append(module.name)
    return [", ".join(names) for names in places.values() if len(names) > 1]


def repeated_class_names() -> list[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules().values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return [f"{name}: {', '.join(names)}" for name, names in places.items() if len(names) > 1]


@pytest.mark.parametrize("package", packages())
def test_no_imports_go_in_a_circle(package: str) -> None:
    assert circle(package) == []


def test_file_names_are_unique_within_a_top_level_package() -> None:
    assert repeated_file_names() == []


def test_public_class_names_are_unique_within_the_project() -> None:
    assert repeated_class_names() == []


if __name__ == "__main__":
    lengths = sorted(module.lines for module in modules().values())
    figures = [
        f"{len(lengths)} modules, {sum(lengths)} lines",
        f"median {statistics.median(lengths)}, p90 {lengths[len(lengths) * 9 // 10]}, max {lengths[-1]}",
        f"{len(repeated_file_names())} repeated file names",
        f"{len(repeated_class_names())} repeated class names",
    ]
    for package in packages():
        count = sum(name.startswith(f"{package}.") for name in modules())
        figures.append(f"  {package}: {count} modules")
    print("\n".join(figures))
