"""The player's machine: its table against what it means, a real player in every state, and what ends when."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import playhead.playback.item
from playhead.errors import SeekError
from playhead.playback import FrameFileSink, MixingSink, NullSink, PcmSink, Player, WaveSink
from playhead.playback.sinks import Sink
from playhead.playback.state import (
    TRANSITIONS,
    UNCHANGED,
    ItemEvent,
    ItemPhase,
    Status,
    phase_after,
)
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.unit.playback.pieces import DATA, wait_until
from tests.unit.playback.player_model import SCRIPTS, explore, schedule

PCM = "audio/L16;rate=8000;channels=1"


# --- the table -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """The events of an item so far; the phase follows from them."""

    begun: bool = False
    identified: bool = False
    left_sink: bool = False
    faded: bool = False
    stopped: bool = False
    closed: bool = False
    failed: bool = False

    @property
    def phase(self) -> ItemPhase:
        ended_by_call = self.faded or self.stopped
        match self:
            case Facts(closed=True) if ended_by_call:
                return ItemPhase.STOPPED if self.begun else ItemPhase.WITHDRAWN
            case Facts(closed=True):
                return ItemPhase.FAILED if self.failed else ItemPhase.ENDED
            case Facts(stopped=True):
                return ItemPhase.STOPPING if self.begun else ItemPhase.WITHDRAWING
            case Facts(faded=True):
                return ItemPhase.FADING
            case Facts(left_sink=True):
                return ItemPhase.CLOSING
            case Facts(begun=True):
                return ItemPhase.PLAYING if self.identified else ItemPhase.OPENING
            case _:
                return ItemPhase.LOADED if self.identified else ItemPhase.UPCOMING

    def possible(self) -> dict[ItemEvent, Facts]:
        """The events that can happen now, and the facts then. What is left behind may still report, once."""
        events: dict[ItemEvent, Facts] = {
            ItemEvent.STOP: self if self.closed else replace(self, stopped=True)
        }
        over_before_its_turn = self.phase in (ItemPhase.WITHDRAWING, ItemPhase.WITHDRAWN)
        if self.begun:
            events[ItemEvent.FADE] = self if self.closed else replace(self, faded=True)
        elif not self.stopped:
            events[ItemEvent.BEGIN] = replace(self, begun=True)
        at_sink = self.begun and self.identified and not self.left_sink
        if not self.identified and self.phase is not ItemPhase.ENDED:
            events[ItemEvent.IDENTIFY] = replace(self, identified=True)
        if at_sink and self.phase is not ItemPhase.ENDED:
            events[ItemEvent.LEAVE_SINK] = replace(self, left_sink=True)
        if not self.closed and (self.begun or over_before_its_turn):
            events[ItemEvent.FAIL] = replace(self, closed=True, failed=True)
            if self.left_sink or self.faded or self.stopped:
                events[ItemEvent.END] = replace(self, closed=True)
        return events


def explored_facts() -> int:
    """Compare the table with the facts, over every order of events. Returns the number of steps."""
    steps, seen, waiting = 0, {Facts()}, deque([Facts()])
    while waiting:
        facts = waiting.popleft()
        for event, then in facts.possible().items():
            steps += 1
            # An item that left its sink after a call ended it is not closing: its facts say so.
            phase = phase_after(facts.phase, event)
            assert phase is then.phase, f"{event.name} when {facts.phase.name}: {phase.name}, {then}"
            if then not in seen:
                seen.add(then)
                waiting.append(then)
    return steps


def test_the_table_says_what_the_facts_say_in_every_order_of_events() -> None:
    assert explored_facts() > 100


@pytest.mark.parametrize(
    ("phase", "event"), [(phase, event) for phase, row in TRANSITIONS.items() for event in row]
)
def test_each_transition_that_is_changed_is_noticed(
    phase: ItemPhase, event: ItemEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRANSITIONS[phase], event, phase)
    with pytest.raises(AssertionError, match=f"{event.name} when {phase.name}"):
        explored_facts()


def test_an_event_is_listed_once_and_one_that_is_not_listed_is_a_bug() -> None:
    for phase in ItemPhase:
        row, unchanged = TRANSITIONS.get(phase, {}), UNCHANGED.get(phase, set())
        assert not row.keys() & unchanged
        for event in set(ItemEvent) - row.keys() - unchanged:
            with pytest.raises(
                RuntimeError, match=f"cannot handle {event.name} when its item is {phase.name}"
            ):
                phase_after(phase, event)


# --- a real player ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("real_time", [True, False], ids=["device", "file"])
def test_every_call_ends_in_every_state_that_two_operations_lead_to(real_time: bool) -> None:
    assert explore(SCRIPTS[1], operations=2, real_time=real_time).states > 10


def test_every_call_ends_in_random_schedules() -> None:
    for seed in range(100):
        schedule(seed)


@pytest.mark.slow("two thousand players, and a thousand random schedules")
def test_every_call_ends_in_every_state_that_three_operations_lead_to() -> None:
    for script in (SCRIPTS[1], SCRIPTS[4]):
        explore(script, operations=3, real_time=True)
    for seed in range(100, 1100):
        schedule(seed)


CHANGES = [
    (ItemPhase.UPCOMING, ItemEvent.BEGIN),
    (ItemPhase.LOADED, ItemEvent.STOP),
    (ItemPhase.OPENING, ItemEvent.IDENTIFY),
    (ItemPhase.PLAYING, ItemEvent.LEAVE_SINK),
    (ItemPhase.STOPPING, ItemEvent.END),
]


@pytest.mark.parametrize(("phase", "event"), CHANGES)
def test_a_player_with_a_changed_transition_fails_a_schedule(
    phase: ItemPhase, event: ItemEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRANSITIONS[phase], event, phase)
    failures = []
    for seed in range(10):
        try:
            schedule(seed)
        except (AssertionError, RuntimeError, trio.TooSlowError, ExceptionGroup) as error:
            failures.append(error)
    assert failures


# --- calls -----------------------------------------------------------------------------------------------


class SeekableReader(ScriptedReader):
    seekable = True

    def seek_from_thread(self, offset: int) -> None:
        self.position = offset


def piece(*, hold_at: int | None = None, seconds: float = 0.5) -> ScriptedMedia:
    reader = SeekableReader(bytes(int(16_000 * seconds)), hold_at=hold_at)
    return ScriptedMedia(reader=reader, mime_type=PCM)


@pytest.mark.parametrize(
    "call", [Player.stop, Player.next, Player.previous, lambda player: player.play(piece())]
)
async def test_a_seek_in_an_item_that_is_still_opening_ends_with_it(
    call: Callable[[Player], Awaitable[None]],
) -> None:
    async with Player(NullSink(real_time=False)) as player, trio.open_nursery() as nursery:
        await player.play([piece(hold_at=0), piece(hold_at=0)])
        refused = trio.Event()

        async def seek() -> None:
            with pytest.raises(SeekError, match="is over"):
                await player.seek(1.0)
            refused.set()

        nursery.start_soon(seek)
        await wait_all_tasks_blocked()
        await call(player)
        with trio.fail_after(5):
            await refused.wait()
        await player.stop()


async def test_an_item_enqueued_while_a_stop_fades_is_heard_next() -> None:
    async with Player(NullSink()) as player, trio.open_nursery() as nursery:
        await player.play(piece(seconds=30.0))
        await wait_until(lambda: player.snapshot().frames)
        nursery.start_soon(player.stop)
        await wait_all_tasks_blocked(0.001)
        await player.enqueue(piece())
        with trio.fail_after(20):
            await player.wait_finished()
        assert (player.snapshot().status, player.snapshot().frames) == (Status.IDLE, 4000)


SINKS: dict[str, Callable[[Path], Sink]] = {
    "device": lambda _: NullSink(),
    "null": lambda _: NullSink(real_time=False),
    "wave": lambda path: WaveSink(path / "out.wav"),
    "pcm": lambda path: PcmSink(path / "out.pcm"),
    "frames": lambda path: FrameFileSink(path / "out.frames"),
    "mixing": lambda path: MixingSink(WaveSink(path / "out.wav")),
}


@pytest.mark.parametrize("rate_hz", [8000, 16_000])
@pytest.mark.parametrize("make", SINKS.values(), ids=SINKS)
async def test_an_announcement_ends_on_every_sink_over_music_that_is_paused_waits_or_fails(
    make: Callable[[Path], Sink], rate_hz: int, tmp_path: Path
) -> None:
    mime_type = f"audio/L16;rate={rate_hz};channels=1"
    for hold_at, pauses in ((None, True), (0, False), (30_000, False), (30_000, True)):
        async with Player(make(tmp_path)) as player:
            reader = ScriptedReader(bytes(64_000), hold_at=hold_at)
            await player.play(ScriptedMedia(reader=reader, mime_type=mime_type))
            if pauses:
                player.pause()
            with trio.fail_after(20):
                async with player.announce(piece(seconds=0.1)) as announcement:
                    pass
            assert announcement.snapshot().frames == 800
            await player.stop()


@pytest.mark.parametrize("make", SINKS.values(), ids=SINKS)
async def test_an_announcement_ends_when_its_player_is_closed(
    make: Callable[[Path], Sink], tmp_path: Path
) -> None:
    ended = trio.Event()

    async def announce(player: Player, *, task_status: trio.TaskStatus[None]) -> None:
        async with player.announce(piece(hold_at=1000)):
            task_status.started()
        ended.set()

    async with trio.open_nursery() as nursery:
        async with Player(make(tmp_path)) as player:
            await player.play(piece(hold_at=6000))
            await nursery.start(announce, player)
            await wait_all_tasks_blocked()
        with trio.fail_after(5):
            await ended.wait()


CALLS: dict[str, Callable[[Player], Awaitable[Any]]] = {
    "play": lambda player: player.play([piece(), piece()]),
    "enqueue": lambda player: player.enqueue(piece()),
    "insert": lambda player: player.insert(piece()),
    "remove": lambda player: player.remove(0),
    "jump": lambda player: player.jump(1),
    "next": Player.next,
    "previous": Player.previous,
    "stop": Player.stop,
    "seek": lambda player: player.seek(0.1),
    "wait_finished": Player.wait_finished,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_cancelled_at_any_checkpoint_a_call_leaves_a_player_that_plays(
    call: Callable[[Player], Awaitable[Any]],
) -> None:
    async with Player(NullSink(real_time=False)) as player:
        for steps in range(12):
            await player.play([piece(hold_at=2000), piece()])
            for _ in range(3 * (steps % 3)):
                await trio.lowlevel.checkpoint()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call, player)
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            await player.play(piece())
            with trio.fail_after(20):
                await player.wait_finished()
            assert player.snapshot().frames == 4000


# --- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", list(SINKS.values())[:5], ids=list(SINKS)[:5])
async def test_a_stopped_item_and_its_rings_are_freed_without_a_garbage_collection(
    make: Callable[[Path], Sink], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Any]] = []
    for name in ("Item", "PcmBuffer", "DecoderThread"):
        begin = getattr(playhead.playback.item, name).__init__

        def noted(new: Any, *args: Any, begin: Any = begin, **options: Any) -> None:
            begin(new, *args, **options)
            made.append(weakref.ref(new))

        monkeypatch.setattr(getattr(playhead.playback.item, name), "__init__", noted)

    def flac(hold_at: int | None) -> ScriptedMedia:
        data = (DATA / "chord.flac").read_bytes()
        reader = ScriptedReader(data, hold_at=hold_at)
        made.append(weakref.ref(reader))
        return ScriptedMedia(reader=reader)

    gc.collect()
    gc.disable()
    try:
        async with Player(make(tmp_path)) as player:
            for hold_at in (None, 0, 1000, 30_000):
                for call in (player.stop, player.next, partial(player.play, piece(hold_at=0))):
                    await player.play([flac(hold_at), flac(hold_at)])
                    for _ in range(30):
                        await trio.lowlevel.checkpoint()
                    await call()
                    await player.stop()
                    # Threads that were in a decoder may be the last to let go.
                    await wait_until(lambda: all(ref() is None for ref in made))
                    assert len(made) >= 3
                    made.clear()
    finally:
        gc.enable()
