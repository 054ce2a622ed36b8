"""When a silent connection is pinged, and when it is given up, in simulated time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from playhead.client.transports.websocket_wire import Keepalive


@pytest.fixture
def pinged() -> list[float]:
    return []


async def given_up(keepalive: Keepalive, pinged: list[float]) -> float:
    return await keepalive.watch(lambda _payload: pinged.append(trio.current_time()))


async def test_silence_is_pinged_and_then_given_up(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    began = trio.current_time()
    keepalive = Keepalive(ping_seconds=20, pong_seconds=60)
    assert await given_up(keepalive, pinged) == pytest.approx(80)
    assert [at - began for at in pinged] == [pytest.approx(20)]


async def test_any_byte_puts_the_ping_off(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    began = trio.current_time()
    keepalive = Keepalive(ping_seconds=20, pong_seconds=60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(given_up, keepalive, pinged)
        for _ in range(5):
            await trio.sleep_until(trio.current_time() + 19)
            keepalive.note_received()
        await trio.sleep_until(began + 5 * 19 + 20.5)
        nursery.cancel_scope.cancel()
    assert [at - began for at in pinged] == [pytest.approx(5 * 19 + 20)]


async def test_a_byte_after_the_ping_starts_the_silence_anew(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    began = trio.current_time()
    keepalive = Keepalive(ping_seconds=20, pong_seconds=60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(given_up, keepalive, pinged)
        await trio.sleep_until(began + 79)
        keepalive.note_received()
        await trio.sleep_until(began + 100)
        nursery.cancel_scope.cancel()
    assert [at - began for at in pinged] == [pytest.approx(20), pytest.approx(99)]


async def test_nothing_is_held_against_a_server_that_we_do_not_read_from(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    keepalive = Keepalive(ping_seconds=20, pong_seconds=60)
    keepalive.paused = True
    with trio.move_on_after(1000) as scope:
        await given_up(keepalive, pinged)
    assert scope.cancelled_caught
    assert pinged == []
