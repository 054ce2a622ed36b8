"""`playhead call`: call a tool, show what it answered, play what can be heard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from playhead.cli import parameters as p
from playhead.cli.listening import listen_to_all
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.sinks import make_sink
from playhead.cli.targets import connected
from playhead.cli.terminal import Terminal, escape_line
from playhead.errors import ToolFailedError, UsageError

if TYPE_CHECKING:
    from playhead.client import CallResult


def call(
    server: p.Server,
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help="The tool's name; `playhead tools` lists them.")
    ],
    pairs: p.Pairs = None,
    arguments: p.ArgsJson = None,
    config: p.ConfigFile = None,
    tool_config: p.ToolConfigFile = None,
    sink: p.SinkName = None,
    quiet: Annotated[
        bool, typer.Option("--no-play", help="Show links and sound instead of playing them.")
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option("--save-images", metavar="DIR", help="Where images go. [default: the current folder]"),
    ] = None,
    unsaved: Annotated[bool, typer.Option("--no-save", help="Save nothing, whatever is configured.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Say why each block goes where it goes.")
    ] = False,
    timeout: p.Timeout = None,
    json_output: p.Json = False,
) -> None:
    """Call a tool and show its answer; sound is played.

    Images are saved, and what the tool's configuration says (`playhead explain`). With --json sound is played
    only where --sink says into what.
    """
    tool_arguments = p.parse_arguments(pairs, arguments)
    speaker = make_sink(sink, real_time=False)
    folder = None if unsaved else _folder(images)

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.cli.configured import Configured, saved_report
        from playhead.cli.showing import Showing, result_report, turn_report
        from playhead.config.servers import resolve_target

        target = resolve_target(server, config)
        configured = Configured(target, tool, file=tool_config, unsaved=unsaved)
        async with connected(target, config=config, timeout=timeout) as session:
            policy = configured.resolution.policy(session.policy)
            result = await session.call_tool(tool, tool_arguments, timeout=timeout, policy=policy)
            report |= result_report(tool, result)
            processed = await configured.process(tool_arguments, result)
            report["text_for_model"] = processed.text_for_model
            report["turn"] = turn_report(processed.turn)
            showing = Showing(tool=tool, terminal=terminal, folder=folder, verbose=verbose)
            report["images"] = showing.images
            await showing.show(result, turn=processed.turn, message=configured.message(processed))
            played = bool(result.media) and not quiet and (sink is not None or not json_output)
            try:
                if played:
                    await listen_to_all(processed.media, speaker, terminal, report)
            finally:
                report["saved"] = await saved_report(processed, terminal, played=played)
        _raise_errors(tool, result)
        configured.raise_errors(processed)
        return EXIT_DONE

    run_command(command, json_output=json_output)


def _folder(images: Path | None) -> Path:
    """Look before the server is asked for anything."""
    folder = Path() if images is None else images
    if not folder.is_dir():
        raise UsageError(f"--save-images: expected a folder, and {folder} is none: make it first")
    return folder


def _raise_errors(tool: str, result: CallResult) -> None:
    """End with what the tool says went wrong."""
    if result.is_error or result.errors:
        words = "\n".join(result.errors) or "(it gave no reason)"
        raise ToolFailedError(f"tool {escape_line(tool)} failed: {words}")
