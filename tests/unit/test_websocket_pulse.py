"""When a silent connection is pinged, and when it is given up, in simulated time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from playhead.client.transports.websocket_pulse import Pulse


@pytest.fixture
def pinged() -> list[float]:
    return []


async def given_up(pulse: Pulse, pinged: list[float]) -> float:
    return await pulse.watch(lambda _payload: pinged.append(trio.current_time()))


async def test_silence_is_pinged_and_then_given_up(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    began = trio.current_time()
    pulse = Pulse(ping_seconds=20, pong_seconds=60)
    assert await given_up(pulse, pinged) == pytest.approx(80)
    assert [at - began for at in pinged] == [pytest.approx(20)]


async def test_any_byte_puts_the_ping_off(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    began = trio.current_time()
    pulse = Pulse(ping_seconds=20, pong_seconds=60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(given_up, pulse, pinged)
        for _ in range(5):
            await trio.sleep_until(trio.current_time() + 19)
            pulse.hear()
        await trio.sleep_until(began + 5 * 19 + 20.5)
        nursery.cancel_scope.cancel()
    assert [at - began for at in pinged] == [pytest.approx(5 * 19 + 20)]


async def test_a_byte_after_the_ping_starts_the_silence_anew(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    began = trio.current_time()
    pulse = Pulse(ping_seconds=20, pong_seconds=60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(given_up, pulse, pinged)
        await trio.sleep_until(began + 79)
        pulse.hear()
        await trio.sleep_until(began + 100)
        nursery.cancel_scope.cancel()
    assert [at - began for at in pinged] == [pytest.approx(20), pytest.approx(99)]


async def test_nothing_is_held_against_a_server_that_we_do_not_read_from(
    autojump_clock: trio.testing.MockClock, pinged: list[float]
) -> None:
    pulse = Pulse(ping_seconds=20, pong_seconds=60)
    pulse.deaf = True
    with trio.move_on_after(1000) as scope:
        await given_up(pulse, pinged)
    assert scope.cancelled_caught
    assert pinged == []
