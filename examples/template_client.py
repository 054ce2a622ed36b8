"""A client of the template server with only `websockets` and JSON: every message is spelled out.

pip install websockets 'playhead[cli,serve]'
playhead serve template &
python template_client.py [ws://127.0.0.1:8030/mcp]
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from websockets.asyncio.client import connect

URL = "ws://127.0.0.1:8030/mcp"


async def main(url: str) -> None:
    async with connect(url, subprotocols=["mcp"]) as websocket:  # type: ignore[list-item]  # a NewType of str

        async def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            await websocket.send(json.dumps(request))
            answer: dict[str, Any] = json.loads(await websocket.recv())
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

        agreed = await ask(
            1,
            "initialize",
            {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "clientInfo": {"name": "example-client", "version": "1.0.0"},
            },
        )
        print(f"{agreed['serverInfo']['name']} speaks {agreed['protocolVersion']}")
        await websocket.send(json.dumps({"jsonrpc": "2.0", "method": "initialized"}))

        tools = (await ask(2, "tools/list", {}))["tools"]
        print("tools:", ", ".join(tool["name"] for tool in tools))

        sum_ = await ask(3, "tools/call", {"name": "calculator", "arguments": {"expression": "2 + 3 * 4"}})
        print("2 + 3 * 4 =", sum_["content"][0]["text"])

        result = await ask(
            4,
            "tools/call",
            {"name": "web_search", "arguments": {"query": "sampling theorem", "max_results": 3}},
        )
        print(result["content"][0]["text"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else URL))
