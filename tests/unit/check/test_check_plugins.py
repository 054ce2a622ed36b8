"""Checks of other packages, and the fixture for pytest."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from playhead.check import plugins
from playhead.check.plugins import CheckPlugin, installed_plugins, server_check
from playhead.check.run import check_server
from playhead.check.target import Target
from playhead.errors import ConfigError
from tests.unit.check.check_kit import failures
from tests.unit.check.talkative import planted
from tests.unit.check.test_planted_servers import OPTIONS


@server_check(
    "house.few-tools", title="A server has at most three tools", source="https://house.example/rules"
)
async def few_tools(target: Target) -> str | None:
    return f"expected at most 3 tools, got {len(target.tools)}" if len(target.tools) > 3 else None


NOT_A_CHECK = 7


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    entries = [EntryPoint(name, f"{__name__}:{name}", plugins.GROUP) for name in names]
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == plugins.GROUP else [])
    installed_plugins.cache_clear()
    monkeypatch.setattr(plugins, "installed_plugins", installed_plugins.__wrapped__)


async def test_a_check_of_another_package_is_a_row_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "few_tools")
    report = await check_server(planted(), OPTIONS)
    (check,) = failures(report.tests)
    assert (check.kind.name, check.kind.level) == ("house.few-tools", "should")
    assert check.message == "expected at most 3 tools, got 4"


@pytest.mark.parametrize(
    ("name", "words"), [("NOT_A_CHECK", "made by server_check"), ("missing", "can't be loaded")]
)
def test_another_object_is_an_error_that_names_the_entry_point(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, name)
    with pytest.raises(ConfigError, match=words):
        plugins.installed_plugins()


def test_a_check_has_no_name_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = server_check("tools.crashed", title="x", source="y")(few_tools.judge)
    assert isinstance(twin, CheckPlugin)
    monkeypatch.setattr(sys.modules[__name__], "few_tools", twin)
    install(monkeypatch, "few_tools")
    with pytest.raises(ConfigError, match=r"the name tools\.crashed of another check"):
        plugins.installed_plugins()


PROJECT = """
def test_server(playhead_check):
    playhead_check({command!r}, examples=0, calls_at_once=1, timeout_seconds=3.0)
"""


@pytest.mark.parametrize(("defect", "code"), [("", 0), ("crashes", 1)])
def test_the_fixture_makes_one_subtest_per_check(defect: str, code: int, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER.replace("return word", "raise KeyError(word)") if defect else SERVER)
    command = shlex.join((sys.executable, str(server)))
    (tmp_path / "test_server.py").write_text(PROJECT.format(command=command))
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA"]
    pytest_command += ["-p", "no:langsmith_plugin"]  # it takes 0.6 s to import
    if not any(entry.value == "playhead.check.pytest_plugin" for entry in _pytest_entries()):
        pytest_command += ["-p", "playhead.check.pytest_plugin"]
    done = subprocess.run(pytest_command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("[coverage]" in done.stdout) is bool(defect), done.stdout


def _pytest_entries() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return list(entry_points(group="pytest11"))


SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("ten lines")
@server.tool()
def echo(word: str) -> str:
    return word
server.run()
"""
