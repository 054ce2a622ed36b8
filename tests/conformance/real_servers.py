"""Calls every tool of third-party servers, and compares each answer with the recorded one.

    python -m tests.conformance.real_servers [SERVER ...]

`real_servers.toml` says which servers, which arguments, and which blocks each tool answers with. A run
installs the servers below `build/real-servers` (npm and PyPI), prints one row a call, and fails for a tool
that the list leaves out, an answer that is an error, other blocks than expected, a block that isn't
understood, or one that no disposition of the plan accounts for.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import trio

from playhead import ServerConfig, Session, connect
from playhead.content import Block, UnknownBlock
from playhead.errors import PlayheadError
from playhead.limits import Limits
from tests.servers.loopback import free_port

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "real-servers"
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNiAAAABgADNjd8qAAAAABJRU5ErkJggg=="
)
LOOPBACK = """
import net from "node:net";
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  const then = rest.filter((argument) => typeof argument === "function");
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...then);
};
"""
"""Node's servers listen on every address unless told; these are for this machine alone."""


@dataclass(frozen=True, slots=True)
class Row:
    """One call, and what came of it."""

    server: str = ""
    transport: str = ""
    tool: str = ""
    blocks: str = ""
    plan: str = ""
    turn: str = ""
    faults: tuple[str, ...] = ()


def installed(wanted: Mapping[str, Any]) -> None:
    """Put the servers below `BUILD`, once."""
    stamp = BUILD / "installed.txt"
    versions = "\n".join([*wanted["npm"], *wanted["pypi"]])
    if stamp.is_file() and stamp.read_text() == versions:
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("no npm on PATH: install Node 20 or newer to run servers from npm")
    (BUILD / "package.json").write_text("{}")
    subprocess.run(
        [npm, "install", "--silent", "--no-fund", "--no-audit", *wanted["npm"]], cwd=BUILD, check=True
    )
    venv.create(BUILD / "venv", with_pip=True)
    subprocess.run([BUILD / "venv/bin/pip", "install", "--quiet", *wanted["pypi"]], check=True)
    stamp.write_text(versions)


def furnished(folder: str) -> Path:
    """A folder with the files that the tools are called with."""
    work = Path(folder).resolve()
    (work / "a.txt").write_text("hello\n")
    (work / "dot.png").write_bytes(DOT)
    (work / "data.bin").write_bytes(bytes(range(256)))
    (work / "loopback.mjs").write_text(LOOPBACK)
    shutil.copy(ROOT / "tests" / "data" / "chord.wav", work)
    repository = work / "repository"
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for key, value in (("user.name", "t"), ("user.email", "t@example.org")):
        subprocess.run([*git, "config", key, value], check=True)
    (repository / "a.txt").write_text("one\n")
    subprocess.run([*git, "add", "a.txt"], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "Add a"], check=True)
    (repository / "a.txt").write_text("two\n")
    (repository / "b.txt").write_text("b\n")
    return work


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><h1>Owls</h1><p>They hunt voles at night.</p></body></html>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the table is the output."""


@contextmanager
def web_page() -> Iterator[str]:
    """The origin of a web server with one page for every path; as a proxy, for every URL over plain HTTP."""
    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=page.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{page.server_address[1]}"
    page.shutdown()
    page.server_close()


def words_of(folder: str, *, port: int, origin: str) -> Mapping[str, str]:
    """The values of the words in braces of `real_servers.toml`. `folder` is furnished for it."""
    return {
        "work": str(furnished(folder)),
        "npm": str(BUILD / "node_modules"),
        "bin": str(BUILD / "venv" / "bin"),
        "tests": str(ROOT / "tests"),
        "port": str(port),
        "origin": origin,
        "page": f"{origin}/owls.html",
    }


def filled(value: Any, words: Mapping[str, str]) -> Any:
    match value:
        case str():
            for word, text in words.items():
                value = value.replace("{" + word + "}", text)
            return value
        case list():
            return [filled(item, words) for item in value]
        case dict():
            return {key: filled(item, words) for key, item in value.items()}
        case _:
            return value


def kind_of(block: Block) -> str:
    if isinstance(block.content, UnknownBlock):
        return f"unknown:{block.content.kind}"
    if block.content.type == "resource":
        return "resource:text" if hasattr(block.content.resource, "text") else "resource:blob"
    return block.content.type


async def called(
    session: Session, wanted: Sequence[Mapping[str, Any]], at: tuple[str, str]
) -> AsyncIterator[Row]:
    listed = {tool.name for tool in await session.list_tools()}
    for missing in sorted(listed - {tool["name"] for tool in wanted}):
        yield Row(*at, tool=missing, faults=("not called",))
    for tool in wanted:
        faults: list[str] = []
        result = await session.call_tool(tool["name"], tool["arguments"])
        kinds = [kind_of(block) for block in result.blocks]
        if result.is_error:
            faults.append(f"an error: {result.text[:200]}")
        if kinds != tool["blocks"]:
            faults.append(f"expected {tool['blocks']}")
        if ("structuredContent" in result.raw) != tool.get("structured", False):
            faults.append("structuredContent: " + ("missing" if tool.get("structured") else "not expected"))
        if [block.raw for block in result.blocks] != result.raw["content"]:
            faults.append("a block is not as it came")
        accounted = {item.index for item in result.plan.dispositions}
        if not set(range(len(kinds))) <= accounted:
            faults.append(f"no disposition for blocks {sorted(set(range(len(kinds))) - accounted)}")
        faults += [str(finding) for finding in result.plan.findings]
        yield Row(
            *at,
            tool=tool["name"],
            blocks=" ".join(kinds) + (" +structured" if "structuredContent" in result.raw else ""),
            plan=" ".join(type(item).__name__ for item in result.plan.dispositions),
            turn=result.turn.decision,
            faults=tuple(faults),
        )


@asynccontextmanager
async def over_http(command: Sequence[str], port: int) -> AsyncIterator[str]:
    """The server's endpoint, once it listens."""
    environment = {"PORT": str(port), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[trio.Process]) -> None:
            await trio.run_process(
                list(command),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                task_status=task_status,
            )

        process: trio.Process = await nursery.start(run)
        with trio.fail_after(30):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    if process.returncode is not None:
                        raise
                    await trio.sleep(0.05)  # a stranger's server says nowhere that it listens
        yield f"http://127.0.0.1:{port}/mcp"
        process.terminate()


async def checked(name: str, server: Mapping[str, Any], words: Mapping[str, str]) -> list[Row]:
    rows: list[Row] = []
    ways: list[tuple[str, Any]] = [
        ("stdio", ServerConfig(name=name, command=tuple(server["command"]), env=server.get("env", {})))
    ]
    if "http" in server:
        ways.append(("http", server["http"]))
    for transport, way in ways:
        at = (name, transport)
        if isinstance(way, ServerConfig):
            async with connect(way, limits=Limits(handshake_seconds=30)) as session:
                rows += [row async for row in called(session, server["tools"], at)]
        else:
            async with over_http(way, int(words["port"])) as url, connect(url) as session:
                rows += [row async for row in called(session, server["tools"], at)]
    return rows


def lines(rows: Sequence[Row]) -> Iterator[str]:
    yield f"{'server':11} {'over':5} {'tool':31} {'blocks':58} {'plan':52} turn"
    for row in rows:
        yield (
            f"{row.server:11} {row.transport:5} {row.tool:31} {row.blocks:58} {row.plan:52} {row.turn}"
        ).rstrip()
        yield from (f"  FAULT {fault}" for fault in row.faults)


async def run(names: Sequence[str]) -> int:
    wanted = tomllib.loads((HERE / "real_servers.toml").read_text())
    installed(wanted)
    port = free_port()
    rows: list[Row] = []
    with TemporaryDirectory() as folder, web_page() as origin:
        words = words_of(folder, port=port, origin=origin)
        for name, server in wanted["servers"].items():
            if names and name not in names:
                continue
            try:
                rows += await checked(name, filled(server, words), words)
            except* PlayheadError as errors:
                said = "; ".join(str(error) for error in errors.exceptions)
                rows.append(Row(server=name, faults=(said,)))
    print("\n".join(lines(rows)))
    faults = sum(len(row.faults) for row in rows)
    print(f"{len(rows)} calls, {faults} faults")
    return 1 if faults or not rows else 0


if __name__ == "__main__":
    sys.exit(trio.run(run, sys.argv[1:]))
