// What both TypeScript clients do with a plan.

import { readFileSync } from "node:fs";

export async function run(sdk) {
  const plan = JSON.parse(readFileSync(0, "utf8"));
  const client = sdk.client();
  await client.connect(transport(sdk, plan));
  const tools = [];
  for (let cursor; plan.list; ) {
    const page = await client.listTools(cursor ? { cursor } : undefined);
    tools.push(...page.tools);
    cursor = page.nextCursor;
    if (!cursor) break;
  }
  const calls = plan.calls.map((call) => () => one(sdk, client, call));
  const ended = [];
  if (plan.together) ended.push(...(await Promise.all(calls.map((call) => call()))));
  else for (const call of calls) ended.push(await call());
  const version = client.getNegotiatedProtocolVersion?.() ?? client.transport?.protocolVersion ?? "";
  process.stdout.write(JSON.stringify({ version, tools, ended }));
  await client.close();
}

function transport(sdk, plan) {
  if (plan.transport === "stdio") {
    const [command, ...args] = plan.command;
    return sdk.stdio({ command, args, env: { ...process.env, ...plan.env }, stderr: "ignore" });
  }
  const make = plan.transport === "sse" ? sdk.sse : sdk.http;
  return make(new URL(plan.url), { requestInit: { headers: plan.headers } });
}

async function one(sdk, client, call) {
  const progress = [];
  const began = performance.now();
  const options = { timeout: (call.timeout ?? 60) * 1_000 };
  if (call.progress) options.onprogress = (now) => progress.push([now.progress, now.total ?? null]);
  let ended;
  try {
    const result = await sdk.call(client, { name: call.tool, arguments: call.arguments }, options);
    ended = { result };
  } catch (error) {
    // The SDK 1.x puts its own words before those of the server.
    const message = String(error.message).replace(/^MCP error -?\d+: /, "");
    const answered = Number.isInteger(error.code) && error.data !== undefined;
    ended = answered || error.code === -32602 || error.code === -32603
      ? { error: { code: error.code, message, data: error.data } }
      : { raised: `${error.name}: ${message}` };
  }
  ended.took = performance.now() - began;
  if (call.progress) ended.progress = progress;
  return ended;
}
