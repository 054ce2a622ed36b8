"""What every test may ask for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

GO_SOURCES = Path(__file__).parent / "servers" / "go"
GO_BINARY = Path(__file__).parents[1] / "target" / "go" / "pages"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-size",
        action="store_true",
        help="read 32 MiB from every server; without it the costly ones serve less",
    )
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


def version_of(text: str) -> tuple[int, ...]:
    """`go1.25.3` and `1.25` as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", text))


@pytest.fixture(scope="session")
def go_pages() -> str:
    """The Go server's binary, built from `tests/servers/go` (a second build costs a stat of its sources)."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain on PATH: install one to test against another SDK's server")
    wanted = re.search(r"^go (\S+)", (GO_SOURCES / "go.mod").read_text("utf-8"), re.M)
    assert wanted is not None
    here = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    if version_of(here) < version_of(wanted[1]):
        pytest.skip(f"Go {here.strip()} is too old for another SDK's server: it needs go{wanted[1]}")
    done = subprocess.run(
        [go, "build", "-o", str(GO_BINARY), "."], cwd=GO_SOURCES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"go build failed:\n{done.stderr}"
    return str(GO_BINARY)
