"""`playhead play`: plays the media of a server, or of URLs, files, directories and playlists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.listening import Heard, Listening, More, during_call, listen, waiting_lines
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, Report, run_command
from playhead.cli.sinks import SinkName, check_sink, make_sink
from playhead.cli.sources import Sources, are_media
from playhead.cli.streams import PLAYBACK, StreamFlags, with_stream_flags
from playhead.cli.targets import connected, find_media, limits_for, options_for
from playhead.cli.terminal import Terminal, clock, seconds_of
from playhead.content.playlists import WEB_URL
from playhead.errors import ConnectError, UsageError
from playhead.redaction import redacted_url

if TYPE_CHECKING:
    from playhead.stream.options import StreamOptions
    from playhead.stream.source import Playable


@with_stream_flags
def play(
    flags: StreamFlags,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MEDIA | SERVER WHAT KEY=VALUE",
            help="Any mixture of URLs, files, directories, playlists (M3U, PLS), and - for stdin. Otherwise a"
            " server, then a URI or a tool (all audio of its result) and the tool's arguments."
            " A server alone shows its audio and its tools.",
            show_default=False,
        ),
    ] = None,
    sink: SinkName = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME|list", help="The audio device, by a part of its name."),
    ] = None,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="With --sink null: play at the speed of a speaker.")
    ] = False,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="TIME", help="Start the first item at this time, e.g. 90 or 1:30."),
    ] = None,
    repeats: Annotated[
        bool, typer.Option("--repeat", help="Play everything again and again, until it is stopped.")
    ] = False,
    shuffled: Annotated[bool, typer.Option("--shuffle", help="Play in random order.")] = False,
    is_muted: Annotated[
        bool, typer.Option("--mute", help="Start without a sound; the volume can be raised by a key.")
    ] = False,
    latency: Annotated[
        Literal["deep", "low"],
        typer.Option("--latency", help="How much the audio device holds: low is 60 ms, and may drop out."),
    ] = "deep",
    rate: Annotated[
        int | None,
        typer.Option("--rate", min=8000, max=384_000, metavar="HZ", help="Convert to this sample rate."),
    ] = None,
    channels: Annotated[
        int | None,
        typer.Option("--channels", min=1, max=32, metavar="N", help="Convert to this number of channels."),
    ] = None,
) -> None:
    """Play audio from a server, the web or files while it arrives.

    Of several items each follows the one before without a gap if its format is
    the same. At a terminal, keys control the player: space pauses, left and
    right seek by 5 s, up and down change the volume, n and p go to the next
    and the previous item, l to the newest part of a live one, q quits.
    """
    given = flags.stream_options()
    stdout_has = "the object of --json" if flags.json_output else ""
    check_sink(sink, stdout_has=stdout_has)
    if device is not None and sink not in {None, "device"}:
        raise UsageError(f"expected --device or --sink {sink}, got both")
    start_seconds = 0.0 if start is None else seconds_of(start)
    if start_seconds is None:
        raise UsageError(f"--start: expected a time such as 90 or 1:30, got {start!r}")

    async def play_all(
        media: Sequence[Playable],
        terminal: Terminal,
        report: Report,
        options: StreamOptions,
        more: More | None = None,
    ) -> int:
        speaker = make_sink(sink, real_time=real_time, stdout_has=stdout_has, device=device)
        media = random.sample(media, len(media)) if shuffled else media
        heard = Heard.of(media)
        settings = Listening(
            start_seconds=start_seconds,
            rate_hz=rate,
            channels=channels,
            latency=latency,
            is_muted=is_muted,
            repeats=repeats,
            announces=len(media) > 1,
        )
        try:
            await listen(media, speaker, terminal, heard, options=options, settings=settings, more=more)
        finally:
            report |= heard.flat() | {"items": heard.items, "files": heard.files}
        seconds = report["position_seconds"]
        assert isinstance(seconds, float)
        drops = f", drop-outs of the device {count}" if (count := report["device_underruns"]) else ""
        length = f"{max(seconds, 0.1):.1f} s" if 0.0 < seconds < 1.0 else clock(seconds)
        terminal.say(f"played {length}, underruns {report['underruns']}{drops}", style="green")
        return EXIT_FAILED if report["truncated"] else EXIT_DONE

    async def from_sources(words: Sequence[str], terminal: Terminal, report: Report) -> int:
        limits = limits_for(flags.timeout)
        async with aclosing(Sources(words, terminal, limits, allow_origins=flags.allow_origins)) as sources:
            media: Sequence[Playable]
            if len(words) == 1 and WEB_URL.match(words[0]):
                with terminal.doing(f"asking {redacted_url(words[0])}"):
                    answer = await sources.web.ask(words[0])
                from playhead.client.web import WebKind

                if answer.kind is WebKind.SERVER:
                    return await from_server(words, terminal, report, answer.got)
                media = await sources.of_answer(answer)
            else:
                with terminal.doing("reading playlists and directories"):
                    media = await sources.find()
            _refuse_server_options(flags)
            from playhead.stream.options import DEFAULT_OPTIONS

            waiting = waiting_lines(terminal, "the web server")
            options = replace(DEFAULT_OPTIONS, profile="play", on_event=waiting, **given)
            return await play_all(media, terminal, report, options)

    async def from_server(words: Sequence[str], terminal: Terminal, report: Report, got: str = "") -> int:
        """Play from a server. `got` describes the answer to an earlier plain GET of its URL, if any."""
        server, *rest = words
        what, pairs = (rest[0], rest[1:]) if rest else (None, None)
        tool_arguments = p.parse_arguments(pairs, flags.arguments)
        target = await flags.find_server(server, terminal)
        modules = () if what is None else PLAYBACK
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(
                    connected(target, terminal, timeout=flags.timeout, modules=modules, cache=flags.cache)
                )
            except ConnectError as error:
                if not got:
                    raise
                raise ConnectError(
                    f"{redacted_url(server)}: expected audio, a playlist or an MCP server, got {got} to a"
                    f" GET; check the URL (as an MCP endpoint: {error})"
                ) from error
            if what is None:
                from playhead.cli.listing import show_playable

                return await show_playable(session, server, terminal, report)
            waiting = waiting_lines(terminal, session.server_name)
            options = options_for(session, given, profile="play", on_event=waiting)
            find = partial(
                find_media,
                session,
                what,
                tool_arguments,
                terminal,
                playable=True,
                timeout=flags.timeout,
            )

            async def play_found(media: Sequence[Playable], more: More) -> int:
                return await play_all(media, terminal, report, options, more)

            return await during_call(find, play_found)

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.config.servers import server_names

        if device == "list":
            from playhead.playback.sinks.device import device_names

            report["devices"] = names = await device_names()
            for name in names:
                terminal.show(name)
            return EXIT_DONE
        if not words:
            raise UsageError("expected URLs, files, directories or a server to play, got none")
        started = trio.current_time()
        try:
            play_from = from_sources if are_media(words, server_names(flags.config)) else from_server
            return await play_from(words, terminal, report)
        finally:
            report["total_ms"] = round((trio.current_time() - started) * 1000, 1)

    run_command(command, json_output=flags.json_output, deadline=flags.deadline)


def _refuse_server_options(flags: StreamFlags) -> None:
    given = {"--args": flags.arguments, "--arg": flags.extra, "--strategy": flags.strategy}
    for name, value in (given | {"--cache": flags.cache}).items():
        if value:
            raise UsageError(f"{name} is for what a server has; URLs and files are read without one")
