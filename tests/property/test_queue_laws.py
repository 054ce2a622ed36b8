"""Laws of the player's queue: whatever is called in whatever order, one item sounds and nothing is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.errors import PlayheadError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.player import Player
from playhead.playback.queue import Queue
from playhead.playback.sinks import NullSink
from playhead.playback.state import ItemEnd, ItemError, ItemStart, PlayerEvent, Status
from tests.unit.playback.pieces import FreshMedia

Kind = str
KINDS = st.sampled_from(["sound", "noise", "hangs"])
OPERATIONS: st.SearchStrategy[tuple[str, list[Kind]]] = st.one_of(
    st.tuples(st.just("play"), st.lists(KINDS, min_size=1, max_size=3)),
    st.tuples(st.just("enqueue"), st.lists(KINDS, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["next", "previous", "stop", "pause", "resume", "let go"]), st.builds(list)),
)


def piece(kind: Kind, title: str = "") -> FreshMedia:
    """Audio, noise that nobody decodes, or audio whose network hangs."""
    if kind == "noise":
        return FreshMedia(title=title, data=b"<html></html>", mime_type=None)
    return FreshMedia(title=title, hold_at=800 if kind == "hangs" else None)


@dataclass
class OneAtATime(NullSink):
    at_sink: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        super().__init__(real_time=False)

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        self.at_sink += 1
        self.most = max(self.most, self.at_sink)
        try:
            await super().play(buffers)
        finally:
            self.at_sink -= 1


@dataclass
class Ledger:
    """Every item that starts ends once, and is told to end before another one starts."""

    sounding: list[int] = field(default_factory=list)

    def note(self, event: PlayerEvent) -> None:
        match event:
            case ItemStart():
                assert not self.sounding, "an item began beside another one"
                self.sounding.append(event.index)
            case ItemEnd() | ItemError():
                self.sounding.clear()
            case _:
                pass


async def carry_out(calls: list[tuple[str, list[Kind]]]) -> None:
    made: list[FreshMedia] = []
    sink, ledger = OneAtATime(), Ledger()
    async with Player(sink) as player:
        events = player.events()
        for name, kinds in calls:
            pieces = [piece(kind, title=str(len(made) + at)) for at, kind in enumerate(kinds)]
            made += pieces
            match name:
                case "play":
                    await player.play(pieces)
                    assert player.snapshot().queue_length == len(pieces)
                case "enqueue":
                    before = player.snapshot().queue_length
                    await player.enqueue(pieces)
                    assert player.snapshot().queue_length == before + len(pieces)
                case "let go":
                    for _ in range(20):
                        await trio.lowlevel.checkpoint()
                case "pause" | "resume":
                    getattr(player, name)()
                case _:
                    await getattr(player, name)()
            state = player.snapshot()
            assert (state.index is None) == (state.queue_length == 0)
            assert state.index is None or state.index < state.queue_length
            assert name != "stop" or state.status in (Status.STOPPED, Status.IDLE, Status.ERROR)
            assert sum(media.open_now for media in made) <= 2
            assert sink.most <= 1
            with_nothing_left(events, ledger)
        with trio.fail_after(20):  # whatever was called: next, until nothing is left, comes to an end
            while player.snapshot().status not in (Status.IDLE, Status.STOPPED, Status.ERROR):
                await player.next()
            try:
                await player.wait_finished()
            except PlayheadError as error:
                failed: PlayheadError | None = error
            else:
                failed = None
            assert (failed is None) == (player.snapshot().last_error is None)
    assert not any(media.open_now for media in made)


def with_nothing_left(events: trio.MemoryReceiveChannel[PlayerEvent], ledger: Ledger) -> None:
    while True:
        try:
            ledger.note(events.receive_nowait())
        except trio.WouldBlock:
            return


@settings(max_examples=40, deadline=None)
@given(st.lists(OPERATIONS, max_size=12))
def test_any_calls_in_any_order_leave_one_item_sounding_and_nothing_open(
    calls: list[tuple[str, list[Kind]]],
) -> None:
    trio.run(carry_out, calls)


@given(st.lists(st.tuples(st.sampled_from(["append", "forward", "back"]), st.floats(0, 10)), max_size=50))
def test_the_index_is_always_inside_the_list_and_forward_reaches_its_end(
    moves: list[tuple[str, float]],
) -> None:
    queue, media = Queue(), piece("sound")
    for name, seconds in moves:
        before = queue.index
        match name:
            case "append":
                queue.append((media,))
            case "forward":
                assert queue.forward() == (queue.index != before)
            case _:
                assert queue.back(position_seconds=seconds) == (before is not None)
                assert queue.index == before or (before and seconds <= 3.0 and queue.index == before - 1)
        assert (queue.current is None) == (queue.index is None)
        assert queue.index is None or 0 <= queue.index < len(queue)
    while queue.forward():
        pass
    assert queue.index == (len(queue) - 1 if len(queue) else None)
