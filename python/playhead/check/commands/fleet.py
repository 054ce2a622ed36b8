"""`playhead fleet`: a load test with many players; reports what they heard and what they cost.

Each player has a session of its own, as each device of a house has. The command starts worker processes of
itself (`--worker`), which run the players; each worker prints the records of its plays as JSON.
"""

from __future__ import annotations

import json
import resource
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import trio
import typer

from playhead.check.load import LoadAnswer, PlayRecord, fleet_figures, run_load
from playhead.check.options import LoadPlan
from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, Report, message_of, run_command
from playhead.cli.targets import find_media, find_server, limits_for, opened_cache
from playhead.cli.terminal import Terminal, human_bytes
from playhead.config.servers import ServerConfig
from playhead.errors import PlayheadError, UsageError

if TYPE_CHECKING:
    from playhead.client.call_results.media import BytesMedia, ResourceMedia
    from playhead.stream.options import StreamOptions

MOST_PROCESSES: Final = 64
MOST_PLAYERS: Final = 1000
MOST_SECONDS: Final = 24 * 3600.0
_KIB_PER_MIB: Final = 1024
"""Converts `ru_maxrss`, which is in KiB."""


def fleet(
    server: p.Server,
    what: Annotated[
        list[str],
        typer.Argument(metavar="WHAT", help="The play list: URIs, or tools with arguments in quotes."),
    ],
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=MOST_PROCESSES, metavar="N", help="Processes to start.")
    ] = 1,
    players: Annotated[
        int,
        typer.Option("--players", min=1, max=MOST_PLAYERS, metavar="N", help="Players of each process."),
    ] = 8,
    plays: Annotated[
        int, typer.Option("--plays", min=1, metavar="N", help="Items that each player plays.")
    ] = 1,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Play at the speed of a speaker, not as fast as possible.")
    ] = False,
    cache: p.Cache = None,
    config: p.ConfigFile = None,
    trusted: p.Trust = False,
    timeout: p.Timeout = None,
    deadline: p.Deadline = None,
    json_output: p.Json = False,
    worker: Annotated[int, typer.Option("--worker", hidden=True)] = -1,
) -> None:
    """Play with many players in many processes, and report the cost.

    Players begin at different places of the play list and play into nothing;
    a tool with arguments is one item: 'musicPlayer query="first light"'.
    """
    items = [shlex.split(text) for text in what]
    if not all(items):
        raise UsageError("WHAT: expected a URI or a tool, got an empty string")

    async def command(terminal: Terminal, report: Report) -> int:
        target = await find_server(server, terminal, config=config, trusted=trusted)
        if worker >= 0:  # this process was started by `_run_workers`
            numbers = range(worker * players, (worker + 1) * players)
            report |= await _run_players(
                target,
                items,
                numbers,
                terminal,
                plays=plays,
                real_time=real_time,
                cache=cache,
                timeout=timeout,
            )
            return EXIT_DONE
        began = trio.current_time()
        # Workers get the options of this command again.
        values = {
            "--players": players,
            "--plays": plays,
            "--cache": cache,
            "--config": config,
            "--timeout": timeout,
        }
        options = [text for name, value in values.items() if value is not None for text in (name, str(value))]
        flags = [name for name, is_set in {"--real-time": real_time, "--trust": trusted}.items() if is_set]
        workers = await _run_workers(processes, ["fleet", *options, *flags, "--", server, *what])
        records = [PlayRecord(**record) for worker_report in workers for record in worker_report["plays"]]
        all_players = processes * players
        report |= {"processes": processes, "players": all_players}
        report |= fleet_figures(records)
        report["cpu_ms_per_stream"] = round(sum(one["cpu_ms"] for one in workers) / all_players, 1)
        memory = sum(one["memory_kib"] for one in workers) / all_players / _KIB_PER_MIB
        report["memory_mib_per_stream"] = round(memory, 2)
        report["seconds"] = round(trio.current_time() - began, 2)
        if not json_output:
            terminal.show_rows(_rows(report))
        # `different` counts the items that did not sound the same in all their plays.
        return EXIT_FAILED if report["failed"] or report["different"] else EXIT_DONE

    run_command(command, json_output=json_output or worker >= 0, deadline=deadline)


async def _run_workers(processes: int, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Run the worker processes, and return their reports. `arguments` are the command and its arguments."""
    reports: list[dict[str, Any]] = []
    shown_warnings: set[str] = set()

    async def run(number: int) -> None:
        command = [sys.executable, "-m", "playhead", arguments[0], "--worker", str(number), *arguments[1:]]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        errors = done.stderr.decode("utf-8", "replace")
        try:
            report = json.loads(done.stdout)
        except ValueError:
            report = {}
        if "plays" not in report:
            why = errors.strip().rpartition("\n")[2] or "no message on stderr"
            raise UsageError(f"fleet: process {number} ended with {done.returncode}: {why}")
        reports.append(report)
        for line in errors.splitlines():
            if line not in shown_warnings:  # every worker warns of the same broken cache
                Terminal(json_output=False).say(line)
                shown_warnings.add(line)

    async with trio.open_nursery() as nursery:
        for number in range(processes):
            nursery.start_soon(run, number)
    return reports


async def _run_players(
    target: ServerConfig,
    items: Sequence[Sequence[str]],
    numbers: Sequence[int],
    terminal: Terminal,
    *,
    plays: int,
    real_time: bool,
    cache: str | None,
    timeout: float | None,  # noqa: ASYNC109 - as in Session.call_tool
) -> dict[str, object]:
    """Run the players with these numbers; return the records of their plays and this process's cost."""
    from playhead.client import connect

    records: list[PlayRecord] = []
    pages = opened_cache(cache or target.cache, terminal)
    # Each play takes the next of these places in the play list, whichever player asks first. The first round
    # has each player's own number; each further one begins as many places later as this process has players.
    places = iter([number + turn * len(numbers) for turn in range(plays) for number in numbers])

    async def play_next() -> LoadAnswer:
        index = next(places) % len(items)
        name, *pairs = items[index]
        record = PlayRecord(item=index)
        try:
            async with connect(target, limits=limits_for(timeout), cache=pages) as session:
                arguments = p.parse_arguments(pairs, None)
                media, *_ = await find_media(
                    session, name, arguments, terminal, playable=True, timeout=timeout
                )
                record = await _play_item(media, session.default_options(), index, real_time)
        except PlayheadError as error:
            record = PlayRecord(item=index, failure=message_of(error))
        records.append(record)
        return LoadAnswer(size_bytes=record.size_bytes, failure=record.failure)

    before = resource.getrusage(resource.RUSAGE_SELF)
    plan = LoadPlan(clients=len(numbers), requests=plays, seconds=MOST_SECONDS)
    await run_load(plan, play_next)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "plays": [asdict(record) for record in records],
        "cpu_ms": 1000 * cpu,
        "memory_kib": after.ru_maxrss - before.ru_maxrss,
    }


async def _play_item(
    media: ResourceMedia | BytesMedia, options: StreamOptions, index: int, real_time: bool
) -> PlayRecord:
    """Play `media` without a speaker, and return the record of this play."""
    from playhead.cli.listening import WatchedMedia
    from playhead.playback import NullSink, Player

    sink = NullSink(real_time=real_time)
    watched = WatchedMedia(media, options=options)
    failure = None
    async with Player(sink) as player:
        await player.play(watched)
        try:
            await player.wait_finished()
        except PlayheadError as error:
            failure = message_of(error)
        state, stream = player.snapshot(), watched.statistics()
    counts = None if stream is None else stream.reads
    first = state.first_audio_seconds
    return PlayRecord(
        item=index,
        failure=failure,
        first_audio_ms=None if first is None else 1000 * first,
        underruns=state.underruns,
        reads=0 if counts is None else counts.server_reads,
        hedges=0 if stream is None else stream.hedges,
        size_bytes=0 if stream is None else stream.bytes,
        server_bytes=0 if counts is None else counts.server_bytes,
        cache_bytes=0 if counts is None else counts.cache_bytes,
        pcm_sha256=None if sink.report is None else sink.report.sha256,
    )


def _rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    def ms(value: float | None) -> str:
        return "none" if value is None else f"{value:.0f} ms"

    served = human_bytes(report["server_bytes"])
    processes = f"{report['processes']} process{'' if report['processes'] == 1 else 'es'}"
    failed = f"{report['failed']} of {report['plays']}"
    if report["first_failure"]:
        failed += f" ({report['first_failure']})"
    return [
        ("players", f"{report['players']} in {processes}, {report['seconds']:.1f} s"),
        ("failed", failed),
        ("first audio", f"p50 {ms(report['first_audio_p50_ms'])}, p95 {ms(report['first_audio_p95_ms'])}"),
        ("underruns", str(report["underruns"])),
        ("items not always the same", str(report["different"])),
        ("reads of the server", f"{report['reads']}, {served}"),
        ("from the cache", human_bytes(report["cache_bytes"])),
        (
            "per stream",
            f"{report['cpu_ms_per_stream']:.0f} ms CPU, {report['memory_mib_per_stream']:.1f} MiB",
        ),
    ]
