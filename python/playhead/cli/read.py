"""`playhead read`: a resource to a file or to stdout, in pages, several at once."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.progress import human_bytes, live_line
from playhead.cli.reports import stream_report
from playhead.cli.runner import EXIT_DONE, Report, run_command
from playhead.cli.sinks import file_to_write
from playhead.cli.targets import connected, find_media, stream_options
from playhead.cli.terminal import Terminal, naming_stdout
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.stream.reader import RangeStream


def read(
    server: p.Server,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="A URI, or a tool (its first link or blob).")],
    pairs: p.Pairs = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to save. [default: stdout]")
    ] = None,
    arguments: p.ArgsJson = None,
    config: p.ConfigFile = None,
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
    """Read a resource in byte ranges and save it.

    The file appears only when it is whole. A device such as /dev/null is written to as it is; `-o -` is
    stdout.
    """
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
    if output in {Path("-"), Path("/dev/stdout")}:
        output = None
    if output is None and json_output:
        raise UsageError("--json needs -o FILE: the bytes and the report can't share stdout")
    if output is None and sys.stdout.isatty():
        raise UsageError("expected -o FILE: bytes are not printed on a terminal; pipe them or save them")
    if output is not None:
        file_to_write(output, option="-o")

    async def command(terminal: Terminal, report: Report) -> int:
        started = trio.current_time()
        async with connected(server, config=config, timeout=timeout) as session:
            media = await find_media(session, what, tool_arguments, playable=False)
            async with media.open(options) as stream:
                try:
                    async with live_line(terminal, lambda: _line(stream)):
                        report["sha256"] = await _save(stream, output)
                finally:
                    report |= stream_report(stream)
                    report["total_ms"] = round((trio.current_time() - started) * 1000, 1)
        where = str(output) if output is not None else "stdout"
        terminal.say(f"{human_bytes(stream.statistics().bytes)} to {where}", style="green")
        return EXIT_DONE

    run_command(command, json_output=json_output)


async def _save(stream: RangeStream, output: Path | None) -> str:
    digest = hashlib.sha256()
    if output is not None:
        await stream.save(output, tap=digest.update)
        return digest.hexdigest()
    async for chunk in stream:
        digest.update(chunk)
        # Abandoned on Ctrl-C: the other end of the pipe may never read again.
        with naming_stdout():
            await trio.to_thread.run_sync(sys.stdout.buffer.write, chunk, abandon_on_cancel=True)
    with naming_stdout():
        await trio.to_thread.run_sync(sys.stdout.buffer.flush, abandon_on_cancel=True)
    return digest.hexdigest()


def _line(stream: RangeStream) -> str:
    now = stream.statistics()
    rate = now.bandwidth_bytes_per_second
    return (
        f"{human_bytes(now.bytes)}"
        + (f" of {human_bytes(now.size_bytes)}" if now.size_bytes else "")
        + (f" · {human_bytes(rate)}/s" if rate else "")
        + f" · {now.in_flight} in flight"
    )
