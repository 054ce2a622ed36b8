"""The official MCP conformance suite against playhead's client and its two servers: one table, one verdict.

Called by `make extra NAME=conformance`, which installs the suite. Which scenarios a revision asks of a
client, and which of them count, the suite itself says (`conformance list --requirements`). Of the server's
scenarios those are run that need no tools of the suite's own: our servers have theirs.

Exit: 0 when everything that counts passes, or fails as `FAILS` says; 1 otherwise, also where something listed
there passes; 3 where the suite can't be run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
INSTALLED = REPOSITORY / "build" / "conformance" / "node_modules" / ".bin"
CLIENT = shlex.join([sys.executable, str(HERE / "suite_client.py")])
REVISIONS: Final = ("2025-11-25", "2026-07-28")
NODE: Final = 22
AT_ONCE: Final = 2
TIMEOUT_SECONDS: Final = 120

SERVER_SCENARIOS: Final = frozenset(
    {
        "server-initialize",
        "server-session-lifecycle",
        "server-stateless",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
        "server-sse-multiple-streams",
        "sep-2164-resource-not-found",
        "caching",
        "http-header-validation",
    }
)
"""Those that servers with tools of their own can be asked."""

SERVERS: Final[Mapping[str, Sequence[str]]] = {"audio": ["--mixer", "memory"], "template": []}
"""The server that `playhead serve` runs, and its options."""

NO_DPOP: Final = "playhead binds no tokens to a key of its own (DPoP)"
FAILS: Final[Mapping[str, str]] = {
    "server-stateless": "four of its checks call the suite's own diagnostic tools",
    "auth/client-credentials-basic": "a secret goes only where the user says; the suite names no issuer",
    "auth/client-credentials-jwt": "playhead signs no assertions in place of a client secret",
    "auth/dpop": NO_DPOP,
    "auth/dpop-nonce": NO_DPOP,
    "auth/enterprise-managed-authorization": "playhead exchanges no tokens of an identity provider",
    "auth/wif-jwt-bearer": "playhead presents no assertions of a workload",
}
"""Scenario → why it may fail. Whatever stands here and passes in a revision is a failure too."""


FAILING_CHECKS: Final = frozenset(
    {
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
        "sep-2575-http-server-no-independent-requests-on-stream",
        "sep-2575-server-no-log-without-loglevel",
    }
)
"""The checks that may fail in listed scenarios that count; another one that fails there counts."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Scenario:
    role: str
    revision: str
    name: str
    scored: bool
    server: str = ""
    """Of `SERVERS`, where the role is server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    scenario: Scenario
    passed: int
    total: int
    reasons: tuple[str, ...]
    """The message of each failed check, or the reason for having none."""

    @property
    def _unlisted(self) -> bool:
        """True if a required check failed in a scenario that counts."""
        failed = {reason.partition(":")[0] for reason in self.reasons}
        return self.scenario.scored and not failed <= FAILING_CHECKS

    @property
    def good(self) -> bool:
        return not self.reasons

    @property
    def verdict(self) -> str:
        if self._listed is not None:
            if self.good:
                return "PASSES, though listed"
            return "FAILED, and not as listed" if self._unlisted else "fails as listed"
        if self.good:
            return "ok"
        return "FAILED" if self.scenario.scored else "fails, does not count"

    @property
    def _listed(self) -> str | None:
        return FAILS.get(self.scenario.name)

    @property
    def counts_against(self) -> bool:
        if self._listed is not None:
            return self.good or self._unlisted
        return self.scenario.scored and not self.good


class SuiteMissingError(Exception):
    """The suite, or a Node that can run it, is missing."""


def environment() -> dict[str, str]:
    """Return the Node that runs the suite. Raises `SuiteMissingError`."""
    if not (INSTALLED / "conformance").exists():
        raise SuiteMissingError(
            "the suite is not installed: run `make extra NAME=conformance`, which needs npm"
        )
    found = {**os.environ, "PATH": f"{INSTALLED}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        said = subprocess.run(["node", "--version"], env=found, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SuiteMissingError(f"Node is missing ({error}); the suite needs {NODE} or newer") from None
    if int(said.stdout.strip().removeprefix("v").split(".")[0]) < NODE:
        raise SuiteMissingError(f"Node is {said.stdout.strip()}; the suite needs {NODE} or newer")
    return found


def demanded(revision: str, env: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    """Yield the role and name of each scenario at `revision`, and True if it is scored."""
    command = ["conformance", "list", "--requirements", revision]
    said = subprocess.run(command, env=dict(env), capture_output=True, text=True, check=True).stdout
    role = ""
    for line in said.splitlines():
        if heading := re.match(r"(Server|Client) scenarios", line):
            role = heading[1].lower()
        elif line.startswith("Run and reported"):
            role = ""
        elif item := re.fullmatch(r" +- (\S+)(?: \[(client|server)\])?", line):
            yield item[2] or role, item[1], item[2] is None


def scenarios(revision: str, env: Mapping[str, str]) -> list[Scenario]:
    """Return the scenarios at `revision`: those of the client, and those of the server that we can answer."""
    return sorted(
        Scenario(role=role, revision=revision, name=name, scored=is_scored, server=server)
        for role, name, is_scored in demanded(revision, env)
        for server in ([""] if role == "client" else [*SERVERS] if name in SERVER_SCENARIOS else list[str]())
    )


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[str]:
    """One of `SERVERS` over HTTP; its URL."""
    command = [sys.executable, "-m", "playhead", "serve", name, "--transport", "http", "--port", "0"]
    process = await trio.lowlevel.open_process([*command, *SERVERS[name]], stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        said = b""
        while not said.endswith(b"\n"):
            got = await process.stderr.receive_some()
            if not got:
                raise SuiteMissingError(f"playhead serve did not start: {said.decode()}")
            said += got
        yield said.decode().split()[-1]
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def run(scenario: Scenario, *, server: str, env: Mapping[str, str]) -> Outcome:
    target = ["--command", CLIENT] if scenario.role == "client" else ["--url", server]
    with TemporaryDirectory() as folder:
        command = ["conformance", scenario.role, *target, "--scenario", scenario.name]
        command += ["--spec-version", scenario.revision, "--output-dir", folder]
        command += ["--timeout", str(TIMEOUT_SECONDS * 1000)]
        command += [] if scenario.scored else ["--force"]
        with trio.move_on_after(TIMEOUT_SECONDS * 1.5) as scope:
            done = await trio.run_process(
                command, env=dict(env), capture_stdout=True, capture_stderr=True, check=False
            )
        if scope.cancelled_caught:
            return Outcome(scenario=scenario, passed=0, total=0, reasons=("the suite came to no end",))
        return read_outcome(scenario, Path(folder), done)


def read_outcome(scenario: Scenario, folder: Path, done: subprocess.CompletedProcess[bytes]) -> Outcome:
    """Read the reports of the suite; its directories are named after the scenario, including slashes."""
    checks = [json.loads(path.read_text()) for path in folder.rglob("checks.json")]
    outputs = [path.read_text() for path in folder.rglob("stderr.txt")]
    if not checks:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        return Outcome(scenario=scenario, passed=0, total=0, reasons=(said[-1] if said else "no checks",))
    counted = [check for check in checks[0] if check["status"] in ("SUCCESS", "FAILURE", "WARNING")]
    bad = [check for check in counted if check["status"] != "SUCCESS"]
    reasons = [f"{check['id']}: {check.get('errorMessage') or check['description']}" for check in bad]
    if done.returncode != 0 and not reasons:
        last = [line for output in outputs for line in output.strip().splitlines()][-1:]
        reasons = [f"the suite exits with {done.returncode}; the client's last words: {' '.join(last)}"]
    return Outcome(
        scenario=scenario, passed=len(counted) - len(bad), total=len(counted), reasons=tuple(reasons)
    )


async def run_all(chosen: Sequence[Scenario], env: Mapping[str, str]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    places = trio.Semaphore(AT_ONCE)

    async def one(scenario: Scenario) -> None:
        async with places:
            outcomes.append(await run(scenario, server=urls.get(scenario.server, ""), env=env))

    async with AsyncExitStack() as stack:
        wanted = sorted({scenario.server for scenario in chosen} - {""})
        urls = {name: await stack.enter_async_context(serving(name)) for name in wanted}
        async with trio.open_nursery() as nursery:
            for scenario in chosen:
                nursery.start_soon(one, scenario)
    return sorted(outcomes, key=lambda outcome: outcome.scenario)


def show(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        scenario = outcome.scenario
        counts = f"{outcome.passed}/{outcome.total}"
        side = scenario.server or scenario.role
        print(f"{side:<9}{scenario.revision:<12}{scenario.name:<42}{counts:>7}  {outcome.verdict}")
        for reason in outcome.reasons:
            print(f"{'':>21}{reason}")
        if not outcome.good and (why := FAILS.get(scenario.name)):
            print(f"{'':>21}listed, because {why}")
    for role in ("client", "server"):
        scored = [each for each in outcomes if each.scenario.role == role and each.scenario.scored]
        passed, total = sum(each.passed for each in scored), sum(each.total for each in scored)
        whole = sum(each.good for each in scored)
        print(f"{role}: {whole} of {len(scored)} scenarios that count pass, {passed} of {total} checks")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--revision", action="append", choices=REVISIONS, help="only these (default: both)")
    parser.add_argument("--scenario", action="append", help="only these (default: all)")
    options = parser.parse_args()
    try:
        env = environment()
        chosen = [
            scenario
            for revision in options.revision or REVISIONS
            for scenario in scenarios(revision, env)
            if options.scenario is None or scenario.name in options.scenario
        ]
        outcomes = trio.run(run_all, chosen, env)
    except SuiteMissingError as error:
        print(f"no conformance run: {error}", file=sys.stderr)
        return 3
    if not outcomes:
        print("no scenario of that name", file=sys.stderr)
        return 1
    show(outcomes)
    return int(any(outcome.counts_against for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
