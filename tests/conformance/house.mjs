// The processes of a run: the installation, the server behind it, and the proxy in front of it.

import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { Api } from "./api.mjs";

const HOST = "127.0.0.1";
const START_MS = 120_000;

export class House {
  #bin;
  #work;
  #running = [];
  #door;
  #doorPort;
  #api;

  constructor(bin, work) {
    this.#bin = bin;
    this.#work = work;
  }

  /** Our own server of the suite's tools; its URL. */
  async peer() {
    return this.#ready(this.#start("conformance-peer", `${this.#bin}/conformance-peer`, [`${HOST}:0`]));
  }

  /** The suite's own fixture, an example in its repository; its URL. */
  async rigFixture(rig) {
    const port = await free();
    const folder = `${rig}/npm/fixture`;
    const fixture = `${folder}/examples/servers/typescript/everything-server.ts`;
    const tsx = `${folder}/node_modules/tsx/dist/cli.mjs`;
    const program = this.#start("fixture", process.execPath, [tsx, fixture], { PORT: `${port}` });
    await this.#until(program, async () => (await listens(port)) || null);
    return `http://${HOST}:${port}/mcp`;
  }

  /** An installation that reaches this machine; what `client.mjs` needs to know of it. */
  async installation() {
    this.#doorPort = await free();
    const args = ["up", "--data-dir", `${this.#work}/data`, "--listen", `${HOST}:0`];
    const service = await this.#ready(
      this.#start("bailiwick", `${this.#bin}/bailiwick`, args, {
        // The suite's servers and providers say localhost.
        BAILIWICK_EGRESS_ALLOW: "127.0.0.0/8,::1/128",
        BAILIWICK_ALLOWED_HOSTS: `${HOST}:${this.#doorPort}`,
      }),
    );
    this.#api = new Api(service, this.#file("data/admin-token"));
    return { BIN: this.#bin, SERVICE: service, DATA_DIR: `${this.#work}/data` };
  }

  /** A session of the installation that allows everything; the URL of a door that needs no token. */
  async gateway(upstream) {
    const api = this.#api;
    const server = await api.post("/api/mcp/servers", {
      name: "Conformance",
      slug: "conformance",
      transport: "http",
      url: upstream,
      authMode: "none",
      enabled: true,
      governance: { relaySampling: true, maxConcurrent: 16, maxQueueDepth: 64 },
    });
    await api.post(`/api/mcp/servers/${server.id}/tools/refresh`);
    const found = await api.get(`/api/mcp/servers/${server.id}`);
    if (found.status !== "ready") throw new Error(`the server is ${found.status}: ${found.statusError}`);
    const session = await api.post("/api/sessions", {
      title: "Conformance",
      approvalMode: "always_allow",
      enabledSourceIds: [server.id],
    });
    const path = `/mcp/${session.id}?prefix=off&sources=conformance`;
    this.#door = await open(this.#doorPort, new URL(api.service), path, this.#file("data/agent-token"));
    return `http://${HOST}:${this.#doorPort}/mcp`;
  }

  /** The last lines that each process wrote. */
  logs() {
    return this.#running
      .map(({ name }) => `--- ${name}\n${readFileSync(`${this.#work}/${name}.log`, "utf8").slice(-2_000)}`)
      .join("\n");
  }

  async end() {
    this.#door?.closeAllConnections();
    this.#door?.close();
    for (const { child, ended } of this.#running.reverse()) {
      child.kill("SIGTERM");
      await ended;
    }
  }

  #start(name, program, args, env = {}) {
    const out = openSync(`${this.#work}/${name}.out`, "w");
    const log = openSync(`${this.#work}/${name}.log`, "w");
    const child = spawn(program, args, {
      stdio: ["ignore", out, log],
      cwd: this.#work,
      env: { ...process.env, ...env },
    });
    closeSync(out);
    closeSync(log);
    const ended = new Promise((end) => child.on("exit", end).on("error", end));
    const running = { name, child, ended, gone: false };
    ended.then(() => (running.gone = true));
    this.#running.push(running);
    return running;
  }

  /** What it printed after `ready`. */
  #ready(program) {
    return this.#until(program, () => this.#file(`${program.name}.out`).match(/^ready (.*)$/m)?.[1] ?? null);
  }

  async #until(program, question) {
    for (const end = Date.now() + START_MS; Date.now() < end; ) {
      const answer = await question();
      if (answer !== null) return answer;
      if (program.gone) break;
      await new Promise((go) => setTimeout(go, 50));
    }
    throw new Error(`${program.name} does not start`);
  }

  #file(name) {
    return readFileSync(`${this.#work}/${name}`, "utf8").trimEnd();
  }
}

/**
 * The suite can send no token, and some of its scenarios lose a query: every request goes to `path` with the
 * token. Host and Origin stay as they are, because the gateway's own check of them is what a scenario tries.
 */
async function open(port, service, path, token) {
  const door = http.createServer((asked, answer) => {
    const headers = { ...asked.headers, authorization: `Bearer ${token}` };
    const to = { host: service.hostname, port: service.port, path, method: asked.method, headers };
    const beyond = http.request(to, (response) => {
      answer.writeHead(response.statusCode, response.headers);
      answer.flushHeaders();
      response.pipe(answer);
    });
    beyond.on("error", () => answer.destroy());
    answer.on("close", () => beyond.destroy());
    asked.pipe(beyond);
  });
  await new Promise((opened) => door.listen(port, HOST, opened));
  return door;
}

function free() {
  return new Promise((found) => {
    const server = net.createServer().listen(0, HOST, () => {
      const { port } = server.address();
      server.close(() => found(port));
    });
  });
}

function listens(port) {
  return new Promise((known) => {
    const socket = net.connect(port, HOST, () => {
      socket.destroy();
      known(true);
    });
    socket.on("error", () => known(false));
  });
}
