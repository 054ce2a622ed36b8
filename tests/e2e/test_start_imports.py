"""The packages and modules that a start imports. Nine tenths of the time to the first audio are imports.

Each start has the third-party packages that it may import, with the reason; a new one is a decision. The
number of modules stands in for the time, which no test can hold. Modules of the standard library do not
count, as their number depends on the Python; nor does numpy, which miniaudio imports if it is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from playhead.cli.app import COMMANDS
from tests.e2e.command import AUDIO_SERVER, environment, serving
from tests.servers.messages import initialize
from tests.servers.shared import SharedServers

REPOSITORY = Path(__file__).parents[2]
IMPORT = "import playhead"
COMMAND = "sys.argv[1:] = {arguments}; from playhead.cli import main; main()"
LIBRARY = """
    import trio, playhead
    from playhead.playback import NullSink, Player
    async def program():
        async with playhead.connect({server!r}) as session:
            result = await session.call_tool("musicPlayer", {{"query": ""}})
            async with Player(NullSink(real_time=False)) as player:
                await player.play(result.media[0])
                await player.wait_finished()
    trio.run(program)
"""
PROGRAM = """
import json, sys
sys.modules["numpy"] = None
try:
    {start}
finally:
    print(json.dumps([*sys.modules]), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    modules: int
    """A few more than were imported when it was set. Lower it when a start gets lighter."""
    never: Sequence[str]
    """Packages, with all their modules."""


NOTHING = Budget(modules=8, never=("trio", "importlib.metadata", "playhead.cli"))
HELP = Budget(modules=45, never=("playhead.cli.runner", "playhead.cli.streams"))
SERVE = Budget(
    modules=577,
    never=(
        *("playhead.agent", "playhead.check", "playhead.playback", "playhead.stream.reader"),
        *("playhead.results", "playhead.client.connector", "playhead.client.session.session"),
        *("playhead.cli.tools", "playhead.cli.streams"),
    ),
)
PLAY = Budget(
    modules=630,
    never=(
        *("playhead.agent", "playhead.check", "playhead.servers"),
        *("playhead.client.hub", "playhead.client.oauth.flow", "playhead.cli.tools"),
    ),
)

WINGS = frozenset({"agent", "check", "servers"})
Packages = Mapping[str, str]
"""Top-level packages, each with its reason."""


def because(reason: str, *names: str) -> Packages:
    return dict.fromkeys(names, reason)


TRIO = because("the event loop", "trio", "attr", "attrs", "idna", "outcome", "sniffio", "sortedcontainers")
SOUND = because("decodes", "miniaudio", "_miniaudio", "_cffi_backend")
HTTP = {
    **because("HTTP/1.1", "httpcore2", "h11", "truststore"),
    **because("httpcore2 imports its other backend if it is installed", "anyio"),
}
WEBSOCKET = because("frames, and the request that opens them", "wsproto", "h11")
JSON = because("parses JSON, without pydantic", "pydantic_core", "typing_extensions")
TYPER = {
    **because("the command line", "typer", "annotated_doc", "shellingham"),
    **because("typer converts arguments by it", "pydantic", "annotated_types", "typing_inspection"),
    **JSON,
}
RICH = because("tables and Markdown of a terminal", "rich", "markdown_it", "mdurl", "pygments")
SCHEMA = {
    **because("checks values against a schema", "jsonschema", "jsonschema_specifications", "referencing"),
    **because("jsonschema imports them if they are installed", "rpds", "jsonpointer"),
    **because("formats of jsonschema", "rfc3339_validator", "six"),
}
TYPES = because("`list_tools()` gives the SDK's types", "mcp_types")
SDK = {
    **HTTP,
    **because("the SDK, for its servers", "mcp", "mcp_types", "httpx2", "starlette", "sse_starlette"),
    **because("the SDK imports it", "uvicorn", "click", "opentelemetry", "cryptography", "_openssl"),
    **because("starlette reads forms by it", "python_multipart", "multipart"),
    **because("cryptography is bound by it", "_cffi_backend"),
}
CHECK = {**SDK, **SCHEMA, **because("a server's regular expressions, with a deadline", "regex")}
NOT_COUNTED = frozenset({"playhead", "__main__", "__mp_main__", "_distutils_hack", "exceptiongroup"})

STDIO, OVER_HTTP, OVER_WEBSOCKET = "stdio", "http", "websocket"
"""Replaced by the address of the example server."""
LIBRARY_ROWS = (
    pytest.param(STDIO, {**TRIO, **SOUND, **JSON}),
    pytest.param(OVER_HTTP, {**TRIO, **SOUND, **JSON, **HTTP}),
    # The example server offers a file, which is read by HTTP.
    pytest.param(OVER_WEBSOCKET, {**TRIO, **SOUND, **JSON, **WEBSOCKET, **HTTP}),
)
QUIET = ("--sink", "null", "--json")


def slow_row(arguments: Sequence[str], allowed: Packages) -> Any:
    """A command without a budget; the quick tests have one that loads as much."""
    return pytest.param(arguments, allowed, None, marks=pytest.mark.slow("starts a new interpreter"))


COMMAND_ROWS = (
    (("--help",), because("the command line", "typer", "annotated_doc", "shellingham"), HELP),
    (("play", OVER_HTTP, "musicPlayer", "query=", *QUIET), {**TRIO, **SOUND, **HTTP, **TYPER}, PLAY),
    slow_row(
        ("read", OVER_HTTP, "musicPlayer", "query=", "-o", "/dev/null"),
        {**TRIO, **HTTP, **TYPER, **RICH},
    ),
    slow_row(("call", OVER_HTTP, "set_volume", "volume=40", "--json"), {**TRIO, **HTTP, **TYPER}),
    slow_row(("tools", OVER_HTTP, "--json"), {**TRIO, **HTTP, **TYPER, **TYPES}),
    slow_row(("ls", OVER_HTTP, "--json"), {**TRIO, **HTTP, **TYPER, **TYPES}),
    slow_row(("discover", "--json"), {**TRIO, **TYPER}),
    slow_row(("trust",), {**TRIO, **TYPER, **RICH}),
    slow_row(("outputs",), {**TRIO, **TYPER, **RICH}),
    slow_row(("explain", "a__b"), {**TRIO, **TYPER, **RICH}),
    slow_row(("schema", "show"), {**TRIO, **TYPER, **RICH, **SCHEMA}),
    (("chat", "--help"), {**TRIO, **TYPER}, None),
    (("demo", *QUIET), {**TRIO, **SOUND, **TYPER, **RICH, **SDK}, None),
    (("check", "false"), {**TRIO, **TYPER, **RICH, **CHECK}, None),
    slow_row(("fleet", "--help"), {**TRIO, **TYPER, **CHECK}),
    (("serve", "audio", "--mixer", "memory"), {**TRIO, **TYPER, **SDK, **WEBSOCKET}, SERVE),
)
EXIT_CODES = {"trust": 2, "explain": 2, "check": 3}
"""Nothing to trust, no servers file, and a server that does not start."""


def imported_by(program: str, *, stdin: bytes = b"", code: int = 0) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(start=program)],
        input=stdin,
        capture_output=True,
        env=environment(),
        cwd=REPOSITORY,
        check=False,
    )
    if done.returncode != code:
        pytest.fail(f"exited with {done.returncode}: {done.stderr.decode()}")
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return [name for name in found if name.partition(".")[0] != "numpy"]


def hold(budget: Budget, found: list[str]) -> None:
    late = [name for name in found if any(f"{name}.".startswith(f"{each}.") for each in budget.never)]
    assert late == [], (
        "these make the start slower, and it does not use them: import them in the function that does"
        " (`python -X importtime` shows who imports them)"
    )
    counted = [name for name in found if name.partition(".")[0] not in sys.stdlib_module_names]
    assert len(counted) <= budget.modules, (
        f"{len(counted)} modules are imported, and {budget.modules} allowed: import what is new in the"
        " function that uses it, or raise the budget and say in the commit what the start gains"
    )


def wings(found: list[str]) -> set[str]:
    return {name.split(".")[1] for name in found if name.startswith("playhead.")} & WINGS


def packages(found: list[str]) -> set[str]:
    names = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - NOT_COUNTED
    return {name for name in names if not name.startswith("_sysconfigdata")}


def needless(found: list[str], allowed: Packages) -> list[str]:
    return sorted(packages(found) - allowed.keys())


def command(*arguments: str) -> str:
    return COMMAND.format(arguments=list(arguments))


def test_importing_the_package_imports_almost_nothing() -> None:
    hold(NOTHING, imported_by(IMPORT))


@pytest.fixture(scope="module")
def websocket() -> Iterator[str]:
    """The audio server over WebSocket."""
    with serving("audio", "--mixer", "memory", "--transport", "ws") as (address, _):
        yield address


@pytest.mark.parametrize(("transport", "allowed"), LIBRARY_ROWS)
def test_playing_as_a_library_imports_no_package_without_a_reason(
    transport: str, allowed: Packages, shared: SharedServers, websocket: str
) -> None:
    servers = {STDIO: AUDIO_SERVER, OVER_HTTP: shared.audio, OVER_WEBSOCKET: websocket}
    assert needless(imported_by(LIBRARY.format(server=servers[transport])), allowed) == []


@pytest.mark.parametrize(
    ("arguments", "allowed", "budget"),
    COMMAND_ROWS,
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_a_command_imports_no_package_without_a_reason_and_keeps_its_budget(
    arguments: Sequence[str], allowed: Packages, budget: Budget | None, shared: SharedServers
) -> None:
    program = command(*(shared.audio if each == OVER_HTTP else each for each in arguments))
    stdin = json.dumps(initialize()).encode() + b"\n" if arguments[0] == "serve" else b""
    found = imported_by(program, stdin=stdin, code=EXIT_CODES.get(arguments[0], 0))
    assert needless(found, allowed) == []
    if budget is not None:
        hold(budget, found)
    module, _ = COMMANDS.get(" ".join(arguments[:2])) or COMMANDS.get(arguments[0], ("", ""))
    assert wings(found) <= {module.partition(".")[0]}, "a command loads no wing but its own"
