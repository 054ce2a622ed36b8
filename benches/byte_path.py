"""`python -m benches.byte_path`: the cost of bytes, calls and starts, compared with the bare SDK and another
commit.

    python -m benches.byte_path --against ace132b       # the whole table; the commit is built once
    python -m benches.byte_path --only start --rounds 7 # the rows with `start` in their name
    python -m benches.byte_path --smoke                 # each path once, small

The contenders of a row take turns, in reversed order every second round. The table shows medians and the
bounds of each row: a number, or a ratio to another contender in the same round. The exit status is 1 if a
bound is missed. The server is `benches/go`, built if Go is installed. Without Go `tests.servers.pages`
answers, which is slower and has no songs, and the rows of the Go loop and of the blob are left out. `--rmcp`
builds `benches/rmcp` with Cargo, which takes minutes the first time, and reads the pages with the official
Rust SDK.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import trio
from rich.console import Console
from rich.table import Table

from benches.against import python_of
from benches.board import machine
from benches.example_server import audio_server
from benches.music import encoded_music
from tests.servers.launch import REPOSITORY, http_process, pages_command

GO_SERVER = REPOSITORY / "target" / "bench" / "playhead-bench"
RMCP_TARGET = REPOSITORY / "target" / "rmcp"
RMCP_PEER = RMCP_TARGET / "release" / "playhead-rmcp-peer"
WORKERS = Path(__file__).with_name("workers.py")
RESULTS = Path(__file__).with_name("results")
"""The newest run of all rows, one row per line."""
SOME_RESULTS = REPOSITORY / "bench-results"
MIB = 1 << 20
BLOB_BYTES = 47 * MIB
OURS, BEFORE, STDLIB, PYBASE64, IMPORTS = "ours", "before", "SDK + stdlib", "SDK + pybase64", "five imports"
GO, GO_8, RMCP = "Go loop", "Go loop, 8 in flight", "rmcp"
WITHOUT_NUMPY = "import sys; sys.modules['numpy'] = None"
FIVE = "import mcp.client.session, trio, miniaudio, httpx2, httpcore2"

Measurement = Mapping[str, float | str]
Measure = Callable[[], Awaitable[Measurement]]
Contenders = dict[str, Measure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The median of `ours` is at most `value`; with `than`, the median of its ratios to that contender is."""

    value: float
    than: str | None = None

    def __str__(self) -> str:
        return f"≤ {self.value:g}" + (f"× {self.than}" if self.than else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Measurements of one quantity: element i of each contender belongs to round i."""

    name: str
    unit: str
    measurements: Mapping[str, Sequence[float]]
    bounds: Sequence[Bound] = ()
    notes: Mapping[str, object] = field(default_factory=dict)

    def measured(self, bound: Bound) -> float | None:
        ours = self.measurements[OURS]
        if bound.than is None:
            return statistics.median(ours)
        theirs = self.measurements.get(bound.than, ())
        if not all(theirs) or len(theirs) != len(ours):
            return None
        return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))

    def verdict(self, bound: Bound) -> str:
        measured = self.measured(bound)
        if measured is None:
            return "not measured"
        return f"{'met' if measured <= bound.value else 'MISSED'} ({measured:.3g})"


@dataclass(slots=True)
class Run:
    """The options of a run, and its rows so far."""

    before: Path | None
    smoke: bool
    rmcp: bool
    rounds: int
    out: Path | None
    """The raw numbers, written after each row: a run that is interrupted leaves those that it has."""
    rows: list[Row] = field(default_factory=list)

    def pythons(self) -> dict[str, str]:
        return {OURS: sys.executable} | ({BEFORE: str(self.before)} if self.before else {})

    async def in_turns(
        self, contenders: Contenders, rounds: int | None = None
    ) -> dict[str, list[Measurement]]:
        """Measure each contender once per round, after one round to warm up; a smoke run has one in all."""
        names = list(contenders)
        measurements: dict[str, list[Measurement]] = {name: [] for name in names}
        for turn in range(1 if self.smoke else (rounds or self.rounds) + 1):
            for name in names if turn % 2 else reversed(names):
                one = await contenders[name]()
                if turn or self.smoke:
                    measurements[name].append(one)
        return measurements

    def add(
        self,
        name: str,
        unit: str,
        measurements: Mapping[str, Sequence[Measurement]],
        key: str,
        *bounds: Bound,
    ) -> None:
        values = {who: [float(one[key]) for one in many] for who, many in measurements.items()}
        notes = {who: [dict(one) for one in many] for who, many in measurements.items()}
        row = Row(name=name, unit=unit, measurements=values, bounds=bounds, notes=notes)
        self.rows.append(row)
        self.write()
        medians = "; ".join(f"{who} {statistics.median(many):.4g}" for who, many in values.items())
        print(
            f"{name} ({unit}): {medians}  " + ", ".join(f"{b} {row.verdict(b)}" for b in bounds), flush=True
        )

    def is_met(self) -> bool:
        return self.smoke or not any("MISSED" in row.verdict(b) for row in self.rows for b in row.bounds)

    def print(self) -> None:
        table = Table(title="smoke run: bounds are shown, not held" if self.smoke else None)
        columns = (OURS, BEFORE, STDLIB, PYBASE64)
        for heading in ("", "unit", OURS, BEFORE, "ratio", STDLIB, PYBASE64, "other", "must"):
            table.add_column(heading, no_wrap=heading in {OURS, BEFORE})
        for row in self.rows:
            middle = {who: f"{statistics.median(many):.3g}" for who, many in row.measurements.items()}
            rest = ", ".join(f"{who} {middle[who]}" for who in middle if who not in columns)
            must = "\n".join(f"{bound}: {row.verdict(bound)}" for bound in row.bounds)
            ratio = row.measured(Bound(value=1.0, than=BEFORE))
            table.add_row(
                row.name,
                row.unit,
                middle[OURS],
                middle.get(BEFORE, ""),
                "" if ratio is None else f"{ratio:.2f}",
                middle.get(STDLIB, ""),
                middle.get(PYBASE64, ""),
                rest,
                must,
            )
        Console(width=150, file=sys.stdout).print(table)

    def write(self) -> None:
        if self.out is not None:
            self.out.parent.mkdir(exist_ok=True, parents=True)
            about = machine() | {"load": os.getloadavg()}
            rows = ",\n".join(json.dumps(asdict(row)) for row in self.rows)
            self.out.write_text(
                f'{{"machine": {json.dumps(about)}, "rows": [\n{rows}\n]}}\n', encoding="utf-8"
            )


def go_is_there() -> bool:
    """Build the Go program, if Go is installed."""
    if not shutil.which("go"):
        print("Go is not installed: tests.servers.pages answers, the Go loop and the blob are left out")
        return False
    build = ["go", "build", "-o", str(GO_SERVER), "."]
    subprocess.run(build, cwd=Path(__file__).with_name("go"), check=True)
    return True


@asynccontextmanager
async def serving(transport: str, *options: object, lean: bool = True) -> AsyncIterator[list[str]]:
    """The words that name a server to a worker: a URL, or a command line after `--`."""
    command = [str(GO_SERVER), "serve"] if lean and GO_SERVER.exists() else None
    if command is not None:
        command += ["-transport", transport, *(str(option) for option in options)]
    else:
        long = (f"-{word}" if str(word).startswith("-") else word for word in options)
        command = pages_command(transport, *long)
    if transport == "stdio":
        yield ["--", *command]
    else:
        async with http_process(command) as url:
            yield [url]


def build_rmcp() -> None:
    folder = Path(__file__).with_name("rmcp")
    build = ["cargo", "build", "--locked", "--release", "--quiet", "--target-dir", str(RMCP_TARGET)]
    subprocess.run(build, cwd=folder, check=True)


def worker(python: str, *words: object) -> AbstractAsyncContextManager[Measure]:
    """A process of `benches.workers`: each call of the yielded function is one measurement of it."""
    return measuring(python, WORKERS, *words)


@asynccontextmanager
async def measuring(*words: object) -> AsyncIterator[Measure]:
    """A process that measures once for each line, and writes what it measured as JSON."""
    command = [str(word) for word in words]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    async def measure() -> Measurement:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send_all(b"\n")
        line = b""
        while not line.endswith(b"\n"):
            part = await process.stdout.receive_some()
            if not part:
                raise RuntimeError(f"expected a measurement of {command}, got the end of its process")
            line += part
        measurement: Measurement = json.loads(line)
        return measurement

    try:
        yield measure
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


async def workers(
    run: Run,
    stack: AsyncExitStack,
    kind: str,
    options: Sequence[object],
    target: Sequence[str],
    sdk: Sequence[str],
) -> Contenders:
    """This tree and the commit before on `KIND_ours`, and the bare SDK on `KIND_sdk` with each of `sdk`."""
    contenders: Contenders = {}
    for name, python in run.pythons().items():
        contenders[name] = await stack.enter_async_context(worker(python, f"{kind}_ours", *options, *target))
    for name in sdk:
        decoder = {STDLIB: ["stdlib"], PYBASE64: ["pybase64"], "SDK": list[str]()}[name]
        more = (*options, *decoder, *target)
        contenders[name] = await stack.enter_async_context(worker(sys.executable, f"{kind}_sdk", *more))
    return contenders


async def page_cpu(run: Run) -> None:
    bounds = {
        ("stdio", 100): 0.35,
        ("ws", 100): 0.35,
        ("stdio", 1024): 1.7,
        ("http", 100): 0.75,
        ("http", 1024): 2.8,
    }
    rmcp_bounds = {("stdio", 100): 1.4, ("http", 100): 1.7}
    size = (2 if run.smoke else 32) * MIB
    for transport in ("stdio", "ws", "http"):
        for page_kib in (100, 1024):
            async with AsyncExitStack() as stack:
                target = await stack.enter_async_context(serving(transport, "-size", size))
                options = (page_kib * 1024, size)
                contenders = await workers(run, stack, "pages", options, target, (STDLIB, PYBASE64))
                if run.rmcp and transport != "ws":
                    peer = measuring(RMCP_PEER, *options, *target)
                    contenders[RMCP] = await stack.enter_async_context(peer)
                measurements = await run.in_turns(contenders)
            bound = bounds.get((transport, page_kib))
            of_rmcp = rmcp_bounds.get((transport, page_kib)) if run.rmcp else None
            run.add(
                f"client CPU per {page_kib} KiB page, {transport}",
                "ms",
                measurements,
                "ms",
                *([Bound(value=bound)] if bound else []),
                *([Bound(value=of_rmcp, than=RMCP)] if of_rmcp else []),
            )


async def whole_file(run: Run) -> None:
    """32 MiB over HTTP at 0 ms, from connecting to the complete file."""
    if not GO_SERVER.exists():
        return
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(serving("http", "-size", (2 if run.smoke else 32) * MIB))
        contenders = await workers(run, stack, "whole", (0,), target, ())
        small = await workers(run, stack, "whole", (100 * 1024,), target, (STDLIB, PYBASE64))
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=memory_directory()))

        async def go(in_flight: int) -> Measurement:
            words = ["-url", target[0], "-flight", str(in_flight), "-out", f"{folder}/saved"]
            done = await trio.run_process([str(GO_SERVER), "read", *words], capture_stdout=True)
            answer = json.loads(done.stdout)
            return {"s": answer["seconds"], "cpu_s": answer["cpu_seconds"], "sha256": answer["sha256"]}

        def whole(*command: str) -> Measure:
            return on_thread(partial(seconds_of, command))

        contenders |= {GO: partial(go, 1), GO_8: partial(go, 8)}
        contenders |= {
            name if name.startswith("SDK") else f"{name}, 100 KiB": one for name, one in small.items()
        }
        measurements = await run.in_turns(contenders)
        read = ["-m", "playhead", "read", target[0], "link", "-o", f"{folder}/read", "--json"]
        programs = {name: whole(python, *read) for name, python in run.pythons().items()}
        programs[GO] = whole(
            str(GO_SERVER), "read", "-url", target[0], "-flight", "1", "-out", f"{folder}/saved"
        )
        exits = await run.in_turns(programs)
    hashes = {one["sha256"] for many in measurements.values() for one in many}
    assert len(hashes) == 1, f"expected the same bytes of all, got {measurements}"
    bounds = (Bound(value=0.7, than=GO), Bound(value=1.0, than=GO_8))
    run.add("32 MiB, HTTP, 0 ms, from connecting", "s", measurements, "s", *bounds)
    run.add("CPU of that", "s", measurements, "cpu_s")
    run.add("32 MiB, HTTP, 0 ms, exec to exit", "s", exits, "s", Bound(value=1.2, than=GO))
    for name in run.pythons():
        measurements[name] = measurements.pop(f"{name}, 100 KiB")
    run.add("32 MiB, HTTP, 0 ms, 100 KiB pages", "s", measurements, "s")


async def calls(run: Run) -> None:
    for transport in ("stdio", "http"):
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(serving(transport))
            contenders = await workers(run, stack, "calls", (20 if run.smoke else 300,), target, ("SDK",))
            measurements = await run.in_turns(contenders)
        run.add(f"CPU of call_tool, {transport}", "µs", measurements, "us", Bound(value=1.1, than="SDK"))


async def blob(run: Run) -> None:
    """A result with 47 MiB in it. The SDK's stdio reader takes a minute for it: over HTTP only."""
    if not GO_SERVER.exists():
        return
    for transport in ("stdio", "http"):
        size = MIB if run.smoke else BLOB_BYTES
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(serving(transport, "-blob", size, "-size", MIB))
            sdk = (STDLIB, PYBASE64) if transport == "http" else ()
            measurements = await run.in_turns(await workers(run, stack, "blob", (), target, sdk))
        time_bound, memory_bound = (
            ([Bound(value=70)], [Bound(value=70)]) if transport == "stdio" else ([], [])
        )
        run.add(f"47 MiB blob, {transport}", "ms", measurements, "ms", *time_bound)
        run.add(f"47 MiB blob, {transport}, peak memory", "MiB", measurements, "mib", *memory_bound)


def memory_directory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def seconds_to_output(command: Sequence[str], *, on_terminal: bool, send: bytes = b"") -> Measurement:
    """Measure from exec to the first output of a process, which is then killed; with `on_terminal`, to the
    first byte on the terminal that replaces SINK in its words."""
    near, far = pty.openpty()
    tty.setraw(far)
    words = [word.replace("SINK", os.ttyname(far)) for word in command]
    started = time.perf_counter()
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL if on_terminal else subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(send)
        process.stdin.flush()
        if on_terminal:
            waiting = near
        else:
            assert process.stdout is not None
            waiting = process.stdout.fileno()
        os.read(waiting, 1)
        spent = time.perf_counter() - started
        os.killpg(process.pid, signal.SIGKILL)
    os.close(near)
    os.close(far)
    return {"s": spent}


def seconds_of(command: Sequence[str]) -> Measurement:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {"s": time.perf_counter() - started}


def on_thread(work: Callable[[], Measurement]) -> Measure:
    return partial(trio.to_thread.run_sync, work)


async def starts(run: Run) -> None:
    """Starts of processes, with the files in the page cache. The first audio is that of a wave sink.

    Without numpy, which miniaudio imports if it is installed, as it is for the tests: users have none.
    """
    imports = on_thread(partial(seconds_of, [sys.executable, "-c", FIVE]))
    tool = ["musicPlayer", "query=first", "--sink", "wave:SINK"]

    def of(words: Callable[[str], list[str]], *, on_terminal: bool, send: bytes = b"") -> Contenders:
        return {
            name: on_thread(partial(seconds_to_output, words(python), on_terminal=on_terminal, send=send))
            for name, python in run.pythons().items()
        }

    serve = ["-m", "playhead", "serve", "audio", "--mixer", "memory"]
    with audio_server() as (url, _):
        contenders = of(lambda python: [python, "-m", "playhead", "play", url, *tool], on_terminal=True)
        measurements = await run.in_turns(contenders | {IMPORTS: imports})
    bounds = (Bound(value=0.70), Bound(value=1.15, than=IMPORTS))
    run.add("start: exec to first audio, HTTP", "s", measurements, "s", *bounds)

    stages = {
        "start: the interpreter alone": "pass",
        "start: import of playhead.client": "import playhead.client",
        "start: import of playhead.playback": "import playhead.playback",
    }
    for name, code in stages.items():
        stage = {
            who: on_thread(partial(seconds_of, [python, "-c", code])) for who, python in run.pythons().items()
        }
        run.add(name, "s", await run.in_turns(stage), "s")

    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode() + b"\n"
    contenders = of(lambda python: [python, *serve], on_terminal=False, send=line)
    measurements = await run.in_turns(contenders)
    run.add("start: serve audio, exec to the answer to initialize", "s", measurements, "s", Bound(value=0.65))

    def both(python: str) -> list[str]:
        return [python, "-m", "playhead", "play", shlex.join([python, *serve]), *tool]

    measurements = await run.in_turns(of(both, on_terminal=True))
    run.add("start: Enter to first audio, play 'serve audio'", "s", measurements, "s", Bound(value=1.0))


async def resident_memory(run: Run) -> None:
    """RSS of `play`, a few seconds into real-time music over stdio."""
    music = encoded_music(320)
    seconds = 1.5 if run.smoke else 4.0

    async def rss(words: Sequence[str]) -> Measurement:
        process = await trio.lowlevel.open_process(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        await trio.sleep(seconds)
        status = await trio.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return {"mb": int(line.split()[1]) * 1024 / 1e6}

    async with serving("stdio", "-file", music) as target:
        server = shlex.join(target[1:])
        play = ["-m", "playhead", "play", server, "link", "--sink", "null", "--real-time"]
        contenders: Contenders = {
            name: partial(rss, [python, *play]) for name, python in run.pythons().items()
        }
        contenders[IMPORTS] = partial(rss, [sys.executable, "-c", f"{FIVE}; import time; time.sleep(60)"])
        measurements = await run.in_turns(contenders)
    bounds = (Bound(value=78), Bound(value=1.1, than=IMPORTS))
    run.add("RSS of play in steady state, stdio", "MB", measurements, "mb", *bounds)


async def plays(run: Run) -> None:
    """Songs in real time in one process, 320 kbit/s, for 60 s from the same moment on; one run of each."""
    seconds = 3 if run.smoke else 60
    for count in (8,) if run.smoke else (256, 128, 64):
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(serving("http", "-file", encoded_music(320)))
            measurements: dict[str, list[Measurement]] = {}
            for name, python in run.pythons().items():
                async with worker(python, "plays_ours", count, seconds, *target) as measure:
                    measurements[name] = [await measure()]
        bounds = (Bound(value=0),) if count == 256 else ()
        run.add(f"{count} plays in real time: underruns", "count", measurements, "underruns", *bounds)
        run.add(f"{count} plays in real time: cores", "cores", measurements, "cores")


async def many_at_once(run: Run) -> None:
    count, seconds, rounds = (10, 2, 1) if run.smoke else (500, 15, 1)
    kinds = (("connects", (count,), "failed"), ("paced", (count, seconds), "starved"))
    names = {
        "connects": f"{count} connects at once: failed",
        "paced": f"{count} paced reads at once: starved",
    }
    for kind, options, key in kinds:
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(serving("http", "-size", 32 * MIB))
            measurements = await run.in_turns(await workers(run, stack, kind, options, target, ()), rounds)
        run.add(names[kind], "count", measurements, key, Bound(value=0))


TABLE = {
    "page": page_cpu,
    "whole": whole_file,
    "call": calls,
    "blob": blob,
    "start": starts,
    "memory": resident_memory,
    "many": many_at_once,
    "plays": plays,
}


async def main(options: argparse.Namespace) -> int:
    go_is_there()
    with tempfile.TemporaryDirectory() as folder:
        await trio.Path(folder, "sitecustomize.py").write_text(WITHOUT_NUMPY, encoding="utf-8")
        os.environ["PYTHONPATH"] = folder  # of the processes to come
        return await measure_all(options)


async def measure_all(options: argparse.Namespace) -> int:
    before = python_of(options.against) if options.against else None
    folder = options.out or (SOME_RESULTS if options.only else RESULTS)
    out = None if options.smoke else folder / "byte-path.json"
    run = Run(before=before, smoke=options.smoke, rmcp=options.rmcp, rounds=options.rounds, out=out)
    if run.rmcp:
        build_rmcp()
    for name, measure in TABLE.items():
        if not options.only or name in options.only:
            await measure(run)
    run.print()
    if out is not None:
        print(f"raw numbers: {out}")
    return int(not run.is_met())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benches.byte_path", description=__doc__)
    parser.add_argument(
        "--against", metavar="COMMIT", help="a commit to measure too; built under target/against/"
    )
    parser.add_argument("--only", nargs="+", choices=TABLE, help="these parts of the table")
    parser.add_argument("--rmcp", action="store_true", help="measure the official Rust SDK too (needs Cargo)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="small sizes, one round; bounds are not held")
    parser.add_argument("--out", type=Path, help="directory of the raw numbers")
    sys.exit(trio.run(main, parser.parse_args()))
