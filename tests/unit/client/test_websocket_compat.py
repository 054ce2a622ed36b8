"""The rules by which WebSocket servers of the field are forgiven, one message at a time."""

from __future__ import annotations

import json

import pytest

from playhead.client.transports.websocket_compatibility import NAMELESS_ERRORS, Compatibility
from playhead.limits import DEFAULT_LIMITS
from playhead.protocol.exchange import Answered, Exchange, Outgoing
from playhead.protocol.inbox import Inbox
from playhead.protocol.revisions import NEWEST_INITIALIZED


class Peer:
    """An inbox with its leniency, fed with whole messages. Requests have the ids 1, 2, …"""

    def __init__(self) -> None:
        self.exchange = Exchange(DEFAULT_LIMITS)
        self.exchange.revision = NEWEST_INITIALIZED
        self.leniency = Compatibility(self.exchange)
        self._inbox = Inbox(self.exchange, DEFAULT_LIMITS, leniency=self.leniency)

    def ask(
        self, count: int = 1, method: str = "tools/call", params: dict[str, object] | None = None
    ) -> Outgoing:
        for _ in range(count):
            outgoing = self.exchange.request(method, params or {})
        return outgoing

    def say(self, **message: object) -> list[tuple[object, str]]:
        """The id, and the error's text or `result`, as the session sees them."""
        seen: list[tuple[object, str]] = []
        for event in self._inbox.receive(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"):
            if isinstance(event, Answered):
                seen.append((event.id, "result" if event.error is None else event.error.message))
        return seen

    def unsent(self) -> list[tuple[str, object]]:
        sent: list[tuple[str, object]] = []
        while (data := self.leniency.next_unsent()) is not None:
            message = json.loads(data)
            sent.append((message["method"], message.get("id")))
        return sent


def error(message: str, code: int, data: object = None) -> dict[str, object]:
    return {"code": code, "message": message} | ({} if data is None else {"data": data})


UNREADABLE = error("Parse error", -32700)
UNGREETED = error("handler not initialized", -32603)
IN_DATA = error("tool call failed", -32603, "handler not initialized")


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.mark.parametrize("without", [{}, {"id": None}])
def test_a_nameless_error_is_the_only_waiting_requests(peer: Peer, without: dict[str, object]) -> None:
    peer.ask()
    assert peer.say(error=UNREADABLE, **without) == [(1, "Parse error")]
    assert not peer.exchange.in_flight


def test_a_nameless_error_waits_until_the_others_are_answered(peer: Peer) -> None:
    peer.ask(3)
    assert peer.say(error=UNREADABLE) == []
    assert peer.say(id=1, result={}) == [(1, "result")]
    assert peer.say(id=3, result={}) == [(3, "result"), (2, "Parse error")]


def test_a_request_sent_after_a_nameless_error_is_not_its_subject(peer: Peer) -> None:
    peer.ask(2)
    assert peer.say(error=UNREADABLE) == []
    peer.ask()
    assert peer.say(id=1, result={}) == [(1, "result"), (2, "Parse error")]
    assert peer.say(id=3, result={}) == [(3, "result")]


def test_as_many_nameless_errors_as_requests_fail_them_all(peer: Peer) -> None:
    peer.ask(2)
    assert peer.say(error=UNREADABLE) == []
    assert sorted(peer.say(error=UNREADABLE)) == [(1, "Parse error"), (2, "Parse error")]


def test_a_nameless_error_may_have_been_about_a_cancelled_request(peer: Peer) -> None:
    peer.ask(2)
    assert peer.say(error=UNREADABLE) == []
    peer.exchange.cancel(1)
    assert peer.say(id=9, result={}) == []
    assert len(peer.exchange.in_flight) == 1


def test_a_nameless_error_that_may_have_been_a_cancelled_requests_fails_none_of_the_others(
    peer: Peer,
) -> None:
    peer.ask(3)
    assert peer.say(error=UNREADABLE) == []
    peer.exchange.cancel(1)
    assert peer.say(id=2, result={}) == [(2, "result")]
    assert peer.say(id=3, result={}) == [(3, "result")]


def test_a_request_that_is_cancelled_before_it_was_repeated_is_not_repeated(peer: Peer) -> None:
    peer.ask(2)
    assert peer.say(id=1, error=UNGREETED) == []
    assert peer.say(id=2, error=UNGREETED) == []
    peer.exchange.cancel(1)
    assert peer.unsent() == [("initialized", None), ("tools/call", 2)]


def test_a_nameless_error_that_may_be_about_a_notification_fails_nobody(peer: Peer) -> None:
    peer.ask()
    assert peer.say(error=error("Method not found", -32601)) == []
    assert len(peer.exchange.in_flight) == 1


def test_a_flood_of_nameless_errors_is_not_kept(peer: Peer) -> None:
    peer.ask(NAMELESS_ERRORS * 2)
    for _ in range(NAMELESS_ERRORS * 4):
        assert peer.say(error=UNREADABLE) == []
    assert len(peer.leniency._nameless) == NAMELESS_ERRORS


def test_an_ungreeted_server_is_greeted_once_and_each_call_repeated_once(peer: Peer) -> None:
    peer.ask(2)
    assert peer.say(id=1, error=UNGREETED) == []
    assert peer.unsent() == [("initialized", None), ("tools/call", 1)]
    assert peer.say(id=2, error=UNGREETED) == []
    assert peer.unsent() == [("tools/call", 2)]
    assert peer.say(id=1, error=UNGREETED) == [(1, "handler not initialized")]
    assert peer.say(id=2, result={}) == [(2, "result")]
    assert peer.unsent() == []


def test_the_reason_may_be_in_the_data_of_the_error(peer: Peer) -> None:
    peer.ask()
    assert peer.say(id=1, error=IN_DATA) == []
    assert peer.unsent() == [("initialized", None), ("tools/call", 1)]


@pytest.mark.parametrize(
    "failed",
    [
        error("out of tape", -32603),
        error("not initialized", -32000),
        error("the database is not initialized", -32603),
        error("tool call failed", -32603, "the database is not initialized"),
        error("tool call failed", -32603, {"detail": "handler not initialized"}),
    ],
)
def test_a_tool_that_merely_fails_is_not_repeated(peer: Peer, failed: dict[str, object]) -> None:
    peer.ask()
    assert peer.say(id=1, error=failed) == [(1, failed["message"])]
    assert peer.unsent() == []


def test_what_was_forgiven_is_counted(peer: Peer) -> None:
    peer.ask()
    peer.say(id=1, error=UNGREETED)
    peer.say(error=UNREADABLE)
    counted = peer.exchange.faults()
    assert (counted.bare_initialized, counted.nameless_errors) == (1, 1)
