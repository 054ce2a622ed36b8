"""From nothing to audio, an interrupted assistant and a checked server: `make five-minutes`.

A stranger's first minutes in an empty environment and an empty directory, with what the README,
docs/tutorial.md and docs/assistant.md say and nothing else: the steps are their blocks, and their output is
compared. Prints a table of seconds; status 1 if a step failed or all of them took more than five minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.snippets import DOCS, REPOSITORY, blocks
from tests.wheels.environments import Environment, Environments

README, TUTORIAL, ASSISTANT = REPOSITORY / "README.md", DOCS / "tutorial.md", DOCS / "assistant.md"
MUSIC = REPOSITORY / "python" / "playhead" / "servers" / "audio" / "music" / "first-light.mp3"
MOST_SECONDS = 300


@dataclass(slots=True)
class Minutes:
    """The steps so far."""

    rows: list[tuple[str, float, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step. Its failure is in the table, and said below it."""
        started = time.monotonic()
        result = "ok"
        try:
            yield
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            result = "failed"
            self.failures.append(f"{name}: {error!r}")
        self.rows.append((name, time.monotonic() - started, result))

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds, _ in self.rows)

    def table(self) -> str:
        rows = [*self.rows, ("together", self.seconds, "ok" if self.seconds < MOST_SECONDS else "too long")]
        lines = [("step", "seconds", "result"), ("---", "---:", "---")]
        lines += [(name, f"{seconds:.1f}", result) for name, seconds, result in rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
        return "\n".join([*text, *self.failures])


def readme_command(name: str) -> str:
    """The one command of the README's block for the released package that starts like this."""
    (block,) = (block for block in blocks(README) if "playhead demo" in block.commands)
    (command,) = (command for command in block.commands if command.startswith(f"playhead {name}"))
    return command


def audio(environment: Environment) -> None:
    """Play the demo; a machine without a sound device counts its seconds."""
    shown = environment.finish("sh", "-c", f"{readme_command('demo')} --sink null")
    assert re.search(r"^music +1:12, in ", shown, re.M), shown
    assert re.search(r"^underruns +0$", shown, re.M), shown
    assert "the same as a local decode" in shown, shown


def one_tool(environment: Environment) -> None:
    """Play the result of a tool, to a file that must hold more than a minute of audio."""
    environment.finish("sh", "-c", f"{readme_command('play')} --sink wave:music.wav")
    assert (environment.home / "music.wav").stat().st_size > 60 * 22_050 * 2


def programs(environment: Environment) -> None:
    """Run the programs of the first steps: they call a tool, play its result and save it."""
    for block in blocks(TUTORIAL):
        if block.code:
            environment.finish(environment.python, "-I", "-W", "error", "-c", block.code)
    assert (environment.home / "first-light.mp3").read_bytes() == MUSIC.read_bytes()


def interrupted(environment: Environment) -> None:
    """Run the small assistant, whose output is on its page: the story is cut off by the user."""
    (code,) = (block.code for block in blocks(ASSISTANT) if block.code)
    page = ASSISTANT.read_text("utf-8")
    expected = page.partition("It prints\n\n```\n")[2].partition("```")[0]
    shown = environment.finish(environment.python, "-I", "-W", "error", "-c", code)
    assert shown.split() == expected.split(), shown
    assert shown.index("Tell me a story.") < shown.index("No story, please.")


def checked(environment: Environment) -> None:
    """Check the example server; the report has the audio of its tool in it."""
    shown = environment.finish("sh", "-c", readme_command("check"))
    assert re.search(r"[23] tools, \d+ tests in .* 0 failed", shown), shown
    report = (environment.home / "report.html").read_text("utf-8")
    assert "<audio" in report
    assert "musicPlayer" in report


STEPS: dict[str, Callable[[Environment], None]] = {
    "hear the demo": audio,
    "play a tool's result": one_tool,
    "run the programs of the first steps": programs,
    "interrupt an assistant": interrupted,
    "check a server, with a report": checked,
}


def run(environments: Environments, home: Path) -> Minutes:
    """Install the wheel and take every step in `home`, a new directory. The wheel's build is not timed."""
    minutes = Minutes()
    environments.wheel()
    (installs,) = {block.installs for block in blocks(README) if "playhead demo" in block.commands}
    with minutes.step(f"install {' '.join(sorted(installs))}"):
        environment = environments.environment(installs).at(home)
    for name, take in STEPS.items():
        with minutes.step(name):
            take(environment)
    return minutes


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="playhead-minutes-") as name:
        minutes = run(Environments(Path(name)), Path(name, "home"))
    print(minutes.table())
    return 1 if minutes.failures or minutes.seconds > MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
