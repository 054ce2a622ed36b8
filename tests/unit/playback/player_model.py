"""A world for a real player in which nothing is left to chance, and two ways through it.

`explore` goes breadth first over the distinct states that public operations of two tasks lead to, and
`schedule` makes one random run. Media, sinks and time are scripted, and no thread runs: what a decoder's
thread would do is one step of its task. After every run each call has to end: by itself, or at the latest
when everything is stopped.

    python -m tests.unit.playback.player_model --operations 6 --schedules 10000
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import product
from typing import Any

import trio
import trio._core._run as scheduler
from trio.testing import MockClock, wait_all_tasks_blocked

import playhead.playback.item
from playhead.concurrency import T
from playhead.errors import PlayheadError, StreamBrokenError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.player import Player
from playhead.playback.state import ItemEnd, ItemError, ItemStart, PlayerEvent, StateChange, Status
from playhead.stream.options import StreamOptions
from playhead.stream.source import BytesReader

RATE_HZ = 8000
PERIOD_SECONDS = 0.04
OPERATIONS_AT_MOST = 6
STOP_SECONDS = 0.1
"""The most that a stop may take, in the world's time."""
DAY_SECONDS = 86_400.0
LONG_SECONDS = 300.0
"""Longer than anything that ends by itself."""


class Kind(Enum):
    """An item by what goes wrong with it."""

    SHORT = "a tenth of a second"
    LONG = "a second"
    SLOW = "opens after five seconds"
    HANGING = "never opens"
    REFUSED = "fails to open"
    DAMAGED = "breaks after its first audio"
    ABANDONED = "its context fails while it plays"
    STUBBORN = "takes ten seconds to close, even if cancelled"


class BreakingReader(BytesReader):
    """Breaks where it ends."""

    def readinto(self, buffer: Any, timeout: float | None = None) -> int:
        count = super().readinto(buffer, timeout)
        if not count:
            raise StreamBrokenError("cut", offset=0)
        return count


@dataclass
class Piece:
    kind: Kind
    title: str = ""
    mime_type: str | None = f"audio/L16;rate={RATE_HZ};channels=1"
    uri: str | None = None
    size_bytes: int | None = None

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[BytesReader]:
        match self.kind:
            case Kind.SLOW:
                await trio.sleep(5.0)
            case Kind.HANGING:
                await trio.sleep_forever()
            case Kind.REFUSED:
                raise StreamBrokenError("refused", offset=0)
            case _:
                await trio.lowlevel.checkpoint()
        seconds = 0.1 if self.kind is Kind.SHORT else 1.0
        make = BreakingReader if self.kind is Kind.DAMAGED else BytesReader
        try:
            if self.kind is Kind.ABANDONED:
                with trio.move_on_after(0.06) as scope:
                    yield make(bytes(int(2 * RATE_HZ * seconds)))
                if scope.cancelled_caught:
                    raise StreamBrokenError("its connection is lost", offset=0)
            else:
                yield make(bytes(int(2 * RATE_HZ * seconds)))
        finally:
            if self.kind is Kind.STUBBORN:
                with trio.CancelScope(shield=True):
                    await trio.sleep(10.0)


async def run_inline(
    work: Callable[[], T],
    *,
    wake: Callable[[], None],
    ended: trio.Event | None = None,
    join_seconds: float = 0.0,
) -> T:
    """`run_thread` without a thread: the work never blocks here."""
    try:
        await trio.lowlevel.checkpoint()
    except trio.Cancelled:
        wake()
        raise
    finally:
        if ended is not None:
            ended.set()
    return work()


class ScriptedSink:
    """Takes a period at a time: paced by the clock, as a device does, or as soon as there is one."""

    name = "scripted"

    def __init__(self, *, real_time: bool) -> None:
        self._real_time = real_time
        self.playing = 0
        self.buffer: PcmBuffer | None = None

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        self.playing += 1
        assert self.playing == 1, "two queues at one sink"
        try:
            async for buffer in buffers:
                self.buffer = buffer
                await (self._play_in_time(buffer) if self._real_time else self._take(buffer))
        finally:
            self.playing -= 1
            self.buffer = None

    async def _play_in_time(self, buffer: PcmBuffer) -> None:
        await buffer.wait_ready()
        out = bytearray(int(PERIOD_SECONDS * RATE_HZ) * buffer.format.frame_bytes)
        while not buffer.over:
            if not buffer.fill(out):
                await buffer.wait_change()  # silence needs no clock
            else:
                await trio.sleep(PERIOD_SECONDS)

    async def _take(self, buffer: PcmBuffer) -> None:
        out = bytearray(4096)
        while not buffer.over:
            over = buffer._mixed  # as `take` does, which would block
            source = buffer if over is None or over.held or over.paused or over.over else over
            if source.held or source.paused:
                await buffer.wait_change()
            else:
                source._take_alone(out)
                await trio.lowlevel.checkpoint()


OPERATIONS = ("play", "enqueue", "next", "previous", "stop", "seek", "pause", "wait", "announce")


@dataclass(frozen=True, slots=True)
class Step:
    """An operation of a task. `settled`: everything that it leads to happens before the next step. An empty
    operation lets time pass until the next deadline."""

    task: int
    operation: str
    settled: bool


TICK = Step(0, "", True)
Script = tuple[Kind, ...]
"""The kinds of the items: the first two are played, the third one is enqueued, the last one announced."""
SCRIPTS: tuple[Script, ...] = (
    (Kind.SHORT, Kind.LONG, Kind.SHORT, Kind.SHORT),
    (Kind.SLOW, Kind.SHORT, Kind.SLOW, Kind.SLOW),
    (Kind.HANGING, Kind.SHORT, Kind.DAMAGED, Kind.SHORT),
    (Kind.REFUSED, Kind.HANGING, Kind.LONG, Kind.REFUSED),
    (Kind.DAMAGED, Kind.SLOW, Kind.SHORT, Kind.DAMAGED),
    (Kind.ABANDONED, Kind.LONG, Kind.SHORT, Kind.ABANDONED),
    (Kind.STUBBORN, Kind.SHORT, Kind.STUBBORN, Kind.STUBBORN),
    (Kind.LONG, Kind.REFUSED, Kind.ABANDONED, Kind.HANGING),
)


@dataclass
class World:
    """One player with two tasks that call it."""

    script: Script
    player: Player
    sink: ScriptedSink
    nursery: trio.Nursery
    calls: dict[int, deque[str]] = field(default_factory=lambda: {0: deque(), 1: deque()})
    """The operations of each task that have not returned, the first of them begun."""

    def start(self, step: Step) -> None:
        calls = self.calls[step.task]
        calls.append(step.operation)
        if len(calls) == 1:
            self.nursery.start_soon(self._run, step.task)

    async def _run(self, task: int) -> None:
        calls = self.calls[task]
        while calls:
            with suppress(PlayheadError):  # a call may be refused, and `wait` raises what failed
                await self._call(calls[0])
            calls.popleft()

    async def _call(self, operation: str) -> None:
        player, (first, second, third, said) = self.player, self.script
        match operation:
            case "play":
                await player.play([Piece(first, "a"), Piece(second, "b")])
            case "enqueue":
                await player.enqueue(Piece(third, "c"))
            case "next" | "previous" | "stop":
                await getattr(player, operation)()
            case "seek":
                await player.seek(0.05)
            case "pause":
                (player.resume if player.snapshot().holds else player.pause)()
            case "wait":
                await player.wait_finished()
            case "announce":
                async with player.announce(Piece(said, "said")):
                    pass

    @property
    def state(self) -> tuple[Any, ...]:
        """The properties that distinguish one state from another, without numbers of frames."""
        player, controller = self.player, self.player._controller
        snapshot, item, upcoming, said = (
            player.snapshot(),
            controller.item,
            controller._upcoming,
            player._announcement,
        )
        said_item = None if said is None else said._controller.item
        return (
            snapshot.status,
            snapshot.title,
            None if snapshot.index is None else min(snapshot.index, 1),
            min(snapshot.queue_length - (snapshot.index or 0), 3),
            snapshot.holds,
            item and (item.phase, item.decoded, item.error is None, item.buffer and item.buffer.phase),
            upcoming and (upcoming.media.title, upcoming.phase, upcoming.decoded),
            said_item and (said_item.phase, said_item.buffer and said_item.buffer.phase),
            controller._run and (controller._run.is_open, len(controller._run.items)),
            self.sink.buffer and self.sink.buffer.phase,
            tuple(tuple(self.calls[task]) for task in (0, 1)),
        )

    async def conclude(self) -> None:
        """Every call ends, and the player is as good as new."""
        await trio.sleep(LONG_SECONDS)
        left = None
        while left != 0:
            before, left = left, sum(map(len, self.calls.values()))
            assert left != before, (
                f"did not return after a stop: {[*self.calls[0]][:1]}, {[*self.calls[1]][:1]}"
            )
            for player in (self.player._announcement, self.player):
                if player is not None:
                    player.resume()
                    began = trio.current_time()
                    await player.stop()
                    assert trio.current_time() - began <= STOP_SECONDS
            await trio.sleep(LONG_SECONDS)
        await self.player.play(Piece(Kind.SHORT, "last"))
        with trio.fail_after(LONG_SECONDS):
            await self.player.wait_finished()
        state = self.player.snapshot()
        assert (state.status, state.frames) == (Status.IDLE, RATE_HZ // 10), state


def check_events(events: list[PlayerEvent]) -> None:
    """One item after another, each with one end; a status is reported when it changes."""
    begun: str | None = None
    status: Status | None = None
    for event in events:
        match event:
            case ItemStart():
                assert begun is None, f"{event.title} starts while {begun} plays"
                begun = event.title
            case ItemEnd() | ItemError():
                assert begun in (None, event.title), f"{event.title} ends while {begun} plays"
                begun = None
            case StateChange():
                assert event.state.status is not status, f"{status} was reported twice"
                status = event.state.status
            case _:
                pass
    assert begun is None, f"{begun} has no end"


@asynccontextmanager
async def open_world(script: Script, *, real_time: bool) -> AsyncIterator[World]:
    sink, seen = ScriptedSink(real_time=real_time), list[PlayerEvent]()
    async with trio.open_nursery() as nursery:
        async with Player(sink) as player:
            player._events.send = seen.append  # type: ignore[assignment, method-assign]  # none is lost
            player._controller._publish = seen.append
            yield World(script, player, sink, nursery)
        nursery.cancel_scope.cancel()
    check_events([event for event in seen if not isinstance(event, StateChange)])


@contextmanager
def without_threads() -> Iterator[None]:
    module: Any = playhead.playback.item
    before = module.run_thread, module.PcmBuffer
    module.run_thread = run_inline
    # With room for all that twelve seeks may decode: a decoder that waits for room would wait for ever.
    module.PcmBuffer = partial(PcmBuffer, seconds=15.0)
    try:
        yield
    finally:
        module.run_thread, module.PcmBuffer = before


def run(main: Callable[[], Any]) -> Any:
    """Run `main` under a clock that jumps, and at most a day of it."""

    async def bounded() -> Any:
        with trio.fail_after(DAY_SECONDS):
            return await main()

    return trio.run(bounded, clock=MockClock(autojump_threshold=0.0))


# --- breadth first -----------------------------------------------------------------------------------------


async def follow(script: Script, steps: tuple[Step, ...], *, real_time: bool) -> list[tuple[Any, ...]]:
    """Make the steps in a new world, and bring it to its end. Returns the state after each step."""
    states: list[tuple[Any, ...]] = []
    async with open_world(script, real_time=real_time) as world:
        clock: Any = scheduler.GLOBAL_RUN_CONTEXT.runner.clock
        clock.autojump_threshold = float("inf")
        for step in steps:
            if step is TICK:
                seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
                clock.jump(min(seconds, LONG_SECONDS))
            else:
                world.start(step)
            if step.settled:
                await wait_all_tasks_blocked()
                states.append(world.state)
            else:
                states.append((states[-1] if states else None, step.task, step.operation))
        clock.autojump_threshold = 0.0
        await world.conclude()
    return states


@dataclass
class Found:
    """The result of an exploration."""

    states: int = 0
    interleavings: int = 0
    by_status: Counter[str] = field(default_factory=Counter)


def explore(script: Script, *, operations: int, real_time: bool) -> Found:
    """Go breadth first over the distinct states of up to so many operations, split between two tasks in every
    way, with the next step at once or once everything has settled. Raises what a run raises."""
    found, seen = Found(), set[object]()
    waiting = deque[tuple[tuple[Step, ...], int, tuple[int, ...]]]([((), operations, (0, 1))])
    with without_threads():
        while waiting:
            steps, left, idle = waiting.popleft()
            for step in _choices(steps, left, idle):
                trial = (*steps, step)
                found.interleavings += 1
                try:
                    states = run(partial(follow, script, trial, real_time=real_time))
                except BaseException as error:  # of any type: the note says how to repeat it
                    error.add_note(f"script {script}, real_time {real_time}, steps {trial}")
                    raise
                state = states[-1]
                if state not in seen:
                    seen.add(state)
                    found.states += step.settled
                    if step.settled:
                        idle_then = tuple(task for task in (0, 1) if not state[-1][task])
                    else:
                        idle_then = idle
                    waiting.append((trial, left - (step is not TICK), idle_then))
    return found


def _choices(steps: tuple[Step, ...], left: int, idle: tuple[int, ...]) -> Iterator[Step]:
    """The next steps worth a run: of the tasks that are `idle`. Two idle ones are the same."""
    tasks = idle[:1] if len(idle) == 2 else idle
    if steps and not steps[-1].settled:
        tasks = tuple(task for task in idle if task != steps[-1].task)
    elif steps and len(steps) <= 4 * OPERATIONS_AT_MOST:
        yield TICK
    if left:
        for task, operation in product(tasks, OPERATIONS):
            yield Step(task, operation, True)
            if left > 1 and (not steps or steps[-1].settled):
                yield Step(task, operation, False)


# --- at random ---------------------------------------------------------------------------------------------


async def wander(seed: int) -> None:
    """Six to twelve operations of two tasks at random times, in random order, on random items."""
    draw = random.Random(seed)
    script = tuple(draw.choice(list(Kind)) for _ in range(4))
    async with open_world(script, real_time=draw.random() < 0.5) as world:
        for _ in range(draw.randrange(6, 13)):
            world.start(Step(draw.randrange(2), draw.choice(OPERATIONS), False))
            for _ in range(draw.choice((0, 0, 1, 2, 5, 10))):
                await trio.lowlevel.checkpoint()
            await trio.sleep(draw.choice((0.0, 0.0, 0.01, 0.03, 0.05, 0.5, 6.0)))
        await world.conclude()


def schedule(seed: int) -> None:
    """One random run; equal seeds give equal runs. trio shuffles every batch of tasks with the seed."""
    state = scheduler._r.getstate()
    deterministic = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    scheduler._r.seed(seed)
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # as trio's own tests do
    try:
        with without_threads():
            run(partial(wander, seed))
    except BaseException as error:  # of any type: the note says how to repeat it
        error.add_note(f"seed {seed}")
        raise
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = deterministic  # type: ignore[misc]
        scheduler._r.setstate(state)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.unit.playback.player_model", description=__doc__)
    parser.add_argument("--operations", type=int, default=6)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument(
        "--scripts", type=int, nargs="*", default=range(len(SCRIPTS)), help="indexes of SCRIPTS"
    )
    arguments = parser.parse_args()
    states = interleavings = 0
    for real_time in (False, True):
        for script in (SCRIPTS[index] for index in arguments.scripts):
            began = time.monotonic()
            found = explore(script, operations=arguments.operations, real_time=real_time)
            states, interleavings = states + found.states, interleavings + found.interleavings
            print(
                f"{'device' if real_time else 'file'}, {', '.join(kind.name.lower() for kind in script)}: "
                f"{found.states} states, {found.interleavings} interleavings, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
    print(f"{states} states, {interleavings} interleavings: every call ended")
    for seed in range(arguments.schedules):
        schedule(seed)
        if (seed + 1) % 1000 == 0:
            print(f"{seed + 1} schedules: every call ended", flush=True)


if __name__ == "__main__":
    main()
