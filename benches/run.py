"""Run the benchmarks: `python -m benches.run [--smoke] [--only NAME] [--rounds N]`.

Prints one table of ratios and writes the raw numbers under bench-results/. The exit status is 1 if a bound is
missed (full run only) or a benchmark fails.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m benches.run", description=__doc__)
    arguments.add_argument("--smoke", action="store_true", help="small sizes, under 90 seconds in all")
    arguments.add_argument("--only", metavar="NAME", help="a benchmark's file or test name, or a part of it")
    arguments.add_argument("--rounds", type=int, help="rounds of each comparison, in place of its own number")
    options = arguments.parse_args()
    command = [str(Path(__file__).parent), "-q", "--no-header", "-p", "no:cacheprovider", "--tb=short", "-s"]
    command += ["--benchmark-disable-gc", "--benchmark-columns=median,iqr,rounds"]
    if options.smoke:
        command += ["--smoke", "--benchmark-disable"]
    if options.rounds:
        command += ["--rounds", str(options.rounds)]
    if options.only:
        command += ["-k", options.only]
    return int(pytest.main(command))


if __name__ == "__main__":
    raise SystemExit(main())
