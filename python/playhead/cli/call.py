"""`playhead call`: call a tool, show what it answered, play what can be heard."""

from __future__ import annotations

from typing import Annotated

import typer

from playhead.cli import parameters as p
from playhead.cli.listening import listen
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.sinks import make_sink
from playhead.cli.targets import connected, raise_tool_error
from playhead.cli.terminal import Terminal


def call(
    server: p.Server,
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help="The tool's name; `playhead tools` lists them.")
    ],
    pairs: p.Pairs = None,
    arguments: p.ArgsJson = None,
    config: p.ConfigFile = None,
    sink: p.SinkName = None,
    quiet: Annotated[
        bool, typer.Option("--no-play", help="Show links and sound instead of playing them.")
    ] = False,
    timeout: p.Timeout = None,
    json_output: p.Json = False,
) -> None:
    """Call a tool and show its answer; sound is played."""
    tool_arguments = p.parse_arguments(pairs, arguments)
    speaker = make_sink(sink, real_time=False)

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.cli.showing import shown

        async with connected(server, config=config, timeout=timeout) as session:
            result = await session.call_tool(tool, tool_arguments, timeout=timeout)
            report["tool"] = tool
            report["result"] = result.raw
            raise_tool_error(tool, result)
            for block in result.blocks:
                terminal.show(shown(block))
            if not quiet and not json_output:
                for media in result.media:
                    await listen(media, speaker, terminal, report)
        return EXIT_DONE

    run_command(command, json_output=json_output)
