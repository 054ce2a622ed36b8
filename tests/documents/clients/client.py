"""Uses the client that openapi-python-client made: calls the running server, and prints what it got.

Runs in an environment of its own (see tests/documents/install.py), beside the package `template_client`.
"""

import json
import sys

from template_client import Client
from template_client.api.mcp import post_mcp
from template_client.api.operations import get_about, get_health, get_metrics, get_ready
from template_client.models import (
    CallToolRequest,
    CallToolResult,
    Failure,
    InitializedNotification,
    InitializeRequest,
    InitializeResult,
    ReadResourceRequest,
    Success,
    TextContent,
)

client = Client(
    base_url=sys.argv[1],
    headers={"Accept": "application/json, text/event-stream"},
    raise_on_unexpected_status=True,
)

about = get_about.sync(client=client)
health = get_health.sync(client=client)
ready = get_ready.sync(client=client)
metrics = get_metrics.sync_detailed(client=client)

hello = post_mcp.sync_detailed(
    client=client,
    body=InitializeRequest.from_dict(
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
    ),
)
assert isinstance(hello.parsed, Success)
assert isinstance(hello.parsed.result, InitializeResult)
session = {
    "mcp_session_id": hello.headers["mcp-session-id"],
    "mcp_protocol_version": hello.parsed.result.protocol_version,
}
initialized = post_mcp.sync_detailed(
    client=client,
    body=InitializedNotification(jsonrpc="2.0", method="notifications/initialized"),
    **session,
)
called = post_mcp.sync(
    client=client,
    body=CallToolRequest.from_dict(
        {
            "jsonrpc": "2.0",
            "id": "two",
            "method": "tools/call",
            "params": {"name": "calculator", "arguments": {"expression": "2 + 3 * 4"}},
        }
    ),
    **session,
)
failed = post_mcp.sync(
    client=client,
    body=ReadResourceRequest.from_dict(
        {"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": "pages://none"}}
    ),
    **session,
)
assert isinstance(called, Success)
assert isinstance(called.result, CallToolResult)
assert isinstance(failed, Failure)
texts = [block.text for block in called.result.content if isinstance(block, TextContent)]

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
            "calculator": ",".join(texts),
            "code": failed.error.code,
        }
    )
)
