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
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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
NOT_PASSED: Final[Mapping[str, str]] = {
    "server-sse-priming-event": "a property of the connection with the host, which the suite only recommends",
    "server-sse-retry-field": "a property of the connection with the host, which the suite only recommends",
    "sep-2575-http-server-no-independent-requests-on-stream": "its body holds two messages",
    "sep-2575-server-sends-prompts-list-changed-on-subscription": "it streams no events",
    "sep-2575-server-sends-tools-list-changed-on-subscription": "it streams no events",
}
"""The checks that fail through the proxy, with the reasons; `its` is the suite's own server."""


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
    """Start a server over HTTP; its URL is in its first line with one."""
    process = await trio.lowlevel.open_process(
        command, env=dict(env), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
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


def show(scenario: Scenario, outcomes: Sequence[Outcome]) -> bool:
    """Print the row of a scenario, and return True if the proxy that keeps audio is worse."""
    alone, kept, played = outcomes
    known = {reason.partition(":")[0] for reason in alone.reasons}
    broken = {reason.partition(":")[0]: reason for reason in kept.reasons}
    broken = {name: reason for name, reason in broken.items() if name not in known}
    is_worse = bool(broken.keys() - NOT_PASSED.keys())
    note = "WORSE" if is_worse else "" if played.passed == kept.passed else "differs without --keep-audio"
    counts = " ".join(f"{each.passed:>3}/{each.total:<3}" for each in outcomes)
    print(f"{scenario.revision} {scenario.name:<55} {counts} {note}", flush=True)
    for name, reason in broken.items():
        print(f"{'':>12}{reason:.200} ({NOT_PASSED.get(name, 'not as listed')})")
    return is_worse


async def main() -> int:
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "node_modules").is_dir():
        print("expected the directory of the suite's server, installed", file=sys.stderr)
        return 3
    env = environment()
    chosen = [each for each in scenarios(env) if each.name in sys.argv[2:] or not sys.argv[2:]]
    server = ["node", "--import", "tsx", "everything-server.ts"]
    worse, sums = 0, [0, 0, 0]
    places = trio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:
        of_suite = started(server, env={**env, "PORT": str(PORT)}, cwd=Path(sys.argv[1]))
        url = await stack.enter_async_context(of_suite)
        proxy = [sys.executable, "-m", "playhead", "serve", "proxy", url, "--sink", "null"]
        proxy += ["--transport", "http", "--port", "0"]
        keeping = await stack.enter_async_context(started([*proxy, "--keep-audio", url], env=os.environ))
        playing = await stack.enter_async_context(started(proxy, env=os.environ))

        async def one(scenario: Scenario) -> None:
            nonlocal worse
            async with places:
                outcomes = [await run(scenario, server=each, env=env) for each in (url, keeping, playing)]
                worse += show(scenario, outcomes)
                for index, outcome in enumerate(outcomes):
                    sums[index] += outcome.passed

        async with trio.open_nursery() as nursery:
            for scenario in chosen:
                nursery.start_soon(one, scenario)
    print(f"checks that pass: alone {sums[0]}, audio kept {sums[1]}, audio played {sums[2]}; worse: {worse}")
    return int(worse > 0)


if __name__ == "__main__":
    try:
        sys.exit(trio.run(main))
    except SuiteMissingError as missing:
        print(f"no conformance run: {missing}", file=sys.stderr)
        sys.exit(3)
