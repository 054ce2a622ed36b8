"""Keys at the terminal: the bytes of each, in whatever chunks, and its effect on the player."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from playhead.cli.key_parser import Key, KeyParser
from playhead.cli.player_keys import PlayerKeys
from playhead.cli.terminal import Terminal
from playhead.errors import PlaybackError
from playhead.playback.state import PlayerState, Status

ARROWS = [Key.LOUDER, Key.QUIETER, Key.FORWARD, Key.BACK]
CASES: list[tuple[bytes, list[Key]]] = [
    (b" ", [Key.PAUSE]),
    (b"npq", [Key.NEXT, Key.PREVIOUS, Key.QUIT]),
    (b"NPQ", [Key.NEXT, Key.PREVIOUS, Key.QUIT]),
    (b"xyz\r\n\t\x7f", []),
    (b"\x1b[A\x1b[B\x1b[C\x1b[D", ARROWS),
    (b"\x1bOA\x1bOB\x1bOC\x1bOD", ARROWS),
    (b"\x1b[1;5C", [Key.FORWARD]),
    (b"\x1b[1;2D\x1b[1;3A", [Key.BACK, Key.LOUDER]),
    (b"\x1b[3~\x1b[15~ ", [Key.PAUSE]),
    (b"\x1b[[A ", [Key.PAUSE]),
    (b"\x1b[24;80R\x1b[?1;2c ", [Key.PAUSE]),
    (b"\x1bq", [Key.QUIT]),
    (b"\x1b\x1b[C", [Key.FORWARD]),
    (b"\x1b[\x1b[C", [Key.FORWARD]),
    (b"\x1b[12\x00 ", [Key.PAUSE]),
    (b"\x1b[\xc3q", [Key.QUIT]),
    ("äöü€ q".encode(), [Key.PAUSE, Key.QUIT]),
    (b"A B", [Key.PAUSE]),
    (b"\x1b[", []),
]


def keys_of(*chunks: bytes) -> list[Key]:
    parser = KeyParser()
    return [key for chunk in chunks for key in parser.feed(chunk)]


@pytest.mark.parametrize(("data", "keys"), CASES)
def test_bytes_are_keys(data: bytes, keys: list[Key]) -> None:
    assert keys_of(data) == keys


@pytest.mark.parametrize(("data", "keys"), CASES)
def test_the_bytes_of_a_key_may_arrive_one_by_one(data: bytes, keys: list[Key]) -> None:
    assert keys_of(*(bytes([byte]) for byte in data)) == keys


@pytest.mark.parametrize("seed", range(50))
def test_any_chunking_gives_the_same_keys(seed: int) -> None:
    chance = random.Random(seed)
    data = b"".join(
        chance.choice([*(case for case, _ in CASES), chance.randbytes(chance.randrange(6))])
        for _ in range(100)
    )
    chunks, at = [], 0
    while at < len(data):
        size = chance.randrange(1, 9)
        chunks.append(data[at : at + size])
        at += size
    assert keys_of(*chunks) == keys_of(data)


@pytest.mark.parametrize(("data", "keys"), CASES[:-1])
def test_what_follows_a_key_is_read_by_itself(data: bytes, keys: list[Key]) -> None:
    assert keys_of(data + b"\x1b[C q") == [*keys, Key.FORWARD, Key.PAUSE, Key.QUIT]


# --- their effect ----------------------------------------------------------------------------------------


PLAYING = PlayerState(status=Status.PLAYING, volume=97, position_seconds=20.0, duration_seconds=60.0)


@dataclass
class Controlled:
    """A player that notes what is asked of it; seeks wait for `let`."""

    state: PlayerState = PLAYING
    did: list[str] = field(default_factory=list)
    let: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(0))
    error: PlaybackError | None = None

    def snapshot(self) -> PlayerState:
        return self.state

    def pause(self) -> None:
        self.state = replace(self.state, status=Status.PAUSED, holds=frozenset({"user"}))

    def resume(self) -> None:
        self.state = replace(self.state, status=Status.PLAYING, holds=frozenset())

    def set_volume(self, volume: int) -> None:
        self.state = replace(self.state, volume=volume)

    async def next(self) -> None:
        self.did.append("next")

    async def previous(self) -> None:
        self.did.append("previous")

    async def stop(self) -> None:
        self.did.append("stop")

    async def seek(self, seconds: float) -> None:
        self.did.append(f"seek {seconds:g}")
        await self.let.acquire()
        self.state = replace(self.state, position_seconds=seconds)
        if self.error is not None:
            raise self.error


def keys_for(player: Controlled) -> PlayerKeys:
    return PlayerKeys(player, Terminal(json_output=False))  # type: ignore[arg-type]  # the part it uses


async def test_space_pauses_and_continues() -> None:
    player = Controlled()
    keys = keys_for(player)
    for status in ("paused", "playing"):
        await keys.press(Key.PAUSE)
        assert player.state.status == status
    assert keys.is_untouched


async def test_the_volume_stays_between_0_and_100() -> None:
    player = Controlled()
    keys = keys_for(player)
    await keys.press(Key.LOUDER)
    assert player.state.volume == 100
    for volume in (95, 90):
        await keys.press(Key.QUIETER)
        assert player.state.volume == volume
    player.set_volume(3)
    await keys.press(Key.QUIETER)
    assert player.state.volume == 0
    assert keys.is_untouched


@pytest.mark.parametrize(("key", "did"), [(Key.NEXT, "next"), (Key.PREVIOUS, "previous"), (Key.QUIT, "stop")])
async def test_keys_that_leave_the_item_are_remembered(key: Key, did: str) -> None:
    player = Controlled()
    keys = keys_for(player)
    await keys.press(key)
    assert player.did == [did]
    assert not keys.is_untouched


@asynccontextmanager
async def seeking(keys: PlayerKeys) -> AsyncIterator[None]:
    """Carry out the seeks of the body, as far as the player lets them."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.seek)
        yield
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_seeks_that_wait_for_another_become_one_and_other_keys_do_not_wait() -> None:
    player = Controlled()
    keys = keys_for(player)
    async with seeking(keys):
        await keys.press(Key.FORWARD)
        await wait_all_tasks_blocked()
        for key in (Key.FORWARD, Key.FORWARD, Key.FORWARD, Key.BACK):
            await keys.press(key)
        await keys.press(Key.PAUSE)
        assert player.state.status is Status.PAUSED
        player.let.release()
    assert player.did == ["seek 25", "seek 35"]
    assert not keys.is_untouched


async def test_each_seek_stays_within_the_item() -> None:
    player = Controlled(let=trio.Semaphore(9))
    keys = keys_for(player)
    async with seeking(keys):
        for pressed in (
            [Key.BACK] * 100 + [Key.FORWARD] * 2,  # not 96 keys short of the beginning
            [Key.FORWARD] * 100 + [Key.BACK],
        ):
            for key in pressed:
                await keys.press(key)
            await wait_all_tasks_blocked()
    assert player.did == ["seek 10", "seek 55"]


async def test_a_seek_that_waits_is_not_for_the_next_item() -> None:
    player = Controlled()
    keys = keys_for(player)
    async with seeking(keys):
        await keys.press(Key.FORWARD)
        await keys.press(Key.NEXT)
    assert player.did == ["next"]


async def test_an_item_that_cannot_seek_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    player = Controlled(error=PlaybackError("radio\x1b: cannot seek"))
    keys = keys_for(player)
    async with seeking(keys):
        for _ in range(3):
            player.let.release()
            await keys.press(Key.BACK)
            await wait_all_tasks_blocked()
    assert player.did == ["seek 15", "seek 10", "seek 5"]
    assert keys.is_untouched
    assert capsys.readouterr().err == "radio\\x1b: cannot seek\n"
