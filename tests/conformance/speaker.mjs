// An MCP client of either era, as small as the scenarios allow.

const MODERN = "2026-07-28";
const WHO = { name: "conformance-adapter", version: "1" };
const CAPABILITIES = { elicitation: { form: {} } };
const NAMED = { "tools/call": "name", "prompts/get": "name", "resources/read": "uri" };

export class Speaker {
  #url;
  #token;
  #version;
  #session;
  #ids = 0;
  #schemas = new Map();
  #left = new AbortController();

  constructor(url, token, version) {
    this.#url = url;
    this.#token = token;
    this.#version = version;
  }

  /** What the server can do. */
  async begin() {
    if (this.#version === MODERN) return (await this.ask("server/discover")).capabilities ?? {};
    const hello = { protocolVersion: this.#version, capabilities: CAPABILITIES, clientInfo: WHO };
    const { capabilities } = await this.ask("initialize", hello);
    await this.#send({ method: "notifications/initialized" });
    if (this.#session) await this.#listen();
    return capabilities ?? {};
  }

  /** Some servers ask on the stream that belongs to no request. */
  async #listen() {
    const response = await fetch(this.#url, { headers: this.#headers(""), signal: this.#left.signal });
    if (!response.ok) return;
    const hear = async () => {
      for await (const message of messages(response)) {
        if (message.method && message.id !== undefined) await this.#send({ id: message.id, result: answer(message) });
      }
    };
    hear().catch((error) => error.name === "AbortError" || console.log("stream", error.message));
  }

  async end() {
    this.#left.abort();
    if (!this.#session) return;
    await fetch(this.#url, { method: "DELETE", headers: this.#headers("") });
  }

  /** All tools. */
  async tools() {
    const { tools } = await this.ask("tools/list");
    for (const tool of tools) this.#schemas.set(tool.name, tool.inputSchema);
    return tools;
  }

  /** The result; where the server asks back, after it was answered. */
  async ask(method, params = {}) {
    let sent = params;
    for (;;) {
      const result = await this.#round(method, sent);
      if (result.resultType !== "input_required") return result;
      const responses = Object.entries(result.inputRequests ?? {}).map(([name, asked]) => [name, answer(asked)]);
      sent = { ...params, inputResponses: Object.fromEntries(responses) };
      if (result.requestState !== undefined) sent.requestState = result.requestState;
    }
  }

  async #round(method, params) {
    const id = ++this.#ids;
    const response = await this.#send({ id, method, params });
    this.#session ??= response.headers.get("mcp-session-id");
    for await (const message of messages(response)) {
      if (message.method && message.id !== undefined) {
        await this.#send({ id: message.id, result: answer(message) });
      } else if (message.id === id) {
        if (message.error) throw new Error(`${method}: ${JSON.stringify(message.error)}`);
        return message.result;
      }
    }
    throw new Error(`${method}: ${response.status} without an answer`);
  }

  #send(message) {
    const { method } = message;
    const modern = method && this.#version === MODERN;
    const params = modern
      ? {
          ...message.params,
          _meta: {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": WHO,
            "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
          },
        }
      : message.params;
    const body = JSON.stringify({ jsonrpc: "2.0", ...message, params });
    const headers = this.#headers(method);
    if (modern) {
      headers["mcp-method"] = method;
      if (NAMED[method]) headers["mcp-name"] = params[NAMED[method]];
      if (method === "tools/call") Object.assign(headers, mirrored(this.#schemas.get(params.name), params.arguments));
    }
    return fetch(this.#url, { method: "POST", headers, body });
  }

  #headers(method) {
    return {
      authorization: `Bearer ${this.#token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(method !== "initialize" && { "mcp-protocol-version": this.#version }),
      ...(this.#session && { "mcp-session-id": this.#session }),
    };
  }
}

/** The arguments that a schema wants to see in headers too (SEP-2243). */
function mirrored(schema, given = {}) {
  const headers = {};
  for (const [name, { "x-mcp-header": header }] of Object.entries(schema?.properties ?? {})) {
    if (!header || given[name] === undefined || given[name] === null) continue;
    const text = String(given[name]);
    const plain = /^([!-~]([ -~]*[!-~])?)?$/.test(text);
    headers[`mcp-param-${header}`] = plain ? text : `=?base64?${Buffer.from(text).toString("base64")}?=`;
  }
  return headers;
}

/** A form accepted as it is, with its defaults (SEP-1034). */
function answer({ method, params }) {
  if (method !== "elicitation/create") return {};
  const fields = Object.entries(params.requestedSchema?.properties ?? {});
  const known = fields.filter(([, field]) => field.default !== undefined || field.type === "boolean");
  return { action: "accept", content: Object.fromEntries(known.map(([name, field]) => [name, field.default ?? true])) };
}

async function* messages(response) {
  if (!response.headers.get("content-type")?.includes("text/event-stream")) {
    const text = await response.text();
    if (text) yield JSON.parse(text);
    return;
  }
  let held = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (held + piece).split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:"));
      const text = data.map((line) => line.slice(5).trim()).join("\n");
      if (text) yield JSON.parse(text);
    }
  }
}
