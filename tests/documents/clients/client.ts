// Uses the client that openapi-ts made: calls the running server, and prints what it got.
import { client } from "./generated/client.gen.ts";
import { getAbout, getHealth, getMetrics, getReady, postMcp } from "./generated/sdk.gen.ts";
import type { Answer, CallToolRequest, CallToolResult, InitializeRequest, Message } from "./generated/types.gen.ts";

declare const process: { argv: string[] };
client.setConfig({ baseUrl: process.argv[2] as string });

const about = await getAbout({ throwOnError: true });
const health = await getHealth({ throwOnError: true });
const ready = await getReady({ throwOnError: true });
const metrics = await getMetrics({ throwOnError: true, parseAs: "text" });

const accept = "application/json, text/event-stream";
let session: { "Mcp-Session-Id"?: string; "MCP-Protocol-Version"?: string } = {};

async function post(body: Message) {
  const { data, response } = await postMcp({ body, headers: { Accept: accept, ...session }, throwOnError: true });
  return { data, status: response.status, id: response.headers.get("mcp-session-id") };
}

const hello = await post({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "generated", version: "1" } },
} satisfies InitializeRequest);
session = { "Mcp-Session-Id": hello.id ?? "", "MCP-Protocol-Version": "2025-11-25" };
const initialized = await post({ jsonrpc: "2.0", method: "notifications/initialized" });
const called = await post({
  jsonrpc: "2.0",
  id: "two",
  method: "tools/call",
  params: { name: "calculator", arguments: { expression: "2 + 3 * 4" } },
} satisfies CallToolRequest);
const tools = await post({ jsonrpc: "2.0", id: 3, method: "tools/list" });
const failed = await post({ jsonrpc: "2.0", id: 4, method: "resources/read", params: { uri: "pages://none" } });

// What the types promise, used as they promise it.
const answer = called.data as Answer;
const blocks = answer.result?.content as CallToolResult["content"];
const text = blocks.map((block) => block.text ?? block.type).join();
const code = (failed.data as Answer).error?.code ?? 0;

console.log(
  JSON.stringify({
    about: [about.data.name, about.data.endpoints["mcp"]],
    health: health.data.status,
    uptime: health.data.uptime >= 0,
    ready: ready.data.status,
    metrics: String(metrics.data).includes("# TYPE"),
    session: session["Mcp-Session-Id"] !== "",
    initialized: initialized.status,
    server: (hello.data as Answer).result?.serverInfo?.name,
    id: answer.id,
    calculator: text,
    structured: answer.result?.structuredContent,
    tool: (tools.data as Answer).result?.tools?.[0]?.name,
    code,
  }),
);
