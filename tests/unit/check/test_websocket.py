"""The checker over WebSocket: what a server sends beside the protocol is noticed there too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from trio_websocket import WebSocketRequest

from playhead.check.baseline import baseline_of
from playhead.check.options import CheckOptions
from playhead.check.run import check_server
from playhead.config.servers import from_url
from playhead.redaction import redacted_values
from tests.servers.quirky_websocket import quirky_server
from tests.servers.websocket_peer import listening
from tests.unit.check.check_kit import Json, defects, failures

INFO = {"name": "noisy", "version": "1"}
RESULTS: Json = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "tools/list": {"tools": []},
    "ping": {},
}
UNKNOWN = {"code": -32601, "message": "no such method"}
SECRET = "s3cret-of-the-settings"


async def answering(
    results: Json, request: WebSocketRequest, *, say: Callable[[Json], list[Any]] = lambda answer: [answer]
) -> None:
    """Answers each request with its result, or with an error; `say` gives what is sent for an answer."""
    websocket = await request.accept(subprotocol="mcp")
    while True:
        asked = json.loads(await websocket.get_message())
        if "id" in asked:
            known = asked["method"] in results
            outcome = {"result": results[asked["method"]]} if known else {"error": UNKNOWN}
            for message in say({"jsonrpc": "2.0", "id": asked["id"], **outcome}):
                await websocket.send_message(message if isinstance(message, bytes) else json.dumps(message))


async def test_wire_faults_of_a_websocket_server_are_failed_checks_and_its_negotiation_is_right() -> None:
    def noisily(answer: Json) -> list[Any]:
        """Twice and once for nobody, in binary too."""
        return [b"\x00not text", answer, answer, {"jsonrpc": "2.0", "id": "nobody's", "result": {}}]

    with trio.fail_after(60):
        async with listening(partial(answering, RESULTS, say=noisily)) as url:
            report = await check_server(url, CheckOptions(depth="full", timeout_seconds=5))
    found = {check.kind.name: check.message for check in failures(report.tests)}
    assert {"wire.messages", "wire.answered-once", "wire.known-ids"} <= found.keys()
    assert "a binary message" in found["wire.messages"]
    verdicts = {check.kind.name: check.verdict for test in report.tests for check in test.checks}
    assert verdicts["handshake.negotiates"] == "passed"


@pytest.mark.parametrize("is_redacted", [True, False], ids=["of the command line", "of a program"])
async def test_a_secret_in_a_subject_or_definition_is_neither_drift_nor_a_new_finding(
    is_redacted: bool,
) -> None:
    tool = {"name": f"read.{SECRET}", "description": f"Reads {SECRET}.", "inputSchema": {"type": 7}}
    with trio.fail_after(60):
        async with listening(partial(answering, {**RESULTS, "tools/list": {"tools": [tool]}})) as url:
            server = replace(from_url(url), expanded=frozenset({SECRET}))
            options = CheckOptions(timeout_seconds=5)
            first = await check_server(server, options)
            baseline = baseline_of(redacted_values(first, server.secrets) if is_redacted else first)
            again = await check_server(server, replace(options, baseline=baseline))
    assert any(SECRET in test.subject for test in first.tests if test.status == "failed")
    assert is_redacted is (SECRET not in baseline.to_json())
    assert (failures(again.tests), again.remarks) == ([], first.remarks)


async def test_a_fault_that_the_client_corrects_is_a_finding() -> None:
    with trio.fail_after(60):
        async with quirky_server() as server:
            server.found.set()
            report = await check_server(server.url, CheckOptions(depth="full", timeout_seconds=5))
    found = {check.kind.name: check.message for check in failures(report.tests)}
    assert "2024-11-05" in found["handshake.negotiates"]
    assert "not initialized" in found["handshake.initialized"]
    assert "prompts.messages" in found  # a list of blocks, which the client reads too


async def test_an_error_without_an_id_is_a_finding() -> None:
    def nameless(answer: Json) -> list[Json]:
        nobodys = {"jsonrpc": "2.0", "error": {"code": -32600, "message": "invalid request"}}
        return [nobodys if "error" in answer else answer]

    with trio.fail_after(60):
        async with listening(partial(answering, RESULTS, say=nameless)) as url:
            report = await check_server(url, CheckOptions(depth="quick", timeout_seconds=5))
    assert "wire.error-ids" in defects(report.tests)
