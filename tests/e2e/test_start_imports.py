"""The modules that a start imports. Nine tenths of the time to the first audio are imports.

Their number stands in for the time, which no test can hold. The packages listed here cost much and are of no
use to that start. Modules of the standard library do not count, as their number depends on the Python; nor
does numpy, which miniaudio imports if it is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.command import environment
from tests.servers.shared import SharedServers

REPOSITORY = Path(__file__).parents[2]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
IMPORT = "import playhead"
COMMAND = "sys.argv[1:] = {arguments}; from playhead.cli import main; main()"
PROGRAM = """
import json, sys
sys.modules["numpy"] = None
try:
    {start}
finally:
    print(json.dumps([*sys.modules]), file=sys.stderr)
"""

SDK = ("mcp", "mcp_types", "pydantic", "httpx2", "anyio", "starlette")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    modules: int
    """A few more than were imported when it was set. Lower it when a start gets lighter."""
    never: Sequence[str]
    """Packages, with all their modules."""


NOTHING = Budget(modules=8, never=(*SDK, "trio", "typer", "rich", "importlib.metadata", "playhead.cli"))
HELP = Budget(modules=45, never=(*SDK, "trio", "rich", "playhead.cli.runner", "playhead.cli.streams"))
SERVE = Budget(
    modules=570,
    never=(
        *("rich", "miniaudio", "jsonschema", "prometheus_client", "playhead.agent", "playhead.check"),
        *("playhead.playback", "playhead.stream.reader", "playhead.results", "playhead.client.connector"),
        *("playhead.client.session.session", "playhead.cli.tools", "playhead.cli.streams"),
    ),
)
PLAY = Budget(
    modules=625,
    never=(
        *("rich", "markdown_it", "jsonschema", "wsproto", "playhead.agent", "playhead.servers"),
        *("playhead.client.hub", "playhead.client.oauth.flow", "playhead.cli.tools", "playhead.cli.chat"),
    ),
)


def imported_by(start: str, *, stdin: bytes = b"") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(start=start)],
        input=stdin,
        capture_output=True,
        env=environment(),
        cwd=REPOSITORY,
        check=True,
    )
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return [name for name in found if name.partition(".")[0] != "numpy"]


def hold(budget: Budget, found: list[str]) -> None:
    needless = [name for name in found if any(f"{name}.".startswith(f"{each}.") for each in budget.never)]
    assert needless == [], (
        "these make the start slower, and it does not use them: import them in the function that does"
        " (`python -X importtime` shows who imports them)"
    )
    counted = [name for name in found if name.partition(".")[0] not in sys.stdlib_module_names]
    assert len(counted) <= budget.modules, (
        f"{len(counted)} modules are imported, and {budget.modules} allowed: import what is new in the"
        " function that uses it, or raise the budget and say in the commit what the start gains"
    )


def command(*arguments: str) -> str:
    return COMMAND.format(arguments=list(arguments))


def test_importing_the_package_imports_almost_nothing() -> None:
    hold(NOTHING, imported_by(IMPORT))


def test_the_help_imports_no_command() -> None:
    hold(HELP, imported_by(command("--help")))


def test_the_audio_server_imports_neither_the_client_nor_other_commands() -> None:
    initialize = json.dumps(INITIALIZE).encode() + b"\n"
    hold(SERVE, imported_by(command("serve", "audio", "--mixer", "memory"), stdin=initialize))


def test_playing_over_http_imports_what_it_plays_with(shared: SharedServers) -> None:
    hold(
        PLAY, imported_by(command("play", shared.audio, "musicPlayer", "query=", "--sink", "null", "--json"))
    )


@pytest.mark.parametrize("late", ["trio", "playhead.cli.app"])
def test_a_needless_module_breaks_the_budget(late: str) -> None:
    with pytest.raises(AssertionError, match="these make the start slower"):
        hold(NOTHING, imported_by(f"import playhead, {late}"))
