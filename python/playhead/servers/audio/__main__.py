"""`python -m playhead.servers.audio`: the audio server as a program; `playhead serve audio` does the same."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import trio
import typer

from playhead.errors import PlayheadError
from playhead.servers.audio.serve import AudioServerOptions, MixerKind, Transport, serve


def main(
    transport: Annotated[Transport, typer.Option(help="How clients connect.")] = "stdio",
    host: Annotated[str, typer.Option(help="Where HTTP listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="HTTP's port; 0 takes a free one.", min=0, max=65535)] = 3001,
    library: Annotated[Path | None, typer.Option(help="A folder of music.")] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="An origin that may be read although it is not public; repeatable."),
    ] = None,
    mixer: Annotated[
        MixerKind, typer.Option(help="Set the system's volume, or only keep the number.")
    ] = "system",
) -> None:
    """Serves music over MCP: finds it by title, and reads it in ranges of bytes."""
    logging.basicConfig(level=logging.ERROR)
    options = AudioServerOptions(
        transport=transport,
        host=host,
        port=port,
        library=library,
        allow_origins=tuple(allow_origin or ()),
        mixer=mixer,
    )
    status = 0
    try:
        trio.run(serve, options)
    except* KeyboardInterrupt:
        status = 130
    except* PlayheadError as group:
        for error in _leaves(group):
            sys.stderr.write(f"error: {error}\n")
        status = 2
    raise SystemExit(status)


def _leaves(group: BaseExceptionGroup[PlayheadError]) -> list[PlayheadError]:
    found: list[PlayheadError] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


if __name__ == "__main__":
    typer.run(main)
