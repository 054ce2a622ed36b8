"""`playhead play`: a resource, a tool's answer, or a local file, to the speaker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.listening import listen
from playhead.cli.progress import clock
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.sinks import make_sink
from playhead.cli.targets import connected, find_media, stream_options
from playhead.cli.terminal import Terminal
from playhead.errors import UsageError


def play(
    server: Annotated[str, typer.Argument(metavar="SERVER|FILE", help="A server, or a local file.")],
    what: Annotated[
        str | None,
        typer.Argument(metavar="WHAT", help="A URI, or a tool (its first playable link or blob)."),
    ] = None,
    pairs: p.Pairs = None,
    arguments: p.ArgsJson = None,
    config: p.ConfigFile = None,
    sink: p.SinkName = None,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="With --sink null: take as long as the music does.")
    ] = False,
    strategy: p.Strategy = None,
    page_size: p.PageSize = None,
    in_flight: p.InFlight = None,
    capacity: p.Capacity = None,
    extra: p.Extra = None,
    size: p.Size = None,
    timeout: p.Timeout = None,
    max_bytes: p.MaxBytes = None,
    json_output: p.Json = False,
) -> None:
    """Play a resource while it is still arriving, or a local file."""
    options = stream_options(
        strategy=strategy,
        page_size=page_size,
        in_flight=in_flight,
        capacity=capacity,
        extra=extra,
        size=size,
        timeout=timeout,
        max_bytes=max_bytes,
    )
    tool_arguments = p.parse_arguments(pairs, arguments)
    speaker = make_sink(sink, real_time=real_time)
    if what is None and not Path(server).is_file():
        kind = "not a file with sound" if Path(server).exists() else "no such file"
        raise UsageError(
            f"{server!r}: {kind}; to play from a server say what:"
            " playhead play SERVER WHAT (a URI, or a tool and its arguments)"
        )

    async def command(terminal: Terminal, report: Report) -> int:
        started = trio.current_time()
        try:
            if what is None:
                from playhead.playback import FileMedia

                await listen(FileMedia(Path(server)), speaker, terminal, report)
            else:
                async with connected(server, config=config, timeout=timeout) as session:
                    media = await find_media(session, what, tool_arguments, playable=True)
                    await listen(media, speaker, terminal, report, options=options)
        finally:
            report["total_ms"] = round((trio.current_time() - started) * 1000, 1)
        heard = report.get("position_seconds", 0.0)
        assert isinstance(heard, float)
        terminal.say(f"played {clock(heard)}, underruns {report['underruns']}", style="green")
        return EXIT_DONE

    run_command(command, json_output=json_output)
