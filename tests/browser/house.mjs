// The installation as its programs see it: by tokens, beside the browser.

import { readFileSync } from "node:fs";

export class House {
  #service;
  #upstream;
  #protected;
  #issuer;
  #data;
  /** Of the settings of company sign-in. */
  #revision;

  constructor(service, upstream, protectedPeer, issuer, data) {
    this.#service = service;
    this.#upstream = upstream;
    this.#protected = protectedPeer;
    this.#issuer = issuer;
    this.#data = data;
  }

  get password() {
    return this.#file("admin-password");
  }

  /** Another person of the tenant. */
  other = { email: "bob@acme.test", password: "a password of bob's" };

  /** Who signs in at the company's issuer: always the same person. */
  ann = { email: "ann@acme.test", subject: "ann-at-acme" };

  /** Servers in several states, company sign-in, and a question that was decided. */
  async prepare() {
    const demo = await this.#server("Demo", this.#upstream, {
      description: "Small tools to try things with: greetings, sums, dice, and one that would delete everything.",
      tags: ["demo", "harmless"],
    });
    await this.#api("POST", `/api/mcp/servers/${demo}/tools/refresh`);
    const broken = await this.#server("Tickets of the service desk", "http://127.0.0.1:9/mcp", {
      description: "Nobody listens there.",
    });
    await this.#api("POST", `/api/mcp/servers/${broken}/tools/refresh`, undefined, true);
    await this.#server("Archive", "http://127.0.0.1:9/mcp", { enabled: false });
    this.calendar = await this.#server("Calendar", this.#protected, { authMode: "oauth", slug: "calendar" });
    await this.#server("Notes", this.#protected, { authMode: "bearer", slug: "notes" });
    await this.#api("POST", "/api/users", { email: this.other.email, role: "member", password: this.other.password });
    await this.#api("PATCH", "/api/tenant", { enabledSourceIds: [demo] });
    await this.company({});
    const call = this.call("mcp__demo__add", { a: 2, b: 40 });
    this.decided = await this.question();
    await this.decide(this.decided, "allow_once");
    await call;
  }

  /** People sign in at their company; its issuer asks them who they are. */
  async company(changes) {
    const form = {
      enabled: true,
      name: "Acme",
      issuer: this.#issuer,
      clientId: "bailiwick",
      clientSecret: "secret of the company's client",
      revision: this.#revision,
      ...changes,
    };
    this.#revision = (await this.#api("PUT", "/api/tenant/company-sign-in", form)).revision;
  }

  /** Calls a tool at the gateway, and waits for the whole answer. */
  async call(tool, input) {
    const meta = { "io.modelcontextprotocol/protocolVersion": "2026-07-28" };
    meta["io.modelcontextprotocol/clientInfo"] = { name: "browser-tests", version: "1" };
    meta["io.modelcontextprotocol/clientCapabilities"] = {};
    const params = { name: tool, arguments: input, _meta: meta };
    const response = await fetch(`${this.#service}/mcp`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${this.#file("agent-token")}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": tool,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }),
    });
    return response.text();
  }

  /** The page of the one question that waits. */
  async question() {
    for (let look = 0; look < 200; look++) {
      const { items } = await this.#api("GET", "/api/permission-requests?state=pending");
      if (items.length > 0) return `/questions/${items[0].id}`;
      await new Promise((go) => setTimeout(go, 50));
    }
    throw new Error("nobody asks");
  }

  async decide(page, decision) {
    const path = `${page.replace("/questions/", "/api/permission-requests/")}/decision`;
    return this.#api("POST", path, { decision });
  }

  async #server(name, url, rest) {
    const form = { name, transport: "http", url, authMode: "none", enabled: true };
    if (name === "Demo") form.slug = "demo";
    return (await this.#api("POST", "/api/mcp/servers", { ...form, ...rest })).id;
  }

  async #api(method, path, body, mayFail = false) {
    const response = await fetch(`${this.#service}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.#file("admin-token")}`,
        ...(body && { "content-type": "application/json" }),
      },
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok && !mayFail) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  }

  #file(name) {
    return readFileSync(`${this.#data}/${name}`, "utf8").trimEnd();
  }
}
