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
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

from tests import run_files
from tests.servers.shared import LIFELINE, SharedServers, shared_servers

# The same examples in every run: a change is judged by its own merits, not by luck. New ones are drawn with
# --hypothesis-profile=default.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

RUN_DIRECTORY = pytest.StashKey[Path]()
ID_LENGTH = 100
"""The characters or bytes of a parameter that are part of a test's id."""
GO_SOURCES = Path(__file__).parent / "servers" / "go"
GO_BINARY = Path(__file__).parents[1] / "target" / "go" / "pages"
ONE_BY_ONE = ("tests/adapters", "tests/e2e", "tests/faults", "tests/hosts", "tests/wheels")


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
        run_files.set_directory(config.stash[RUN_DIRECTORY])
        return
    directory = Path(tempfile.mkdtemp(prefix="playhead-tests-"))
    config.stash[RUN_DIRECTORY] = directory
    run_files.set_directory(directory)
    config.add_cleanup(partial(shutil.rmtree, directory))
    os.mkfifo(directory / LIFELINE)
    config.add_cleanup(partial(os.close, os.open(directory / LIFELINE, os.O_RDWR)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than processors for `-n logical`: much of a run's time is spent on waiting."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the directory is."""
    node.workerinput["run_directory"] = str(node.config.stash[RUN_DIRECTORY])


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a long value by its beginning: an id goes to every worker and report, and one had 8 MB."""
    if isinstance(val, str | bytes) and len(val) > ID_LENGTH:
        return f"{ascii(val[:ID_LENGTH])[:ID_LENGTH]}... of {len(val)}"
    return None


class FileScheduling(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    """Gives a worker a whole file, so that what its tests share is made once.

    Tests that wait or start processes go one by one, after the files, if they are not in a marked group.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid and not nodeid.startswith(ONE_BY_ONE) else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow tests first, so that none is alone at the end. Refuse a `slow` mark without a reason."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        for mark in item.iter_markers("slow"):
            if not (len(mark.args) == 1 and isinstance(mark.args[0], str)):
                raise pytest.UsageError(f'{item.nodeid}: expected a reason, as in slow("starts 40 servers")')


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among what the imports make, then or later: a test that does pays for its own."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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
