"""Hostile stdio servers: what they cost a client, and what it says. One row each, in a process of its own."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import hostile_servers
from tests.faults.hostile_runs import ROOT, Run, left_of, run_against

pytestmark = [
    pytest.mark.slow("a client and a server process for each of 39 rows; some rows wait for deadlines"),
    pytest.mark.xdist_group("many_processes"),  # side by side within, but not with the planted defects
    pytest.mark.timeout(300),  # the first test waits for all of them
]

PEAK_BYTES = 400_000_000
RAW_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The required end of a run. `survives`: the connection still answers after the misbehaviour."""

    exit_code: int
    says: str
    survives: bool


def fails(says: str) -> Expected:
    """One request fails; the session goes on."""
    return Expected(exit_code=1, says=f"it: {says}", survives=True)


def ends(says: str) -> Expected:
    """The connection, or what can be had from it, ends."""
    return Expected(exit_code=1, says=f"it: {says}", survives=False)


def unreachable(says: str) -> Expected:
    return Expected(exit_code=3, says=f"connect: ConnectError: .*{says}", survives=False)


def is_fine(says: str = "") -> Expected:
    return Expected(exit_code=0, says=f"it: ok{says}", survives=True)


FINE = is_fine()

ROWS: dict[str, Expected] = {
    # security.md, line 3: sizes
    "endless_line_that_is_no_message": ends("LimitError: .*limit message_bytes"),
    "endless_answer": ends("LimitError: .*limit message_bytes"),
    "endless_log_lines": ends("DeadlineError"),
    "notifications_100_mb": FINE,
    "foreign_notifications_100_mb_in_one_line": FINE,
    "answer_of_200_mb": fails("LimitError: .*limit message_bytes"),
    "answer_of_200_mb_with_its_id_last": fails("LimitError: .*limit message_bytes"),
    "answer_at_the_limit": FINE,
    "twenty_million_values": fails("LimitError: .*limit json_values"),
    "requests_that_leave_no_room": ends("LimitError: .*limit server_requests"),
    # line 4: structure
    "nesting_of_100k": fails("LimitError: .*limit json_depth"),
    "nesting_of_60m_unclosed": fails("LimitError: .*limit json_values"),
    "sixty_mib_of_escapes": fails("LimitError: .*limit json_depth"),
    "invalid_utf8_lines_before_the_answer": FINE,
    "garbage_and_logs_before_the_answer": FINE,
    "foreign_ids_100_mb": FINE,
    "answers_after_cancellation": FINE,
    "contents_of_unknown_type": fails("ProtocolError: .*neither text nor blob"),
    "blocks_of_unknown_type": is_fine(", 'known known' and 4 unknown"),
    # line 5: endless and lying streams
    "stream_that_never_ends": fails("LimitError: .*stream_bytes.*bytes, all true"),
    "stream_of_the_same_page_for_ever": is_fine(", 102400 bytes, all true"),
    "stream_of_pages_longer_than_asked_for_ever": fails("LimitError: .*bytes, all true"),
    "stream_of_noise_for_ever": fails("LimitError: .*stream_bytes"),
    "stream_of_text": fails("TextContentError"),
    "stream_of_broken_base64": fails("Base64Error"),
    # line 6: the process
    "partial_line_then_death": ends("ConnectionLostError: .*exit status 7.*fatal"),
    "killed_by_a_signal": ends("ConnectionLostError: .*SIGSEGV"),
    "stdout_closed_but_alive": ends("ConnectionLostError: .*closed its stdout"),
    "stderr_flood_of_200_mb": FINE,
    "never_answers": ends("DeadlineError"),
    "slow_drip": ends("DeadlineError"),
    "ignores_sigterm": Expected(exit_code=0, says="it: ok", survives=False),
    "leaves_grandchildren": FINE,
    "dies_and_a_grandchild_holds_its_pipes": ends("ConnectionLostError: .*exit status 3"),
    "never_answers_initialize": unreachable("handshake_seconds"),
    "rubbish_for_initialize": unreachable("invalid initialize result"),
    "dies_at_start": unreachable("exit status 4.*cannot open the device"),
    "never_reads": unreachable("handshake_seconds"),
    # line 9: the terminal (every row is held against it)
    "error_with_control_characters": fails(r"ServerError: .*\\x1b\[31mred"),
}


def test_every_hostile_server_has_a_row() -> None:
    assert set(ROWS) == set(hostile_servers.names())


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The selected rows, side by side."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    names = [name for found in parameters if (name := found.get("name")) in ROWS]
    return {run.name: run for run in run_against(names, tmp_path_factory.mktemp("hostile"))}


@pytest.mark.parametrize("name", ROWS)
def test_a_hostile_server_costs_bounded_memory_and_ends_in_a_typed_error(
    name: str, runs: dict[str, Run]
) -> None:
    expected = ROWS[name]
    run = runs[name]

    assert re.search(f"^({expected.says})", run.output, re.MULTILINE), run.output
    assert run.exit_code == expected.exit_code, run.output
    if expected.survives:
        assert run.lines["after"].startswith("ok"), run.output
    assert 0 < run.peak_bytes < PEAK_BYTES
    assert "Traceback" not in run.output
    assert "Exception ignored" not in run.output
    assert RAW_CONTROL.search(run.output) is None, repr(run.output)
    assert run.left_behind == []


def start_client(name: str, pids: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A client that waits for an answer, and its server's pid; both are running when this returns."""
    os.mkfifo(pids)
    client = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.hostile_client", name, str(pids)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return client, int(pids.read_text(encoding="ascii"))


def wait_gone(pid: int, seconds: float) -> bool:
    """Return whether a process that is not our child ends within the time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open: waits for a non-child process")
def test_a_server_that_ignores_the_end_of_its_stdin_goes_when_its_client_is_killed(tmp_path: Path) -> None:
    client, server = start_client("never_reads", tmp_path / "pids")
    left = left_of(server)
    assert server in left
    client.kill()
    client.communicate()
    assert [pid for pid in left if not wait_gone(pid, 10.0)] == []
    assert left_of(server) == ()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open: waits for a non-child process")
def test_ctrl_c_ends_a_stubborn_server_at_once_and_without_a_word(tmp_path: Path) -> None:
    client, server = start_client("never_reads", tmp_path / "pids")
    client.send_signal(signal.SIGINT)
    output, _ = client.communicate(timeout=30)
    assert client.returncode == 130, output
    assert output == b""
    assert [pid for pid in left_of(server) if not wait_gone(pid, 10.0)] == []
