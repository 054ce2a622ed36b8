"""Checks public servers of npm, PyPI and Go, and writes docs/public-servers.md.

    python -m tests.conformance.public_servers [SERVER ...]        (make extra NAME=public-servers)

`public_servers.toml` names the servers and their versions; `public_servers_reviewed.toml` has the verdict of
a person on each finding, with the file and the line that cause it. A server is installed below
`build/public-servers` without install scripts (npm) and from wheels only (PyPI). It runs in an empty home, in
namespaces of its own without a network, and can write to its own directory only. Where such namespaces cannot
be had, nothing runs.

A run without names also fails for a finding that nobody has reviewed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from playhead import ServerConfig
from playhead.check import to_html, to_json
from playhead.check.options import CheckOptions
from playhead.check.results import Report
from playhead.check.run import check_server
from tests.conformance.real_servers import furnished

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "public-servers"
PAGE = ROOT / "docs" / "public-servers.md"
OPTIONS = CheckOptions(
    depth="full", examples=1, timeout_seconds=20.0, total_seconds=240.0, mine="all", allow_destructive=True
)
SANDBOX = (
    'mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,ro,bind /'
    " && mount -t tmpfs tmpfs /tmp && ip link set lo up 2>/dev/null;"
    ' cd "$1/work" && shift && exec "$@"'
)
"""Makes everything read-only but the server's directory and an empty /tmp."""
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
LACKS = ("a network", "a key or a login", "a program or a browser")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """A person's verdict on one finding."""

    server: str
    check: str
    real: bool
    why: str
    file: str = ""
    code: str = ""
    """The line of `file` that causes it."""

    def place(self) -> str:
        """The file and the number of the line that causes the defect; empty if it is not there."""
        if not self.file:
            return ""
        for path in (BUILD / self.server).rglob(self.file) if (BUILD / self.server).is_dir() else ():
            for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
                if self.code in line:
                    return f"{self.file}:{number}"
        return ""


def require_namespaces() -> tuple[str, ...]:
    """The command that starts a program without a network. Exits if this machine does not allow it."""
    for command in (NAMESPACES, (*NAMESPACES, "--map-root-user")):
        probe = [*command, "sh", "-c", "mount --make-rprivate / && ! ip route get 192.0.2.1 2>/dev/null"]
        if (
            shutil.which("unshare")
            and subprocess.run(probe, capture_output=True, check=False).returncode == 0
        ):
            return command
    sys.exit("expected unshare to make a network and a mount namespace, got a refusal: no server was started")


def install(server: Mapping[str, Any]) -> Path:
    """Install a server below `BUILD`, once per version, and return the directory of its programs."""
    place = BUILD / server["name"]
    package: str = next(server[kind] for kind in ("npm", "pypi", "go") if kind in server)
    stamp = place / "installed.txt"
    if not stamp.is_file() or stamp.read_text() != package:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if "npm" in server:
            (place / "package.json").write_text("{}")
            options = ("--silent", "--no-fund", "--no-audit", "--ignore-scripts")
            subprocess.run(["npm", "install", *options, package], cwd=place, check=True)
        elif "pypi" in server:
            venv.create(place / "venv", with_pip=True)
            pip = [str(place / "venv" / "bin" / "pip"), "install", "--quiet", "--only-binary", ":all:"]
            subprocess.run([*pip, package, *server.get("with", ())], check=True)
        else:
            subprocess.run(
                ["go", "install", package], check=True, env={**os.environ, "GOBIN": str(place / "bin")}
            )
        stamp.write_text(package)
    folders = {"npm": "node_modules/.bin", "pypi": "venv/bin", "go": "bin"}
    programs: Path = place / next(folder for kind, folder in folders.items() if kind in server)
    return programs


def sandboxed(server: Mapping[str, Any], programs: Path, namespaces: Sequence[str]) -> ServerConfig:
    """The server in an empty home, without a network."""
    place = BUILD / "runs" / server["name"]
    shutil.rmtree(place, ignore_errors=True)
    home, work = place / "home", place / "work"
    home.mkdir(parents=True)
    work.mkdir()
    furnished(str(work))
    words = {"{work}": str(work), "{home}": str(home), "{bin}": str(programs)}

    def filled(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    command = (*namespaces, "sh", "-c", SANDBOX, "sh", str(place), *map(filled, server["command"]))
    # A repository around the build is none of the server's.
    env = {
        "HOME": str(home),
        "GIT_CEILING_DIRECTORIES": str(place),
        **{name: filled(value) for name, value in server.get("env", {}).items()},
    }
    return ServerConfig(name=server["name"], command=command, env=env, cwd=str(work))


def findings(report: Report) -> dict[str, tuple[str, str]]:
    """The failed checks, each with the subject and the message of its first failure."""
    found: dict[str, tuple[str, str]] = {}
    for test in report.tests:
        for check in test.checks:
            if check.verdict == "failed":
                found.setdefault(check.kind.name, (f"{test.subject}: {test.title}", check.message))
        if "the checker itself" in (test.error or ""):
            found.setdefault("checker", (test.subject, test.error or ""))
    return found


def shares(report: Report) -> Counter[str]:
    """Count the tests: all, those that are undecided, and those of them that lack something outside."""
    counts = Counter(all=len(report.tests), undecided=report.count("error"))
    for test in report.tests:
        if test.status == "error" and any(f"the server lacks {lack}" in (test.error or "") for lack in LACKS):
            counts["outside"] += 1
    return counts


async def check(server: Mapping[str, Any], namespaces: Sequence[str]) -> Report:
    config = sandboxed(server, install(server), namespaces)
    report = await check_server(config, OPTIONS)
    reports = BUILD / "reports"
    reports.mkdir(exist_ok=True)
    (reports / f"{server['name']}.json").write_text(to_json(report))
    (reports / f"{server['name']}.html").write_text(to_html(report))
    return report


def reviewed() -> dict[tuple[str, str], Reviewed]:
    raw = tomllib.loads((HERE / "public_servers_reviewed.toml").read_text())
    return {(item["server"], item["check"]): Reviewed(**item) for item in raw.get("findings", ())}


def page(servers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write the page from the reports below `BUILD` and the reviewed findings."""
    known, total = reviewed(), Counter[str]()
    yield from HEAD.strip().splitlines()
    for server in servers:
        path = BUILD / "reports" / f"{server['name']}.json"
        if not path.is_file():
            continue
        report = json.loads(path.read_text())
        undecided = [test for test in report["detailed_results"] if test["status"] == "error"]
        outside = sum(any(f"lacks {lack}" in test.get("error", "") for lack in LACKS) for test in undecided)
        tested = report["tests_conducted"] - outside
        total += Counter(undecided=len(undecided) - outside, tested=tested)
        share = f"{(len(undecided) - outside) / tested:.0%}" if tested else "-"
        failed = {
            check["name"]
            for test in report["detailed_results"]
            for check in test["checks"]
            if check["verdict"] == "failed"
        }
        verdict = (
            "no defect" if not failed else f"{len(failed)} {'defect' if len(failed) == 1 else 'defects'}"
        )
        package = next(f"{server[kind]} ({kind})" for kind in ("npm", "pypi", "go") if kind in server)
        tools = f"{report['tools_answered']} of {report['total_tools_discovered']}"
        yield f"| `{package}` | {verdict} | {tools} | {report['tests_conducted']} | {share} | {outside} |"
    share = f"{total['undecided'] / max(1, total['tested']):.0%}"
    yield f"\nIn all, {total['undecided']} of {total['tested']} tests are undecided ({share})."
    yield ""
    yield "## Their defects"
    yield ""
    for item in known.values():
        place = item.place() or item.file
        if item.real:
            where = f" (`{place}`)" if place else ""
            yield f"* **{item.server}**, `{item.check}`: {' '.join(item.why.split())}{where}"
    false = [item for item in known.values() if not item.real]
    yield ""
    yield f"{len(known) - len(false)} findings are real, {len(false) or 'none'} were mistakes of the checker."
    for item in false:
        yield f"* mistaken: **{item.server}**, `{item.check}`: {' '.join(item.why.split())}"


HEAD = """
# Public servers

`playhead check SERVER full --mine all` on public servers, each in an empty home, without a network and
without keys. So tools that need either are undecided, and are counted apart (*outside*). *Answered* counts
the tools that succeeded at least once. `make extra NAME=public-servers` makes this page. Each finding is
judged by its message, and those with a file and line by the source too. All rows come from one version of the
checker, which was improved on these servers.

| package | verdict | answered | tests | undecided | outside |
|---|---|---|---|---|---|
"""


async def run(names: Sequence[str]) -> int:
    servers = tomllib.loads((HERE / "public_servers.toml").read_text())["servers"]
    namespaces = require_namespaces()
    known, unreviewed = reviewed(), 0
    for server in servers:
        if names and server["name"] not in names:
            continue
        report = await check(server, namespaces)
        counts = shares(report)
        print(
            f"{server['name']}: {report.mcp_service_status}, {report.coverage}, {counts['all']} tests,"
            f" {counts['undecided']} undecided ({counts['outside']} outside), {report.seconds:.0f} s",
            flush=True,
        )
        for name, (subject, message) in findings(report).items():
            item = known.get((server["name"], name))
            unreviewed += item is None
            word = "UNREVIEWED" if item is None else "real" if item.real else "FALSE"
            print(f"  {word} {name}: {subject}\n    {message[:400]}", flush=True)
    PAGE.write_text("\n".join(page(servers)) + "\n")
    return 1 if unreviewed and not names else 0


if __name__ == "__main__":
    sys.exit(trio.run(run, sys.argv[1:]))
