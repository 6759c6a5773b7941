// An MCP server on the TypeScript SDK 1.x: sdk1.mjs PORT. Sessions, event streams.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";

import { offer } from "./tools.mjs";

const sessions = new Map();

async function begin() {
  const server = new McpServer({ name: "proof", version: "1.0.0" });
  offer(server, async (extra, done, total) => {
    const progressToken = extra._meta?.progressToken;
    if (progressToken === undefined) return;
    const params = { progressToken, progress: done, total };
    await extra.sendNotification({ method: "notifications/progress", params });
  });
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await server.connect(transport);
  return transport;
}

async function answer(request, response) {
  let body = "";
  for await (const part of request) body += part;
  const message = body ? JSON.parse(body) : undefined;
  const known = sessions.get(request.headers["mcp-session-id"]);
  if (known) return known.handleRequest(request, response, message);
  if (message && isInitializeRequest(message)) {
    const transport = await begin();
    return transport.handleRequest(request, response, message);
  }
  // A session that is not there, and a protocol version that is not spoken.
  response.writeHead(request.headers["mcp-session-id"] ? 404 : 400, { "content-type": "application/json" });
  const error = { code: -32000, message: "no session" };
  return response.end(JSON.stringify({ jsonrpc: "2.0", id: null, error }));
}

createServer(answer).listen(Number(process.argv[2]), "127.0.0.1");
