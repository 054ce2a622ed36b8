"""The table of what is in flight: an answer belongs to its id, and one bad message fails one message."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import LimitError, ProtocolError, UsageError
from playhead.limits import Limits
from playhead.protocol.exchange import (
    Answered,
    Asked,
    Event,
    Exchange,
    Faulted,
    Notified,
    Outgoing,
    Progressed,
    SignOfLife,
)
from playhead.protocol.inbox import Inbox
from playhead.protocol.messages import RpcError
from playhead.protocol.revisions import NEWEST, NEWEST_INITIALIZED, REVISIONS, Revision, client_capabilities

LIMITS = Limits()


def opened(revision: Revision = NEWEST_INITIALIZED, limits: Limits = LIMITS) -> Exchange:
    exchange = Exchange(limits, client_capabilities(()))
    exchange.revision = revision
    return exchange


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def result(id: object, **members: Any) -> bytes:
    return message(id=id, result=members)


def sent(outgoing: Outgoing) -> dict[str, Any]:
    parsed = json.loads(outgoing.data)
    assert isinstance(parsed, dict)
    return parsed


# --- out -------------------------------------------------------------------------------------------------


def test_ids_count_from_1_and_a_subscriptions_is_a_name() -> None:
    exchange = opened()
    ids = [exchange.request("a", {}).id, exchange.request("a", {}, id="listen-1").id]
    assert [*ids, exchange.request("a", {}).id] == [1, "listen-1", 2]


def test_behaviour_6_empty_parameters_and_meta_are_left_out() -> None:
    exchange = opened()
    assert sent(exchange.request("a", {})) == {"jsonrpc": "2.0", "id": 1, "method": "a"}
    assert "_meta" not in sent(exchange.request("a", {"b": None}))["params"]
    assert json.loads(exchange.notify("n", {})) == {"jsonrpc": "2.0", "method": "n"}


def test_a_revision_without_a_handshake_stamps_every_request_and_keeps_what_is_in_meta() -> None:
    request = sent(opened(NEWEST).request("a", {"_meta": {"x": 1}}, reports=True))
    assert request["params"]["_meta"] == {
        "x": 1,
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "playhead", "version": "0.1.0"},
        "io.modelcontextprotocol/clientCapabilities": {"files": {"download": True, "transports": ["https"]}},
    }


@pytest.mark.parametrize("value", ["\ud800", float("nan"), object(), {1, 2}])
def test_what_is_not_json_is_the_callers_error_and_nothing_is_in_flight(value: object) -> None:
    exchange = opened()
    with pytest.raises(UsageError):
        exchange.request("a", {"b": value})
    assert not exchange.in_flight
    assert exchange.request("a", {}).id == 1


def test_meta_that_is_no_object_is_the_callers_error() -> None:
    with pytest.raises(UsageError, match="_meta"):
        opened(NEWEST).request("a", {"_meta": 7})


def test_impossible_calls_raise() -> None:
    exchange = Exchange(LIMITS)
    with pytest.raises(RuntimeError):
        exchange.request("a", {})  # before a revision
    exchange.revision = NEWEST_INITIALIZED
    outgoing = exchange.request("a", {}, id="x")
    with pytest.raises(RuntimeError):
        exchange.request("a", {}, id="x")
    with pytest.raises(RuntimeError):
        exchange.repeat(outgoing)
    with pytest.raises(RuntimeError):
        exchange.attribute("9", RpcError(1, "x"))
    with pytest.raises(RuntimeError):
        exchange.answer(5, {})  # never asked
    exchange.receive(message(id=5, method="ping"))
    exchange.answer(5, {})
    with pytest.raises(RuntimeError):
        exchange.refuse(5, 1, "again")


def test_behaviour_2_a_cancellation_names_the_request_and_a_handshake_has_none() -> None:
    exchange = opened()
    request = exchange.request("a", {})
    cancellation = exchange.cancel(request.id)
    assert cancellation is not None
    assert json.loads(cancellation) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1, "reason": "cancelled"},
    }
    assert exchange.cancel(request.id) is None
    assert exchange.cancel(exchange.request("initialize", {}).id) is None
    assert exchange.cancel(exchange.request("server/discover", {}).id) is None
    assert not exchange.in_flight


# --- an answer belongs to its id -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "retyped"), [(b"1", 0), (b"1.0", 0), (b"10e-1", 0), (b'"1"', 1)], ids=["1", "1.0", "10e-1", "'1'"]
)
def test_behaviour_3_ids_compare_by_value(id: bytes, retyped: int) -> None:
    exchange = opened()
    exchange.request("a", {})
    assert exchange.receive(b'{"jsonrpc":"2.0","id":%s,"result":{"x":1}}' % id) == [
        Answered(1, {"x": 1}, None)
    ]
    assert exchange.faults().retyped == retyped


@pytest.mark.parametrize(
    "id",
    [b"true", b"1.5", b"[1]", b'"1 "', b"11", b"null", b'"%s"' % (b"1" * 5000), b"1" * 4000],
    ids=["true", "1.5", "[1]", "'1 '", "11", "null", "5000 digits in a string", "4000 digits"],
)
def test_another_id_answers_nothing(id: bytes) -> None:
    exchange = opened()
    exchange.request("a", {})
    (event,) = exchange.receive(b'{"jsonrpc":"2.0","id":%s,"result":{}}' % id)
    assert isinstance(event, Faulted)
    assert event.id is None
    assert exchange.awaits("1")


def test_a_second_a_foreign_and_a_late_answer_are_counted_apart() -> None:
    exchange = opened()
    for _ in range(3):
        exchange.request("a", {})
    exchange.receive(result(1))
    exchange.cancel(2)
    for answer in (result(1), result(99), message(id=2, error={"code": 1, "message": "x"}), result(2)):
        (event,) = exchange.receive(answer)
        assert isinstance(event, Faulted)
    faults = exchange.faults()
    assert (faults.repeated, faults.unasked, faults.late, faults.late_results) == (1, 1, 2, 1)
    assert exchange.receive(result(3)) == [Answered(3, {}, None)]


def test_on_a_post_only_its_own_request_is_answered() -> None:
    exchange = opened()
    exchange.request("a", {})
    exchange.request("a", {})
    (event,) = exchange.receive(result(2), only=1)
    assert isinstance(event, Faulted)
    assert exchange.faults().unasked == 1
    assert exchange.receive(result(1), only=1) == [Answered(1, {}, None)]
    assert exchange.receive(result(2), only=2) == [Answered(2, {}, None)]


@pytest.mark.parametrize("members", [{"id": None}, {}])
def test_behaviour_4_an_error_without_an_id_belongs_to_its_post_and_elsewhere_to_nobody(
    members: dict[str, Any],
) -> None:
    exchange = opened()
    exchange.request("a", {})
    error = message(**members, error={"code": -32700, "message": "unreadable"})
    (event,) = exchange.receive(error)
    assert isinstance(event, Faulted)
    assert (event.id, event.error) == (None, RpcError(-32700, "unreadable"))
    assert exchange.receive(error, only=1) == [Answered(1, None, RpcError(-32700, "unreadable"))]


def test_an_error_that_names_no_request_can_be_attributed_and_a_refused_one_repeated() -> None:
    exchange = opened()
    outgoing = exchange.request("a", {}, reports=True)
    error = RpcError(-32700, "unreadable")
    assert exchange.attribute("1", error) == Answered(1, None, error)
    assert exchange.faults().nameless_errors == 1
    exchange.repeat(outgoing)
    assert exchange.receive(result(1)) == [Answered(1, {}, None)]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"error":"no"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"no"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{}',
        b'{"jsonrpc":"2.0","id":1,"result":{}} {}',
    ],
)
def test_a_broken_answer_fails_its_request_and_no_other(answer: bytes) -> None:
    exchange = opened()
    exchange.request("a", {})
    exchange.request("a", {})
    (event,) = exchange.receive(answer)
    assert isinstance(event, Faulted)
    assert event.id == 1
    assert isinstance(event.error, ProtocolError)
    assert list(exchange.in_flight) == ["2"]
    assert exchange.faults().not_messages == 1
    assert exchange.faults().first is not None


def test_an_answer_past_a_limit_fails_its_request() -> None:
    exchange = opened(limits=Limits(json_depth=8))
    exchange.request("a", {})
    deep: Any = 0
    for _ in range(9):
        deep = [deep]
    (event,) = exchange.receive(result(1, a=deep))
    assert isinstance(event, Faulted)
    assert isinstance(event.error, LimitError)
    assert event.error.limit == "json_depth"


def test_an_answer_with_a_result_and_an_empty_error_is_the_result() -> None:
    exchange = opened()
    exchange.request("a", {})
    assert exchange.receive(message(id=1, result={"x": 1}, error=None)) == [Answered(1, {"x": 1}, None)]


def test_long_blobs_are_views_of_the_message() -> None:
    exchange = opened()
    exchange.request("resources/read", {})
    blob = "AAAA" * 1000
    (event,) = exchange.receive(result(1, contents=[{"uri": "x:", "blob": blob}]))
    assert isinstance(event, Answered)
    assert event.result is not None
    view = event.result["contents"][0]["blob"]
    assert isinstance(view, memoryview)
    assert str(view, "ascii") == blob


# --- what the server sends by itself ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"[1]",
        b"7",
        b"{}",
        b'{"jsonrpc":"1.0","method":"x"}',
        b'{"method":"x"}',
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","method":7}',
        b'{"jsonrpc":"2.0","method":"x","params":[]}',
        b'{"jsonrpc":"2.0","id":true,"method":"x"}',
        b'{"jsonrpc":"2.0","method":"x","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","method":"x","params":{"a":1e999}}',
    ],
)
def test_what_is_not_a_message_is_counted_and_dropped(line: bytes) -> None:
    exchange = opened()
    exchange.request("a", {})
    (event,) = exchange.receive(line)
    assert isinstance(event, Faulted)
    assert event.id is None
    assert exchange.faults().not_messages == 1
    assert exchange.awaits("1")


def test_requests_and_notifications_become_events() -> None:
    exchange = opened()
    assert exchange.receive(message(id="s", method="ping", params=None)) == [Asked("s", "ping", {})]
    assert exchange.receive(message(method="n", params={"a": 1})) == [Notified("n", {"a": 1})]


def test_one_id_may_be_used_for_several_requests_of_the_servers() -> None:
    exchange = opened()
    for _ in range(2):
        exchange.receive(message(id=1, method="ping"))
    exchange.answer(1, {})
    exchange.forget(1)
    with pytest.raises(RuntimeError):
        exchange.forget(1)


@pytest.mark.parametrize("token", [1, "1", 1.0])
def test_behaviour_1_progress_is_reported_to_the_request_that_asked_for_it(token: object) -> None:
    exchange = opened()
    exchange.request("a", {}, reports=True)
    report = message(
        method="notifications/progress",
        params={"progressToken": token, "progress": 2, "total": 3, "message": "m"},
    )
    assert exchange.receive(report) == [Progressed(1, 2.0, 3.0, "m")]


@pytest.mark.parametrize(
    "about",
    [
        {"progressToken": True, "progress": 1},
        {"progressToken": 2, "progress": 1},
        {"progressToken": 9, "progress": 1},
        {"progressToken": 1, "progress": "x"},
        {"progressToken": 1, "progress": True},
        {"progressToken": 1, "progress": 10**400},
        {"progressToken": 1},
        {},
    ],
)
def test_progress_of_nothing_is_a_notification_like_any_other(about: dict[str, Any]) -> None:
    exchange = opened()
    exchange.request("a", {}, reports=True)
    exchange.request("a", {})  # which asked for no reports
    assert exchange.receive(message(method="notifications/progress", params=about)) == [
        Notified("notifications/progress", about)
    ]


def test_behaviour_13_a_batch_is_several_messages_in_the_revision_that_has_them() -> None:
    batch = b"[" + b",".join([result(1), b"{}", message(method="n"), result(7)]) + b"]"
    exchange = opened(REVISIONS["2025-03-26"])
    exchange.request("a", {})
    events = exchange.receive(batch)
    assert [type(event) for event in events] == [Answered, Faulted, Notified, Faulted]
    other = opened()
    other.request("a", {})
    (event,) = other.receive(batch)
    assert isinstance(event, Faulted)
    assert other.awaits("1")


# --- laws ------------------------------------------------------------------------------------------------

IDS = st.one_of(
    st.integers(-2, 8), st.integers(-2, 8).map(str), st.integers(0, 5).map(float), st.none(), st.booleans()
)
PARAMS = st.dictionaries(st.sampled_from(["a", "progressToken", "requestId"]), st.integers(0, 4), max_size=2)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"id": IDS, "result": st.dictionaries(st.just("x"), st.integers(), max_size=1)}),
    st.fixed_dictionaries({"id": IDS, "error": st.just({"code": -1, "message": "e"})}),
    st.fixed_dictionaries({"id": IDS, "method": st.just("ping")}, optional={"params": PARAMS}),
    st.fixed_dictionaries(
        {"method": st.sampled_from(["n", "notifications/progress"])}, optional={"params": PARAMS}
    ),
    st.fixed_dictionaries({"id": IDS, "result": st.none()}),
).map(lambda members: message(**members))
NOISE = st.one_of(
    st.sampled_from([b"", b"log line", b"{", b"[]", b"\xff", b"   "]), st.binary(max_size=8)
).map(lambda line: line.replace(b"\n", b""))
LINES = st.lists(st.one_of(MESSAGES, NOISE), max_size=12)


def events_of(lines: bytes, cuts: list[int]) -> tuple[list[Event], Exchange]:
    exchange = opened()
    for index in range(5):
        exchange.request("a", {}, reports=index % 2 == 0)
    inbox = Inbox(exchange, LIMITS)
    events: list[Event] = []
    edges = sorted({0, len(lines), *(cut % (len(lines) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        events += (each for each in inbox.receive(lines[start:end]) if not isinstance(each, SignOfLife))
    return events, exchange


def comparable(events: list[Event]) -> list[str]:
    return [repr(event) for event in events]


@given(LINES, st.lists(st.integers(0, 2000), max_size=20))
def test_any_chunking_gives_the_same_events_whole_byte_by_byte_and_with_trailing_data(
    lines: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    whole, exchange = events_of(data, [])
    for chunked, other in (
        events_of(data, cuts),
        events_of(data, list(range(len(data)))),
        events_of(data + b'{"jsonrpc":"2.0","id":1,"resu', cuts),
    ):
        assert comparable(chunked) == comparable(whole)
        assert other.faults() == exchange.faults()


@given(LINES)
def test_each_request_is_answered_at_most_once_and_only_by_its_id(lines: list[bytes]) -> None:
    events, exchange = events_of(b"".join(line + b"\n" for line in lines), [])
    ended = [event.id for event in events if isinstance(event, Answered)]
    ended += [event.id for event in events if isinstance(event, Faulted) and event.id is not None]
    assert len(set(ended)) == len(ended)
    assert sorted([*map(str, ended), *exchange.in_flight]) == ["1", "2", "3", "4", "5"]


@given(st.binary(max_size=60))
def test_no_bytes_raise(data: bytes) -> None:
    exchange = opened()
    exchange.request("a", {})
    for only in (None, 1):
        for event in exchange.receive(data, only=only):
            assert isinstance(event, Faulted | Notified | Asked | Answered)
