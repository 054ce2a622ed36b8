"""Files that take long to make, such as encoded music: one worker of a run makes each, and all read it.

`tests/conftest.py` sets the directory. Without one, as in a benchmark, each process makes its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from filelock import FileLock

_directory: Path | None = None


def set_directory(directory: Path) -> None:
    global _directory
    _directory = directory


def made_once(make: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """Give `make` a cache that all workers of a run share."""

    @cache
    def made(kind: str) -> bytes:
        if _directory is None:
            return make(kind)
        path = _directory / f"{make.__module__}.{make.__qualname__}.{kind}"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                path.write_bytes(make(kind))
        return path.read_bytes()

    return made
