"""Lines, messages and the inbox: pure, so every case runs whole, byte by byte and cut at random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import Ping, TextMessage

from playhead import _core
from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol import framing, messages
from playhead.protocol.exchange import Answered, Event, Exchange, Faulted, SignOfLife
from playhead.protocol.frame_stream import FrameStream
from playhead.protocol.inbox import Inbox
from playhead.protocol.revisions import NEWEST_INITIALIZED

SMALL = Limits(message_bytes=200)


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def at_random(data: bytes) -> list[bytes]:
    rng = random.Random(7)
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(len(data) // 10))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


CHUNKINGS: tuple[Callable[[bytes], list[bytes]], ...] = (whole, byte_by_byte, at_random)


def events_of(framer: framing.LineFramer, chunks: Iterable[bytes]) -> list[framing.LineEvent]:
    found = []
    for chunk in chunks:
        framer.feed(chunk)
        while (event := framer.next_event()) is not None:
            found.append(event)
    return found


# --- lines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CHUNKINGS)
def test_lines_come_out_whole_and_what_follows_the_last_newline_waits(
    cut: Callable[[bytes], list[bytes]],
) -> None:
    framer = framing.LineFramer(max_bytes=100)
    found = events_of(framer, cut(b"one\n\ntwo \xff\r\ntrail"))
    assert found == [framing.Line(data=b"one"), framing.Line(data=b""), framing.Line(data=b"two \xff\r")]
    assert framer.message.head == b"trail"
    assert events_of(framer, [b"ing\n"]) == [framing.Line(data=b"trailing")]


def test_blanks_before_a_line_are_skipped_whatever_their_number_and_not_held() -> None:
    framer = framing.LineFramer(max_bytes=10, head_bytes=4)
    for _ in range(100):
        assert events_of(framer, [b" \t\r " * 10]) == []
        assert framer.message.held_bytes == 0
    assert events_of(framer, [b"  ab \n \n"]) == [framing.Line(data=b"ab "), framing.Line(data=b"")]


@pytest.mark.parametrize("cut", CHUNKINGS)
def test_an_overlong_line_is_told_skipped_and_followed_by_the_next(
    cut: Callable[[bytes], list[bytes]],
) -> None:
    framer = framing.LineFramer(max_bytes=20, head_bytes=4)
    found = events_of(framer, cut(b"abcdefghijklmnopqrstu\nfine\n"))
    assert found == [
        framing.LongLine(head=b"abcd"),
        framing.OverlongLine(head=b"abcd"),
        framing.SkippedLine(head=b"abcd", tail=b"abcdefghijklmnopqrstu", length_bytes=21, overlong=True),
        framing.Line(data=b"fine"),
    ]


def test_a_line_of_exactly_the_limit_is_kept() -> None:
    framer = framing.LineFramer(max_bytes=5)
    assert events_of(framer, [b"12345\n"]) == [framing.Line(data=b"12345")]


@pytest.mark.parametrize("cut", CHUNKINGS)
def test_a_line_that_never_ends_is_given_up_at_four_times_the_limit(
    cut: Callable[[bytes], list[bytes]],
) -> None:
    framer = framing.LineFramer(max_bytes=10)
    found = events_of(framer, cut(b"x" * 41 + b"\nlost\n"))
    assert found[-1] == framing.EndlessLine(head=b"x" * 10, allowed_bytes=40)
    assert framer.message.held_bytes == 0


@pytest.mark.parametrize("cut", CHUNKINGS)
def test_an_unwanted_line_is_not_kept(cut: Callable[[bytes], list[bytes]]) -> None:
    framer = framing.LineFramer(max_bytes=1000, head_bytes=4)
    found: list[framing.LineEvent] = []
    for chunk in cut(b"unwanted line\nnext\n"):
        framer.feed(chunk)
        while (event := framer.next_event()) is not None:
            found.append(event)
            if isinstance(event, framing.LongLine):
                framer.message.skip()
    assert found == [
        framing.LongLine(head=b"unwa"),
        framing.SkippedLine(head=b"unwa", tail=b"unwanted line", length_bytes=13, overlong=False),
        framing.Line(data=b"next"),
    ]


def test_skipping_holds_no_more_than_a_chunk() -> None:
    framer = framing.LineFramer(max_bytes=1000)
    for _ in range(30):
        events_of(framer, [b"y" * 100])
        assert framer.message.held_bytes <= 1000


def test_the_work_of_framing_grows_with_the_bytes_and_not_with_their_square() -> None:
    # Counted in bytes scanned, not in seconds: what was scanned is not in the next chunk again.
    scanned = 0

    class Counting(bytes):
        def find(self, sub: bytes, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
            nonlocal scanned
            scanned += len(self) - start
            return super().find(sub, start)

    framer = framing.LineFramer(max_bytes=1 << 20)
    for _ in range(500):
        framer.feed(b"z" * 1000)
        framer._chunk = Counting(framer._chunk)
        assert framer.next_event() is None or framer.next_event() is None
    assert scanned == 500_000


def test_a_long_line_is_bytes_and_held_once() -> None:
    framer = framing.LineFramer(max_bytes=1 << 20, head_bytes=100)
    events = events_of(framer, [b"z" * 90, b"z" * 90, b"z" * 90, b"z" * 90 + b"\nnext", b"\n"])
    assert events == [
        framing.LongLine(head=b"z" * 100),
        framing.Line(data=b"z" * 360),
        framing.Line(data=b"next"),
    ]
    assert all(type(event.data) is bytes for event in events if isinstance(event, framing.Line))


# --- messages ----------------------------------------------------------------------------------------

ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{"contents":[]}}'


def nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"result":{"a":' + b"[" * (depth - 2) + b"]" * (depth - 2) + b"}}"


def test_nesting_is_allowed_up_to_the_limit_and_not_one_deeper() -> None:
    messages.decode(nested(128), DEFAULT_LIMITS)
    with pytest.raises(LimitError) as caught:
        messages.decode(nested(129), DEFAULT_LIMITS)
    assert (caught.value.limit, caught.value.allowed, caught.value.got) == ("json_depth", 128, 129)


def test_brackets_inside_strings_are_not_nesting() -> None:
    text = rb"[[{{\"[[\\" * 100
    data = b'{"jsonrpc":"2.0","id":7,"result":{"a":"' + text + b'","b":["' + text + b'"]}}'
    assert messages.decode(data, DEFAULT_LIMITS)["id"] == 7


def test_commas_inside_strings_are_not_values() -> None:
    limits = Limits(json_values=20)
    data = b'{"jsonrpc":"2.0","id":7,"result":{"a":"' + b",[" * 500 + b'"}}'
    assert messages.decode(data, limits)["id"] == 7


def test_too_many_values_are_refused_before_they_are_built() -> None:
    with pytest.raises(LimitError) as caught:
        messages.decode(
            b'{"jsonrpc":"2.0","id":7,"result":{"a":[' + b"1," * 30 + b"1]}}", Limits(json_values=20)
        )
    assert caught.value.limit == "json_values"


@pytest.mark.parametrize("commas", [100, 255, 256, 257, 5000])
def test_values_are_counted_exactly_however_many_there_are(commas: int) -> None:
    data = b'{"a":[' + b"1," * commas + b"1]}"
    messages.check_structure(data, Limits(json_values=commas + 2))
    with pytest.raises(LimitError) as caught:
        messages.check_structure(data, Limits(json_values=commas + 1))
    assert (caught.value.limit, caught.value.got) == ("json_values", commas + 2)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (ANSWER, "7"),
        (b'{"id":"x-1","jsonrpc":"2.0","error":{}}', "x-1"),
        (b' { "jsonrpc" : "2.0" , "id" : -3 , "result" : {}}', "-3"),
        (b'{"result":{"id":5},"jsonrpc":"2.0","id":7}', "7"),
        (b'{"result":{},"id":7,"jsonrpc":"2.0"}', "7"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping"}', None),
        (b'{"method":"x","params":{"a":{"result":1}},"id":7}', None),
        (b'{"result":"\\"id\\":5}', None),
        (b'INFO {"jsonrpc":"2.0","id":7,"result":{}}', None),
    ],
)
def test_the_id_of_an_answer_is_found_at_either_end(data: bytes, key: str | None) -> None:
    assert messages.answered_id(data, data[-framing.TAIL_BYTES :]) == key


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (ANSWER, "7"),
        (b'{"x":{"id":5},"id":"a b","y":[],"error":{}}', "a b"),
        (b'{"id":7,"result":{},"id":8}', "8"),
        (b'{"id":7,"result":{},"method":"x"}', None),
        (b'{"id":"a\\u0062","result":{}}', None),
        (b'{"id":7.0,"result":{}}', None),
        (b'{"result":{"id":7}}', None),
        (b'[{"id":7,"result":{}}]', None),
    ],
)
def test_the_id_of_a_whole_answer_is_found_wherever_it_is(data: bytes, key: str | None) -> None:
    assert messages.answered_plainly(_core.Frame(data)) == key


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("a" * 999, True),
        ("a" * 400 + "\U0001f600", True),  # four bytes a character
        ("a" * 600 + "\U0001f600", False),
        ("\U0001f600" * 240, True),  # as long in memory as on the wire
        ("a" * 900 + "\u4e2d", True),  # two bytes a character
        ("a" * 600 + r"\ud83d\ude00", False),  # the same, escaped
        ("a" * 900 + r"\u4e2d", True),
        ("a" * 900 + r"\n", True),
    ],
)
def test_a_message_that_would_be_far_longer_in_memory_is_refused_before_it_is_decoded(
    text: str, fits: bool
) -> None:
    data, limits = f'{{"t":"{text}"}}'.encode(), Limits(message_bytes=1000)
    if fits:
        messages.check_structure(data, limits)
        return
    with pytest.raises(LimitError) as caught:
        messages.check_structure(data, limits)
    assert caught.value.limit == "message_bytes"


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":', "7"),
        (b'{"jsonrpc":"2.0","id":7.0,"result":{}}', "7"),
        (b'{"jsonrpc":"2.0","id":7.5,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":12.5,"result":{"id":7}}', None),
        (b'{"jsonrpc":"2.0","id":true,"result":{"id":7}}', None),
        (b'{"jsonrpc":"2.0","result":{},"id":7.5}', None),
    ],
)
def test_a_broken_answer_is_never_taken_for_anothers(data: bytes, key: str | None) -> None:
    assert messages.broken_answer_id(data) == key


# --- the inbox ---------------------------------------------------------------------------------------


def answer(number: int | str, text: str = "") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": {"t": text}}).encode() + b"\n"


def inbox_awaiting(
    count: int, limits: Limits = DEFAULT_LIMITS, framer: framing.Framer | None = None
) -> tuple[Inbox, Exchange]:
    """An inbox, with the requests 1, 2, … in flight."""
    exchange = Exchange(limits)
    exchange.revision = NEWEST_INITIALIZED
    for _ in range(count):
        exchange.request("resources/read", {}, reports=True)
    return Inbox(exchange, limits, framer), exchange


def receive(inbox: Inbox, chunks: Iterable[bytes]) -> list[Event]:
    """The events, but for the signs of life."""
    events = [event for chunk in chunks for event in inbox.receive(chunk)]
    return [event for event in events if not isinstance(event, SignOfLife)]


@pytest.mark.parametrize(("others", "stays"), [(0, True), (38_000, True), (40_000, False)])
def test_only_a_view_of_more_than_half_of_its_message_may_stay_one(others: int, stays: bool) -> None:
    blob = "QUJD" * 10_000
    content = [{"type": "text", "text": "x" * others}, {"resource": {"blob": blob}}, {"data": blob[:1024]}]
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": content}}).encode()
    result = messages.plain(messages.decode(line, DEFAULT_LIMITS)["result"], but_main=True)
    assert isinstance(result["content"][1]["resource"]["blob"], memoryview) is stays
    assert isinstance(result["content"][2]["data"], str)
    assert messages.plain(result) == {"content": content}


def test_an_answer_after_the_cancellation_is_dropped_unparsed() -> None:
    inbox, exchange = inbox_awaiting(1)
    exchange.cancel(1)
    (event,) = receive(inbox, [b'{"jsonrpc":"2.0","id":1,"result":{not even JSON\n'])
    assert isinstance(event, Faulted)
    assert (exchange.faults().late, exchange.faults().not_messages) == (1, 0)


@pytest.mark.parametrize(
    "log", [b"DEBUG id 1", b'{"level":"info","id":1}', b'INFO {"jsonrpc":"2.0","id":1}', b"\xff", b"[info] 1"]
)
def test_a_log_line_that_mentions_an_id_fails_nothing_and_is_remembered(log: bytes) -> None:
    inbox, exchange = inbox_awaiting(1)
    assert all(isinstance(event, Faulted) for event in receive(inbox, [log + b"\n", b"later\n"]))
    assert exchange.awaits("1")
    faults = exchange.faults()
    assert faults.not_messages == 2
    assert faults.first is not None
    assert faults.first.isprintable()


@pytest.mark.parametrize("cut", CHUNKINGS)
@pytest.mark.parametrize(
    "overlong",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"' + b"x" * 300 + b'"}}\n',
        b'{"result":{"a":"' + b"x" * 300 + b'"},"jsonrpc":"2.0","id":1}\n',
    ],
)
def test_an_overlong_answer_fails_its_request_with_the_limit_named(
    cut: Callable[[bytes], list[bytes]], overlong: bytes
) -> None:
    inbox, _ = inbox_awaiting(2, limits=SMALL)
    found = receive(inbox, cut(overlong + answer(2)))
    first, second = (event for event in found if not isinstance(event, Faulted) or event.id is not None)
    assert isinstance(first, Faulted)
    assert isinstance(first.error, LimitError)
    assert first.error.limit == "message_bytes"
    assert isinstance(second, Answered)


def test_an_endless_line_is_a_failure_of_the_connection() -> None:
    inbox, _ = inbox_awaiting(1, limits=SMALL)
    assert receive(inbox, [b'{"jsonrpc":"2.0",' + b"x" * 900]) == []
    assert isinstance(inbox.failure, LimitError)


PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}\n'


@pytest.mark.parametrize(
    ("chunk", "is_active"),
    [
        (answer(1), True),
        (answer(1)[:20], True),
        (PROGRESS % 1, True),
        (PROGRESS % 9, False),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n', False),
        (answer(9), False),
        (b'{"jsonrpc":"2.0","id":9,"result":{"a', False),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{"da', False),
        (b'{"level":"info","message":"' + b"x" * 300, False),
        (b'{"result":{"a":"' + b"x" * 300, True),
        (b"INFO still here", False),
        (b"INFO still here\n", False),
        (b"     ", False),
    ],
)
def test_only_what_may_be_awaited_counts_as_activity(chunk: bytes, is_active: bool) -> None:
    inbox, _ = inbox_awaiting(1)
    assert any(isinstance(event, SignOfLife) for event in inbox.receive(chunk)) is is_active


def test_a_ping_within_a_fragmented_answer_is_no_activity_and_the_next_fragment_is() -> None:
    inbox, _ = inbox_awaiting(1, framer=FrameStream(ConnectionType.CLIENT, max_bytes=900, allowed_bytes=900))
    peer = Connection(ConnectionType.SERVER)
    first, rest = answer(1)[:30].decode(), answer(1)[30:].decode()
    activity = []
    for frame in (
        TextMessage(data=first, message_finished=False),
        Ping(),
        TextMessage(data=rest[:3], message_finished=False),
        Ping(),
        TextMessage(data=rest[3:]),
        Ping(),
    ):
        activity.append(any(isinstance(event, SignOfLife) for event in inbox.receive(peer.send(frame))))
    assert activity == [True, False] * 3
