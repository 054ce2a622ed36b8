"""The sizes in the README and docs/installing.md are those of an install in an empty environment."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from playhead.extras import EXTRAS
from tests.snippets import DOCS, REPOSITORY
from tests.wheels.environments import TOOLS, Environments, NoNetworkError

README = (REPOSITORY / "README.md").read_text("utf-8")
SIZES = dict(
    re.findall(r"^\| `(playhead\S*)` \| (\d+) MB \|", (DOCS / "installing.md").read_text("utf-8"), re.M)
)
TOLERANCE = 0.08
"""Dependencies grow a little with each release; the lock file and the Python version decide here."""


def megabytes(directory: Path) -> float:
    """The files of an environment, without bytecode and without what `python -m venv` puts there."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc") / 1e6


def test_the_table_has_every_extra_and_the_readme_the_same_sizes() -> None:
    in_readme = dict(re.findall(r"`(playhead\S*)`[^`]*?\((\d+) MB", README))
    assert in_readme == {name: SIZES[name] for name in ("playhead", "playhead[cli]", "playhead[all]")}
    extras = {extra for name in SIZES for extra in re.findall(r"\w+", name)} - {"playhead"}
    assert extras == set(EXTRAS) - {"valkey"} | {"all"}


@pytest.mark.slow("installs the wheel with each extra")
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="the README has the sizes on Linux")
@pytest.mark.skipif(
    not all((TOOLS / tool).exists() for tool in ("uv", "maturin")), reason="needs uv and maturin: make"
)
@pytest.mark.parametrize("install", SIZES)
def test_an_install_has_the_size_in_the_readme(install: str, run_directory: Path) -> None:
    shared = run_directory / "wheels"
    shared.mkdir(exist_ok=True)
    try:
        environment = Environments(shared).environment(frozenset({install}))
    except NoNetworkError:
        pytest.skip("needs the package index, or a uv cache that has all packages")
    (packages,) = environment.directory.glob("lib/python*/site-packages")
    assert megabytes(packages) == pytest.approx(int(SIZES[install]), rel=TOLERANCE)
