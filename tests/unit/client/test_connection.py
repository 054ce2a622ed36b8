"""A connection: deadlines, cancellations, the server's questions, repeated reads; and reads on the wire."""

from __future__ import annotations

import gc
import json
import math
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from playhead.client import Session, connect
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.connection import Connection
from playhead.client.session.elicitation import Handler, RefusedError
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.supervisor import Supervisor
from playhead.client.transports.carrier import CarrierFactory
from playhead.errors import (
    ConnectionLostError,
    DeadlineError,
    LimitError,
    PlayheadError,
    ServerError,
    UsageError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.exchange import Answered, Outgoing
from playhead.protocol.revisions import NEWEST, NEWEST_INITIALIZED, Revision
from playhead.stream.options import StreamOptions
from tests.scripted_carrier import PAGE, Peer


@asynccontextmanager
async def connected(
    peer: Peer,
    *,
    revision: Revision = NEWEST_INITIALIZED,
    limits: Limits = DEFAULT_LIMITS,
    handlers: Mapping[str, Handler] | None = None,
    **more: Any,
) -> AsyncIterator[Connection]:
    connection = Connection(peer, server="s", limits=limits, handlers=handlers, **more)
    async with connection.opened():
        connection.exchange.revision = revision
        yield connection


async def ask(
    connection: Connection,
    method: str = "resources/read",
    *,
    silent: float = math.inf,
    total: float = math.inf,
    **more: Any,
) -> dict[str, Any]:
    return await connection.request(method, {"uri": "x:"}, silent_seconds=silent, total_seconds=total, **more)


# --- deadlines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silent", "total", "bytes_at", "work", "spent"),
    [
        (5.0, math.inf, (), 4.0, None),
        (5.0, math.inf, (), 9.0, (5.0, "5 s of silence")),
        (5.0, math.inf, (3.0, 7.0), 20.0, (12.0, "5 s of silence")),
        (5.0, 10.0, (4.0, 8.0, 9.5), 20.0, (10.0, "10 s in total")),
        (5.0, 10.0, (4.0, 8.0), 9.0, None),
    ],
)
@pytest.mark.parametrize("whose", ["its", "some"])
async def test_a_deadline_runs_from_the_last_byte_and_ends_with_the_total(
    autojump_clock: MockClock,
    silent: float,
    total: float,
    bytes_at: tuple[float, ...],
    work: float,
    spent: tuple[float, str] | None,
    whose: str,
) -> None:
    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        began = trio.current_time()
        for at in bytes_at:
            await trio.sleep_until(began + at)
            peer.touch(outgoing.id if whose == "its" else None)
        await trio.sleep_until(began + work)
        peer.answer(outgoing)

    async with connected(Peer(serve)) as connection:
        began = trio.current_time()
        if spent is None:
            assert await ask(connection, silent=silent, total=total) == PAGE
            assert trio.current_time() - began == work
        else:
            with pytest.raises(DeadlineError, match=spent[1]):
                await ask(connection, silent=silent, total=total)
            assert trio.current_time() - began == spent[0]


async def test_an_answer_that_arrives_before_the_request_is_written_is_used_at_once(
    autojump_clock: MockClock,
) -> None:
    class Early(Peer):
        async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
            self.answer(outgoing)
            await trio.sleep_forever()  # the server does not read on

    began = trio.current_time()
    async with connected(Early()) as connection:
        assert await ask(connection, silent=5) == PAGE
    assert trio.current_time() == began


async def test_an_answer_that_was_returned_is_not_held_any_longer(autojump_clock: MockClock) -> None:
    """A tool result may have 64 MiB."""

    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        await trio.sleep(1)  # meanwhile the deadlines are looked at
        peer.answer(outgoing, {"large": True})

    async with connected(Peer(serve)) as connection:
        await trio.testing.wait_all_tasks_blocked()
        assert await ask(connection, silent=5) == {"large": True}
        answers = [each for each in gc.get_objects() if isinstance(each, Answered)]
        assert [each for each in answers if each.result == {"large": True}] == []


async def test_a_shorter_deadline_set_later_ends_first(autojump_clock: MockClock) -> None:
    ended: dict[float, float] = {}

    async def run(silent: float) -> None:
        with pytest.raises(DeadlineError):
            await ask(connection, silent=silent)
        ended[silent] = trio.current_time() - began

    async with connected(Peer()) as connection, trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(run, 30.0)
        await trio.sleep(1)
        nursery.start_soon(run, 2.0)
    assert ended == {2.0: 3.0, 30.0: 30.0}


async def test_nothing_runs_while_an_overdue_request_takes_its_time_to_end(autojump_clock: MockClock) -> None:
    """A simulated clock stands still while a task runs."""

    class Stubborn(Peer):
        async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(7)

    async with connected(Stubborn()) as connection:
        began = trio.current_time()
        with pytest.raises(DeadlineError):
            await ask(connection, silent=3)
        assert trio.current_time() - began == 10


async def test_bytes_of_another_answer_are_no_sign_of_life_and_progress_is(autojump_clock: MockClock) -> None:
    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        for _ in range(3):
            await trio.sleep(4)
            peer.say(method="notifications/message", params={"data": "working"})
            peer.touch(77)
            if outgoing.method == "tools/call":
                about = {"progressToken": outgoing.id, "progress": 1}
                peer.say(method="notifications/progress", params=about)
        peer.answer(outgoing)

    async with connected(Peer(serve)) as connection:
        assert await ask(connection, "tools/call", silent=5) == PAGE
        with pytest.raises(DeadlineError):
            await ask(connection, silent=5)


async def test_no_deadline_runs_out_while_the_user_is_asked(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    async with connected(Peer(), last_asked=lambda: min(trio.current_time(), began + 50)) as connection:
        with pytest.raises(DeadlineError):
            await ask(connection, silent=5)
        assert trio.current_time() - began == 55


async def test_arrivals_are_notified_of_bytes_and_of_the_answer(autojump_clock: MockClock) -> None:
    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        await trio.sleep(3)
        peer.touch(outgoing.id)
        seen.append(arrivals.last_received() - began)
        await trio.sleep(3)
        peer.answer(outgoing)

    seen: list[float] = []
    arrivals = Arrivals()
    async with connected(Peer(serve)) as connection:
        began = trio.current_time()
        await ask(connection, arrivals=arrivals)
    assert (seen, arrivals.last_received() - began) == ([3.0], 6.0)


# --- the end of requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("closing_cancels", [False, True])
async def test_behaviour_2_a_request_given_up_is_cancelled_at_the_server_unless_closing_says_so(
    autojump_clock: MockClock, closing_cancels: bool
) -> None:
    peer = Peer(closing_cancels=closing_cancels)
    async with connected(peer) as connection:
        with pytest.raises(DeadlineError):
            await ask(connection, silent=1)
        with trio.move_on_after(1):
            await ask(connection)
        with trio.move_on_after(1):
            await ask(connection, "initialize")
        await trio.testing.wait_all_tasks_blocked()
    cancelled = [message["params"]["requestId"] for message in peer.sent]
    assert cancelled == ([] if closing_cancels else [1, 2])


async def test_behaviour_29_a_lost_connection_fails_every_request_with_the_same_error() -> None:
    errors: list[PlayheadError] = []

    async def attempt() -> None:
        with pytest.raises(ConnectionLostError) as caught:
            await ask(connection)
        errors.append(caught.value)

    peer = Peer()
    async with connected(peer) as connection:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(attempt)
            await trio.testing.wait_all_tasks_blocked()
            peer.receiver.lost(ConnectionLostError("it ended"))
            peer.receiver.lost(ConnectionLostError("a second reason"))
        await attempt()
        assert connection.ended
    assert [str(error) for error in errors] == ["it ended"] * 4
    assert peer.sent == []


async def test_behaviour_5_a_code_of_the_peers_is_its_answer_whatever_the_number() -> None:
    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        peer.say(id=outgoing.id, error={"code": -32001, "message": "Request timed out"})

    async with connected(Peer(serve)) as connection:
        with pytest.raises(ServerError) as caught:
            await ask(connection)
    assert caught.value.code == -32001


async def test_parameters_that_are_not_json_are_the_callers_error() -> None:
    async with connected(Peer()) as connection:
        with pytest.raises(UsageError):
            await connection.request("x", {"a": object()}, silent_seconds=1, total_seconds=1)


async def test_a_retired_connection_ends_with_its_last_request_but_a_subscription() -> None:
    release = trio.Event()

    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        await release.wait()
        if outgoing.method != "subscriptions/listen":
            peer.answer(outgoing)

    async with connected(Peer(serve), revision=NEWEST) as connection, trio.open_nursery() as nursery:
        nursery.start_soon(connection.listen, "listen-1", {})
        nursery.start_soon(lambda: ask(connection, silent=9))
        await trio.testing.wait_all_tasks_blocked()
        connection.retire()
        assert not connection.ended
        release.set()
        await connection.wait_ended()
        nursery.cancel_scope.cancel()


# --- progress --------------------------------------------------------------------------------------------


async def test_behaviour_1_a_slow_callback_gets_the_newest_report_each_time() -> None:
    reports: list[float] = []

    async def slowly(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)
        await trio.testing.wait_all_tasks_blocked()

    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        for progress in range(100):
            about = {"progressToken": outgoing.id, "progress": progress, "total": 100, "message": "m"}
            peer.say(method="notifications/progress", params=about)
            if progress == 0:
                await trio.testing.wait_all_tasks_blocked(0.01)
        peer.answer(outgoing)

    async with connected(Peer(serve)) as connection:
        await ask(connection, "tools/call", on_progress=slowly)
    assert (reports[0], reports[-1]) == (0, 99)
    assert len(reports) < 10


async def test_behaviour_1_what_a_callback_raises_ends_its_request_and_no_other() -> None:
    async def broken(progress: float, total: float | None, message: str | None) -> None:
        raise ZeroDivisionError

    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        if outgoing.method == "tools/call":
            about = {"progressToken": outgoing.id, "progress": 1}
            peer.say(method="notifications/progress", params=about)
        else:
            peer.answer(outgoing)

    async with connected(Peer(serve)) as connection:
        with pytest.raises(ZeroDivisionError):
            await ask(connection, "tools/call", on_progress=broken)
        assert await ask(connection) == PAGE


# --- what the server asks --------------------------------------------------------------------------------


async def answered(
    asked: list[dict[str, Any]], revision: Revision, handlers: Mapping[str, Handler] | None = None
) -> list[dict[str, Any]]:
    peer = Peer()
    async with connected(peer, revision=revision, handlers=handlers):
        for each in asked:
            peer.say(**each)
        await trio.testing.wait_all_tasks_blocked()
    return sorted(peer.sent, key=lambda message: str(message["id"]))


ASKS = ["ping", "elicitation/create", "roots/list", "sampling/createMessage", "dance"]


async def test_behaviour_25_what_a_server_asks_is_answered_from_one_table() -> None:
    async def elicit(params: Mapping[str, Any]) -> dict[str, Any]:
        if "message" not in params:
            raise RefusedError("no message", code=-32602)
        return {"action": "accept"}

    asked = [{"id": method, "method": method, "params": {}} for method in ASKS]
    asked.append({"id": "z", "method": "elicitation/create", "params": {"message": "Who?"}})
    found = await answered(asked, NEWEST_INITIALIZED, {"elicitation/create": elicit})
    assert {each["id"]: each["result"] if "result" in each else each["error"] for each in found} == {
        "ping": {},
        "elicitation/create": {"code": -32602, "message": "no message"},
        "roots/list": {"code": -32600, "message": "List roots not supported"},
        "sampling/createMessage": {"code": -32600, "message": "Sampling not supported"},
        "dance": {"code": -32601, "message": "Method not found"},
        "z": {"action": "accept"},
    }
    (unheard,) = await answered(asked[-1:], NEWEST_INITIALIZED)
    assert unheard["error"] == {"code": -32600, "message": "Elicitation not supported"}


async def test_behaviour_25_since_2026_a_server_asks_in_its_results_only() -> None:
    asked = [{"id": method, "method": method, "params": {}} for method in ASKS]
    found = await answered(asked, NEWEST)
    assert {each["error"]["code"] for each in found} == {-32601}


async def test_behaviour_25_a_question_that_the_server_cancels_is_not_answered() -> None:
    cancelled: list[object] = []

    async def think(_params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(_params)

    asked: list[dict[str, Any]] = [
        {"id": 5, "method": "elicitation/create", "params": {}},
        {"method": "notifications/cancelled", "params": {"requestId": 5}},
        {"method": "notifications/cancelled", "params": {"requestId": 6}},
        {"id": 7, "method": "ping"},
    ]
    peer = Peer()
    async with connected(peer, handlers={"elicitation/create": think}):
        peer.say(**asked[0])
        await trio.testing.wait_all_tasks_blocked()
        for each in asked[1:]:
            peer.say(**each)
        await trio.testing.wait_all_tasks_blocked()
        assert cancelled == [{}]
    assert [message["id"] for message in peer.sent] == [7]


async def test_behaviour_25_a_flood_of_questions_ends_the_connection() -> None:
    peer = Peer()
    async with connected(peer, limits=Limits(server_requests=4)) as connection:
        for number in range(5):
            peer.say(id=number, method="ping")
        with pytest.raises(LimitError) as caught:
            await ask(connection)
    assert caught.value.limit == "server_requests"


# --- repeated reads --------------------------------------------------------------------------------------


async def silence(peer: Peer, outgoing: Outgoing) -> None: ...


def read_times(peer: Peer, began: float) -> list[tuple[float, bool]]:
    return [(at - began, is_repeat) for at, _, is_repeat in peer.requests]


async def test_over_http_the_oldest_read_is_sent_again_after_10_s_on_a_connection_of_its_own(
    autojump_clock: MockClock,
) -> None:
    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        if len(peer.requests) == 3:
            peer.answer(outgoing, {"contents": [], "again": True})

    peer = Peer(serve, repeat_via="request")
    async with connected(peer) as connection, trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(lambda: ask(connection, "tools/call", silent=60))
        found = await ask(connection, silent=30)
        nursery.cancel_scope.cancel()
    assert found == {"contents": [], "again": True}
    assert read_times(peer, began) == [(0.0, False), (0.0, False), (10.0, True)]
    assert [outgoing.params["uri"] for _, outgoing, _ in peer.requests] == ["x:"] * 3


@pytest.mark.parametrize("old_way", ["dead", "alive"])
async def test_over_http_the_other_silent_reads_follow_as_long_as_the_new_connections_answer(
    old_way: str, autojump_clock: MockClock
) -> None:
    """The third read is not: when its turn comes, it has waited for 4.5 s only."""

    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        if peer.requests[-1][2]:
            await trio.sleep(2)
            peer.answer(outgoing)
        elif old_way == "alive" and outgoing.id == 1:
            await trio.sleep(11)
            peer.answer(outgoing)

    peer = Peer(serve, repeat_via="request")
    async with connected(peer) as connection, trio.open_nursery() as nursery:
        began = trio.current_time()
        for wait in (0, 0, 9.5):
            await trio.sleep(wait)
            nursery.start_soon(partial(ask, connection, silent=60))
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(9)
        repeated_at = [at for at, is_repeat in read_times(peer, began) if is_repeat]
        nursery.cancel_scope.cancel()
    assert repeated_at == ([10, 12] if old_way == "dead" else [10])


async def test_each_further_time_without_a_byte_doubles_the_wait(autojump_clock: MockClock) -> None:
    peer = Peer(silence, repeat_via="request")
    async with connected(peer) as connection:
        began = trio.current_time()
        with pytest.raises(DeadlineError):
            await ask(connection, silent=90)
    assert read_times(peer, began) == [(0.0, False), (10.0, True), (35.0, True), (80.0, True)]


async def test_the_first_of_two_answers_counts_and_the_other_request_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        if outgoing.id == 1:
            await trio.sleep(12)
            peer.answer(outgoing, {"contents": [], "first": True})

    peer = Peer(serve, repeat_via="request")
    async with connected(peer) as connection:
        assert await ask(connection, silent=30) == {"contents": [], "first": True}
        await trio.testing.wait_all_tasks_blocked()
    assert [message["params"]["requestId"] for message in peer.sent] == [2]


async def test_bytes_of_the_second_answer_are_a_sign_of_life_of_the_read(autojump_clock: MockClock) -> None:
    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        if outgoing.id == 2:
            for _ in range(8):
                await trio.sleep(5)
                peer.touch(outgoing.id)
            peer.answer(outgoing)

    async with connected(Peer(serve, repeat_via="request")) as connection:
        assert await ask(connection, silent=20) == PAGE


async def test_a_server_that_answers_pings_gets_no_repeated_read(autojump_clock: MockClock) -> None:
    async def never(connection: Connection) -> Connection:
        raise AssertionError

    peer = Peer(silence, repeat_via="connection", pongs=True)
    async with connected(peer, replace=never) as connection:
        began = trio.current_time()
        with pytest.raises(DeadlineError):
            await ask(connection, silent=45)
    assert [at - began for at in peer.pings] == [10, 20, 30, 40]
    assert len(peer.requests) == 1


async def test_without_a_pong_in_5_s_the_reads_go_over_a_second_connection_one_after_the_other(
    autojump_clock: MockClock,
) -> None:
    async def in_two_seconds(peer: Peer, outgoing: Outgoing) -> None:
        await trio.sleep(2)
        peer.answer(outgoing, {"contents": [], "number": len(peer.requests)})

    second_peer = Peer(in_two_seconds)
    found: list[tuple[float, int]] = []

    async def read() -> None:
        result = await ask(first, silent=30)
        found.append((trio.current_time() - began, result["number"]))

    async with connected(second_peer) as second:

        async def replace(silent: Connection) -> Connection:
            assert silent is first
            await trio.sleep(1)  # it has to connect
            return second

        peer = Peer(silence, repeat_via="connection")
        async with connected(peer, replace=replace) as first, trio.open_nursery() as nursery:
            began = trio.current_time()
            nursery.start_soon(read)
            await trio.sleep(1)
            nursery.start_soon(read)
    assert [at - began for at in peer.pings] == [10]
    assert found == [(18.0, 1), (20.0, 2)]


async def test_a_process_is_only_waited_for(autojump_clock: MockClock) -> None:
    peer = Peer(silence)
    async with connected(peer) as connection:
        with pytest.raises(DeadlineError):
            await ask(connection, silent=60)
    assert (len(peer.requests), peer.pings) == (1, [])


async def test_a_call_is_never_sent_twice(autojump_clock: MockClock) -> None:
    peer = Peer(silence, repeat_via="request")
    async with connected(peer) as connection:
        with pytest.raises(DeadlineError):
            await ask(connection, "tools/call", silent=60)
    assert len(peer.requests) == 1


class Peers:
    """A server and its carriers: the first one falls silent after the handshake."""

    def __init__(self) -> None:
        self.made: list[Peer] = []

    def new(self) -> Peer:
        self.made.append(Peer(self.serve, repeat_via="connection"))
        return self.made[-1]

    async def serve(self, peer: Peer, outgoing: Outgoing) -> None:
        if outgoing.method == "initialize":
            about = {"capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            peer.answer(outgoing, {"protocolVersion": "2025-11-25", **about})
        elif peer is not self.made[0]:
            peer.answer(outgoing)


@asynccontextmanager
async def supervised(peers: Peers) -> AsyncIterator[Supervisor]:
    async with trio.open_nursery() as nursery:
        changes = ToolListChanges(DEFAULT_LIMITS)
        supervisor = Supervisor(
            CarrierFactory(server="s", new=peers.new),
            nursery=nursery,
            limits=DEFAULT_LIMITS,
            mode="legacy",
            restart="once",
            changes=changes,
        )
        await supervisor.connect()
        yield supervisor
        supervisor.close()


async def test_after_a_repeated_read_a_session_goes_on_over_the_second_connection(
    autojump_clock: MockClock,
) -> None:
    peers = Peers()
    async with supervised(peers) as supervisor:
        first = await supervisor.connection()
        assert await ask(first, silent=30) == PAGE
        second = await supervisor.connection()
        assert second is not first
        assert await ask(second, silent=30) == PAGE
        await first.wait_ended()  # its last request has its answer
    assert supervisor.reconnects == 1


async def test_leaving_a_session_ends_a_silent_connection_too(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        async with supervised(Peers()) as supervisor:
            first = await supervisor.connection()

            async def call() -> None:
                with pytest.raises(ConnectionLostError):
                    await ask(first, "tools/call", silent=600)

            nursery.start_soon(call)
            assert await ask(first, silent=30) == PAGE
            assert not first.ended
            began = trio.current_time()
        assert first.ended
        assert trio.current_time() == began


# --- on the wire -----------------------------------------------------------------------------------------

SERVER = """
import base64, json, os, sys
log = open(sys.argv[1], "a")
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    log.write(line); log.flush()
    method, params = message["method"], message.get("params", {})
    if method == "server/discover" and sys.argv[2] == "modern":
        versions = {"supportedVersions": ["2026-07-28"], "capabilities": {"resources": {}}}
        info = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
        say(id=message["id"], result={**versions, "ttlMs": 0, "cacheScope": "private",
                                      "resultType": "complete", "_meta": info})
    elif method == "initialize":
        version = params["protocolVersion"]
        about = {"capabilities": {"resources": {}}, "serverInfo": {"name": "s", "version": "1"}}
        say(id=message["id"], result={"protocolVersion": version, **about})
    elif method == "resources/read":
        if sys.argv[3] == "die": sys.stderr.write("out of music\\n"); sys.exit(3)
        if sys.argv[3] == "silent": continue
        if sys.argv[3] == "refuse":
            say(id=message["id"], error={"code": -32002, "message": "no such song"}); continue
        start, end = params["arguments"]["start"], params["arguments"]["end"]
        data = bytes(i % 251 for i in range(start, min(end, 300000)))
        contents = [{"uri": "x:", "blob": base64.b64encode(data).decode()}] if data else []
        say(id=message["id"], result={"contents": contents})
    elif "id" in message:
        say(id=message["id"], error={"code": -32601, "message": "no such method"})
"""
OPTIONS = StreamOptions(strategy="arguments", patience_seconds=0.5, timeout=0.3)
WHOLE = bytes(i % 251 for i in range(300000))


def command(tmp_path: Path, era: str, manner: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", SERVER, str(tmp_path / "log"), era, manner]


def logged(tmp_path: Path, method: str) -> list[dict[str, Any]]:
    messages = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    return [message for message in messages if message["method"] == method]


async def read_all(session: Session) -> bytes:
    async with session.open("x:song", options=OPTIONS) as stream:
        return await stream.read_all()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_read_on_the_wire(tmp_path: Path, era: str) -> None:
    async with (
        connect(command(tmp_path, era, "plain")) as session,
        session.open("x:song", options=OPTIONS) as stream,
    ):
        assert await stream.read_all() == WHOLE
        counts = stream.statistics().reads
    reads = logged(tmp_path, "resources/read")
    assert counts.server_reads == len(reads)
    first = reads[0]
    assert first.keys() == {"jsonrpc", "id", "method", "params"}
    assert first["params"].keys() == {"uri", "arguments"} | ({"_meta"} if era == "modern" else set())
    if era == "modern":
        meta = first["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "playhead"
        assert meta["io.modelcontextprotocol/clientCapabilities"]["files"]["download"] is True


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        ("refuse", "no such song"),
        ("silent", "got no byte for 0.3 s"),
        ("die", "has ended and is not restarted"),
    ],
)
async def test_a_failed_read_says_why(tmp_path: Path, manner: str, said: str) -> None:
    async with connect(command(tmp_path, "legacy", manner)) as session:
        with pytest.raises(PlayheadError, match=said):
            await read_all(session)


async def test_leaving_the_session_ends_a_read_that_waits(tmp_path: Path) -> None:
    ended: list[str] = []

    async def read(session: Session, started: trio.Event) -> None:
        started.set()
        try:
            await read_all(session)
        except PlayheadError as error:
            ended.append(type(error).__name__)

    async with trio.open_nursery() as nursery, connect(command(tmp_path, "legacy", "silent")) as session:
        started = trio.Event()
        nursery.start_soon(read, session, started)
        await started.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(ended) == 1


async def test_a_cancelled_read_leaves_the_connection_usable(tmp_path: Path) -> None:
    async with connect(command(tmp_path, "legacy", "plain")) as session:
        for checkpoints in range(12):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read_all, session)
                    for _ in range(checkpoints):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        assert await read_all(session) == WHOLE


@pytest.mark.parametrize("name_bytes", [10, 50_000])
async def test_a_call_of_any_length_reaches_the_server_whole(tmp_path: Path, name_bytes: int) -> None:
    name = "x" * name_bytes
    async with connect(command(tmp_path, "legacy", "plain")) as session:
        with pytest.raises(ServerError, match="no such method"):
            await session.call_tool(name)
    assert [call["params"]["name"] for call in logged(tmp_path, "tools/call")] == [name]
