"""`playhead demo`: the main job on one machine, with the example server in a process of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import trio
import typer

from playhead.cli import parameters as p
from playhead.cli.listening import listen
from playhead.cli.progress import clock, human_bytes
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, Report, run_command
from playhead.cli.sinks import has_device, make_sink
from playhead.cli.targets import find_media, server_name
from playhead.cli.terminal import Terminal, escape_line

if TYPE_CHECKING:
    from playhead.playback import Sink

TOOL = "musicPlayer"


def demo(
    query: Annotated[str, typer.Argument(help="What to ask the music tool for.")] = "",
    sink: p.SinkName = None,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Without a sound card: take as long as the music does.")
    ] = False,
    json_output: p.Json = False,
) -> None:
    """Ask the example server for music and play it while it arrives."""

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.client import connect

        chosen = sink
        if chosen is None and not await has_device():
            terminal.say(
                "no sound device here: playing into the null sink"
                + ("" if real_time else ", faster than real time")
            )
            chosen = "null"
        speaker = make_sink(chosen, real_time=real_time)
        server = (sys.executable, "-m", "playhead", "serve", "audio", "--mixer", "memory")
        started = trio.current_time()
        async with connect(server) as session:
            terminal.say(f"connected to {server_name(session)} (MCP {session.protocol_version}) over stdio")
            media = await find_media(session, TOOL, {"query": query}, playable=True)
            size = f", {human_bytes(media.size_bytes)}" if media.size_bytes else ""
            terminal.say(f"{TOOL} answered with a link: {escape_line(media.title)} ({media.mime_type}{size})")
            await listen(media, speaker, terminal, report)
        report["total_ms"] = round((trio.current_time() - started) * 1000, 1)
        same = await _compare_with_local_decode(media.title, speaker, report)
        if not json_output:
            _summarise(terminal, report)
        return EXIT_FAILED if same is False else EXIT_DONE

    run_command(command, json_output=json_output)


async def _compare_with_local_decode(title: str, speaker: Sink, report: Report) -> bool | None:
    """Hold what was heard against the same file, decoded from the disk; None where the sink keeps no hash."""
    from playhead.playback import FileMedia, NullSink, Player
    from playhead.servers.audio.library import Library

    report["pcm_sha256"] = report["local_pcm_sha256"] = report["same_as_local_decode"] = None
    if not isinstance(speaker, NullSink) or speaker.report is None:
        return None
    track = Library.scan().find(title)
    if track is None:
        return None
    local = NullSink(real_time=False)
    async with Player(local) as player:
        await player.play(FileMedia(track.path))
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
            verdict = "not compared (only the null sink keeps a hash)"
    rows = {
        "time to first audio": f"{report['first_audio_ms']} ms",
        "music": f"{clock(heard)}, in {report['total_ms']} ms",
        "bytes": f"{human_bytes(received)} in {report['pages']} pages ({report['strategy']})",
        "reads in flight": f"{report['in_flight_max']} at most",
        "retries, hedges": f"{report['retries']}, {report['hedges']}",
        "underruns": str(report["underruns"]),
        "PCM sha256": f"{str(report['pcm_sha256'])[:16]}… {verdict}" if report["pcm_sha256"] else verdict,
    }
    terminal.show_rows(rows.items())
