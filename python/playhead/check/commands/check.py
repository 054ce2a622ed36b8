"""`playhead check`: test any server and report its defects, at the terminal and in files."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from playhead.check.commands.check_view import Progress, show_report
from playhead.cli import parameters as p
from playhead.cli.runner import EXIT_DONE, EXIT_FAILED, EXIT_NO_CONNECTION, run_command
from playhead.cli.runner import Report as Fields
from playhead.cli.targets import find_server
from playhead.cli.terminal import Terminal
from playhead.errors import UsageError
from playhead.escaping import counted
from playhead.extras import require_extra
from playhead.redaction import redacted_url

if TYPE_CHECKING:
    from playhead.check.baseline import Baseline
    from playhead.check.graph import Runner
    from playhead.check.results import Report


DepthName = Literal["quick", "full"]
MiningName = Literal["read-only", "all", "none"]
LevelName = Literal["must", "should"]
GraphRunner = Literal["own", "langgraph"]


def check(
    server: p.Server,
    depth: Annotated[
        DepthName,
        typer.Argument(metavar="DEPTH", help="quick: connect and list. full: call every tool, too."),
    ] = "quick",
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Write a report; .json, .md, .html or .xml (JUnit) selects the format. Repeatable.",
        ),
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option(
            "--expect",
            metavar="FILE",
            help="Calls to make and the expected answers: TOML, or JSON if FILE ends in .json.",
        ),
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft-expectations",
            metavar="FILE",
            help="Write an expectations file from the answers, to be edited.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PROVIDER:NAME",
            help="Let a model propose arguments for --draft-expectations, such as openai:gpt-5.",
        ),
    ] = None,
    base_url: p.ModelUrl = None,
    level: Annotated[
        LevelName,
        typer.Option("--level", help="Violations that fail the check: must, or should and must."),
    ] = "should",
    ignored: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="CHECK[=TOOL]",
            help="Don't fail for this check, on TOOL or anywhere. Repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline", metavar="FILE", help="Fail only for findings and definitions that FILE lacks."
        ),
    ] = None,
    write_baseline: Annotated[
        bool,
        typer.Option("--write-baseline", help="Write the findings and definitions to the --baseline FILE."),
    ] = False,
    load: Annotated[
        str | None,
        typer.Option(
            "--load",
            metavar="NxM",
            help="Measure N clients that repeat each tool's call M times, such as 8x100.",
        ),
    ] = None,
    destructive: Annotated[
        bool,
        typer.Option("--allow-destructive", help="Also call tools with destructiveHint: true."),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Record the requests and answers, without secrets, to FILE.cassette; check it as SERVER.",
        ),
    ] = None,
    mine: Annotated[
        MiningName,
        typer.Option("--mine", help="Tools to call with ids, paths and names that the server has named."),
    ] = "read-only",
    unproven: Annotated[
        bool,
        typer.Option("--allow-unproven", help="Exit 0 although no tool of a full check ever succeeded."),
    ] = False,
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", help="Seed of the generated arguments; the report names it."),
    ] = 0,
    config: p.ConfigFile = None,
    trusted: p.Trust = False,
    timeout: p.Timeout = None,
    deadline: p.Deadline = None,
    max_time: Annotated[
        float | None,
        typer.Option(
            "--max-time", min=0.001, metavar="SECONDS", help="Limit of the whole check. [default: 1800]"
        ),
    ] = None,
    graph: Annotated[
        GraphRunner,
        typer.Option("--graph", help="Runner of the state graph; langgraph needs playhead[langgraph]."),
    ] = "own",
    json_output: p.Json = False,
) -> None:
    """Test a server and report its defects.

    A failed check is a violation of the MCP specification or of the expectations
    file. If a tool answers generated arguments with an error, the result is
    undecided: a schema can't say which city exists.

    --level, --ignore and --baseline accept failures: they are reported and don't
    count. Exit code 1 if anything else failed, or if no tool of a full check ever
    succeeded (--allow-unproven), 3 if the server can't be reached. An interrupted
    check still shows and writes its findings.
    """

    async def command(terminal: Terminal, fields: Fields) -> int:
        from playhead.check.baseline import IgnoredCheck
        from playhead.check.catalogue import CATALOGUE
        from playhead.check.expectations import load_expectations
        from playhead.check.options import CheckOptions, LoadPlan
        from playhead.check.plugins import installed_plugins
        from playhead.check.report import check_path, to_json, write_report, write_text
        from playhead.cli.app import open_model

        paths = reports or []
        for path in paths:
            check_path(path)
        for option, value in (("--expect", expect), ("--load", load), ("--draft-expectations", draft)):
            if depth == "quick" and value is not None:
                raise UsageError(f"{option} {_NEEDS_FULL}")
        known = (*CATALOGUE, *(plugin.kind.name for plugin in installed_plugins()))
        options = CheckOptions(
            depth=depth,
            level=level,
            expectations=None if expect is None else load_expectations(expect),
            ignored=tuple(IgnoredCheck.parse(text, known) for text in ignored or []),
            load=None if load is None else LoadPlan.parse(load),
            seed=seed,
            allow_destructive=destructive,
            allow_unproven=unproven,
            mine=mine,
            baseline=_baseline(baseline, write=write_baseline),
        )
        if max_time is not None:
            options = replace(options, total_seconds=max_time)
        if timeout is not None:
            options = replace(options, timeout_seconds=timeout)
        if draft is not None:
            _check_draft(draft)
        elif model is not None:
            raise UsageError("--model proposes arguments for a draft: add --draft-expectations FILE")
        if model is None and base_url is not None:
            raise UsageError("--base-url is the address of a model: add --model PROVIDER:NAME")
        if record is not None:
            _check_record(record)
        runner = _runner(graph)

        # This import takes half a second, so errors in the command line are reported before it.
        from playhead.check.cassette import SUFFIX, CassetteRecorder, load_cassette
        from playhead.check.run import check_server
        from playhead.check.target import Checkable

        target: Checkable
        if server.endswith(SUFFIX):
            target, recorder = load_cassette(Path(server)), None
        else:
            target = named = await find_server(server, terminal, config=config, trusted=trusted)
            recorder = CassetteRecorder(secrets=named.secrets) if record is not None else None
        opened = open_model(model, base_url=base_url, terminal=terminal) if model else nullcontext()
        progress = Progress()
        whole_only = [name for name, it in (("baseline", write_baseline), ("draft", draft)) if it]

        def show(report: Report) -> Report:
            report = replace(
                report, target=_server_words(server), config=None if config is None else str(config)
            )
            report = terminal.redacted(report)
            is_whole = _is_whole(report)
            if is_whole and write_baseline and baseline is not None:
                report = _write_baseline(terminal, report, baseline)
            fields.update(json.loads(to_json(report)))
            show_report(terminal, report)
            for path in paths:
                write_report(report, path)
                terminal.say(f"wrote {path}", whole=True)
            if is_whole and draft is not None:
                _write_draft(terminal, report, draft)
            if not is_whole and whole_only:
                terminal.warn(f"the check is not complete: no {' or '.join(whole_only)} was written")
            return report

        interrupted: list[Report] = []
        try:
            async with opened as ask_model:
                with terminal.showing(progress.line):
                    report = await check_server(
                        target,
                        options,
                        on_test=progress.tested,
                        on_broken_off=interrupted.append,
                        runner=runner,
                        recorder=recorder,
                        ask_model=ask_model,
                    )
            if recorder is not None and record is not None:
                write_text(recorder.to_json(), record, what="cassette")
                terminal.say(f"wrote {record}: {counted(len(recorder.exchanges), 'exchange')}", whole=True)
        except BaseException:  # also after Ctrl-C, show and write the findings so far
            for partial_report in interrupted:
                show(partial_report)
            raise
        report = show(report)
        if report.mcp_service_status != "available":
            return EXIT_NO_CONNECTION
        is_done = report.passed and (_is_whole(report) or not whole_only)
        return EXIT_DONE if is_done else EXIT_FAILED

    run_command(command, json_output=json_output, deadline=deadline)


def _baseline(path: Path | None, *, write: bool) -> Baseline | None:
    """Read the baseline to compare with, unless it is about to be written."""
    from playhead.check.baseline import load_baseline
    from playhead.check.report import check_writable

    if path is None:
        if write:
            raise UsageError("--write-baseline needs the name of the file: --baseline FILE --write-baseline")
        return None
    if not write:
        return load_baseline(path)
    check_writable(path, what="baseline")
    return None


def _is_whole(report: Report) -> bool:
    """True if the check ran to its end. A partial list of findings must not become a baseline or draft."""
    return report.mcp_service_status == "available" and not (report.interrupted or report.timed_out)


def _write_baseline(terminal: Terminal, report: Report, path: Path) -> Report:
    """Write the baseline of `report`. Return the report with the findings marked as accepted."""
    from playhead.check.baseline import accept_recorded, baseline_of
    from playhead.check.report import write_text

    baseline = baseline_of(report)
    write_text(baseline.to_json(), path, what="baseline")
    findings, tools = counted(len(baseline.findings), "finding"), counted(len(baseline.tools), "tool")
    terminal.say(f"wrote {path}: {findings}, {tools}", whole=True)
    return accept_recorded(report, baseline)


def _check_record(path: Path) -> None:
    from playhead.check.cassette import SUFFIX
    from playhead.check.report import check_writable

    if path.suffix != SUFFIX:
        raise UsageError(f"--record {path}: expected a name ending in {SUFFIX}")
    check_writable(path, what="cassette")


def _check_draft(path: Path) -> None:
    from playhead.check.report import check_writable

    if path.suffix.lower() != ".json":
        require_extra("check", "drafts of expectations in TOML")
    check_writable(path, what="draft")


def _write_draft(terminal: Terminal, report: Report, path: Path) -> None:
    from playhead.check.expectations import draft_expectations
    from playhead.check.report import write_text

    text = draft_expectations(report, as_json=path.suffix.lower() == ".json")
    write_text(text, path, what="draft")
    terminal.say(f"wrote {path}: edit it, and use it with --expect", whole=True)


def _runner(graph: GraphRunner) -> Runner:
    from playhead.check.graph import run_graph, run_under_langgraph

    if graph == "own":
        return run_graph
    require_extra("langgraph", "checks with --graph langgraph")
    return run_under_langgraph


def _server_words(server: str) -> str:
    return redacted_url(server) if re.match(r"\w+://\S*$", server) else server


_NEEDS_FULL: Final = "needs a full check, since a quick one calls no tools: playhead check SERVER full"
