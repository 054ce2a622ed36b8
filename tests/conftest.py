"""What every test may ask for."""

from __future__ import annotations

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


@pytest.fixture(scope="session")
def go_pages() -> str:
    """The Go server's binary, built from `tests/servers/go` (a second build costs a stat of its sources)."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain on PATH: install Go >= 1.25 to test against another SDK's server")
    done = subprocess.run(
        [go, "build", "-o", str(GO_BINARY), "."], cwd=GO_SOURCES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"go build failed:\n{done.stderr}"
    return str(GO_BINARY)
