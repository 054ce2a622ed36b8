"""`playhead trust`: a person's consent to the files of a directory.

Every command asks for this consent, with `with_consent`, before it uses files of the current directory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.terminal import Terminal, escape_line
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.config.trust import ProjectFile, Trust

T = TypeVar("T")


def trust(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to trust.")] = Path(),
    forget: Annotated[bool, typer.Option("--forget", help="Do not use its files from now on.")] = False,
    json_output: p.Json = False,
) -> None:
    """Accept a directory's mcp.json and playhead-tools.toml.

    Show what the files do and store that you accept them. A change to any file
    of the directory that Python or a command could load needs a new consent.
    Files named by --config or --tool-config need none.
    """

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.config.trust import SERVERS_FILES, TOOL_FILES, Trust, project_files

        if not directory.is_dir():
            kind = "a file" if directory.exists() else "no such file"
            raise UsageError(f"{directory}: expected a directory, got {kind}")
        files = project_files((*SERVERS_FILES, *TOOL_FILES), directory)
        if not files:
            names = ", ".join((*SERVERS_FILES, *TOOL_FILES))
            raise UsageError(f"{directory}: nothing to trust; expected one of {names}")
        answers = Trust()
        for file in files:
            answers.remember(file, accepted=not forget)
            if not forget:
                terminal.show(f"{file.path} is trusted. It can")
                terminal.show_rows((f"  {verb}", escape_line(what)) for verb, what in file.effects)
            else:
                terminal.show(f"{file.path} is not used")
        report["trusted"] = not forget
        report["files"] = [
            {
                "path": str(file.path),
                "effects": [list(effect) for effect in file.effects],
                "sha256": file.fingerprint,
            }
            for file in files
        ]
        return EXIT_DONE

    run_command(command, json_output=json_output)


async def with_consent(terminal: Terminal, load: Callable[[Trust], T], *, trusted: bool) -> T:
    """Call `load`, and ask the person at the terminal about each file of the current directory that it needs.

    `trusted` is `--trust`. Raises what `load` raises, and `UntrustedError` if it cannot ask a person.
    """
    from playhead.config.trust import Trust, UntrustedError

    answers = Trust(everything=trusted, notice=lambda text: terminal.say(text, style="yellow"))
    while True:
        try:
            return load(answers)
        except UntrustedError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()) or terminal.json_output:
                raise
            file = error.file
        accepted = await _ask(terminal, file)
        try:
            answers.remember(file, accepted=accepted)
        except OSError as error:
            terminal.warn(f"the answer holds for this run only; it cannot be stored: {error}")


async def _ask(terminal: Terminal, file: ProjectFile) -> bool:
    terminal.say(f"{file.path} is used for the first time, or its directory has changed. It can")
    for verb, what in file.effects:
        terminal.say(f"  {verb} {escape_line(what)}", whole=True)
    terminal.prompt("Use it? Only if you trust this directory. [y/N] ")
    answer = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return answer.strip().lower() in {"y", "yes"}
