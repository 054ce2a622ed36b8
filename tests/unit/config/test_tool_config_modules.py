"""Tool configurations in Python: modules, packages and what installed packages offer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from playhead.config.tools import ToolConfigs, ToolConfigSources, get_tool_configs, load_tool_configs
from playhead.errors import ConfigError

USING = "from playhead.config.tools import *\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a changed file may have the time of the old one
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def ids(configs: ToolConfigs) -> list[str]:
    return sorted(config.tool_id for config in configs)


def offered(folder: Path, name: str, *lines: str) -> None:
    """An installed package `name` with entry points, as its metadata says it."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(["[playhead.tool_configs]", *lines, ""]))


def refused(*modules: str) -> str:
    with pytest.raises(ConfigError) as caught:
        get_tool_configs(*modules)
    return str(caught.value)


@pytest.mark.requirement("CF-10")
def test_a_module_configures_one_tool_or_several(folder: Path) -> None:
    (folder / "one_tool.py").write_text(USING + "TOOL_CONFIGS = create_tool_config('a', 'one')")
    (folder / "family.py").write_text(
        USING + "TOOL_CONFIGS = (create_tool_config('a', t) for t in ('two', 'three'))"
    )
    found = get_tool_configs("one_tool", "family", entry_points=False)
    assert ids(found) == ["a__one", "a__three", "a__two"]
    assert found.resolve("a", "two").looked_at[1].said == "a__two in family"


def test_a_package_is_collected_with_all_that_is_in_it(folder: Path) -> None:
    inner = folder / "mytools" / "deep"
    inner.mkdir(parents=True)
    (folder / "mytools" / "__init__.py").write_text("from .music import TOOL_CONFIGS\n")
    (folder / "mytools" / "music.py").write_text(USING + "TOOL_CONFIGS = create_tool_config('a', 'music')")
    (folder / "mytools" / "helpers.py").write_text("x = 1\n")
    (inner / "__init__.py").write_text("")
    (inner / "lamp.py").write_text(USING + "TOOL_CONFIGS = [create_tool_config('a', 'lamp')]")
    assert ids(get_tool_configs("mytools", entry_points=False)) == ["a__lamp", "a__music"]
    import mytools  # type: ignore[import-not-found]

    assert ids(get_tool_configs(mytools, entry_points=False)) == ["a__lamp", "a__music"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "raise ValueError('no key')",
            "tool configurations: can't import wrong (ValueError: no key)",
        ),
        ("import not_installed_at_all", "tool configurations: can't import wrong (ModuleNotFoundError: No"),
        ("def f(:", "tool configurations: can't import wrong (SyntaxError: "),
        ("x = 1", "tool configurations: wrong configures nothing; expected TOOL_CONFIGS in it"),
        ("TOOL_CONFIGS = 5", "tool configurations: wrong offers a int; expected a ToolConfig or several"),
        (
            "TOOL_CONFIGS = 'a__b'",
            "tool configurations: wrong offers a str; expected a ToolConfig or several",
        ),
        ("TOOL_CONFIGS = [{}]", "tool configurations: wrong offers a dict among its configurations"),
        (
            USING
            + "TOOL_CONFIGS = [create_tool_config('a', 'b'), create_tool_config('a', 'b', turn='stop')]",
            "wrong: a__b is configured already (wrong); keep one",
        ),
    ],
)
def test_a_module_that_is_wrong_is_named(folder: Path, source: str, said: str) -> None:
    (folder / "wrong.py").write_text(source)
    assert refused("wrong").startswith(said)


def test_a_module_that_is_not_there_is_named(folder: Path) -> None:
    assert refused("nowhere.at_all").startswith("tool configurations: can't import nowhere.at_all (ModuleNot")


@pytest.mark.parametrize("name", ["half", "half.py"])
def test_a_module_that_failed_fails_again_and_is_not_taken_for_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "half.py").write_text(
        USING + "TOOL_CONFIGS = create_tool_config('a', 'b')\nraise RuntimeError('always')"
    )
    for _ in range(2):
        assert refused(name).endswith(f"can't import {name} (RuntimeError: always)")


@pytest.mark.requirement("CF-10")
def test_installed_packages_offer_theirs_and_named_modules_win(folder: Path) -> None:
    (folder / "pack.py").write_text(
        USING + "TOOL_CONFIGS = [create_tool_config('a', 'b', description='installed')]\n"
        "class Home:\n    lamp = create_tool_config('a', 'lamp')\n"
    )
    (folder / "mine.py").write_text(
        USING + "TOOL_CONFIGS = create_tool_config('a', 'b', description='named')"
    )
    offered(folder, "home-tools", "tools = pack", "lamp = pack:Home.lamp")
    assert ids(get_tool_configs()) == ["a__b", "a__lamp"]
    assert ids(get_tool_configs(entry_points=False)) == []
    config = get_tool_configs("mine").resolve("a", "b").config
    assert config is not None
    assert config.description == "named"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x = broken", "entry point x of home-tools: can't import broken (KeyError: 'k')"),
        ("x = pack:nothing", "entry point x of home-tools: pack has no nothing"),
        ("x = pack:number", "entry point x of home-tools: pack offers a int; expected"),
        ("x = pack", "entry point x of home-tools: pack configures nothing"),
    ],
)
def test_an_installed_package_that_is_wrong_is_named(folder: Path, line: str, said: str) -> None:
    (folder / "broken.py").write_text("{}['k']")
    (folder / "pack.py").write_text("number = 1")
    offered(folder, "home-tools", line)
    assert refused().startswith(said)


@pytest.mark.requirement("CF-13")
def test_modules_are_imported_again_on_demand(folder: Path) -> None:
    source = USING + "TOOL_CONFIGS = create_tool_config('a', 'b', description={!r})"
    module, beside = folder / "mine.py", folder / "beside.py"
    module.write_text(source.format("first"))
    beside.write_text(source.format("first").replace("'b'", "'beside'"))
    file = folder / "tools.toml"
    file.write_text('modules = ["beside.py"]')
    sources = ToolConfigSources(file=file, modules=("mine",), entry_points=False)

    def descriptions(*, reload: bool) -> list[str | None]:
        found = [sources.load(reload=reload).resolve("a", tool).config for tool in ("b", "beside")]
        return [config.description for config in found if config is not None]

    assert descriptions(reload=False) == ["first", "first"]
    module.write_text(source.format("second"))
    beside.write_text(source.format("second").replace("'b'", "'beside'"))
    assert descriptions(reload=False) == [
        "first",
        "second",
    ]  # a file that a file names is looked at each time
    assert descriptions(reload=True) == ["second", "second"]


def test_a_file_beside_the_configuration_runs_once_for_what_it_holds(folder: Path) -> None:
    (folder / "counted.py").write_text(
        USING + "import pathlib\nruns = pathlib.Path(__file__).with_suffix('.runs')\n"
        "runs.write_text('x' + (runs.read_text() if runs.exists() else ''))\n"
        "TOOL_CONFIGS = create_tool_config('a', 'b')"
    )
    (folder / "tools.json").write_text('{"modules": ["counted.py"]}')
    for _ in range(3):
        load_tool_configs(folder / "tools.json")
    assert (folder / "counted.runs").read_text() == "x"
