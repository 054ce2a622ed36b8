"""`playhead serve`: the example servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.terminal import Terminal
from playhead.servers.audio.options import AudioServerOptions, MixerKind, Transport


def audio(
    transport: Annotated[Transport, typer.Option(help="How clients connect.")] = "stdio",
    host: Annotated[str, typer.Option(help="Where HTTP listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="HTTP's port; 0 takes a free one.", min=0, max=65535)] = 3001,
    library: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder of music.")] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An origin that may be read although it is not public; repeatable."),
    ] = None,
    mixer: Annotated[
        MixerKind, typer.Option(help="Set the system's volume, or only keep the number.")
    ] = "system",
) -> None:
    """Serve music over MCP: musicPlayer, set_volume, and ranged reads of what they link to."""
    options = AudioServerOptions(
        transport=transport,
        host=host,
        port=port,
        library=library,
        allow_origins=tuple(allow_origin or ()),
        mixer=mixer,
    )

    async def command(_terminal: Terminal, _report: Report) -> int:
        from playhead.servers.audio.serve import serve

        await serve(options)
        return EXIT_DONE

    run_command(command, json_output=False)
