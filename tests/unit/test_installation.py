"""An installation without extras is the library; what needs more says which extra to install."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

import playhead
from playhead.extras import EXTRAS

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "python" / "playhead"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
MAY_USE = {
    "cli": {"cli"},
    "commands": {"cli"},
    "servers": {"serve"},
    "check": {"check", "langgraph"},
    "playback": {"formats"},
    "hls.py": {"formats"},
    "cache": {"valkey"},
}
"""The extras that a package, at any depth, may import from; all others import what is always installed."""


OF_A_STACK = {
    "adapters/livekit.py": ({"livekit"}, "livekit-agents>=1.8"),
    "adapters/pipecat.py": ({"numpy", "pipecat"}, "pipecat-ai>=1.7"),
    "check/pytest_plugin.py": ({"pytest"}, "pytest>=9"),
}
"""The modules of the stack of an adapter or plug-in, not installed with playhead, and its package."""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", text, maxsplit=1)[0].lower().replace("_", "-") for text in requirements}


@cache
def third_party_modules(path: Path) -> set[str]:
    """The top-level modules that a file imports when it runs, third-party ones only."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module is not None:
                found.add(child.module.partition(".")[0])
            visit(child)

    visit(ast.parse(path.read_text()))
    return found - sys.stdlib_module_names - {"playhead"}


@cache
def installed() -> Mapping[str, list[str]]:
    return packages_distributions()


def providers(module: str) -> set[str]:
    """The distributions that a module is installed by: several for a namespace package."""
    return {name.lower().replace("_", "-") for name in installed()[module]}


def test_every_import_is_declared_where_it_is_needed() -> None:
    base, extras = names(PROJECT["dependencies"]), PROJECT["optional-dependencies"]
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 100
    undeclared = []
    for path in files:
        may_use = set[str]().union(*(MAY_USE.get(part, ()) for part in path.relative_to(PACKAGE).parts))
        declared = base.union(*(names(extras[extra]) for extra in may_use))
        of_a_stack, _ = OF_A_STACK.get(str(path.relative_to(PACKAGE)), (set[str](), ""))
        for module in sorted(third_party_modules(path) - of_a_stack):
            if not providers(module) & declared:
                undeclared.append(f"{path.relative_to(PACKAGE)}: {module}")
    assert not undeclared


def test_every_declared_dependency_is_imported() -> None:
    stacks = {path: of_a_stack for path, (of_a_stack, _) in OF_A_STACK.items()}
    modules = set().union(
        *(
            third_party_modules(path) - stacks.get(str(path.relative_to(PACKAGE)), set())
            for path in PACKAGE.rglob("*.py")
        )
    )
    extras = PROJECT["optional-dependencies"]
    declared = names(PROJECT["dependencies"]).union(*(names(extras[extra]) for extra in EXTRAS))
    assert declared <= set().union(*map(providers, modules))


def test_the_extras_provide_the_modules_that_are_looked_for() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        assert all(providers(module) & names(extras[extra]) for module in modules)
    listed = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    assert set(listed) == set(extras) - {"all", "langgraph"}


def test_the_version_is_that_of_the_distribution() -> None:
    assert playhead.__version__ == version("playhead")
    assert "__version__" in dir(playhead)


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["playhead", *sys.argv[1:]]
"""


def without(modules: tuple[str, ...], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process that finds none of `modules`."""
    program = WITHOUT.format(modules=set(modules)) + code
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


COMMAND = "from playhead.cli import main; main()"


@pytest.mark.parametrize("module", EXTRAS["cli"])
def test_the_command_without_the_extra_cli_says_what_to_install(module: str) -> None:
    done = without((module,), COMMAND, "--version")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: the commands of playhead need {module}, which is not installed:"
        " pip install 'playhead[cli]'\n"
    )


def test_the_library_needs_no_extra() -> None:
    modules = tuple({module for extra in EXTRAS.values() for module in extra})
    code = "import playhead, playhead.playback, playhead.agent, playhead.check.run; playhead.connect"
    done = without(modules, code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("demo", "--sink", "null"), ("play", __file__)])
def test_playing_without_miniaudio_says_what_to_install(arguments: tuple[str, ...]) -> None:
    done = without(("miniaudio",), COMMAND, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: playback needs miniaudio, which cannot be imported (No module named 'miniaudio'); install it"
        " anew: pip install --force-reinstall miniaudio\n"
    )


@pytest.mark.parametrize("path", OF_A_STACK)
def test_an_adapter_without_its_stack_says_what_to_install(path: str) -> None:
    modules, package = OF_A_STACK[path]
    adapter = path.removesuffix(".py").replace("/", ".")
    done = without(tuple(modules), f"import playhead.{adapter}")
    assert done.returncode == 1
    assert f"ImportError: playhead.{adapter} needs " in done.stderr
    assert f"pip install '{package}'" in done.stderr


def test_the_template_server_without_the_extra_serve_says_what_to_install() -> None:
    done = without(("prometheus_client",), COMMAND, "serve", "template", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: the template server's metrics need prometheus_client, which is not installed:"
        " pip install 'playhead[serve]'\n"
    )


@pytest.mark.parametrize(
    ("options", "module", "user"),
    [
        (("--report", "report.html"), "jinja2", "HTML and Markdown reports"),
        (("--report", "report.md"), "jinja2", "HTML and Markdown reports"),
        (("full", "--draft-expectations", "expect.toml"), "tomlkit", "drafts of expectations in TOML"),
    ],
)
def test_a_file_of_the_extra_check_is_refused_without_it_before_anything_is_tested(
    options: tuple[str, ...], module: str, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = without((module,), COMMAND, "check", "nothing-is-started", *options)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert done.stderr == (
        f"error: {user} need {module}, which is not installed: pip install 'playhead[check]'\n"
    )
