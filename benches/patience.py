"""`python -m benches.patience`: players and readers, in real time, against servers that stall, fail, and die.

Each row is a server process and a `playhead` process. Several rows run side by side, each as long as its
music. `--only WORDS` runs the rows whose names contain the words. The exit status is 1 if a row fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import trio

from benches.music import CACHE, encoded_music
from tests.e2e.command import PLAYHEAD, environment
from tests.faults.verdicts import retries_in_the_busiest_second
from tests.servers.launch import http_process
from tests.servers.moods import Entry, Fault, Mood, Outage, Stall, truth
from tests.servers.moody_server import PIECES, moody_command, read_log
from tests.servers.wave import CHANNELS, RATE_HZ, wave_header

WAVE_SECONDS: Final = 60
MUSIC_TIMES: Final = 2
"""The piece takes 72 s, and the ring holds 79 s of it at 320 kbit/s: once would be read before any outage."""
AT_SECONDS: Final = 15.0
"""The time of a stall or an outage, from the first read: the ring has long been full."""

DOWN_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 60.0
REQUESTS_PER_SECOND: Final = 2
"""Retried ones, while a server is away."""

SLOW_PAGE_SECONDS: Final = 2.0
AT_ONCE: Final = 6

Report = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a command, and the log of its server."""

    code: int
    report: Report
    stderr: str
    exact: bool
    """`read` only: the file is the resource. True for `play`."""
    seconds: float
    log: Sequence[Entry]
    """Times are seconds from the first read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    command: str
    transport: str
    mood: Mood
    right: Callable[[Outcome], bool]
    server: str = "lives"
    """`lives`; `killed` once, and started again on the same port; `mortal`: dies each 30 s."""
    what: tuple[str, ...] = ("link",)


def plays_on(outcome: Outcome) -> bool:
    return outcome.code == 0 and outcome.report["underruns"] == 0


def plays(outcome: Outcome) -> bool:
    """The play reaches the end; stalls are allowed."""
    return outcome.code == 0


def reads(outcome: Outcome) -> bool:
    return outcome.code == 0 and outcome.exact


def is_quiet(outcome: Outcome) -> bool:
    return retries_in_the_busiest_second(outcome.log) <= REQUESTS_PER_SECOND


def gives_up(outcome: Outcome) -> bool:
    """The play fails once patience is over, and names the offset."""
    error = outcome.report["error"]
    last = max(entry.arrived_at for entry in outcome.log)
    return (
        outcome.code == 1
        and error["type"] == "StreamBrokenError"
        and "byte" in error["message"]
        and PATIENCE_SECONDS - 10 <= last < AT_SECONDS + PATIENCE_SECONDS + 10
        and is_quiet(outcome)
    )


def plays_out_the_buffer(outcome: Outcome) -> bool:
    position = float(outcome.report["position_seconds"])
    return outcome.code == 1 and position > AT_SECONDS + 5 and is_quiet(outcome)


def few_requests(outcome: Outcome) -> bool:
    return outcome.code == 1 and len(outcome.log) < 20 + REQUESTS_PER_SECOND * PATIENCE_SECONDS


def refuses_quickly(outcome: Outcome) -> bool:
    message = outcome.report["error"]["message"]
    soon = outcome.report["total_ms"] < 3000
    return outcome.code == 1 and soon and "uri-template" in message and "whole" in message


def wave() -> Path:
    """A minute of noise as CD audio; made once, kept under target/."""
    path = CACHE / f"noise-{WAVE_SECONDS}.wav"
    if not path.exists():
        size_bytes = 44 + WAVE_SECONDS * RATE_HZ * CHANNELS * 2
        CACHE.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wave_header(size_bytes) + truth(Mood(size_bytes=size_bytes - 44)))
    return path


def music() -> dict[str, Mood]:
    files = {"mp3": (encoded_music(320, times=MUSIC_TIMES), "audio/mpeg"), "CD": (wave(), "audio/wav")}
    return {
        name: Mood(
            file=str(path),
            mime_type=mime_type,
            size_bytes=path.stat().st_size,
            announced_bytes=path.stat().st_size,
            delay_seconds=0.02,
        )
        for name, (path, mime_type) in files.items()
    }


def rows() -> list[Row]:
    table: list[Row] = []
    for kind, mood in music().items():
        for transport in ("http", "stdio"):
            table += _rows(kind, mood, transport)
    mood = music()["mp3"]
    table.append(
        Row(
            name="mistyped URI",
            command="read",
            transport="http",
            mood=mood,
            right=refuses_quickly,
            what=(f"{PIECES}nothing",),
        )
    )
    return table


def _rows(kind: str, mood: Mood, transport: str) -> list[Row]:
    rows: list[Row] = []

    def add(
        name: str,
        mood: Mood,
        *,
        play: Callable[[Outcome], bool] | None = plays_on,
        read: Callable[[Outcome], bool] | None = reads,
        server: str = "lives",
    ) -> None:
        for command, right in (("play", play), ("read", read)):
            if right is not None:
                row = f"{kind}, {transport}, {name}, {command}"
                rows.append(
                    Row(name=row, command=command, transport=transport, mood=mood, right=right, server=server)
                )

    for seconds in (5.0, 20.0, 45.0) if kind == "mp3" else (5.0, 12.0):
        stall = Stall(at_seconds=AT_SECONDS, seconds=seconds)
        add(f"stall of {seconds:g} s", replace(mood, stall=stall), read=None)
        early = Stall(at_seconds=0.1, seconds=seconds)
        add(f"stall of {seconds:g} s at the start", replace(mood, stall=early), play=plays)
    add("every page 3 s", replace(mood, delay_seconds=3.0))
    if transport == "stdio":
        add("every page 3 s, serial", replace(mood, delay_seconds=3.0, serial=True), play=plays)
    for fault in (Fault(kind="-32603"), Fault(kind="503"), Fault(kind="429", retry_after_seconds=2)):
        add(f"one in twenty {fault.kind}", replace(mood, fault=fault))
    if transport == "http":
        # Reading lasts for longer than the server lives at first, however large its pages become.
        slow = replace(mood, delay_seconds=SLOW_PAGE_SECONDS, serial=True)
        add("killed, back after 10 s", mood, read=None, server="killed")
        add("killed, back after 10 s", slow, play=None, server="killed")
        dead = Outage(after_seconds=AT_SECONDS, how="hang-up")
        add("stays dead", replace(mood, outage=dead), play=plays_out_the_buffer, read=None)
        add("stays dead", replace(slow, outage=dead), play=None, read=gives_up)
        add("90 % of every page", replace(mood, cut_share=0.9), play=few_requests, read=few_requests)
    else:
        slow = replace(mood, delay_seconds=1.0, serial=True)
        add("killed each 30 s", slow, play=plays, server="mortal")
    return rows


@asynccontextmanager
async def serving(row: Row, folder: Path) -> AsyncIterator[list[str]]:
    """The words of the command line that name the row's server."""
    log = folder / "log"
    command = moody_command(row.transport, {"piece": row.mood}, log)
    if row.transport == "stdio":
        if row.server == "mortal":
            command += ["--lifetime", "30"]
        server = {"command": command[0], "args": command[1:], "playhead": {"restart": "always"}}
        config = folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"moody": server}}))
        yield ["moody", "--config", str(config)]
    elif row.server == "lives":
        async with http_process(command) as url:
            yield [url]
    else:
        async with (
            http_process([*command, "--lifetime", str(AT_SECONDS)]) as url,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_start_again, command, url)
            yield [url]
            nursery.cancel_scope.cancel()


async def _start_again(command: list[str], url: str) -> None:
    await trio.sleep(AT_SECONDS + DOWN_SECONDS)
    port = url.rpartition(":")[2].partition("/")[0]
    async with http_process([*command, "--port", port]):
        await trio.sleep_forever()


async def run(row: Row) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = folder / "saved"
        async with serving(row, folder) as server:
            own = ["-o", str(saved)] if row.command == "read" else ["--sink", "null", "--real-time"]
            words = [*PLAYHEAD, row.command, server[0], *row.what, *server[1:], *own, "--json"]
            started = time.monotonic()
            process = await trio.run_process(
                words, capture_stdout=True, capture_stderr=True, check=False, env=environment()
            )
            seconds = time.monotonic() - started
        log = read_log(folder / "log").get("piece", [])
        first = min((entry.arrived_at for entry in log), default=0.0)
        return Outcome(
            code=process.returncode,
            report=json.loads(process.stdout or b"{}"),
            stderr=process.stderr.decode(),
            exact=row.command == "play" or _digest(saved) == hashlib.sha256(truth(row.mood)).hexdigest(),
            seconds=seconds,
            log=[replace(entry, arrived_at=entry.arrived_at - first) for entry in log],
        )


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def line_of(row: Row, outcome: Outcome, *, is_right: bool) -> str:
    report = outcome.report
    error = report.get("error") or {}
    busiest = retries_in_the_busiest_second(outcome.log)
    return (
        f"{'yes' if is_right else 'NO':4} {row.name:46} exit {outcome.code} {outcome.seconds:6.1f} s  "
        f"underruns {report.get('underruns', '-')!s:3} first {report.get('first_audio_ms', '-')!s:7} "
        f"requests {len(outcome.log):4} retries {report.get('retries', '-')!s:3} in a second {busiest:3}  "
        f"{error.get('type', '')} {error.get('message', '')[:120]}"
    )


async def main(only: str, at_once: int) -> int:
    limiter = trio.CapacityLimiter(at_once)
    wrong: list[str] = []

    async def one(row: Row) -> None:
        async with limiter:
            outcome = await run(row)
        try:
            is_right = row.right(outcome)
        except KeyError:
            is_right = False
        print(line_of(row, outcome, is_right=is_right), flush=True)
        if not is_right:
            wrong.append(row.name)

    chosen = [row for row in rows() if all(word in row.name for word in shlex.split(only))]
    async with trio.open_nursery() as nursery:
        for row in chosen:
            nursery.start_soon(one, row)
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} rows are right")
    return int(bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benches.patience", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="rows whose names hold all these words")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="rows side by side")
    options = parser.parse_args()
    sys.exit(trio.run(main, options.only, options.at_once))
