// Uses the client that openapi-generator made for JavaScript, as client.ts does the one of another generator.
import * as api from "./template_api_js/src/index.js";

async function main() {
  const client = new api.ApiClient(process.argv[2]);
  const operations = new api.OperationsApi(client);
  const mcp = new api.McpApi(client);

  const about = await operations.getAbout();
  const health = await operations.getHealth();
  const ready = await operations.getReady();
  const metrics = await operations.getMetrics();

  const hello = await mcp.postMcpWithHttpInfo(
    api.Message.constructFromObject({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "generated", version: "1" } },
    }),
  );
  const result = hello.data.result;
  const session = {
    mcpSessionId: hello.response.headers["mcp-session-id"],
    mCPProtocolVersion: result.protocolVersion,
  };
  const initialized = await mcp.postMcpWithHttpInfo({ jsonrpc: "2.0", method: "notifications/initialized" }, session);
  const parameters = new api.CallToolRequestParams("calculator");
  parameters.arguments = { expression: "2 + 3 * 4" };
  const called = await mcp.postMcp(new api.CallToolRequest("2.0", "two", "tools/call", parameters), session);
  const outcome = api.CallToolResult.constructFromObject(called.result);
  const tools = await mcp.postMcp({ jsonrpc: "2.0", id: 3, method: "tools/list" }, session);
  const failed = await mcp.postMcp(
    { jsonrpc: "2.0", id: 4, method: "resources/read", params: { uri: "pages://none" } },
    session,
  );

  console.log(
    JSON.stringify({
      about: [about.name, about.endpoints["mcp"]],
      health: health.status,
      uptime: health.uptime >= 0,
      ready: ready.status,
      metrics: metrics.includes("# TYPE"),
      session: session.mcpSessionId !== "",
      initialized: initialized.response.status,
      server: result.serverInfo.name,
      id: called.id,
      calculator: outcome.content.map((block) => block.text).join(),
      structured: called.result.structuredContent,
      tool: tools.result.tools[0].name,
      code: failed.error.code,
    }),
  );
}

main();
