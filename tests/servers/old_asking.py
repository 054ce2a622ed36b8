"""A stdio server of the handshake's generation that asks undeclared, notifies, and dies when told to."""

from __future__ import annotations

import json
import os
import sys


def _send(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    asked_by, subscribed = None, set[str]()
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        text = None
        if method == "initialize":
            info = {"name": "old", "version": "1"}
            capabilities: dict[str, object] = {"tools": {}, "resources": {"subscribe": True}}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            _send(id=id, result=result)
        elif method == "tools/list":
            names = ("ask", "echo", "die", "touch")
            _send(id=id, result={"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]})
        elif method == "tools/call" and params["name"] == "die":
            os._exit(3)
        elif method == "tools/call" and params["name"] == "ask":
            asked_by = id
            form = {"type": "object", "properties": {}}
            _send(id="q1", method="elicitation/create", params={"message": "?", "requestedSchema": form})
        elif method == "resources/subscribe" and params["uri"] == "song://missing":
            _send(id=id, error={"code": -32002, "message": "no such song"})
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            (subscribed.add if method == "resources/subscribe" else subscribed.discard)(params["uri"])
            _send(id=id, result={})
        elif method == "tools/call" and params["name"] == "touch":
            for uri in subscribed:
                _send(method="notifications/resources/updated", params={"uri": uri})
            text = "touched"
        elif method == "tools/call":
            text = str(params.get("arguments"))
        elif id == "q1":
            text, id = str(message.get("error")), asked_by
        elif method is not None and id is not None:
            _send(id=id, error={"code": -32601, "message": "Method not found"})
        if text is not None:
            _send(id=id, result={"content": [{"type": "text", "text": text}]})


if __name__ == "__main__":
    main()
