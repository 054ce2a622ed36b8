"""Measurements in a process of their own, with the public API that every commit has.

    python benches/workers.py NAME … TARGET     one measurement for each line on stdin, as a JSON line

It is run by path, so that the interpreter of another commit's checkout measures its own playhead. TARGET is a
URL or, after `--`, a command line. The functions in `SDK` measure the bare SDK: reads one after another,
base64 of the standard library or of pybase64.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import re
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

Target = str | list[str]
Found = dict[str, float | str]
Measure = Callable[[], Awaitable[Found]]

PACE_BYTES_PER_SECOND = 40_000
"""320 kbit/s."""
START_SECONDS = 0.5
"""A paced reader begins with this much audio, like a player."""


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def status_bytes(field: str) -> int:
    """A field of /proc/self/status that is in kB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    assert match is not None, f"no {field} in /proc/self/status"
    return int(match.group(1)) * 1024


def reset_peak() -> None:
    """Make VmHWM what VmRSS is now (proc(5): 5 into clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


# playhead


@asynccontextmanager
async def pages_ours(target: Target, page_bytes: int, size: int) -> AsyncIterator[Measure]:
    """CPU per page of a whole resource, eight reads in flight."""
    from playhead.client import connect
    from playhead.stream.options import StreamOptions

    async with connect(target) as session:
        (link,) = (await session.call_tool("link")).links

        async def measure() -> Found:
            started, received = cpu_seconds(), 0
            async with session.open(
                link, options=StreamOptions(page_bytes=page_bytes, page_bytes_max=page_bytes, in_flight=8)
            ) as stream:
                async for chunk in stream:
                    received += len(chunk)
            spent = cpu_seconds() - started
            assert received == size, f"expected {size} bytes, got {received}"
            return {"ms": 1000 * spent * page_bytes / size}

        yield measure


@asynccontextmanager
async def whole_ours(target: Target, page_bytes: int) -> AsyncIterator[Measure]:
    """Measure from connecting to the complete file, hashed. `page_bytes` 0: the default pages."""
    from playhead.client import connect
    from playhead.stream.options import StreamOptions

    with tempfile.TemporaryDirectory(dir=memory_directory()) as folder:

        async def measure() -> Found:
            started, cpu, digest = time.perf_counter(), cpu_seconds(), hashlib.sha256()
            options = StreamOptions(profile="save")
            if page_bytes:
                options = replace(options, page_bytes=page_bytes, page_bytes_max=page_bytes)
            async with connect(target) as session:
                (link,) = (await session.call_tool("link")).links
                async with session.open(link, options=options) as stream:
                    await stream.save(Path(folder) / "saved", tap=digest.update)
            spent = time.perf_counter() - started
            return {"s": spent, "cpu_s": cpu_seconds() - cpu, "sha256": digest.hexdigest()}

        yield measure


@asynccontextmanager
async def calls_ours(target: Target, calls: int) -> AsyncIterator[Measure]:
    """CPU per `call_tool`."""
    from playhead.client import connect

    async with connect(target) as session:

        async def measure() -> Found:
            started = cpu_seconds()
            for _ in range(calls):
                await session.call_tool("link")
            return {"us": 1e6 * (cpu_seconds() - started) / calls}

        yield measure


@asynccontextmanager
async def blob_ours(target: Target) -> AsyncIterator[Measure]:
    """A tool result with one large blob: time, and peak memory on top of what there was before."""
    from playhead.client import connect

    async with connect(target) as session:

        async def call() -> int:
            received = 0
            result = await session.call_tool("blob")
            async with result.media[0].open() as stream:
                async for chunk in stream:
                    received += len(chunk)
            return received

        yield partial(time_and_memory, call)


@asynccontextmanager
async def connects_ours(target: Target, sessions: int) -> AsyncIterator[Measure]:
    """All `sessions` connect at once, and stay until all have, or failed to."""
    from playhead.client import connect
    from playhead.errors import PlayheadError

    async def measure() -> Found:
        started, connected, failed, done = time.perf_counter(), 0, 0, trio.Event()

        async def one() -> None:
            nonlocal connected, failed
            try:
                async with connect(target):
                    connected += 1
                    if connected + failed == sessions:
                        done.set()
                    await done.wait()
            except (PlayheadError, OSError) as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                failed += 1
                if connected + failed == sessions:
                    done.set()

        with trio.move_on_after(60) as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(sessions):
                    nursery.start_soon(one)
                await done.wait()
                spent = time.perf_counter() - started
        return {"failed": sessions - connected, "s": 60.0 if scope.cancelled_caught else spent}

    yield measure


@asynccontextmanager
async def paced_ours(target: Target, streams: int, seconds: float) -> AsyncIterator[Measure]:
    """`streams` reads of one session start at once, each taken at the pace of 320 kbit/s audio.

    One is starved if, once it had its first half second of audio, a chunk arrived later than it was due.
    """
    from playhead.client import connect
    from playhead.stream.options import StreamOptions

    # 500 rings fit into the budget of a process (`Limits.streams_bytes`).
    options = StreamOptions(capacity_bytes=256 * 1024)
    async with connect(target) as session:
        (link,) = (await session.call_tool("link")).links

        async def measure() -> Found:
            waits: list[float] = []
            starved = silent = 0

            async def one(began: float) -> None:
                nonlocal starved, silent
                received, due_from, late = 0, 0.0, False
                with trio.move_on_after(seconds):
                    async with session.open(link, options=options) as stream:
                        async for chunk in stream:
                            now = trio.current_time()
                            if due_from and now > due_from + received / PACE_BYTES_PER_SECOND:
                                late = True
                            received += len(chunk)
                            if not due_from and received >= START_SECONDS * PACE_BYTES_PER_SECOND:
                                due_from = now
                                waits.append(now - began)
                            # The next chunk is taken half a second before it is due.
                            ahead = received / PACE_BYTES_PER_SECOND - START_SECONDS
                            await trio.sleep_until(due_from + ahead if due_from else now)
                starved += late
                silent += not due_from

            started = cpu_seconds()
            async with trio.open_nursery() as nursery:
                for _ in range(streams):
                    nursery.start_soon(one, trio.current_time())
            return {
                "starved": starved + silent,
                "first_audio_s_max": max(waits, default=seconds),
                "cpu_s": cpu_seconds() - started,
            }

        yield measure


@asynccontextmanager
async def plays_ours(target: Target, plays: int, seconds: float) -> AsyncIterator[Measure]:
    """`plays` songs in real time from the same moment on, each a session and a null device of its own.

    Without garbage collection until all play, as docs/playback.md advises for so many.
    """
    from playhead.client import connect
    from playhead.playback import ItemError, ItemStart, NullSink, Player

    async def measure() -> Found:
        underruns, played, waits, connected = 0, [], [], 0
        everyone, start, everyone_plays = trio.Event(), trio.Event(), trio.Event()
        playing = 0
        gc.disable()
        few_at_once = trio.CapacityLimiter(16)

        async def one(song: int) -> None:
            nonlocal underruns, connected, playing
            async with few_at_once:
                opening = connect(target)
                session = await opening.__aenter__()
            try:
                (link,) = (await session.call_tool("link", {"song": song})).links
                connected += 1
                if connected == plays:
                    everyone.set()
                await start.wait()
                async with Player(NullSink(real_time=True)) as player:
                    events = player.events()
                    await player.play(link)
                    async for event in events:
                        if isinstance(event, ItemError):
                            raise event.error
                        if isinstance(event, ItemStart):
                            break
                    events.close()
                    playing += 1
                    if playing == plays:
                        everyone_plays.set()
                    with trio.move_on_after(seconds):
                        await player.wait_finished()
                    state = player.snapshot()
                    underruns += state.underruns
                    played.append(state.position_seconds)
                    waits.append(state.first_audio_seconds or seconds)
            finally:
                await opening.__aexit__(None, None, None)

        async with trio.open_nursery() as nursery:
            for song in range(plays):
                nursery.start_soon(one, song)
            await everyone.wait()
            cpu, began = cpu_seconds(), time.perf_counter()
            start.set()
            with trio.move_on_after(seconds):
                await everyone_plays.wait()
            gc.freeze()
            gc.enable()
        return {
            "underruns": underruns,
            "played_s_min": min(played),
            "first_audio_s_max": max(waits),
            "cores": (cpu_seconds() - cpu) / (time.perf_counter() - began),
            "mib": status_bytes("VmHWM") / 2**20,
        }

    yield measure


# The bare SDK


@asynccontextmanager
async def sdk_client(target: Target) -> AsyncIterator[Any]:
    """A client of the bare SDK; over WebSocket, which the SDK lacks, on our transport."""
    from mcp import Client, StdioServerParameters

    server: Any = target
    if isinstance(target, list):
        server = StdioServerParameters(command=target[0], args=target[1:])
    elif target.startswith("ws"):
        from playhead.client.transports.sdk_websocket import websocket_transport

        server = websocket_transport(target)
    async with Client(server) as client:
        yield client


def decoder_of(name: str) -> Callable[[str], bytes]:
    if name == "stdlib":
        return base64.b64decode
    import pybase64

    return partial(pybase64.b64decode, validate=True)


async def sdk_pages(client: Any, decode: Callable[[str], bytes], page_bytes: int) -> AsyncIterator[bytes]:
    import mcp_types as types

    (link,) = (await client.call_tool("link", {})).content
    for start in range(0, link.size, page_bytes):
        params = types.ReadResourceRequestParams(uri=f"{link.uri}?start={start}&end={start + page_bytes}")
        result = await client.session.send_request(
            types.ReadResourceRequest(params=params),
            types.ReadResourceResult,
            request_read_timeout_seconds=30,
        )
        yield decode(result.contents[0].blob)


@asynccontextmanager
async def pages_sdk(target: Target, page_bytes: int, size: int, decoder: str) -> AsyncIterator[Measure]:
    async with sdk_client(target) as client:

        async def measure() -> Found:
            started, received = cpu_seconds(), 0
            async for data in sdk_pages(client, decoder_of(decoder), page_bytes):
                received += len(data)
            assert received == size, f"expected {size} bytes, got {received}"
            return {"ms": 1000 * (cpu_seconds() - started) * page_bytes / size}

        yield measure


@asynccontextmanager
async def whole_sdk(target: Target, page_bytes: int, decoder: str) -> AsyncIterator[Measure]:
    with tempfile.TemporaryDirectory(dir=memory_directory()) as folder:

        async def measure() -> Found:
            started, cpu, digest = time.perf_counter(), cpu_seconds(), hashlib.sha256()
            async with sdk_client(target) as client:
                with (Path(folder) / "saved").open("wb") as file:
                    async for data in sdk_pages(client, decoder_of(decoder), page_bytes):
                        file.write(data)
                        digest.update(data)
            spent = time.perf_counter() - started
            return {"s": spent, "cpu_s": cpu_seconds() - cpu, "sha256": digest.hexdigest()}

        yield measure


@asynccontextmanager
async def calls_sdk(target: Target, calls: int) -> AsyncIterator[Measure]:
    async with sdk_client(target) as client:

        async def measure() -> Found:
            started = cpu_seconds()
            for _ in range(calls):
                await client.call_tool("link", {})
            return {"us": 1e6 * (cpu_seconds() - started) / calls}

        yield measure


@asynccontextmanager
async def blob_sdk(target: Target, decoder: str) -> AsyncIterator[Measure]:
    async with sdk_client(target) as client:

        async def call() -> int:
            result = await client.call_tool("blob", {})
            return len(decoder_of(decoder)(result.content[0].resource.blob))

        yield partial(time_and_memory, call)


# Both


async def time_and_memory(call: Callable[[], Awaitable[int]]) -> Found:
    gc.collect()
    reset_peak()
    before, started = status_bytes("VmRSS"), time.perf_counter()
    n_bytes = await call()
    spent = time.perf_counter() - started
    return {"ms": 1000 * spent, "mib": (status_bytes("VmHWM") - before) / 2**20, "bytes": n_bytes}


def memory_directory() -> str | None:
    """A directory in memory, if the system has one: a disk's noise is not ours."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


MEASUREMENTS: dict[str, Callable[..., Any]] = {
    run.__name__: run
    for run in (pages_ours, whole_ours, calls_ours, blob_ours, connects_ours, paced_ours, plays_ours)
}
SDK: dict[str, Callable[..., Any]] = {
    run.__name__: run for run in (pages_sdk, whole_sdk, calls_sdk, blob_sdk)
}


async def main(name: str, options: list[str | int], target: Target) -> None:
    async with (MEASUREMENTS | SDK)[name](target, *options) as measure:
        while await trio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await measure()), flush=True)


if __name__ == "__main__":
    _script, chosen, *words = sys.argv
    if "--" in words:
        cut = words.index("--")
        place: Target = words[cut + 1 :]
        words = words[:cut]
    else:
        place = words.pop()
    trio.run(main, chosen, [int(word) if word.isdigit() else word for word in words], place)
