"""`playhead outputs`: the saved results of tools."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.terminal import Terminal, escape_line, human_bytes
from playhead.errors import UsageError
from playhead.escaping import counted

if TYPE_CHECKING:
    from playhead.config.outputs import Listing, SavedOutput


_SHORT_ID = 8
"""The random end of an id: enough to identify one among thousands."""


def outputs(
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="Only outputs with this tag.")
    ] = None,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="SERVER__TOOL", help="Only outputs of this tool.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", metavar="TEXT", help="Only outputs with this text in title, tool or arguments."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where to look. [default: the user's data directory]"),
    ] = None,
    paths: Annotated[bool, typer.Option("--path", help="Print only the paths of the files.")] = False,
    remove: Annotated[
        str | None,
        typer.Option(
            "--remove", metavar="ID", help="Remove this output; its file is deleted with its last record."
        ),
    ] = None,
    json_output: p.Json = False,
) -> None:
    """List the saved results of tools, newest first."""

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.config.outputs import OutputStore, default_output_folder

        store = OutputStore(folder or default_output_folder())
        listing = await trio.to_thread.run_sync(partial(store.find, tag=tag, tool_id=tool, text=text))
        report["folder"] = str(store.folder)
        if remove is not None:
            output = _output_with_id(listing, remove)
            await trio.to_thread.run_sync(store.remove, output)
            report["removed"] = _record_for_report(output)
            terminal.say(f"removed {remove}: {_summary(output)}", style="green")
            return EXIT_DONE
        report["outputs"] = [_record_for_report(output) for output in listing.outputs]
        report["problems"] = [
            {"path": str(problem.path), "reason": problem.reason} for problem in listing.problems
        ]
        for problem in listing.problems:
            terminal.say(f"skipped {problem.path}: {problem.reason}", style="yellow")
        if paths:
            for path in dict.fromkeys(output.path for output in listing.outputs):
                terminal.show(str(path))
            return EXIT_DONE
        filtered = not (tag is None and tool is None and text is None)
        terminal.say(_count(len(listing.outputs), filtered=filtered) + f" in {store.folder}", whole=True)
        terminal.show_rows((_time_and_id(output), _summary(output)) for output in listing.outputs)
        return EXIT_DONE

    run_command(command, json_output=json_output)


def _output_with_id(listing: Listing, id: str) -> SavedOutput:
    matching = [output for output in listing.outputs if id in (output.id, output.id[-_SHORT_ID:])]
    if len(matching) != 1:
        raise UsageError(
            f"--remove: expected the id of one output, got {id!r}, which matches {len(matching) or 'none'};"
            " `playhead outputs` shows the short ids, --json the full ones"
        )
    return matching[0]


def _count(number: int, *, filtered: bool) -> str:
    if number == 0:
        return "no output matches" if filtered else "no outputs yet"
    return counted(number, "output")


def _time_and_id(output: SavedOutput) -> str:
    return f"{output.time.astimezone():%Y-%m-%d %H:%M}  {output.id[-_SHORT_ID:]}"


def _summary(output: SavedOutput) -> str:
    parts = [output.tool_id, output.title, f"{output.mime}, {human_bytes(output.size_bytes)}"]
    parts += [f"#{tag}" for tag in output.tags]
    return escape_line(" · ".join(part for part in parts if part))


def _record_for_report(output: SavedOutput) -> dict[str, object]:
    fields: dict[str, object] = {
        field.name: getattr(output, field.name) for field in dataclasses.fields(output)
    }
    record = {"record": str(fields.pop("sidecar_path"))}
    return fields | record | {"path": str(output.path), "time": output.time.isoformat()}
