"""`python -m tests.e2e.read_table`: `playhead read` of 32 MiB from every difficult server, one row each.

The same servers as `test_read_every_server.py`, through the command line, at full size.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import trio

from tests.e2e.command import PLAYHEAD, environment
from tests.e2e.test_read_every_server import BOTH, FULL_BYTES, RIGHT, WRONG, serving
from tests.servers.payload import Payload

ENDLESS = [("endless", transport) for transport in BOTH]


async def read(behaviour: str, transport: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    output = folder / "saved"
    async with serving(behaviour, transport, FULL_BYTES, folder) as target:
        server = target if isinstance(target, str) else shlex.join(target)
        command = [*PLAYHEAD, "read", server, "link", "-o", str(output), "--json", "--max-bytes", "64MiB"]
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False, env=environment()
        )
    return done.returncode, json.loads(done.stdout), verdict_on(output)


def verdict_on(output: Path) -> str:
    left = sorted(path.name for path in output.parent.iterdir() if path.name != "happened")
    if not output.exists():
        return f"LEFT {left}" if left else "no file"
    same = hashlib.sha256(output.read_bytes()).hexdigest() == Payload(size_bytes=FULL_BYTES).sha256()
    return "exact" if same else "WRONG BYTES"


async def main(only: list[str]) -> None:
    print(f"{'server':20} {'over':6} {'exit':>4} {'result':8} {'req':>4} {'retry':>5} {'ended by':8} error")
    wrong = [(name, transport) for name, _ in WRONG for transport in BOTH]
    for behaviour, transport in RIGHT + wrong + ENDLESS:
        if only and behaviour not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            code, report, verdict = await read(behaviour, transport, Path(folder))
        error = f"{report['error']['type']}: {report['error']['message']}" if report["error"] else ""
        print(
            f"{behaviour:20} {transport:6} {code:4} {verdict:8} {report['requests']:4} {report['retries']:5} "
            f"{report['ended_by'] or '-':8} {error}",
            flush=True,
        )


if __name__ == "__main__":
    trio.run(main, sys.argv[1:])
