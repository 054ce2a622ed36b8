// The TypeScript SDK's client: a URL or a command, and a line of JSON with what it got.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(process.cwd() + "/");
const load = (name) => import(pathToFileURL(installed.resolve("@modelcontextprotocol/sdk/" + name)).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { ResourceUpdatedNotificationSchema } = await load("types.js");

const [first, ...args] = process.argv.slice(2);
const client = new Client({ name: "typescript", version: "1" });
const updated = new Promise((resolve) =>
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve([params.uri])),
);
await client.connect(
  first.startsWith("http") ? new StreamableHTTPClientTransport(new URL(first)) : new StdioClientTransport({ command: first, args }),
);
const texts = async (name, text) => (await client.callTool({ name, arguments: { text } })).content.map((block) => block.text);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const echo = await texts("echo", "hello");
const song = await texts("song", "here");
const resources = (await client.listResources()).resources.map((each) => each.uri);
const read = (await client.readResource({ uri: "song://1" })).contents[0].text;
await client.subscribeResource({ uri: "song://1" });
await texts("touch", "");
console.log(JSON.stringify({ tools, echo, song, resources, read, updated: await updated }));
await client.close();
