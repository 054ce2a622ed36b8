"""A stdio server of a few lines: it shakes hands by itself and does what a test writes.

The script has `say(**message)`, and `take(*methods)`: the next request of one of them, or answer. What else
comes is refused. Standard library only, without `site`: it starts in a tenth of the time of one on the SDK.
"""

from __future__ import annotations

import sys

HEAD = """
import base64, json, os, sys, time
def say(**message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
def take(*methods):
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") in methods or "method" not in message: return message
        if message["method"] == "initialize":
            info = {"name": "scripted", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
            say(id=message["id"], result=result)
        elif "id" in message:
            say(id=message["id"], error={"code": -32601, "message": "no such method"})
    sys.exit()
"""


def scripted_stdio(script: str) -> list[str]:
    """The command that starts such a server."""
    return [sys.executable, "-I", "-S", "-c", HEAD + script]
