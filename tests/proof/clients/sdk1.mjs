// Runs a plan with the client of the TypeScript SDK 1.x. The plan comes on stdin, what happened goes to
// stdout, both JSON; see ../clients.py.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { run } from "./run.mjs";

await run({
  client: () => new Client({ name: "proof", version: "1.0.0" }),
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
  sse: (url, options) => new SSEClientTransport(url, options),
  stdio: (program) => new StdioClientTransport(program),
  call: (client, call, options) => client.callTool(call, undefined, options),
});
