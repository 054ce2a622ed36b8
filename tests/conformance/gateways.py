"""FastMCP, whose proxies are gateways, in an environment of its own.

    python -m tests.conformance.gateways        (make extra NAME=gateways)

`gateways.txt` pins every package of it. It runs as programs of `PYTHON`. Tests that need it carry
`needs_gateways` and are skipped where it was not installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "build" / "gateways"
PYTHON = BUILD / "venv" / "bin" / "python"
WANTED = Path(__file__).with_suffix(".txt")

needs_gateways = pytest.mark.skipif(
    not (BUILD / "installed.txt").is_file(), reason="needs `make extra NAME=gateways`"
)
"""For tests whose gateway is a program of `PYTHON`."""


def install() -> None:
    """Put what `WANTED` lists below `BUILD`, once. An installation that was broken off is made anew."""
    stamp = BUILD / "installed.txt"
    if stamp.is_file() and stamp.read_bytes() == WANTED.read_bytes():
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    venv.create(BUILD / "venv", with_pip=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "--requirement", WANTED], check=True)
    stamp.write_bytes(WANTED.read_bytes())


def main() -> int:
    install()
    print(f"FastMCP for {PYTHON}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
