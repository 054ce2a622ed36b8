"""Agreeing on a revision: what is sent, what is adopted, and what is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from playhead.client.session.connection import Connection
from playhead.client.session.handshake import PROBE_SHARE, check_mode, negotiate
from playhead.errors import ConnectionLostError, PlayheadError, ProtocolError, ServerError, UsageError
from playhead.limits import DEFAULT_LIMITS
from playhead.protocol.exchange import Outgoing
from tests.scripted_carrier import Peer

INFO = {"name": "s", "version": "1"}
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": -5}
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
Answer = Callable[[Peer, Outgoing], None]


def result(value: dict[str, Any]) -> Answer:
    return lambda peer, outgoing: peer.answer(outgoing, value)


def error(code: int, data: object = None, message: str = "no") -> Answer:
    return lambda peer, outgoing: peer.say(
        id=outgoing.id, error={"code": code, "message": message, "data": data}
    )


def silence(peer: Peer, outgoing: Outgoing) -> None: ...


UNKNOWN = error(-32601)
TOO_OLD = error(-32022, {"supported": ["2025-11-25"]})


async def negotiated(
    discover: list[Answer], initialize: list[Answer] | None = None, *, mode: str = "auto"
) -> tuple[Connection, Peer]:
    """A connection after the handshake with a server that gives these answers, in turn."""
    scripts = {"server/discover": iter(discover), "initialize": iter(initialize or [])}

    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        next(scripts[outgoing.method])(peer, outgoing)

    peer = Peer(serve)
    connection = Connection(peer, server="s", limits=DEFAULT_LIMITS)
    async with connection.opened():
        await negotiate(connection, mode=mode, seconds=9)
    return connection, peer


def methods(peer: Peer) -> list[str]:
    requests = [outgoing.method for _, outgoing, _ in peer.requests]
    return requests + [message["method"] for message in peer.sent]


async def test_behaviour_8_a_server_that_knows_discovery_is_asked_nothing_else() -> None:
    connection, peer = await negotiated([result(DISCOVERED)])
    assert (connection.protocol_version, connection.capabilities) == ("2026-07-28", {"tools": {}})
    assert connection.handshake == DISCOVERED
    assert methods(peer) == ["server/discover"]


@pytest.mark.parametrize(
    "answer",
    [
        UNKNOWN,
        error(-32602),
        error(0),
        TOO_OLD,
        error(-32022),
        result({}),
        result({"supportedVersions": "2026-07-28", "capabilities": {}}),
        result({"supportedVersions": ["2027-01-01"], "capabilities": {}}),
    ],
)
async def test_behaviour_8_any_other_answer_to_discovery_is_followed_by_initialize(answer: Answer) -> None:
    connection, peer = await negotiated([answer], [result(INITIALIZED)])
    assert connection.protocol_version == "2025-11-25"
    assert connection.server_info == INFO
    assert methods(peer) == ["server/discover", "initialize", "notifications/initialized"]


async def test_behaviour_8_a_version_both_have_is_discovered_once_more() -> None:
    again = error(-32022, {"supported": ["2026-07-28"]})
    connection, peer = await negotiated([again, result(DISCOVERED)])
    assert connection.protocol_version == "2026-07-28"
    assert methods(peer) == ["server/discover"] * 2


async def test_behaviour_8_versions_in_common_with_nobody_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="2031-01-01"):
        await negotiated([error(-32022, {"supported": ["2031-01-01"]})])


async def test_behaviour_8_the_probe_takes_a_third_of_the_time(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    connection, peer = await negotiated([silence], [result(INITIALIZED)])
    assert trio.current_time() - began == 9 * PROBE_SHARE
    assert connection.protocol_version == "2025-11-25"
    assert methods(peer) == ["server/discover", "initialize", "notifications/initialized"]


async def test_behaviour_8_a_server_that_was_late_and_has_switched_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    connection, peer = await negotiated(
        [silence, result(DISCOVERED)], [error(-32022, {"supported": ["2026-07-28"]})]
    )
    assert connection.protocol_version == "2026-07-28"
    assert methods(peer) == ["server/discover", "initialize", "server/discover"]


@pytest.mark.parametrize(
    "refusal",
    [
        error(-32603, message="unsupported protocol version: 2025-11-25"),
        error(-32602, message="Unsupported protocol version"),
        error(-32000, message="Invalid MCP version"),
        error(-32603, "unsupported protocol version: 2025-11-25", "initialization failed"),
    ],
)
async def test_a_revision_refused_in_words_is_followed_once_by_the_oldest(refusal: Answer) -> None:
    old = {**INITIALIZED, "protocolVersion": "2024-11-05"}
    connection, peer = await negotiated([UNKNOWN], [refusal, result(old)])
    assert connection.protocol_version == "2024-11-05"
    proposed = [outgoing.params.get("protocolVersion") for _, outgoing, _ in peer.requests]
    assert proposed == [None, "2025-11-25", "2024-11-05"]
    assert connection.faults().revisions_refused == 1
    with pytest.raises(ServerError):
        await negotiated([], [refusal, refusal], mode="legacy")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_behaviour_8_another_revision_of_the_servers_choice_is_adopted(version: str) -> None:
    connection, peer = await negotiated(
        [], [result({**INITIALIZED, "protocolVersion": version})], mode="legacy"
    )
    assert connection.protocol_version == version
    offered = peer.requests[0][1].params
    assert offered["protocolVersion"] == "2025-11-25"
    assert offered["clientInfo"]["name"] == "playhead"
    assert offered["capabilities"] == {"files": {"download": True, "transports": ["https"]}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({**INITIALIZED, "protocolVersion": "2026-07-28"}, "unsupported protocol version"),
        ({**INITIALIZED, "protocolVersion": "1.0"}, "unsupported protocol version"),
        ({**INITIALIZED, "protocolVersion": 7}, "invalid fields: protocolVersion"),
        ({"protocolVersion": "2025-11-25"}, "invalid fields: capabilities, serverInfo"),
        ({**INITIALIZED, "serverInfo": {"name": "s"}}, "invalid fields: serverInfo"),
    ],
)
async def test_behaviour_8_an_unknown_revision_or_an_invalid_result_is_an_error(
    answer: dict[str, Any], said: str
) -> None:
    with pytest.raises(ProtocolError, match=said):
        await negotiated([], [result(answer)], mode="legacy")


async def test_an_error_to_initialize_is_the_servers_answer() -> None:
    with pytest.raises(ServerError):
        await negotiated([UNKNOWN], [error(-32000)])


async def test_a_connection_that_is_lost_at_the_probe_is_no_answer() -> None:
    def die(peer: Peer, outgoing: Outgoing) -> None:
        peer.receiver.lost(ConnectionLostError("it ended"))

    with pytest.raises(ConnectionLostError):
        await negotiated([die])


async def test_behaviour_8_a_given_revision_needs_no_handshake() -> None:
    connection, peer = await negotiated([], mode="2026-07-28")
    assert (connection.protocol_version, connection.handshake) == ("2026-07-28", None)
    assert (connection.capabilities, connection.server_info) == ({}, None)
    assert methods(peer) == []


async def test_behaviour_8_the_servers_own_name_is_in_meta_since_2026_and_a_malformed_one_is_absent() -> None:
    key = "io.modelcontextprotocol/serverInfo"
    for meta, expected in (({key: INFO}, INFO), ({key: "s"}, None), ("x", None)):
        connection, _ = await negotiated([result({**DISCOVERED, "_meta": meta})])
        assert connection.server_info == expected


@pytest.mark.parametrize("mode", ["", "modern", "2025-11-25", "2031-01-01"])
def test_a_mode_that_is_unknown_is_a_usage_error(mode: str) -> None:
    with pytest.raises(UsageError, match="auto, legacy, 2026-07-28"):
        check_mode(mode)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    ("answered", "declared"),
    [
        ([], {}),
        (["elicitation/create"], {"elicitation": {"form": {}, "url": {}}}),
        (["roots/list", "sampling/createMessage"], {"roots": {"listChanged": True}, "sampling": {}}),
    ],
)
async def test_behaviour_9_what_is_answered_is_declared(
    mode: str, answered: list[str], declared: dict[str, Any]
) -> None:
    async def nobody(_params: object) -> dict[str, Any]:
        raise PlayheadError

    async def serve(peer: Peer, outgoing: Outgoing) -> None:
        peer.answer(outgoing, INITIALIZED if outgoing.method == "initialize" else DISCOVERED)

    peer = Peer(serve)
    connection = Connection(peer, server="s", limits=DEFAULT_LIMITS, handlers=dict.fromkeys(answered, nobody))
    async with connection.opened():
        await negotiate(connection, mode=mode, seconds=9)
        await connection.request("x", {}, silent_seconds=1, total_seconds=1)
    (_, greeting, _), (_, later, _) = peer.requests
    expected = {**declared, "files": {"download": True, "transports": ["https"]}}
    if mode == "legacy":
        assert greeting.params["capabilities"] == expected
        assert later.params == {}
    else:
        for outgoing in (greeting, later):
            assert outgoing.params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == expected
