"""The carrier of Streamable HTTP, against servers written by hand.

The numbers in the names are those of the list of what a session does.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from playhead.client.transports.http import HttpCarrier
from playhead.errors import (
    ConnectionLostError,
    HttpRefusedError,
    HttpStatusError,
    LimitError,
    PlayheadError,
    ProtocolError,
    ServerError,
    SessionLostError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.exchange import Answered, Event, Faulted, Notified
from playhead.protocol.revisions import REVISIONS
from tests.carrier_driver import Driver
from tests.servers.raw_http import Exchange as Asked
from tests.servers.raw_http import RawServer, raw_http

Json = dict[str, Any]
Handler = Callable[[Asked], Awaitable[None]]


@dataclass
class Talk:
    carrier: HttpCarrier
    notes: Driver

    async def ask(self, method: str = "x", params: Mapping[str, Any] | None = None) -> Event:
        """Send a request and return its answer, or the fault in its place."""
        outgoing = self.notes.request(method, params)
        await self.carrier.request(outgoing)
        return next(each for each in self.notes.events if getattr(each, "id", None) == outgoing.id)

    async def result(self, method: str = "x", params: Mapping[str, Any] | None = None) -> Json:
        event = await self.ask(method, params)
        assert isinstance(event, Answered)
        assert event.result is not None
        return event.result

    async def initialize(self) -> None:
        self.notes.exchange.revision = REVISIONS["2025-11-25"]
        await self.ask("initialize")


@asynccontextmanager
async def talking(
    url: str,
    *,
    revision: str = "2026-07-28",
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> AsyncIterator[Talk]:
    carrier = HttpCarrier(url, limits=limits, **options)
    notes = Driver(limits=limits, revision=REVISIONS[revision])
    async with carrier.open(notes):
        yield Talk(carrier, notes)


@asynccontextmanager
async def served(handler: Handler, *, session: str | None = None) -> AsyncIterator[RawServer]:
    """A server that leaves every request but `initialize` and notifications to `handler`."""
    async with raw_http(handler, session=session) as server:

        async def greet(asked: Asked) -> bool:
            if asked.method == "initialize" or (asked.verb == "POST" and "id" not in asked.message):
                return await server.handshake(asked)
            return False

        server.greet = greet
        yield server


def answer(id: object, **result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


def event(data: bytes, *fields: bytes, end: bytes = b"\n") -> bytes:
    return end.join([*fields, b"data: " + data, b"", b""])


EVENTS = "text/event-stream; charset=utf-8"


async def stream(asked: Asked, *chunks: bytes) -> None:
    await asked.begin(EVENTS)
    for chunk in chunks:
        await asked.chunk(chunk)
    await asked.chunk(last=True)


# --- answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/x+json"]
)
async def test_18_json_under_a_content_type_with_parameters_is_the_answer(kind: str) -> None:
    async def handle(asked: Asked) -> None:
        await asked.body(answer(asked.message["id"], a=1), kind=kind)

    async with served(handle) as server, talking(server.url) as talk:
        assert await talk.result() == {"a": 1}
        assert talk.notes.signs_of_life == [1]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
async def test_18_events_with_any_line_end_and_a_mark_are_messages(mark: bytes, end: bytes) -> None:
    async def handle(asked: Asked) -> None:
        note = b'{"jsonrpc":"2.0","method":"n"}'
        await stream(
            asked,
            mark + event(note, b": hello", end=end) + event(b"nothing", b"event: other", end=end),
            event(answer(asked.message["id"]), b"event: message", b"id: 1", end=end),
        )

    async with served(handle) as server, talking(server.url) as talk:
        assert await talk.result() == {}
        assert [each for each in talk.notes.events if isinstance(each, Notified)] == [Notified("n", {})]
        assert talk.notes.exchange.faults().not_messages == 0


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100_000])
async def test_a_large_event_arrives_in_any_pieces(chunk_bytes: int) -> None:
    blob = "QUJD" * 1000

    async def handle(asked: Asked) -> None:
        data = event(answer(asked.message["id"], contents=[{"uri": "x:", "blob": blob}]))
        await stream(asked, *(data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)))

    async with served(handle) as server, talking(server.url) as talk:
        (content,) = (await talk.result())["contents"]
        assert bytes(content["blob"]).decode() == blob


async def test_17_a_hundred_answers_in_events_use_one_connection() -> None:
    async def handle(asked: Asked) -> None:
        await asked.begin(EVENTS)
        await asked.chunk(event(answer(asked.message["id"])))
        await trio.testing.wait_all_tasks_blocked()  # the client has the answer, and the stream is open
        await asked.chunk(last=True)

    async with served(handle) as server, talking(server.url) as talk:
        for _ in range(100):
            await talk.result()
            await trio.testing.wait_all_tasks_blocked()
        assert server.connections <= 2


async def test_a_stream_left_open_after_its_answer_delays_nobody(autojump_clock: MockClock) -> None:
    async def handle(asked: Asked) -> None:
        await asked.begin(EVENTS)
        await asked.chunk(event(answer(asked.message["id"])))
        await trio.sleep_forever()

    async with served(handle) as server, talking(server.url) as talk:
        began = trio.current_time()
        await talk.result()
        assert trio.current_time() == began


async def test_19_a_compressed_stream_of_events_is_decoded_as_it_arrives() -> None:
    async def handle(asked: Asked) -> None:
        await asked.body(
            gzip.compress(event(answer(asked.message["id"], a=1))),
            kind="text/event-stream",
            headers="content-encoding: gzip\r\n",
        )

    async with served(handle) as server, talking(server.url) as talk:
        assert await talk.result() == {"a": 1}


# --- an answer belongs to its id ---------------------------------------------------------------------


@pytest.mark.parametrize("as_events", [True, False])
async def test_crossed_answers_are_handed_to_nobody(as_events: bool) -> None:
    waiting: list[Asked] = []
    both = trio.Event()

    async def handle(asked: Asked) -> None:
        waiting.append(asked)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        other = next(each for each in waiting if each is not asked)
        data = answer(other.message["id"], whose=other.message["id"])
        await (stream(asked, event(data)) if as_events else asked.body(data))

    async with served(handle) as server, talking(server.url) as talk:
        failures: list[PlayheadError] = []

        async def ask() -> None:
            with pytest.raises(PlayheadError) as caught:
                await talk.ask()
            failures.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
        kind = ConnectionLostError if as_events else HttpStatusError
        assert [type(each) for each in failures] == [kind, kind]
        assert [each for each in talk.notes.events if isinstance(each, Answered)] == []
        assert talk.notes.exchange.faults().unasked == 2


@pytest.mark.parametrize(("status", "as_events"), [(200, True), (200, False), (400, False), (500, False)])
async def test_4_an_error_without_an_id_is_about_the_request_of_its_post(
    status: int, as_events: bool
) -> None:
    async def handle(asked: Asked) -> None:
        error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-7,"message":"no"}}'
        await (stream(asked, event(error)) if as_events else asked.body(error, status=status))

    async with served(handle) as server, talking(server.url) as talk:
        answered = await talk.ask()
        assert isinstance(answered, Answered)
        assert answered.error is not None
        assert answered.error.code == -7


async def test_a_refusal_that_the_server_has_given_a_name_of_its_own_is_about_the_request() -> None:
    async def handle(asked: Asked) -> None:
        error = {"code": -32600, "message": "Not Acceptable"}
        await asked.json({"jsonrpc": "2.0", "id": "server-error", "error": error}, status=406)

    async with served(handle) as server, talking(server.url) as talk:
        with pytest.raises(ServerError, match="Not Acceptable"):
            await talk.ask()


async def test_a_broken_answer_in_a_stream_fails_its_request() -> None:
    async def handle(asked: Asked) -> None:
        await stream(asked, event(b'{"jsonrpc":"2.0","id":%d,"result":{"a":NaN}}' % asked.message["id"]))

    async with served(handle) as server, talking(server.url) as talk:
        event_ = await talk.ask()
        assert isinstance(event_, Faulted)
        assert isinstance(event_.error, ProtocolError)


# --- signs of life -----------------------------------------------------------------------------------


async def test_comments_and_other_messages_are_no_sign_of_life_and_bytes_of_the_answer_are() -> None:
    go_on = trio.Event()

    async def handle(asked: Asked) -> None:
        await asked.begin(EVENTS)
        await asked.chunk(b": ping\n\n")
        await asked.chunk(event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'))
        await asked.chunk(b'data: {"jsonrpc":"2.0","method":"notifications/message","par')
        await trio.testing.wait_all_tasks_blocked()
        silent.append(list(talk.notes.signs_of_life))
        await asked.chunk(b'ams":{}}\n\n')
        last = b'"x":"%b"},"jsonrpc":"2.0","id":%d}' % (b"a" * 1000, asked.message["id"])
        data = (
            b'data: {"result":{' + last
            if asked.message["params"].get("last")
            else event(answer(asked.message["id"], x="a" * 1000))
        )
        for at in range(0, len(data), 300):
            await asked.chunk(data[at : at + 300])
            await trio.testing.wait_all_tasks_blocked()
        await asked.chunk(b"\n\n")
        go_on.set()
        await asked.chunk(last=True)

    for last in (False, True):
        silent: list[list[Any]] = []
        async with served(handle) as server, talking(server.url) as talk:
            await talk.result("x", {"last": last})
            assert silent == [[]]
            assert set(talk.notes.signs_of_life) == {1}
            assert len(talk.notes.signs_of_life) >= 2


# --- what ends without an answer ---------------------------------------------------------------------


async def broken_stream(asked: Asked) -> None:
    await asked.begin(EVENTS)
    await asked.chunk(b"data: {")
    await asked.hang_up()


async def ended_stream(asked: Asked) -> None:
    await stream(asked, b": nothing\n\n")


@pytest.mark.parametrize(
    ("handle", "said"),
    [(broken_stream, "broke before the answer"), (ended_stream, "ended without an answer")],
)
async def test_a_stream_that_ends_without_the_answer_fails_at_once(handle: Handler, said: str) -> None:
    async with served(handle) as server, talking(server.url) as talk:
        with pytest.raises(ConnectionLostError, match=said):
            await talk.ask()


async def test_20_a_202_for_a_request_is_an_error() -> None:
    async def handle(asked: Asked) -> None:
        await asked.body(b"", status=202)

    async with served(handle) as server, talking(server.url) as talk:
        with pytest.raises(HttpStatusError, match="HTTP 202, which promises no answer") as caught:
            await talk.ask()
        assert caught.value.status == 202


async def test_an_event_past_the_limit_is_cut_and_a_notification_past_it_is_a_fault() -> None:
    async def handle(asked: Asked) -> None:
        big = b'{"jsonrpc":"2.0","method":"n","params":{"a":"%b"}}' % (b"x" * 5000)
        if asked.method == "big":
            await stream(asked, event(answer(asked.message["id"], a="x" * 5000)))
        else:
            await stream(asked, event(big), event(answer(asked.message["id"], a=1)))

    limits = Limits(message_bytes=2000)
    async with served(handle) as server, talking(server.url, limits=limits) as talk:
        cut = await talk.ask("big")
        assert isinstance(cut, Faulted)
        assert isinstance(cut.error, LimitError)
        assert cut.error.limit == "message_bytes"
        assert await talk.result() == {"a": 1}
        assert talk.notes.exchange.faults().not_messages == 1


async def test_18_values_are_counted_before_an_event_is_parsed() -> None:
    async def handle(asked: Asked) -> None:
        await stream(asked, event(answer(asked.message["id"], a=[[]] * 500)))

    async with served(handle) as server, talking(server.url, limits=Limits(json_values=100)) as talk:
        event_ = await talk.ask()
        assert isinstance(event_, Faulted)
        assert isinstance(event_.error, LimitError)
        assert event_.error.limit == "json_values"


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("http://other.example/mcp?key=hush-42", "http://other.example/mcp"),
        ("//user:hush-42@{host}/mcp", "/mcp"),
        ("http://[", "invalid address"),
    ],
)
async def test_21_a_redirect_away_is_named_without_its_secrets(to: str, said: str) -> None:
    async def handle(asked: Asked) -> None:
        await asked.body(b"", status=307, headers=f"location: {to.format(host=asked.headers['host'])}\r\n")

    async with served(handle) as server, talking(server.url) as talk:
        with pytest.raises(HttpRefusedError, match="not followed") as caught:
            await talk.ask()
        assert said in str(caught.value)
        assert "hush" not in str(caught.value)


# --- resumption --------------------------------------------------------------------------------------


def resumable(*streams: Callable[[Asked], list[bytes]]) -> tuple[Handler, list[str | None]]:
    """Each GET gets the next of `streams`; the ids that the GETs name."""
    named: list[str | None] = []
    posted: list[int] = []

    async def handle(asked: Asked) -> None:
        if asked.verb == "POST":
            posted.append(asked.message["id"])
            await stream(asked, event(b"", b"id: e-1", b"retry: 20"))
            return
        named.append(asked.headers.get("last-event-id"))
        asked.message["id"] = posted[-1]
        chunks = streams[min(len(named), len(streams)) - 1](asked)
        if chunks:
            await stream(asked, *chunks)
        else:
            await asked.body(b"", status=503)

    return handle, named


async def test_16_a_stream_that_ends_early_is_resumed_after_its_last_event() -> None:
    handle, named = resumable(
        lambda asked: [event(b'{"jsonrpc":"2.0","method":"n"}', b"id: e-2")],
        lambda asked: [],
        lambda asked: [event(answer(asked.message["id"], a=1), b"id: e-3")],
    )
    async with served(handle) as server, talking(server.url, revision="2025-11-25") as talk:
        assert await talk.result() == {"a": 1}
    assert named == ["e-1", "e-2", "e-2"]


async def test_16_after_two_tries_without_an_event_the_request_is_lost() -> None:
    handle, named = resumable(lambda asked: [])
    async with served(handle) as server, talking(server.url, revision="2025-11-25") as talk:
        with pytest.raises(ConnectionLostError, match="ended without an answer"):
            await talk.ask()
    assert named == ["e-1", "e-1"]


async def test_16_a_resumed_stream_cannot_answer_another_request() -> None:
    handle, _named = resumable(
        lambda asked: [event(answer(77), b"id: e-2")], lambda asked: [event(answer(asked.message["id"]))]
    )
    async with served(handle) as server, talking(server.url, revision="2025-11-25") as talk:
        assert await talk.result() == {}
        assert talk.notes.exchange.faults().unasked == 1


async def test_16_revision_2026_07_28_resumes_nothing() -> None:
    handle, named = resumable(lambda asked: [])
    async with served(handle) as server, talking(server.url) as talk:
        with pytest.raises(ConnectionLostError):
            await talk.ask()
    assert named == []


# --- sessions ----------------------------------------------------------------------------------------


async def echo(asked: Asked) -> None:
    if asked.verb == "GET":
        await asked.body(b"", status=405)
    elif asked.verb == "DELETE":
        await asked.body(b"", status=200)
    else:
        await asked.result({})


async def test_14_the_session_of_initialize_is_named_from_then_on_and_ended_at_the_end() -> None:
    async with served(echo, session="s") as server:
        async with talking(server.url, revision="2025-11-25") as talk:
            await talk.initialize()
            await talk.carrier.tell(talk.notes.exchange.notify("notifications/initialized"))
            await talk.carrier.listen()
            await talk.result()
        sessions = [headers.get("mcp-session-id") for headers in server.headers]
        versions = [headers.get("mcp-protocol-version") for headers in server.headers]
    assert sessions == [None, "s-1", "s-1", "s-1", "s-1"]
    assert versions == [None, *["2025-11-25"] * 4]
    assert server.methods == ["initialize", "notifications/initialized", "", "x", ""]


async def test_14_a_session_named_by_any_other_answer_is_none() -> None:
    async def handle(asked: Asked) -> None:
        if asked.verb == "DELETE":
            await asked.body(b"", status=405)
        else:
            await asked.result({}, headers="mcp-session-id: foreign\r\n")

    async with served(handle, session="s") as server:
        async with talking(server.url, revision="2025-11-25") as talk:
            await talk.initialize()
            await talk.result()
            await talk.result()
        sessions = [headers.get("mcp-session-id") for headers in server.headers]
    assert sessions == [None, "s-1", "s-1", "s-1"]  # the last one ends it
    async with served(handle) as server:
        async with talking(server.url) as talk:  # a revision without sessions
            await talk.result()
            await talk.result()
        assert [headers.get("mcp-session-id") for headers in server.headers] == [None, None]


async def test_14_a_cancelled_session_is_not_ended_on_the_wire() -> None:
    async with served(echo, session="s") as server:
        with trio.CancelScope() as scope:
            async with talking(server.url, revision="2025-11-25") as talk:
                await talk.initialize()
                scope.cancel()
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert server.methods == ["initialize"]


async def test_14_a_server_that_ignores_the_end_of_the_session_costs_two_seconds(
    autojump_clock: MockClock,
) -> None:
    async def handle(asked: Asked) -> None:
        await trio.sleep_forever()

    async with served(handle, session="s") as server:
        async with talking(server.url, revision="2025-11-25") as talk:
            await talk.initialize()
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(2.0)


async def test_20_a_404_in_a_session_is_a_lost_session() -> None:
    async def handle(asked: Asked) -> None:
        await asked.body(b"", status=404)

    async with served(handle, session="s") as server, talking(server.url, revision="2025-11-25") as talk:
        await talk.initialize()
        with pytest.raises(SessionLostError):
            await talk.ask()


async def test_requests_in_flight_are_failed_when_the_connection_is_closed() -> None:
    async def never(asked: Asked) -> None:
        await trio.sleep_forever()

    async with served(never) as server:
        async with talking(server.url) as talk:
            pass
        assert isinstance(talk.notes.failure, ConnectionLostError)


# --- the server's own stream -------------------------------------------------------------------------


async def test_15_the_servers_own_stream_is_opened_again_after_its_pause_with_its_last_event(
    autojump_clock: MockClock,
) -> None:
    named: list[str | None] = []
    times: list[float] = []

    async def handle(asked: Asked) -> None:
        if asked.verb == "DELETE":
            await asked.body(b"")
            return
        named.append(asked.headers.get("last-event-id"))
        times.append(trio.current_time())
        if len(named) < 3:
            note = b'{"jsonrpc":"2.0","method":"n%d"}' % len(named)
            await stream(asked, event(note, b"id: g-%d" % len(named), b"retry: 4000"))
        else:
            await asked.body(b"", status=500)

    async with served(handle, session="s") as server, talking(server.url, revision="2025-11-25") as talk:
        await talk.initialize()
        await talk.carrier.listen()
        assert [each.method for each in talk.notes.events if isinstance(each, Notified)] == ["n1", "n2"]
    assert named == [None, "g-1", "g-2", "g-2"]
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([4, 4, 4])


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_15_without_a_session_there_is_no_stream_of_its_own(revision: str) -> None:
    async with served(echo) as server, talking(server.url, revision=revision) as talk:
        await talk.carrier.listen()
        assert server.methods == []


@pytest.mark.parametrize("opens", [True, False])
async def test_15_the_first_call_waits_for_the_stream_a_second_at_most_if_told_to(
    opens: bool, autojump_clock: MockClock
) -> None:
    async def handle(asked: Asked) -> None:
        if asked.verb == "POST":
            await asked.result({})
        elif asked.verb == "GET":
            if opens:
                await trio.sleep(0.3)
                await asked.begin(EVENTS)
            await trio.sleep_forever()
        else:
            await asked.body(b"")

    async with (
        served(handle, session="s") as server,
        talking(server.url, revision="2025-11-25", wait_for_stream=True) as talk,
        trio.open_nursery() as nursery,
    ):
        await talk.initialize()
        nursery.start_soon(talk.carrier.listen)
        began = trio.current_time()
        await talk.result("resources/read", {"uri": "x:"})
        assert trio.current_time() == began
        for _ in range(2):
            await talk.result("tools/call", {"name": "t"})
        assert trio.current_time() - began == pytest.approx(0.3 if opens else 1.0)
        nursery.cancel_scope.cancel()


# --- headers -----------------------------------------------------------------------------------------


async def test_24_requests_of_2026_carry_their_method_name_and_mirrored_arguments() -> None:
    async with served(echo) as server, talking(server.url) as talk:
        talk.notes.exchange.tool_headers = {"t": {("city",): "City"}}
        await talk.result("tools/call", {"name": "t", "arguments": {"city": "Malmö", "x": 1}})
        await talk.result("resources/read", {"uri": "x: y"})
        called, read = server.headers
    assert (called["mcp-method"], called["mcp-name"]) == ("tools/call", "t")
    assert called["mcp-param-city"] == "=?base64?TWFsbcO2?="
    assert (read["mcp-method"], read["mcp-name"]) == ("resources/read", "x: y")
    assert called["accept"] == "application/json, text/event-stream"
    assert called["content-type"] == "application/json"
    assert called["accept-encoding"] == "identity"


async def test_22_the_user_in_the_url_is_sent_as_basic_and_shown_nowhere() -> None:
    async with served(echo) as server:
        url = server.url.replace("http://", "http://me:hush%2042@") + "?key=hush-42"
        async with talking(url, headers={"X-Key": "hush-42"}) as talk:
            await talk.result()
            assert "hush" not in f"{talk.notes.failure} {talk.carrier!r}"
        assert server.headers[0]["authorization"] == "Basic bWU6aHVzaCA0Mg=="
        assert server.headers[0]["x-key"] == "hush-42"


async def test_2_a_cancelled_request_closes_its_connection() -> None:
    closed = trio.Event()

    async def handle(asked: Asked) -> None:
        if asked.method == "slow":
            assert not await asked.stream.receive_some()
            closed.set()
            asked.closed = True
        else:
            await asked.result({})

    async with served(handle) as server, talking(server.url) as talk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.ask, "slow")
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        await closed.wait()
        assert await talk.result() == {}


async def test_a_server_that_does_not_take_a_notification_keeps_nobody_for_ever(
    autojump_clock: MockClock,
) -> None:
    async with raw_http(echo) as server:

        async def silent(asked: Asked) -> bool:
            await trio.sleep_forever()
            return True

        server.greet = silent
        async with talking(server.url) as talk:
            began = trio.current_time()
            await talk.carrier.tell(talk.notes.exchange.notify("n"))
            assert trio.current_time() - began == pytest.approx(10.0)
