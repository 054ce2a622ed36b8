// The AI SDK with the proxy: URL of the model, and the proxy's command.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// The packages are in build/hosts/ai-sdk, the working directory.
const require = createRequire(pathToFileURL(join(process.cwd(), "package.json")));
const { generateText, stepCountIs } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { createMCPClient } = require("@ai-sdk/mcp");
const { Experimental_StdioMCPTransport: Stdio } = require("@ai-sdk/mcp/mcp-stdio");

const [modelUrl, command, ...args] = process.argv.slice(2);
const model = createOpenAICompatible({ name: "scripted", baseURL: modelUrl, apiKey: "none" })("scripted");
const client = await createMCPClient({ transport: new Stdio({ command, args, env: { ...process.env } }) });
const tools = await client.tools();
const messages = [];
for (const [word, seconds] of [["play", 1.5], ["pause", 0.5], ["volume", 0], ["resume", 6]]) {
  messages.push({ role: "user", content: word });
  const { response } = await generateText({ model, tools, messages, stopWhen: stepCountIs(3) });
  messages.push(...response.messages);
  await new Promise((done) => setTimeout(done, seconds * 1000));
}
await client.close();
