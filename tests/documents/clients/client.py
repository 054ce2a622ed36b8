"""Uses the client that openapi-python-client made: calls the running server, and prints what it got.

Runs in an environment of its own (see tests/documents/install.py), beside the package `template_client`.
"""

import json
import sys
from typing import Any

from template_client import Client
from template_client.api.mcp import post_mcp
from template_client.api.operations import get_about, get_health, get_metrics, get_ready
from template_client.models import (
    Answer,
    CallToolRequest,
    CallToolResult,
    InitializedNotification,
    InitializeRequest,
    InitializeResult,
    ListToolsRequest,
    Message,
    ReadResourceRequest,
)

client = Client(
    base_url=sys.argv[1],
    headers={"Accept": "application/json, text/event-stream"},
    raise_on_unexpected_status=True,
)


def message(kind: Any) -> Any:
    """A message of one kind, as the body of a request."""
    return Message.from_dict(kind.to_dict())


about = get_about.sync(client=client)
health = get_health.sync(client=client)
ready = get_ready.sync(client=client)
metrics = get_metrics.sync_detailed(client=client)

hello = post_mcp.sync_detailed(
    client=client,
    body=message(
        InitializeRequest.from_dict(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "generated", "version": "1"},
                },
            }
        )
    ),
)
assert isinstance(hello.parsed, Answer)
agreed = InitializeResult.from_dict(hello.parsed.result.to_dict())
session = {
    "mcp_session_id": hello.headers["mcp-session-id"],
    "mcp_protocol_version": agreed.protocol_version,
}
initialized = post_mcp.sync_detailed(
    client=client,
    body=message(InitializedNotification(jsonrpc="2.0", method="notifications/initialized")),
    **session,
)
called = post_mcp.sync(
    client=client,
    body=message(
        CallToolRequest.from_dict(
            {
                "jsonrpc": "2.0",
                "id": "two",
                "method": "tools/call",
                "params": {"name": "calculator", "arguments": {"expression": "2 + 3 * 4"}},
            }
        )
    ),
    **session,
)
tools = post_mcp.sync(client=client, body=message(ListToolsRequest("2.0", 3, "tools/list")), **session)
failed = post_mcp.sync(
    client=client,
    body=message(
        ReadResourceRequest.from_dict(
            {"jsonrpc": "2.0", "id": 4, "method": "resources/read", "params": {"uri": "pages://none"}}
        )
    ),
    **session,
)
assert isinstance(called, Answer)
assert isinstance(tools, Answer)
assert isinstance(failed, Answer)
outcome = CallToolResult.from_dict(called.result.to_dict())

print(
    json.dumps(
        {
            "about": [about.name, about.endpoints["mcp"]],
            "health": health.status,
            "uptime": health.uptime >= 0,
            "ready": ready.status,
            "metrics": "# TYPE" in metrics.content.decode(),
            "session": session["mcp_session_id"] != "",
            "initialized": int(initialized.status_code),
            "server": agreed.server_info.name,
            "id": called.id,
            "calculator": ",".join(block.text for block in outcome.content),
            "structured": called.result.structured_content,
            "tool": tools.result.tools[0].name,
            "code": failed.error.code,
        }
    )
)
