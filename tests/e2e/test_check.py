"""`playhead check` as a person runs it: what it says, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.command import (
    HANG_SECONDS,
    REPOSITORY,
    at_terminal,
    playhead,
    playhead_process,
    start,
)

PLANTED = shlex.join([sys.executable, "-S", "-m", "tests.servers.planted"])
DUPLICATE = f"{PLANTED} duplicate-tool"


def test_a_sound_server_passes_and_the_summary_says_so() -> None:
    done = playhead_process("check", PLANTED)
    assert done.code == 0, done.stdout
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "none of 7 tools was called: a quick check proves none"
    assert lines[2] == "planted 1.0, MCP 2025-11-25: quick check, seed 0"
    assert lines[3].startswith("7 tools, ")
    assert lines[3].endswith(" 0 failed")
    assert done.stderr == ""


def test_what_failed_is_named_and_written_in_every_format(tmp_path: Path) -> None:
    paths = [tmp_path / f"report{suffix}" for suffix in (".json", ".md", ".html", ".xml")]
    options = [word for path in paths for word in ("--report", path)]
    done = playhead("check", DUPLICATE, "--seed", "7", *options)
    assert done.code == 1
    assert done.stderr.count("wrote ") == 4
    assert all("tools.list-unique" in path.read_text("utf-8") for path in paths)
    text = done.stdout.decode()
    assert "FAILED  listing tools · all pages" in text
    assert "tools.list-unique (should): No two tools have the same name" in text
    assert "'slow'" in text
    assert '  sent: {"method": "tools/list", "params": {}}' in text.splitlines()
    assert "seed 7" in text
    assert "1 failed" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_json_prints_the_report_alone_and_both_graphs_give_the_same() -> None:
    own, other = (
        playhead("check", DUPLICATE, "--json", "--graph", name).json for name in ("own", "langgraph")
    )
    for report in (own, other):
        del report["started_at"], report["seconds"]
        for test in report["detailed_results"]:
            del test["latency_ms"]
    assert own == other


def test_a_server_that_cannot_be_reached_is_exit_code_3(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = playhead("check", shlex.join([sys.executable, "-c", "raise SystemExit(9)"]), "--report", report)
    assert done.code == 3
    assert b"the server can't be reached" in done.stdout
    assert b"ended with exit status 9" in done.stdout
    assert json.loads(report.read_text("utf-8"))["mcp_service_status"] == "unavailable"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--report", "report.pdf"], ".json, .md, .html or .xml"),
        (["--report", "nowhere/report.md"], "create it first"),
        (["full", "--expect", "nowhere.toml"], "no such file"),
        (["--expect", "nowhere.toml"], "--expect needs a full check"),
        (["--draft-expectations", "draft.toml"], "--draft-expectations needs a full check"),
        (["full", "--draft-expectations", "nowhere/draft.toml"], "create it first"),
        (["--load", "8x100"], "--load needs a full check"),
        (["full", "--load", "8"], "expected CLIENTSxREQUESTS such as 8x100"),
        (["--ignore", "tools.sise"], "did you mean 'tools.size'?"),
        (["--write-baseline"], "--baseline FILE --write-baseline"),
        (["--baseline", "nowhere.json"], "no such file; record the current findings with --write-baseline"),
        (["all"], "quick"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_server_is_started(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    marker = tmp_path / "started"
    done = playhead("check", shlex.join(["touch", str(marker)]), *arguments, cwd=tmp_path)
    assert done.code == 2
    assert said in done.stderr
    assert not marker.exists()


def test_ctrl_c_ends_a_check_at_once_and_the_server_with_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start(["check", f"sh -c 'echo $$ > {fifo}; exec sleep 1000'", "--timeout", "100"])
    server = int(fifo.read_text())
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert b"interrupted" in stderr
    assert b"Traceback" not in stdout + stderr
    assert not Path(f"/proc/{server}").exists()


def test_ctrl_c_writes_what_was_found_up_to_then(tmp_path: Path) -> None:
    path, fifo, baseline = tmp_path / "report.json", tmp_path / "fifo", tmp_path / "baseline.json"
    os.mkfifo(fifo)
    line = f"sh -c 'echo $$ > {fifo}; exec sleep 1000'"
    to_write: list[str | Path] = ["--report", path, "--baseline", baseline, "--write-baseline"]
    process = start(["check", line, "--timeout", "100", *to_write, "--json"])
    assert fifo.read_text()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert b"the check is not complete: no baseline was written" in stderr
    assert not baseline.exists()
    written = json.loads(path.read_text("utf-8"))
    assert written["interrupted"] is True
    assert written["passed"] is False
    printed = json.loads(stdout)
    assert printed["error"] == "interrupted"
    assert printed["detailed_results"] == written["detailed_results"]


def test_a_terminal_sees_how_far_it_has_come() -> None:
    seen, code = at_terminal("check", f"{PLANTED} ping-hangs", "--timeout", "1")
    assert code == 1
    assert "1 test · connection: connect" in seen


def test_what_a_server_says_of_itself_reaches_no_terminal_as_it_is(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from tests.servers.planted.faultless import Faultless\n"
        "class Evil(Faultless):\n"
        "    def initialize(self, params):\n"
        "        info = {'name': 'evil\\x1b[31m', 'version': '\\u202e1'}\n"
        "        return {**super().initialize(params), 'serverInfo': info}\n"
        "    def tools(self):\n"
        "        return [self.plain_tool('to\\x1bol', 'A tool.')]\n"
        "Evil().run()\n"
    )
    done = playhead("check", shlex.join([sys.executable, "-S", str(server)]))
    text = done.stdout.decode()
    assert "\\x1b" in text
    assert "\\u{202E}" in text
    assert not {"\x1b", "\u202e"} & set(text + done.stderr)


# --- triage ----------------------------------------------------------------------------------------


def test_a_failure_of_a_should_does_not_fail_at_level_must() -> None:
    done = playhead("check", DUPLICATE, "--level", "must")
    text = done.stdout.decode()
    assert (done.code, "FAILED" in text) == (0, False)
    assert "accepted   listing tools · tools.list-unique (a SHOULD)" in text.splitlines()
    assert ", 0 failed, 1 accepted" in text


def test_an_ignored_check_does_not_fail_and_one_ignored_in_vain_is_named() -> None:
    options = ["--ignore", "tools.list-unique", "--ignore", "tools.size=echo"]
    done = playhead("check", DUPLICATE, *options, "--json")
    assert (done.code, done.json["passed"], done.json["accepted_tests"]) == (0, True, 1)
    assert done.json["remarks"] == ["the ignored check tools.size=echo did not fail"]


def test_a_baseline_makes_only_new_findings_fail(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    written = playhead("check", DUPLICATE, "--baseline", path, "--write-baseline")
    assert (written.code, written.stderr) == (0, f"wrote {path}: 1 finding, 7 tools\n")
    assert "(in the baseline)" in written.stdout.decode()
    content = path.read_text()
    known = playhead("check", DUPLICATE, "--baseline", path, "--report", tmp_path / "report.xml")
    assert (known.code, "<failure" in (tmp_path / "report.xml").read_text()) == (0, False)
    new = playhead("check", f"{PLANTED} annotation-of-text", "--baseline", path)
    assert new.code == 1
    assert "FAILED  tool " in new.stdout.decode()
    assert "tools.annotations (must)" in new.stdout.decode()
    assert "no longer found, though in the baseline: tools.list-unique" in new.stdout.decode()
    assert path.read_text() == content, "only --write-baseline writes"


def test_a_check_that_ran_out_of_time_writes_no_baseline_and_no_draft(tmp_path: Path) -> None:
    baseline, draft = tmp_path / "baseline.json", tmp_path / "draft.toml"
    to_write: list[str | Path] = ["--baseline", baseline, "--write-baseline", "--draft-expectations", draft]
    done = playhead("check", PLANTED, "full", "--max-time", "0.001", *to_write)
    assert (done.code, ", 0 failed" in done.stdout.decode()) == (1, True)
    assert "the check is not complete: no baseline or draft was written" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_changed_definition_is_drift(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    playhead("check", PLANTED, "--baseline", path, "--write-baseline")
    recorded = json.loads(path.read_text())
    recorded["tools"]["echo"]["description"] = "Something else."
    path.write_text(json.dumps(recorded))
    done = playhead("check", PLANTED, "--baseline", path)
    text = " ".join(done.stdout.decode().split())
    assert done.code == 1
    assert "FAILED tool echo · compared with the baseline drift.description (should)" in text
    assert 'expected description "Something else.", got' in text


def test_a_call_that_is_not_as_expected_fails_and_is_one_line_that_a_shell_runs(tmp_path: Path) -> None:
    file = tmp_path / "expect.toml"
    file.write_text('[[calls]]\ntool = "echo"\narguments = { text = "it\'s" }\npatterns = ["^ho$"]\n')
    done = playhead("check", PLANTED, "full", "--expect", file, "--timeout", "2")
    text = done.stdout.decode()
    assert done.code == 1
    assert "FAILED  tool echo" in text
    assert "^ho$" in text
    assert ", 1 failed" in text
    (line,) = [it.strip() for it in text.splitlines() if "playhead call" in it]
    command, *words = shlex.split(line)
    assert (command, words[0]) == ("playhead", "call")
    again = playhead(*words, "--json")
    assert again.code == 0
    assert "it's" in again.stdout.decode()


def test_a_draft_and_the_figures_of_a_load_are_written(tmp_path: Path) -> None:
    draft = tmp_path / "expect.toml"
    options = ["--draft-expectations", str(draft), "--load", "2x1", "--timeout", "2"]
    done = playhead("check", PLANTED, "full", *options, "--report", tmp_path / "report.md")
    assert done.code == 0, done.stdout
    assert f"wrote {draft}: edit it, and use it with --expect" in done.stderr.splitlines()
    assert '[[calls]]\ntool = "echo"\n' in draft.read_text()
    lines = done.stdout.decode().splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("Load, 2 clients"))
    assert lines[head].split()[3:] == ["p50", "p95", "Requests/s", "Bytes/s", "Failed"]
    assert lines[head + 1].startswith("tool ")
    assert max(map(len, lines)) <= 80
    assert "\n## Load\n" in (tmp_path / "report.md").read_text()
