"""Checks third-party servers, and compares every finding with a list of known defects.

    python -m tests.conformance.check_servers [SERVER ...]        (make extra NAME=check-servers)

The servers are those of `real_servers.py` (npm and PyPI) and the WebSocket server of the SDK's first major
version. `real_servers.toml` vouches for arguments, which make the expectations of each server;
`check_servers.toml` lists the defects that are known to be real, each with the reason and the line of the
server or its framework that causes it. A run prints a row for each finding, and fails for one that the list
doesn't have (a defect to be argued and listed, or a mistake of the checker), for one that it has and that was
not found, and for a line that is no longer there.
"""

from __future__ import annotations

import logging
import sys
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import trio

from playhead import ServerConfig
from playhead.check.expectations import Expectations, ExpectedCall
from playhead.check.options import CheckOptions
from playhead.check.results import Report
from playhead.check.run import check_server
from tests.conformance import old_sdk
from tests.conformance.real_servers import BUILD, HERE, ROOT, filled, installed, over_http, web_page, words_of
from tests.servers.loopback import free_port

PER_SERVER_SECONDS = 300
VENVS = (BUILD / "venv", old_sdk.BUILD / "venv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A defect that a server really has."""

    server: str
    check: str
    why: str
    file: str
    code: str
    """The line of `file` that causes it."""
    sometimes: bool = False
    """True if a machine can be too fast or too slow to show it."""

    def place(self) -> str | None:
        """The file and line number of the cause; None if it is no longer there."""
        python = f"lib/python3.*/site-packages/{self.file}"
        roots = ((BUILD / "node_modules", self.file), (ROOT, self.file), *((it, python) for it in VENVS))
        for path in (found for root, name in roots for found in root.glob(name)):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                if self.code in line:
                    return f"{self.file}:{number}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check that failed on one server, however often."""

    server: str
    over: str
    check: str
    times: int
    subject: str
    message: str
    """Of the first time."""


def expectations(tools: Sequence[Mapping[str, Any]], *, without: Sequence[str]) -> Expectations:
    """The arguments that somebody vouches for, and the blocks that come of them; not those in `without`."""
    return Expectations(
        calls=tuple(
            ExpectedCall(
                tool=tool["name"],
                arguments=tool["arguments"],
                content_types=tuple(block.partition(":")[0] for block in tool["blocks"]),
            )
            for tool in tools
            if tool["name"] not in without
        )
    )


async def checked(server: ServerConfig | str, wanted: Expectations) -> Report:
    options = CheckOptions(depth="full", timeout_seconds=10.0, examples=3, expectations=wanted)
    with trio.fail_after(PER_SERVER_SECONDS):
        return await check_server(server, options)


def findings(server: str, over: str, report: Report) -> Iterator[Finding]:
    if report.mcp_service_status != "available":
        failed = next((test.error for test in report.tests if test.status == "failed"), None)
        yield Finding(
            server=server, over=over, check="available", times=1, subject="", message=failed or "no session"
        )
        return
    counts: Counter[str] = Counter()
    first: dict[str, tuple[str, str]] = {}
    for test in report.tests:
        for check in test.checks:
            if check.verdict == "failed":
                counts[check.kind.name] += 1
                first.setdefault(check.kind.name, (f"{test.subject}: {test.title}", check.message))
        if test.status == "error" and (test.error or "").startswith("the checker itself"):
            counts["checker"] += 1
            first.setdefault("checker", (test.subject, test.error or ""))
    for name, times in counts.items():
        subject, message = first[name]
        yield Finding(server=server, over=over, check=name, times=times, subject=subject, message=message)


async def every_server(names: Sequence[str]) -> AsyncIterator[tuple[str, str, Report]]:
    """Each server over each transport that it has, and what was found."""
    wanted = tomllib.loads((HERE / "real_servers.toml").read_text())
    installed(wanted)
    with web_page() as origin:
        for name, server in wanted["servers"].items():
            if names and name not in names:
                continue
            for over in ("stdio", "http"):
                if over == "http" and "http" not in server:
                    continue
                with TemporaryDirectory() as folder:
                    yield name, over, await _one(name, over, server, folder, origin)
    if not names or "old-sdk" in names:
        old_sdk.install()
        async with old_sdk.old_server() as url:
            report = await checked(url, Expectations())
        yield "old-sdk", "ws", report


async def _one(name: str, over: str, server: Mapping[str, Any], folder: str, origin: str) -> Report:
    port = free_port()
    server = filled(server, words_of(folder, port=port, origin=origin))
    wanted = expectations(server["tools"], without=_list()["state_dependent"].get(name, ()))
    if over == "stdio":
        command = tuple(server.get("check_command", server["command"]))
        config = ServerConfig(name=name, command=command, env=server.get("env", {}))
        return await checked(config, wanted)
    async with over_http(server["http"], port) as url:
        return await checked(url, wanted)


def known_defects() -> tuple[Known, ...]:
    return tuple(Known(**item) for item in _list()["known"])


def _list() -> Mapping[str, Any]:
    return tomllib.loads((HERE / "check_servers.toml").read_text())


async def run(names: Sequence[str]) -> int:
    logging.getLogger().addHandler(logging.NullHandler())  # as the command line: the SDK logs what it skips
    known = {(item.server, item.check): item for item in known_defects()}
    came: set[tuple[str, str]] = set()
    checked_servers: set[str] = set()
    unknown = 0
    lost: list[Known] = []
    async for name, over, report in every_server(names):
        checked_servers.add(name)
        tests = ", ".join(
            f"{report.count(status)} {status}" for status in ("success", "failed", "error", "skipped")
        )
        print(
            f"{name} over {over}: MCP {report.protocol_version}, {len(report.tools)} tools, {tests},"
            f" {report.seconds:.0f} s",
            flush=True,
        )
        for finding in findings(name, over, report):
            item = known.get((name, finding.check))
            came.add((name, finding.check))
            unknown += item is None
            print(f"  {'known ' if item else 'UNKNOWN'} {finding.check} x{finding.times}: {finding.subject}")
            print(f"    {finding.message[:400]}")
            if item is not None:
                place = item.place()
                lost += [item] if place is None else []
                print(f"    real, since {' '.join(item.why.split())} ({place or 'NO LINE'})", flush=True)
        for remark in report.remarks:
            print(f"  {remark}", flush=True)
    gone = [
        key
        for key, item in known.items()
        if key not in came and key[0] in checked_servers and not item.sometimes
    ]
    for server, check in gone:
        print(f"GONE {server}: {check} is listed as a known defect, and was not found")
    print(
        f"{len(checked_servers)} servers, {len(came)} defects, {unknown} unknown, {len(gone)} gone,"
        f" {len(lost)} without their line"
    )
    return 1 if unknown or gone or lost or not checked_servers else 0


if __name__ == "__main__":
    sys.exit(trio.run(run, sys.argv[1:]))
