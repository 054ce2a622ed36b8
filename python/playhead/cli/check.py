"""`playhead check`: test any server, and report what it does wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from playhead.cli import parameters as p
from playhead.cli.check_lines import Progress, show_report
from playhead.cli.progress import live_line
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, EXIT_NO_CONNECTION, Report, run_command
from playhead.cli.terminal import Terminal
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.check.graph import Runner
    from playhead.check.options import CheckOptions
    from playhead.check.results import Report as Found


class Depth(StrEnum):
    """How far a check goes."""

    QUICK = "quick"
    FULL = "full"


class Graph(StrEnum):
    """What runs the state graph."""

    OWN = "own"
    LANGGRAPH = "langgraph"


def check(
    server: p.Server,
    depth: Annotated[
        Depth,
        typer.Argument(
            metavar="DEPTH",
            help="quick: connect and list, call nothing. full: call every tool.",
        ),
    ] = Depth.QUICK,
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Write the report; .json, .md, .html or .xml (JUnit) chooses the format. May be repeated.",
        ),
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option(
            "--expect", metavar="FILE", help="Calls to make and what they answer: TOML, or JSON in a .json."
        ),
    ] = None,
    destructive: Annotated[
        bool,
        typer.Option("--allow-destructive", help="Call tools that say destructiveHint: true, too."),
    ] = False,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", help="Of the generated arguments; the report names it."),
    ] = 0,
    config: p.ConfigFile = None,
    timeout: p.Timeout = None,
    max_time: Annotated[
        float | None,
        typer.Option(
            "--max-time", min=0.001, metavar="SECONDS", help="For the whole check; 1800 by default."
        ),
    ] = None,
    graph: Annotated[
        Graph,
        typer.Option("--graph", help="What runs the state graph; langgraph needs playhead[langgraph]."),
    ] = Graph.OWN,
    json_output: p.Json = False,
) -> None:
    """Test a server, and report what it does wrong.

    A failed check is a breach of the MCP specification, or of the expectations
    file. A tool that answers generated arguments with an error is undecided: its
    schema can't say which city exists.

    Exit code 1 when anything failed, 3 when the server can't be reached. A
    check that is interrupted shows and writes what was found up to then.
    """

    async def command(terminal: Terminal, report: Report) -> int:
        from playhead.check.report import to_json

        targets = reports or []
        _check_paths(targets)
        options = _options(
            depth, expect=expect, destructive=destructive, seed=seed, timeout=timeout, max_time=max_time
        )
        runner = _runner(graph)

        # Half a second of imports: what is wrong with the command line is said before.
        from playhead.check.run import check_server
        from playhead.config.servers import resolve_target

        target = resolve_target(server, config)
        progress = Progress()

        def show(found: Found) -> None:
            found = replace(found, target=server, config=None if config is None else str(config))
            report.update(_loaded(to_json(found)))
            show_report(terminal, found)
            _write(terminal, targets, found)

        broken_off: list[Found] = []
        try:
            async with live_line(terminal, progress.line):
                found = await check_server(
                    target,
                    options,
                    on_test=progress.tested,
                    on_broken_off=broken_off.append,
                    runner=runner,
                )
        except BaseException:  # Ctrl-C above all: what was found so far is shown and written
            for part in broken_off:
                show(part)
            raise
        show(found)
        if found.mcp_service_status != "available":
            return EXIT_NO_CONNECTION
        return EXIT_DONE if found.passed else EXIT_FAILED

    run_command(command, json_output=json_output)


def _check_paths(paths: list[Path]) -> None:
    from playhead.check.report import check_path

    for path in paths:
        check_path(path)


def _options(
    depth: Depth,
    *,
    expect: Path | None,
    destructive: bool,
    seed: int,
    timeout: float | None,
    max_time: float | None,
) -> CheckOptions:
    from playhead.check.expectations import load_expectations
    from playhead.check.options import CheckOptions

    if expect is not None and depth is Depth.QUICK:
        raise UsageError("--expect needs a full check, a quick one calls nothing: playhead check SERVER full")
    options = CheckOptions(
        depth="full" if depth is Depth.FULL else "quick",
        seed=seed,
        allow_destructive=destructive,
        expectations=load_expectations(expect) if expect is not None else None,
    )
    if max_time is not None:
        options = replace(options, total_seconds=max_time)
    return options if timeout is None else replace(options, timeout_seconds=timeout)


def _runner(graph: Graph) -> Runner:
    if graph is Graph.LANGGRAPH:
        from playhead.check.langgraph import check_installed, run_under_langgraph

        check_installed()
        return run_under_langgraph
    from playhead.check.graph import run_graph

    return run_graph


def _loaded(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(text)
    return found


def _write(terminal: Terminal, paths: list[Path], found: Found) -> None:
    from playhead.check.report import write_report

    for path in paths:
        write_report(found, path)
        terminal.say(f"wrote {path}")
