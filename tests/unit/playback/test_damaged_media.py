"""Damaged files end with an error of playback that names the file, within limits of memory and time.

The files are those that once ended otherwise; `python -m tests.fuzz.media` finds more.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.fuzz.media import TITLE

REPOSITORY = Path(__file__).parents[3]
CORPUS = ZipFile(REPOSITORY / "tests" / "fuzz" / "corpus" / "media.zip")
FORMATS = sorted({name.partition("/")[0] for name in CORPUS.namelist()})


REPLAY = """
import sys
from tests.fuzz.media import main

for line in sys.stdin:
    sys.argv[1:] = line.rstrip().split("\\t")
    print("status", main())
"""
"""Replays the files of one format for each line of arguments; the decoders run in forks."""


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines printed for each format, the last of them the status."""
    directory = tmp_path_factory.mktemp("media")
    CORPUS.extractall(directory)
    lines = ["\t".join([name, "--replay", *map(str, files_of(directory, name))]) for name in FORMATS]
    command = (sys.executable, "-c", REPLAY)
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stdout + done.stderr
    replays = [each.splitlines() for each in re.findall(r".*?^status .*?\n", done.stdout, re.M | re.S)]
    return dict(zip(FORMATS, replays, strict=True))


def files_of(directory: Path, name: str) -> list[Path]:
    return sorted((directory / name).iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_files_that_once_did_harm_end_with_an_error_that_names_them(
    name: str, replays: dict[str, list[str]]
) -> None:
    *results, summary, status = replays[name]
    assert status == "status 0", replays[name]
    count = sum(each.startswith(f"{name}/") for each in CORPUS.namelist())
    assert summary.startswith(f"{name}: {count} files, 0 crashed, 0 large, 0 slow, 0 untyped")
    for result in results:
        kind, _, error = result.partition(": ")
        assert kind.endswith(" fine")
        assert not error or TITLE in error
