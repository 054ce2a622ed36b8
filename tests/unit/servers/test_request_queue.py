"""The requests of one WebSocket connection, and the slots that all connections share."""

from __future__ import annotations

import mcp_types as types
import pytest
import trio

from playhead.servers.serving import Slot
from playhead.servers.websocket import RequestQueue, WebSocketServerOptions
from playhead.servers.websocket_frames import OWN_BYTES


def request(number: int, method: str = "tools/list") -> types.JSONRPCRequest:
    return types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method)


def queue(slots: trio.CapacityLimiter, *, in_flight: int = 8) -> RequestQueue:
    return RequestQueue(WebSocketServerOptions(requests_in_flight=in_flight), slots)


def take(requests: RequestQueue, count: int) -> None:
    for number in range(count):
        assert requests.take(request(number), size_bytes=10) is None


def due(requests: RequestQueue) -> int:
    count = 0
    while requests.next_due() is not None:
        count += 1
    return count


async def test_the_first_request_of_a_connection_needs_no_slot_and_the_others_do() -> None:
    slots = trio.CapacityLimiter(2)
    greedy, modest = queue(slots), queue(slots)
    take(greedy, 5)
    assert due(greedy) == 3
    take(modest, 2)
    assert due(modest) == 1
    assert greedy.done(1)
    assert due(modest) == 1
    assert (due(greedy), slots.borrowed_tokens) == (0, 2)


async def test_a_connection_has_no_more_requests_in_flight_than_its_own_limit() -> None:
    slots = trio.CapacityLimiter(96)
    requests = queue(slots, in_flight=8)
    take(requests, 20)
    assert (due(requests), slots.borrowed_tokens) == (8, 7)


async def test_a_long_request_needs_a_slot_while_it_waits_too() -> None:
    slots = trio.CapacityLimiter(1)
    requests = queue(slots)
    assert requests.take(request(0), size_bytes=OWN_BYTES + 1) is None
    refused = requests.take(request(1), size_bytes=OWN_BYTES + 1)
    assert refused is not None
    assert refused.answer.error.code == -32603
    assert "try again later" in refused.answer.error.message
    assert due(requests) == 1
    assert requests.done(0)
    assert slots.borrowed_tokens == 0


async def test_the_slot_of_a_long_message_stays_with_its_request() -> None:
    slots = trio.CapacityLimiter(1)
    requests, slot = queue(slots), Slot(slots)
    await slot.take()
    assert requests.take(request(0), size_bytes=OWN_BYTES + 1, slot=slot) is None
    assert slot.adopted
    assert due(requests) == 1
    assert slots.borrowed_tokens == 1
    requests.done(0)
    assert slots.borrowed_tokens == 0


@pytest.mark.parametrize("begun", [True, False])
async def test_a_connection_that_has_ended_holds_no_slot(begun: bool) -> None:
    slots = trio.CapacityLimiter(96)
    requests = queue(slots)
    take(requests, 5)
    assert requests.take(request(9), size_bytes=OWN_BYTES + 1) is None
    if begun:
        assert due(requests) == 6
    requests.close()
    assert slots.borrowed_tokens == 0


async def test_subscriptions_do_not_delay_the_shutdown_whether_in_flight_or_waiting() -> None:
    requests = queue(trio.CapacityLimiter(96), in_flight=2)
    for number, method in enumerate(["subscriptions/listen", "tools/list", "subscriptions/listen"]):
        assert requests.take(request(number, method), size_bytes=10) is None
    assert due(requests) == 2
    assert not requests.finished
    assert requests.done(1)
    assert requests.finished
