// An MCP server on the TypeScript SDK 2.x, which speaks 2026-07-28 and older: sdk2.mjs PORT.

import { createServer } from "node:http";

import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";

import { offer } from "./tools.mjs";

const handler = createMcpHandler(() => {
  const server = new McpServer({ name: "proof", version: "1.0.0" });
  offer(server, async (context, done, total) => {
    const progressToken = context.mcpReq?._meta?.progressToken;
    if (progressToken === undefined) return;
    const params = { progressToken, progress: done, total };
    await context.mcpReq.notify({ method: "notifications/progress", params });
  });
  return server;
});

createServer(toNodeHandler(handler)).listen(Number(process.argv[2]), "127.0.0.1");
