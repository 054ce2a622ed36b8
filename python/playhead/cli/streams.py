"""`playhead demo` and `read`, and the options that `read` and `play` share."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, cast, get_type_hints

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.listening import Heard, Listening, listen, stream_report, waiting_lines, warn_of_server
from playhead.cli.parameters import file_to_write, has_device
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, Report, run_command
from playhead.cli.sinks import SinkName, make_sink
from playhead.cli.targets import connected, find_media, find_server, options_for, stream_options
from playhead.cli.terminal import (
    Terminal,
    clock,
    escape_line,
    human_bytes,
    naming_stdout,
)
from playhead.cli.views import TransferView
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.client import BytesMedia, ResourceMedia
    from playhead.config.servers import ServerConfig
    from playhead.playback import Sink
    from playhead.stream.options import StreamOptions
    from playhead.stream.reader import RangeStream

TOOL = "musicPlayer"
PLAYBACK = ("playhead.playback",)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFlags:
    """The arguments and options that `play` and `read` share."""

    arguments: p.ArgsJson = None
    config: p.ConfigFile = None
    trusted: p.Trust = False
    strategy: p.Strategy = None
    page_size: p.PageSize = None
    in_flight: p.InFlight = None
    capacity: p.Capacity = None
    extra: p.Extra = None
    size: p.Size = None
    timeout: p.Timeout = None
    patience: p.Patience = None
    deadline: p.Deadline = None
    max_bytes: p.MaxBytes = None
    live: p.Live = False
    cache: p.Cache = None
    allow_origins: p.AllowOrigins = None
    allow_paths: p.AllowPaths = None
    json_output: p.Json = False

    async def find_server(self, server: str, terminal: Terminal) -> ServerConfig:
        return await find_server(
            server,
            terminal,
            config=self.config,
            trusted=self.trusted,
            allow_origins=self.allow_origins,
            allow_paths=self.allow_paths,
        )

    def stream_options(self) -> Mapping[str, Any]:
        """Return the fields of `StreamOptions` that the user set. Raises `UsageError`, which names an invalid
        option."""
        return stream_options(**{name: getattr(self, name) for name in signature(stream_options).parameters})


_Own = ParamSpec("_Own")


def with_stream_flags(command: Callable[Concatenate[StreamFlags, _Own], None]) -> Callable[..., None]:
    """Replace the first parameter of `command`, for typer, by one option per field of `StreamFlags`."""
    shared = fields(StreamFlags)
    hints = get_type_hints(StreamFlags, include_extras=True)
    _flags, *own = signature(command, eval_str=True).parameters.values()

    def run(**given: Any) -> None:
        flags = StreamFlags(**{field.name: given.pop(field.name) for field in shared})
        command(flags, **given)  # type: ignore[call-arg]  # typer passes every parameter by name

    keyword = Parameter.KEYWORD_ONLY
    parameters = [it.replace(kind=keyword) for it in own] + [
        Parameter(it.name, keyword, default=it.default, annotation=hints[it.name]) for it in shared
    ]
    cast("Any", run).__signature__ = Signature(parameters)
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


@with_stream_flags
def read(
    flags: StreamFlags,
    server: p.Server,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="A URI, or a tool (its first link or blob).")],
    pairs: p.Pairs = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to save. [default: stdout]")
    ] = None,
) -> None:
    """Read a resource in byte ranges and save it.

    The file appears only when it is complete. A device such as /dev/null is
    written to directly; `-o -` is stdout.
    """
    given = flags.stream_options()
    tool_arguments = p.parse_arguments(pairs, flags.arguments)
    if output in {Path("-"), Path("/dev/stdout")}:
        output = None
    if output is None and flags.json_output:
        raise UsageError("--json needs -o FILE: the bytes and the report can't share stdout")
    if output is None and sys.stdout.isatty():
        raise UsageError("expected -o FILE: bytes are not printed on a terminal; pipe them or save them")
    if output is not None:
        file_to_write(output, option="-o")

    async def command(terminal: Terminal, report: Report) -> int:
        started = trio.current_time()
        target = await flags.find_server(server, terminal)
        async with connected(target, terminal, timeout=flags.timeout, cache=flags.cache) as session:
            media, *others = await find_media(
                session, what, tool_arguments, terminal, playable=False, timeout=flags.timeout
            )
            if others:
                terminal.say(f"reading the first of {len(others) + 1} items: {escape_line(media.title)}")
            waiting = waiting_lines(terminal, session.server_name)
            options = options_for(session, given, profile="save", on_event=waiting)
            async with media.open(options) as stream:
                view = TransferView(title=media.title, stream=stream)
                try:
                    with terminal.showing(lambda: view):
                        report["sha256"] = await _save(stream, output)
                finally:
                    report |= stream_report(stream.statistics())
                    warn_of_server(stream.statistics(), terminal)
                    report["total_ms"] = round((trio.current_time() - started) * 1000, 1)
        where = str(output) if output is not None else "stdout"
        terminal.say(f"{human_bytes(stream.statistics().bytes)} to {where}", style="green")
        return EXIT_DONE

    run_command(command, json_output=flags.json_output, deadline=flags.deadline)


async def _save(stream: RangeStream, output: Path | None) -> str:
    digest = hashlib.sha256()
    if output is not None:
        await stream.save(output, tap=digest.update)
        return digest.hexdigest()
    async for chunk in stream:
        digest.update(chunk)
        # Ctrl-C abandons the write, because the other end of the pipe may never read again.
        with naming_stdout():
            await trio.to_thread.run_sync(sys.stdout.buffer.write, chunk, abandon_on_cancel=True)
    with naming_stdout():
        await trio.to_thread.run_sync(sys.stdout.buffer.flush, abandon_on_cancel=True)
    return digest.hexdigest()


def demo(
    query: Annotated[str, typer.Argument(help="What to ask the music tool for.")] = "",
    sink: SinkName = None,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Without an audio device: play at the speed of a speaker.")
    ] = False,
    patience: p.Patience = None,
    deadline: p.Deadline = None,
    json_output: p.Json = False,
) -> None:
    """Ask the example server for music and play it while it arrives.

    At a terminal it takes the keys of `playhead play`.
    """
    given = stream_options(patience=patience)

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.config.servers import from_command

        chosen = sink
        if chosen is None and not await has_device():
            terminal.say(
                "no audio device: playing into the null sink"
                + ("" if real_time else ", faster than real time")
            )
            chosen = "null"
        speaker = make_sink(chosen, real_time=real_time)
        server = from_command((sys.executable, "-m", "playhead", "serve", "audio", "--mixer", "memory"))
        started = trio.current_time()
        async with connected(server, terminal, modules=PLAYBACK) as session:
            terminal.say(f"connected to {session.server_name} (MCP {session.protocol_version}) over stdio")
            typed = p.GivenArguments(values={"query": query})
            media, *_ = await find_media(session, TOOL, typed, terminal, playable=True)
            size = f", {human_bytes(media.size_bytes)}" if media.size_bytes else ""
            terminal.say(f"{TOOL} answered with a link: {escape_line(media.title)} ({media.mime_type}{size})")
            waiting = waiting_lines(terminal, session.server_name)
            options = options_for(session, given, profile="play", on_event=waiting)
            heard = Heard.of([media])
            try:
                settings = Listening(announces=False)
                await listen([media], speaker, terminal, heard, options=options, settings=settings)
            finally:
                report |= heard.flat()
            report["total_ms"] = round((trio.current_time() - started) * 1000, 1)
            report["pcm_sha256"] = report["local_pcm_sha256"] = report["same_as_local_decode"] = None
            saving = options_for(session, given, profile="save", on_event=waiting)
            same = (
                await _compare_with_local_decode(media, speaker, report, saving) if heard.is_whole else None
            )
        if not json_output:
            _summarise(terminal, report)
        return EXIT_FAILED if same is False else EXIT_DONE

    run_command(command, json_output=json_output, deadline=deadline)


async def _compare_with_local_decode(
    media: ResourceMedia | BytesMedia, speaker: Sink, report: Report, options: StreamOptions
) -> bool | None:
    """Save the linked file, checked against its digest, and decode it. Return True if its audio equals the
    played audio, and None if the sink computes no hash."""
    from playhead.playback import FileMedia, NullSink, Player

    if not isinstance(speaker, NullSink) or speaker.report is None:
        return None
    with TemporaryDirectory(prefix="playhead-") as directory:
        path = Path(directory) / "audio"
        async with media.open(options) as stream:
            await stream.save(path)
        local = NullSink(real_time=False)
        async with Player(local) as player:
            await player.play(FileMedia(path))
            await player.wait_finished()
    assert local.report is not None
    report["pcm_sha256"] = speaker.report.sha256
    report["local_pcm_sha256"] = local.report.sha256
    report["same_as_local_decode"] = same = speaker.report == local.report
    return same


def _summarise(terminal: Terminal, report: Report) -> None:
    heard = report["position_seconds"]
    received = report["bytes"]
    assert isinstance(heard, float)
    assert isinstance(received, int)
    match report["same_as_local_decode"]:
        case True:
            verdict = "the same as a local decode"
        case False:
            verdict = "NOT the same as a local decode"
        case _:
            verdict = ""  # a device, or not played to its end
    rows = {
        "time to first audio": f"{report['first_audio_ms']} ms",
        "music": f"{clock(heard)}, in {report['total_ms']} ms",
        "bytes": f"{human_bytes(received)} in {report['pages']} pages ({report['strategy']})",
        "reads in flight": f"{report['in_flight_max']} at most",
        "retries, hedges": f"{report['retries']}, {report['hedges']}",
        "underruns": str(report["underruns"]),
    }
    if verdict:
        rows["PCM sha256"] = f"{str(report['pcm_sha256'])[:16]}… {verdict}"
    terminal.show_rows(rows.items())
