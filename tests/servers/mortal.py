"""A stdio MCP server that says its process id, greets, and dies when it is told to: `mortal.py NAME`.

Standard library only: it starts in a tenth of the time of one on the SDK, and many tests start several.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = ("greet", "pid", "die", "hang")


def answer(name: str, message: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that this server does not have."""
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [{"name": tool, "inputSchema": {"type": "object"}} for tool in TOOLS]}
        case "tools/call":
            if message["params"]["name"] == "die":
                sys.stderr.write("the end\n")
                sys.stderr.flush()
                os._exit(3)
            text = str(os.getpid()) if message["params"]["name"] == "pid" else f"I am {name}"
            return {"content": [{"type": "text", "text": text}]}
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or message.get("params", {}).get("name") == "hang":
            continue
        result = answer(sys.argv[1], message)
        found = (
            {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
