"""The negotiation of revisions over HTTP and in process: the checker asks for a revision that never was."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from playhead.check.probes.connection import NO_REVISION, probe_connection
from playhead.check.results import Check
from playhead.check.target import Target, open_target
from playhead.config.servers import ServerConfig
from tests.servers.raw_http import Exchange, raw_http
from tests.unit.check.check_kit import FULL
from tests.unit.check.check_kit import tests_of as found_by
from tests.unit.raw_server import RawServer, Refusal


async def negotiation(target: Target) -> tuple[str, str]:
    """The verdict on the negotiation, or the status of its test if there is none; and the message."""
    tests = await found_by(target, partial(probe_connection, latency_ms=0.0))
    (test,) = [test for test in tests if test.title == "an unknown revision"]
    checks: list[Check] = [check for check in test.checks if check.kind.name == "handshake.negotiates"]
    return (checks[0].verdict, checks[0].message) if checks else (test.status, test.error or "")


async def over_http(answer: str) -> tuple[str, str]:
    async def nothing(exchange: Exchange) -> None:
        await exchange.error(-32601, "no such method")

    async with raw_http(nothing) as raw:
        usual = raw.handshake

        async def greet(exchange: Exchange) -> bool:
            params = exchange.message.get("params") or {}
            if exchange.method != "initialize" or params.get("protocolVersion") != NO_REVISION:
                return await usual(exchange)
            match answer:
                case "refused":
                    await exchange.error(-32602, "Unsupported protocol version", status=400)
                case "status":
                    await exchange.body(b"bad version", status=400, kind="text/plain")
                case "dropped":
                    await exchange.hang_up()
                case "echoed":
                    info = {"name": "raw", "version": "1"}
                    echo = {"protocolVersion": NO_REVISION, "capabilities": {}, "serverInfo": info}
                    await exchange.result(echo)
                case _:
                    return await usual(exchange)
            return True

        raw.greet = greet
        async with open_target(ServerConfig(url=raw.url), FULL, mode="legacy") as target:
            return await negotiation(target)


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        ("another", "passed", ""),
        ("refused", "failed", "-32602"),
        ("status", "failed", "400"),
        ("echoed", "failed", NO_REVISION),
        ("dropped", "error", "a second connection got no answer"),
    ],
)
async def test_negotiation_is_judged_over_http(answer: str, verdict: str, said: str) -> None:
    got = await over_http(answer)
    assert got[0] == verdict, got
    assert said in got[1]


async def test_negotiation_is_judged_in_process() -> None:
    def initialize(params: dict[str, Any]) -> Any:
        if params["protocolVersion"] == NO_REVISION:
            return Refusal(-32602, "no")
        info = {"name": "raw", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}

    for answers, verdict in (({}, "passed"), ({"initialize": initialize}, "failed")):
        async with open_target(RawServer(answers, capabilities={}), FULL, mode="legacy") as target:
            assert (await negotiation(target))[0] == verdict


async def test_a_server_without_a_handshake_is_not_judged() -> None:
    discovered = {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "serverInfo": {"name": "raw", "version": "1"},
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "public",
    }
    answers = {"server/discover": discovered, "initialize": Refusal(-32601, "no such method")}
    async with open_target(RawServer(answers, capabilities={}), FULL) as target:
        assert (await negotiation(target))[0] == "skipped"
