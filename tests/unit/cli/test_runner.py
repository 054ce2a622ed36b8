"""The end of a command: its exit code, its single error, and the error in `--json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import typer

from playhead.cli.runner import INVOKED, Command, Invocation, Report, run_command
from playhead.cli.terminal import Terminal
from playhead.errors import ConnectionLostError, StreamBrokenError


def run(
    command: Command, capsys: pytest.CaptureFixture[str], *, deadline: float | None = None
) -> tuple[int, dict[str, Any], str]:
    """The exit code, the report, and what was said on stderr (in one line)."""
    with pytest.raises(typer.Exit) as ended:
        run_command(command, json_output=True, deadline=deadline)
    out, err = capsys.readouterr()
    return ended.value.exit_code, json.loads(out), " ".join(err.split())


def test_a_deadline_ends_the_command_with_what_was_done_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    cleaned = False

    async def command(terminal: Terminal, report: Report) -> int:
        nonlocal cleaned
        report["bytes"] = 5
        try:
            await trio.sleep_forever()
        finally:
            cleaned = True
        return 0

    INVOKED.set(Invocation(name="playhead read", options=frozenset({"--timeout"})))
    code, report, said = run(command, capsys, deadline=0.01)
    assert (code, report["bytes"], cleaned) == (1, 5, True)
    assert report["error"]["type"] == "DeadlineError"
    assert "expected `playhead read` to finish within 0.01 s (--deadline)" in report["error"]["message"]
    assert "--timeout" not in said
    assert said == f"error: {report['error']['message']}"


def test_what_fails_on_the_way_out_of_a_deadline_is_not_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def command(terminal: Terminal, report: Report) -> int:
        async def fails_when_cancelled() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ConnectionLostError("it was us")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_when_cancelled)
            await trio.sleep_forever()
        return 0

    code, report, said = run(command, capsys, deadline=0.01)
    assert code == 1
    assert report["error"]["type"] == "DeadlineError"
    assert "it was us" not in said


def test_a_command_that_is_done_before_its_deadline_keeps_its_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def command(terminal: Terminal, report: Report) -> int:
        await trio.lowlevel.checkpoint()
        return 3

    code, report, said = run(command, capsys, deadline=1000)
    assert (code, report, said) == (3, {"error": None}, "")


def test_an_error_before_the_deadline_is_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def command(terminal: Terminal, report: Report) -> int:
        await trio.lowlevel.checkpoint()
        raise StreamBrokenError("starved", offset=7)

    INVOKED.set(Invocation(name="playhead read", options=frozenset({"--patience"})))
    code, report, said = run(command, capsys, deadline=1000)
    assert code == 1
    assert report["error"]["offset"] == 7
    assert said == "error: starved; --patience SECONDS waits longer"


def test_a_current_directory_that_is_gone_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def command(terminal: Terminal, report: Report) -> int:
        Path.cwd()
        return 0

    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, report, _ = run(command, capsys)
    assert (code, report["error"]["message"]) == (2, "the current directory: No such file or directory")
