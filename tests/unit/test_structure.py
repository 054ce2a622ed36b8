"""The package is cut along its nouns: one noun per file, names that are unique, few import levels.

CONTRIBUTING.md gives the reasons. `python -m tests.unit.test_structure` prints the figures.
"""

from __future__ import annotations

import ast
import fnmatch
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "playhead"

MOST_LEVELS = 7

SINGLE_IMPORTERS = {
    "playback.controller": "a layer: the player is its public interface",
    "agent.loop": "the loop by itself; `agent` binds it to a hub and a player",
    "agent.tool_calls": "a layer: the loop counts turns, this runs the calls of one",
    "agent.prompt_mode": "a second implementation of tool calls, in the text of a model",
    "agent.tool_use": "a parser without I/O, held to the chunking law",
    "agent.models.http_reply": "what an HTTP answer means; `http_model` sends the request",
    "agent.models.openai_chat_stream": "a parser without I/O, held to the chunking law",
    "agent.models.openai_chat": "one provider; `openai_responses` reuses its content parts",
    "check.graph": "the state graph and its runners, which know no server; `run` has the nodes",
    "check.probes.*": "one file per part of the protocol that is probed",
    "cli.chat*": "one terminal program in its parts: the models, the terminal, the view",
    "cli.player_keys": "a parser without I/O, held to the chunking law, and the mode of the terminal",
    "client.call_results.processing": "used by hubs, and by `call` of the command line when it runs",
    "client.oauth.flow": "what restages steps of the SDK, apart so that it can go",
    "client.session.once_reader": "reads by tools that may have effects; `streams` finds the forms",
    "client.session.streams": "the streams of a session; `session` has every other request",
    "client.session.liveness": "a state machine without a clock; `connection` drives it",
    "client.transports.http_bodies": "compressed and limited bodies; `http_client` has the requests",
    "client.transports.http_cookies": "RFC 6265 by itself; `http_client` has the requests",
    "client.transports.http_network": "the sockets of the HTTP client, and which addresses they reach",
    "client.transports.websocket*": "one of three transports; its wire format has no I/O",
    "playback.containers.*": "one file per container, for the decoders, the seeks and the checker",
    "servers.audio.*": "the tools and the resource of the example server",
    "servers.file_downloads": "a public interface: any server can offer its resource as a file",
    "servers.template.*": "each part of the example server can be copied by itself",
    "stream.in_flight": "reads of all streams of a process; `driver` is the task of one stream",
    "stream.driver": "the task of a stream; `reader` is what callers see of it",
    "stream.numbered_pages": "a way of reading; `probing` finds out that a server has it",
    "stream.uri_template": "RFC 6570 by itself, held to the SDK's; `templates` knows ranges and gateways",
    "stream.sequential": "a second way of reading, for servers without ranges",
}
"""Modules that one sibling alone imports, by pattern, and why each is a file of its own."""


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
    packages: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        text = path.read_text("utf-8")
        found[name] = Module(name, ast.parse(text), len(text.splitlines()))
        if path.name == "__init__.py":
            packages.add(name)
    for module in found.values():
        module.imports.update(name for name in imported(module.tree) if name in found and name != module.name)
    assert len(found) > 100, "this is not the whole package"
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that run when this one is imported: not those for the type checker, nor lazy ones."""
    unread: list[ast.AST] = [tree]
    while unread:
        node = unread.pop()
        is_lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not is_lazy and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            unread.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_package(module: Module) -> bool:
    return any(name.startswith(f"{module.name}.") for name in modules())


def single_importers() -> dict[str, str]:
    """Each module that exactly one module imports, with that one, where both are in the same package."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        for name in module.imports:
            importers[name].add(module.name)
    found: dict[str, str] = {}
    for name, module in modules().items():
        if len(importers[name]) == 1 and name.count(".") > 1 and not is_package(module):
            (importer,) = importers[name]
            if modules()[importer].package == module.package and not is_package(modules()[importer]):
                found[name] = importer
    return found


def longest(package: str) -> list[str]:
    """The longest chain of imports between what is directly in `package`, from the top.

    A subpackage is one link, as is a module; `__init__` only re-exports.
    """
    depth = package.count(".") + 2
    inside: dict[str, set[str]] = {}
    for module in modules().values():
        if module.name.startswith(f"{package}.") and not is_package(module):
            item = ".".join(module.name.split(".")[:depth])
            others = {
                ".".join(name.split(".")[:depth]) for name in module.imports if name.startswith(f"{package}.")
            }
            inside.setdefault(item, set()).update(others - {item})

    def walk(name: str, above: tuple[str, ...] = ()) -> list[str]:
        assert name not in above, f"imports in a circle: {' -> '.join((*above, name))}"
        if name not in known:
            below = [walk(other, (*above, name)) for other in inside.get(name, ())]
            known[name] = [name, *max(below, key=len, default=[])]
        return known[name]

    known: dict[str, list[str]] = {}
    return max(map(walk, inside), key=len)


def packages() -> list[str]:
    return sorted(name for name, module in modules().items() if is_package(module) and name != "playhead")


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


def test_no_package_is_deep() -> None:
    assert [longest(package) for package in packages() if len(longest(package)) > MOST_LEVELS] == []


def test_file_names_are_unique_within_a_top_level_package() -> None:
    assert repeated_file_names() == []


def test_public_class_names_are_unique_within_the_project() -> None:
    assert repeated_class_names() == []


def test_a_module_with_a_single_importer_has_its_reason() -> None:
    found = {name.removeprefix("playhead."): importer for name, importer in single_importers().items()}
    explained = {pattern: fnmatch.filter(found, pattern) for pattern in SINGLE_IMPORTERS}
    assert found.keys() - set(chain.from_iterable(explained.values())) == set(), (
        "merge these into their importers, or give the reason in SINGLE_IMPORTERS"
    )
    assert [pattern for pattern, names in explained.items() if not names] == [], "these are explained in vain"


if __name__ == "__main__":
    lengths = sorted(module.lines for module in modules().values())
    figures = [
        f"{len(lengths)} modules, {sum(lengths)} lines",
        f"median {statistics.median(lengths)}, p90 {lengths[len(lengths) * 9 // 10]}, max {lengths[-1]}",
        f"{len(single_importers())} single importers",
        f"{len(repeated_file_names())} repeated file names",
        f"{len(repeated_class_names())} repeated class names",
    ]
    for package in packages():
        count = sum(name.startswith(f"{package}.") for name in modules())
        figures.append(f"  {package}: {count} modules, {len(longest(package))} import levels")
    print("\n".join(figures))
