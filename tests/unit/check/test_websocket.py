"""The checker over WebSocket: what a server sends beside the protocol is noticed there too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio_websocket import WebSocketRequest

from playhead.check.baseline import baseline_of
from playhead.check.options import CheckOptions
from playhead.check.results import Report
from playhead.check.run import check_server
from playhead.config.servers import from_url
from playhead.redaction import redacted_values
from tests.servers.quirky_websocket import quirky_server
from tests.servers.websocket_peer import listening

INFO = {"name": "noisy", "version": "1"}
RESULTS: dict[str, object] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "tools/list": {"tools": []},
    "ping": {},
}
UNKNOWN = {"code": -32601, "message": "no such method"}
SECRET = "s3cret-of-the-settings"


async def noisy(request: WebSocketRequest) -> None:
    """Answers twice and once for nobody, in binary too."""
    websocket = await request.accept(subprotocol="mcp")
    while True:
        asked = json.loads(await websocket.get_message())
        if "id" not in asked:
            continue
        known = asked["method"] in RESULTS
        outcome = {"result": RESULTS[asked["method"]]} if known else {"error": UNKNOWN}
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome})
        await websocket.send_message(b"\x00not text")
        await websocket.send_message(answer)
        await websocket.send_message(answer)
        await websocket.send_message(json.dumps({"jsonrpc": "2.0", "id": "nobody's", "result": {}}))


async def answer(results: Mapping[str, object], request: WebSocketRequest) -> None:
    """Answers each request with its result, or with an error."""
    websocket = await request.accept(subprotocol="mcp")
    while True:
        asked = json.loads(await websocket.get_message())
        if "id" in asked:
            known = asked["method"] in results
            outcome = {"result": results[asked["method"]]} if known else {"error": UNKNOWN}
            await websocket.send_message(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}))


async def test_wire_faults_of_a_websocket_server_are_failed_checks_and_its_negotiation_is_right() -> None:
    with trio.fail_after(60):
        async with listening(noisy) as url:
            report = await check_server(url, CheckOptions(depth="full", timeout_seconds=5))
    found = failed(report)
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
        async with listening(partial(answer, {**RESULTS, "tools/list": {"tools": [tool]}})) as url:
            server = replace(from_url(url), expanded=frozenset({SECRET}))
            options = CheckOptions(timeout_seconds=5)
            first = await check_server(server, options)
            baseline = baseline_of(redacted_values(first, server.secrets) if is_redacted else first)
            again = await check_server(server, replace(options, baseline=baseline))
    assert any(SECRET in test.subject for test in first.tests if test.status == "failed")
    assert is_redacted is (SECRET not in baseline.to_json())
    assert (failed(again), again.remarks) == ({}, first.remarks)


def failed(report: Report) -> dict[str, str]:
    """The checks that failed, each with one of its messages."""
    return {
        check.kind.name: check.message
        for test in report.tests
        for check in test.checks
        if check.verdict == "failed"
    }


async def test_a_fault_that_the_client_corrects_is_a_finding() -> None:
    with trio.fail_after(60):
        async with quirky_server() as server:
            server.found.set()
            report = await check_server(server.url, CheckOptions(depth="full", timeout_seconds=5))
    found = failed(report)
    assert "2024-11-05" in found["handshake.negotiates"]
    assert "not initialized" in found["handshake.initialized"]
    assert "prompts.messages" in found  # a list of blocks, which the client reads too


async def test_an_error_without_an_id_is_a_finding() -> None:
    async def nameless(request: WebSocketRequest) -> None:
        websocket = await request.accept()
        while True:
            asked = json.loads(await websocket.get_message())
            if asked.get("method") in RESULTS:
                answer = {"id": asked["id"], "result": RESULTS[asked["method"]]}
            else:
                answer = {"error": {"code": -32600, "message": "invalid request"}}
            if "id" in asked:
                await websocket.send_message(json.dumps({"jsonrpc": "2.0", **answer}))

    with trio.fail_after(60):
        async with listening(nameless) as url:
            report = await check_server(url, CheckOptions(depth="quick", timeout_seconds=5))
    assert "wire.error-ids" in failed(report)
