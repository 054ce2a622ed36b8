"""What WebSocket clients make a server hold: each has its own allowance, and the rest is shared."""

from __future__ import annotations

from playhead.servers.websocket_memory import (
    OWN_BYTES,
    REQUEST_BYTES,
    VALUE_BYTES,
    Account,
    Pool,
    request_bytes,
)


def test_the_own_allowance_is_there_however_little_the_others_leave() -> None:
    pool = Pool(1000)
    greedy, modest = Account(pool), Account(pool)
    assert greedy.take(OWN_BYTES + 1000)
    assert not greedy.take(1)
    assert modest.take(OWN_BYTES)
    assert not modest.take(1)


def test_what_is_given_back_is_there_for_another() -> None:
    pool = Pool(1000)
    first, second = Account(pool), Account(pool)
    assert first.take(OWN_BYTES + 1000)
    first.give_back(600)
    assert second.take(OWN_BYTES + 600)
    assert not second.take(1)
    second.give_back(OWN_BYTES + 600)
    assert pool.free_bytes == 600


def test_a_connection_that_has_ended_holds_nothing_and_takes_nothing() -> None:
    pool = Pool(1000)
    account = Account(pool)
    assert account.take(OWN_BYTES + 1000)
    account.close()
    assert pool.free_bytes == 1000
    assert not account.take(OWN_BYTES + 1)
    assert account.take(OWN_BYTES)
    account.close()
    assert pool.free_bytes == 1000


def test_a_request_costs_its_text_as_it_lies_in_memory_and_its_values() -> None:
    plain = request_bytes("a" * 10_000, json_values=100)
    assert 10_000 <= plain - REQUEST_BYTES < 10_200
    assert request_bytes("a" * 9_999 + "\U0001f600", json_values=100) > REQUEST_BYTES + 40_000
    assert (
        request_bytes("," * 50, json_values=100) - request_bytes("a" * 50, json_values=100)
        == 50 * VALUE_BYTES
    )
    assert request_bytes("," * 500, json_values=100) - request_bytes("a" * 500, json_values=100) == (
        100 * VALUE_BYTES
    )
