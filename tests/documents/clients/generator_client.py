"""Uses the client that openapi-generator made for Python, as client.py does the one of another generator."""

import json
import sys

import template_api as api

client = api.ApiClient(api.Configuration(host=sys.argv[1]))
operations = api.OperationsApi(client)
mcp = api.McpApi(client)

about = operations.get_about()
health = operations.get_health()

hello = mcp.post_mcp_with_http_info(
    api.Message(
        jsonrpc="2.0",
        id=1,
        method="initialize",
        params=api.InitializeRequestParams(
            protocol_version="2025-11-25",
            capabilities=api.ClientCapabilities(),
            client_info=api.Implementation(name="generated", version="1"),
        ).to_dict(),
    )
)
result = hello.data.result
session = {
    "mcp_session_id": hello.headers["mcp-session-id"],
    "mcp_protocol_version": result.protocol_version,
}
initialized = mcp.post_mcp_with_http_info(
    api.Message(jsonrpc="2.0", method="notifications/initialized"), **session
)
request = api.CallToolRequest(
    jsonrpc="2.0",
    id="two",
    method="tools/call",
    params=api.CallToolRequestParams(name="calculator", arguments={"expression": "2 + 3 * 4"}),
)
called = mcp.post_mcp(api.Message.from_dict(request.to_dict()), **session)
outcome = api.CallToolResult.from_dict(called.result.to_dict())
tools = mcp.post_mcp(api.Message(jsonrpc="2.0", id=3, method="tools/list"), **session)
failed = mcp.post_mcp(
    api.Message.from_dict(
        {"jsonrpc": "2.0", "id": 4, "method": "resources/read", "params": {"uri": "pages://none"}}
    ),
    **session,
)

print(
    json.dumps(
        {
            "about": [about.name, about.endpoints["mcp"]],
            "health": health.status,
            "uptime": health.uptime >= 0,
            "ready": operations.get_ready().status,
            "metrics": "# TYPE" in operations.get_metrics(),
            "session": session["mcp_session_id"] != "",
            "initialized": initialized.status_code,
            "server": result.server_info.name,
            "id": called.id,
            "calculator": ",".join(block.text for block in outcome.content),
            "structured": called.result.structured_content,
            "tool": tools.result.tools[0].name,
            "code": failed.error.code,
        }
    )
)
