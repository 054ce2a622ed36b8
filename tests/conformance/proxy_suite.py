"""The official suite against the proxy in front of the suite's own server, beside the server alone.

    python -m tests.conformance.proxy_suite build/conformance/server

The directory has the suite's `examples/servers/typescript`, installed (`make extra NAME=conformance-proxy`).
Each scenario of each revision runs three times: against the server, against the proxy that keeps its audio,
and against the proxy that plays it. Fewer passing checks through the proxy that keeps audio is an error; the
scenarios that differ without the option are listed. Exit: 0 without errors, 1 otherwise, 3 without the suite.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from tests.conformance.run_suite import (
    AT_ONCE,
    REVISIONS,
    Outcome,
    Scenario,
    SuiteMissingError,
    environment,
    run,
)

PORT: Final = 3999
NOT_PASSED: Final = frozenset({"server-sse-polling"})
"""The scenarios of a transport's own: each server closes its streams itself."""


def scenarios(env: Mapping[str, str]) -> list[Scenario]:
    """Return the scenarios that the suite has for servers, without extensions."""
    command = ["conformance", "list", "--server"]
    listed = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ +- (\S+) \[([\d,-]+)\]$", listed, re.MULTILINE)
    return [
        Scenario(role="server", revision=revision, name=name, scored=True)
        for name, revisions in found
        for revision in REVISIONS
        if revision in revisions.split(",")
    ]


@asynccontextmanager
async def started(
    command: list[str], *, env: Mapping[str, str], cwd: Path | None = None
) -> AsyncIterator[str]:
    """Start a server over HTTP; its URL is the last word of its first line with one."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = await trio.lowlevel.open_process(command, env=dict(env), cwd=cwd, **pipes)
    try:
        assert process.stdout is not None
        said = b""
        while not (url := re.search(rb"(http://\S+/mcp)\s", said)):
            got = await process.stdout.receive_some()
            if not got:
                raise SuiteMissingError(f"{command[0]} did not start: {said.decode()}")
            said += got
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain, process.stdout)
            yield url[1].decode()
            nursery.cancel_scope.cancel()
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    while await stream.receive_some():
        pass


async def run_against(url: str, chosen: list[Scenario], env: Mapping[str, str]) -> dict[Scenario, Outcome]:
    """Run the scenarios against the server at `url`."""
    outcomes: dict[Scenario, Outcome] = {}
    places = trio.Semaphore(AT_ONCE)

    async def one(scenario: Scenario) -> None:
        async with places:
            outcomes[scenario] = await run(scenario, server=url, env=env)

    async with trio.open_nursery() as nursery:
        for scenario in chosen:
            nursery.start_soon(one, scenario)
    return outcomes


async def main() -> int:
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "node_modules").is_dir():
        print("expected the directory of the suite's server, installed", file=sys.stderr)
        return 3
    env = environment()
    chosen = [each for each in scenarios(env) if each.name in sys.argv[2:] or not sys.argv[2:]]
    server = ["npx", "tsx", "everything-server.ts"]
    async with started(server, env={**env, "PORT": str(PORT)}, cwd=Path(sys.argv[1])) as url:
        proxy = [sys.executable, "-m", "playhead", "serve", "proxy", url, "--sink", "null"]
        proxy += ["--transport", "http", "--port", "0"]
        alone = await run_against(url, chosen, env)
        async with started([*proxy, "--keep-audio", url], env=os.environ) as keeping:
            kept = await run_against(keeping, chosen, env)
        async with started(proxy, env=os.environ) as playing:
            played = await run_against(playing, chosen, env)
    worse = 0
    for scenario in chosen:
        one, two, three = (each[scenario] for each in (alone, kept, played))
        broken = {reason.partition(":")[0] for reason in two.reasons} - {
            reason.partition(":")[0] for reason in one.reasons
        }
        is_worse = two.passed < one.passed and scenario.name not in NOT_PASSED
        worse += is_worse
        note = "WORSE" if is_worse else "" if three.passed == two.passed else "differs without --keep-audio"
        counts = " ".join(f"{each.passed:>3}/{each.total:<3}" for each in (one, two, three))
        print(f"{scenario.revision} {scenario.name:<55} {counts} {note}")
        for reason in two.reasons:
            if reason.partition(":")[0] in broken:
                print(f"{'':>12}{reason:.300}")
    sums = [sum(each.passed for each in table.values()) for table in (alone, kept, played)]
    totals = [sum(each.total for each in table.values()) for table in (alone, kept, played)]
    print(
        "checks that pass: "
        + ", ".join(
            f"{name} {passed}/{total}"
            for name, passed, total in zip(("alone", "kept", "played"), sums, totals, strict=True)
        )
    )
    return int(worse > 0)


if __name__ == "__main__":
    try:
        sys.exit(trio.run(main))
    except SuiteMissingError as missing:
        print(f"no conformance run: {missing}", file=sys.stderr)
        sys.exit(3)
