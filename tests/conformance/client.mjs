// One client scenario: `node client.mjs URL`, as the suite calls it. Registers the server at URL as a person of its own,
// connects as a browser would, asks for the tools, and calls them through the gateway.
//
// The suite judges what its server and its authorization server saw. What we say is for whoever reads the log.

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { Api, Refused } from "./api.mjs";
import { Speaker } from "./speaker.mjs";

const run = promisify(execFile);
const { BIN, SERVICE, DATA_DIR } = process.env;
const SCENARIO = process.env.MCP_CONFORMANCE_SCENARIO;
const VERSION = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION;
const CONTEXT = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");

// Of `auth/basic-cimd`; nobody reads it.
const DOCUMENT = "https://conformance-test.local/client-metadata.json";
// A person gives up after that.
const CONNECTS = 3;
// Extensions that nobody switched on here: what they ask for has no place in a form.
const NOT_OFFERED = /^auth\/(client-credentials|enterprise-managed|dpop|wif)|^sep-2640/;

async function token(email, scopes) {
  const args = ["token", "create", "--data-dir", DATA_DIR, "--user", email, "--scopes", scopes];
  const { stdout } = await run(`${BIN}/bailiwick`, args);
  return stdout.trim().split("\n").at(-1);
}

class Person {
  static async named(name) {
    const admin = new Api(SERVICE, readFileSync(`${DATA_DIR}/admin-token`, "utf8").trim());
    const email = `${name}@conformance.test`;
    await admin.post("/api/users", { email, role: "superadmin" });
    const person = new Person();
    person.api = new Api(SERVICE, await token(email, "api:read,api:write,approve,admin"));
    person.agent = await token(email, "mcp:call,api:read");
    return person;
  }

  /** From the press of the button to what the console shows; the state of the connection. */
  async connect(server) {
    const path = `/api/mcp/servers/${server.id}`;
    const { revision } = await this.api.get(path);
    const started = await this.api.request("POST", `${path}/oauth/start`, { revision });
    const begun = await started.json();
    if (!started.ok) throw new Refused(`start: ${JSON.stringify(begun)}`, started.status);
    const cookie = started.headers.getSetCookie()[0].split(";")[0];
    const consented = await visit(begun.authorizationUrl);
    const back = consented.headers.get("location");
    if (!back?.startsWith(SERVICE.replace(/\/$/, ""))) throw new Error(`the provider sends to ${back}`);
    const received = await visit(back, cookie);
    const result = received.headers.get("location")?.split("#result=")[1];
    if (!result) throw new Error(`the callback answers ${received.status}`);
    return (await this.api.post(`${path}/oauth/confirm`, { result })).state;
  }

  async discover(server) {
    await this.api.post(`/api/mcp/servers/${server.id}/tools/refresh`);
    return this.api.get(`/api/mcp/servers/${server.id}/connection`);
  }
}

/** As a browser, but a redirect is looked at and not followed. */
function visit(url, cookie) {
  return fetch(url, { redirect: "manual", headers: cookie ? { cookie } : {} });
}

function form(url) {
  const slug = `${SCENARIO.replaceAll("/", "-")}-${VERSION}`;
  const form = { name: slug, slug, transport: "http", url, authMode: "none", enabled: true };
  if (!SCENARIO.startsWith("auth/")) return form;
  const oauth = CONTEXT.client_id
    ? { registration: "preregistered", clientId: CONTEXT.client_id, clientSecret: CONTEXT.client_secret }
    : { registration: "auto" };
  if (CONTEXT.issuer) oauth.issuer = CONTEXT.issuer;
  if (SCENARIO === "auth/basic-cimd") oauth.clientMetadataUrl = DOCUMENT;
  return { ...form, authMode: "oauth", oauth };
}

/** Arguments for every tool that the scenarios have. */
function given(tool, tools) {
  if (tool.name === "add_numbers") return { a: 5, b: 3 };
  if (tool.name === "json_schema_echo") {
    return { schema: tools.find((one) => one.name === "json_schema_2020_12_tool").inputSchema };
  }
  const needed = tool.inputSchema?.required ?? [];
  return Object.fromEntries(needed.map((name) => [name, sample(tool.inputSchema.properties?.[name]?.type)]));
}

function sample(type) {
  return { integer: 1, number: 1, boolean: true, object: {}, array: [], null: null }[type] ?? "us-west1";
}

async function use(person, server) {
  const session = await person.api.post("/api/sessions", {
    title: SCENARIO,
    approvalMode: "always_allow",
    enabledSourceIds: [server.id],
  });
  const path = `mcp/${session.id}?prefix=off&sources=${server.slug}`;
  const speaker = new Speaker(`${SERVICE.replace(/\/$/, "")}/${path}`, person.agent, VERSION);
  const can = await speaker.begin();
  const tools = await speaker.tools();
  console.log("tools", tools.map((tool) => tool.name).join(" "));
  const calls = CONTEXT.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: given(tool, tools) }));
  let refused = null;
  for (const { name, arguments: wanted } of calls) {
    // What is null, and no schema of the suite's has null, is left out: the gateway refuses input that does not fit.
    const args = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== null));
    const result = await speaker.ask("tools/call", { name, arguments: args });
    const code = result._meta?.["bailiwick/error"]?.error?.code;
    console.log("call", name, code ?? "done");
    refused ??= code;
  }
  if (can.resources) {
    for (const { uri } of (await speaker.ask("resources/list")).resources) await speaker.ask("resources/read", { uri });
  }
  if (can.prompts) {
    for (const { name } of (await speaker.ask("prompts/list")).prompts) await speaker.ask("prompts/get", { name });
  }
  await speaker.end();
  return refused;
}

/** Connects, and again where the service says that it must be, as a person would. */
async function attempt(person, server) {
  for (let connects = 1; ; connects += 1) {
    if (server.authMode === "oauth") console.log("connect", await person.connect(server));
    let again;
    try {
      const { state, needsScopes } = await person.discover(server);
      console.log("discovered", state, needsScopes.join(" "));
      again = (await use(person, server)) ?? null;
    } catch (error) {
      again = error.message;
    }
    const { state, needsScopes } = await person.api.get(`/api/mcp/servers/${server.id}/connection`);
    const asked = state === "reconnect_required" || needsScopes.length > 0;
    console.log("used", state, needsScopes.join(" "), again ?? "");
    if (server.authMode !== "oauth" || !asked || connects === CONNECTS) return;
  }
}

if (NOT_OFFERED.test(SCENARIO)) process.exit(0);
const person = await Person.named(`${SCENARIO.replaceAll("/", "-")}-${VERSION}`);
const server = await person.api.post("/api/mcp/servers", form(process.argv.at(-1)));
try {
  await attempt(person, server);
} catch (error) {
  // A scenario may want just that: the suite knows.
  console.log(error.message);
} finally {
  // A tenant has room for fifty.
  await person.api.delete(`/api/mcp/servers/${server.id}`);
}
