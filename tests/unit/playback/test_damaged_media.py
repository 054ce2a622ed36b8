"""Damaged files end with an error of playback that names the file, within limits of memory and time.

The files are those that once ended otherwise; `python -m tests.fuzz.media` finds more.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.fuzz.media import TITLE

CORPUS = ZipFile(Path(__file__).parents[2] / "fuzz" / "corpus" / "media.zip")
FORMATS = sorted({name.partition("/")[0] for name in CORPUS.namelist()})


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_once_did_harm_end_with_an_error_that_names_them(name: str, tmp_path: Path) -> None:
    CORPUS.extractall(tmp_path)
    files = sorted((tmp_path / name).iterdir())
    command = (sys.executable, "-m", "tests.fuzz.media", name, "--replay", *map(str, files))
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    *results, summary = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary.startswith(f"{name}: {len(files)} files, 0 crashed, 0 large, 0 slow, 0 untyped")
    for result in results:
        kind, _, error = result.partition(": ")
        assert kind.endswith(" fine")
        assert not error or TITLE in error
