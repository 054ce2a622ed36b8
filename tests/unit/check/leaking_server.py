"""A stdio server with one read-only tool, whose first argument is its defect. Needs the standard library
only."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

KEPT: list[object] = []
CALLS = 0


def call(defect: str, folder: str) -> str:
    global CALLS
    CALLS += 1
    match defect:
        case "memory":
            KEPT.append(bytearray(b"x" * (2 << 20)))
        case "garbage":
            KEPT[:] = [bytearray(b"x" * (4 << 20))]
        case "time":
            time.sleep(0.004 * CALLS)
        case "descriptors":
            KEPT.append(Path(__file__).open("rb"))  # noqa: SIM115 - it stays open
        case "jobs":  # each call starts a search in the background
            KEPT.append(subprocess.Popen(["sleep", "5"], stdout=subprocess.PIPE, stdin=subprocess.PIPE))
        case "files":
            Path(folder, f"result-{CALLS}.json").write_text("{}")
        case "logs":
            with Path(folder, "server.log").open("a") as log:
                log.write("called\n")
    return "fine"


def answer(method: str, params: dict[str, object], defect: str, folder: str) -> dict[str, object]:
    match method:
        case "initialize":
            info = {"name": "leaking", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "ping":
            return {}
        case "tools/list":
            hints = {"readOnlyHint": True}
            return {"tools": [{"name": "look", "inputSchema": {"type": "object"}, "annotations": hints}]}
        case "tools/call" if params.get("name") == "look" and isinstance(params.get("arguments", {}), dict):
            return {"content": [{"type": "text", "text": call(defect, folder)}]}
    raise LookupError


for line in sys.stdin:
    message = json.loads(line) if line.startswith('{"') and line.endswith("}\n") else {}
    if "id" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(message["method"], message.get("params", {}), *sys.argv[1:])
        except LookupError:
            known = message["method"] in ("tools/call", "tools/list")
            reply["error"] = {"code": -32602 if known else -32601, "message": "no"}
        print(json.dumps(reply), flush=True)
