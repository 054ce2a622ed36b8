"""The checker over WebSocket: what a server sends beside the protocol is noticed there too."""

from __future__ import annotations

import json

import trio
from trio_websocket import WebSocketRequest

from playhead.check.options import CheckOptions
from playhead.check.run import check_server
from tests.servers.websocket_peer import listening

INFO = {"name": "noisy", "version": "1"}
RESULTS: dict[str, object] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "tools/list": {"tools": []},
    "ping": {},
}


async def noisy(request: WebSocketRequest) -> None:
    """Answers twice and once for nobody, in binary too."""
    websocket = await request.accept(subprotocol="mcp")
    while True:
        asked = json.loads(await websocket.get_message())
        if "id" not in asked:
            continue
        error = {"code": -32601, "message": "no such method"}
        known = asked["method"] in RESULTS
        outcome = {"result": RESULTS[asked["method"]]} if known else {"error": error}
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome})
        await websocket.send_message(b"\x00not text")
        await websocket.send_message(answer)
        await websocket.send_message(answer)
        await websocket.send_message(json.dumps({"jsonrpc": "2.0", "id": "nobody's", "result": {}}))


async def test_wire_faults_of_a_websocket_server_are_failed_checks() -> None:
    with trio.fail_after(60):
        async with listening(noisy) as url:
            report = await check_server(url, CheckOptions(depth="full", timeout_seconds=5))
    failed = {
        check.kind.name: check.message
        for test in report.tests
        for check in test.checks
        if check.verdict == "failed"
    }
    assert {"wire.messages", "wire.answered-once", "wire.known-ids"} <= failed.keys()
    assert "a binary message" in failed["wire.messages"]
