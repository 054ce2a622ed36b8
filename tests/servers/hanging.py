"""A stdio MCP server that gives the first page of some music and then never answers again.

    python -S -m tests.servers.hanging FIFO

When a read arrives that it will not answer, it writes its process id to FIFO: whoever reads the FIFO knows
that the client is in the middle of a stream. Standard library only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from tests.servers.wave import wave_header

SIZE_BYTES = 64 << 20
GIVEN_BYTES = 8192


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that this server does not have."""
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"resources": {}},
                "serverInfo": {"name": "hanging", "version": "1"},
            }
        case "resources/templates/list":
            template = {"name": "hanging", "uriTemplate": "resource://hanging{?start,end}"}
            return {"resourceTemplates": [template]}
        case "resources/read":
            page = wave_header(SIZE_BYTES) + bytes(GIVEN_BYTES - len(wave_header(SIZE_BYTES)))
            blob = base64.b64encode(page).decode("ascii")
            contents = {"uri": message["params"]["uri"], "mimeType": "audio/wav", "blob": blob}
            return {"contents": [contents]}
    return None


def main() -> None:
    told = False
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if re.search(r"[?&]start=([1-9]\d*)", message.get("params", {}).get("uri", "")):
            if not told:
                told = True
                Path(sys.argv[1]).write_text(f"{os.getpid()}\n", encoding="ascii")
            continue
        result = answer(message)
        found = (
            {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
