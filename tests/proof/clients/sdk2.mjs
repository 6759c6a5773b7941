// Runs a plan with the client of the TypeScript SDK 2.x: sdk2.mjs legacy|auto. See ../clients.py.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { run } from "./run.mjs";

await run({
  client: () => new Client({ name: "proof", version: "1.0.0" }, { versionNegotiation: { mode: process.argv[2] } }),
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
  sse: (url, options) => new SSEClientTransport(url, options),
  stdio: (program) => new StdioClientTransport(program),
  call: (client, call, options) => client.callTool(call, options),
});
