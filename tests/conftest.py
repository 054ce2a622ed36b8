"""Options, fixtures and rules for all tests.

What the workers of one run share is made once: under a file lock, in a directory that all of them know.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from tests.servers.shared import LIFELINE, SharedServers, shared_servers

# The same examples in every run: a change is judged by its own merits, not by luck. New ones are drawn with
# --hypothesis-profile=default.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

RUN_DIRECTORY = pytest.StashKey[Path]()
GO_SOURCES = Path(__file__).parent / "servers" / "go"
GO_BINARY = Path(__file__).parents[1] / "target" / "go" / "pages"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-size",
        action="store_true",
        help="read 32 MiB from every server; without it the costly ones serve less",
    )
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


def pytest_configure(config: pytest.Config) -> None:
    """Make the directory of this run, and the lifeline of what is started for all of its workers."""
    if hasattr(config, "workerinput"):
        config.stash[RUN_DIRECTORY] = Path(config.workerinput["run_directory"])
        return
    directory = Path(tempfile.mkdtemp(prefix="playhead-tests-"))
    config.stash[RUN_DIRECTORY] = directory
    config.add_cleanup(partial(shutil.rmtree, directory))
    os.mkfifo(directory / LIFELINE)
    config.add_cleanup(partial(os.close, os.open(directory / LIFELINE, os.O_RDWR)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than processors for `-n logical`: half of a run's time is spent on waiting."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the directory is."""
    node.workerinput["run_directory"] = str(node.config.stash[RUN_DIRECTORY])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a `slow` mark that does not say why."""
    for item in items:
        for mark in item.iter_markers("slow"):
            if not (len(mark.args) == 1 and isinstance(mark.args[0], str)):
                raise pytest.UsageError(f'{item.nodeid}: expected a reason, as in slow("starts 40 servers")')


def pytest_collection_finish() -> None:
    """Hide what the imports made from the garbage collector: a test that runs it pays for its own objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def run_directory(pytestconfig: pytest.Config) -> Path:
    """The directory that all workers of this run share, and no other run."""
    return pytestconfig.stash[RUN_DIRECTORY]


@pytest.fixture(scope="session")
def shared(run_directory: Path) -> SharedServers:
    """Servers in a process of their own, for tests that change nothing in them."""
    return shared_servers(run_directory)


def version_of(text: str) -> tuple[int, ...]:
    """`go1.25.3` and `1.25` as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


@pytest.fixture(scope="session")
def go_pages(run_directory: Path) -> str:
    """The Go server's binary, built from `tests/servers/go` (a second build costs a stat of its sources)."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain on PATH: install one to test against another SDK's server")
    wanted = re.search(r"^go (\S+)", (GO_SOURCES / "go.mod").read_text("utf-8"), re.M)
    assert wanted is not None
    here = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    if version_of(here) < version_of(wanted[1]):
        pytest.skip(f"Go {here.strip()} is too old for another SDK's server: it needs go{wanted[1]}")
    build = [go, "build", "-o", str(GO_BINARY), "."]
    with FileLock(run_directory / "go.lock"):
        done = subprocess.run(build, cwd=GO_SOURCES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"go build failed:\n{done.stderr}"
    return str(GO_BINARY)
