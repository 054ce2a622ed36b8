"""`python -m benches.against COMMIT`: a server that caps its pages, read by this tree and by another commit.

The other commit is checked out and built under target/against/ once; both read the same server in turns.
Prints both medians and the ratio of each round; the exit status is 1 if the median is above `--at-most`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

from tests.servers.launch import REPOSITORY, http_process
from tests.servers.moods import Mood, truth
from tests.servers.moody_server import moody_command

CHECKOUTS = REPOSITORY / "target" / "against"
READER = Path(__file__).with_name("timed_read.py")


def python_of(commit: str) -> Path:
    """The interpreter of a checkout of `commit` with playhead installed; made once."""
    checkout = CHECKOUTS / commit
    if not checkout.exists():
        add = ["git", "-C", str(REPOSITORY), "worktree", "add", "--detach", str(checkout), commit]
        subprocess.run(add, check=True)
    subprocess.run(["make", "-C", str(checkout), ".venv/.installed"], check=True)
    return checkout / ".venv" / "bin" / "python"


async def read(python: Path, url: str, expected: str) -> float:
    process = await trio.run_process([str(python), str(READER), "1", url], capture_stdout=True)
    report = json.loads(process.stdout)
    assert report["sha256"] == expected, f"{python} read other bytes"
    return float(report["seconds"])


async def main(options: argparse.Namespace) -> int:
    theirs = python_of(options.commit)
    mood = Mood(
        size_bytes=options.size,
        announced_bytes=options.size,
        cap_bytes=options.cap,
        delay_seconds=options.delay,
    )
    expected = hashlib.sha256(truth(mood)).hexdigest()
    ours: list[float] = []
    baseline: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with http_process(moody_command("http", {"piece": mood}, Path(folder) / "log")) as url:
            for _ in range(options.rounds):
                baseline.append(await read(theirs, url, expected))
                ours.append(await read(Path(sys.executable), url, expected))
    ratios = [mine / other for mine, other in zip(ours, baseline, strict=True)]
    ratio = statistics.median(ratios)
    print(
        f"{options.size} bytes, pages of {options.cap}, {options.delay * 1000:g} ms: this tree"
        f" {statistics.median(ours):.2f} s, {options.commit} {statistics.median(baseline):.2f} s, ratio"
        f" {ratio:.3f} ({min(ratios):.3f}..{max(ratios):.3f}), at most {options.at_most}"
    )
    return int(ratio > options.at_most)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benches.against", description=__doc__)
    parser.add_argument("commit", help="what to compare with, as git names it")
    parser.add_argument("--size", type=int, default=8 << 20)
    parser.add_argument("--cap", type=int, default=8192, help="most bytes of a page of the server's")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds before each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-most", type=float, default=0.75)
    sys.exit(trio.run(main, parser.parse_args()))
