// The suite as a program, and what it leaves behind.

import { spawn } from "node:child_process";
import { createWriteStream, readFileSync, readdirSync } from "node:fs";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const LONGEST_MS = 240_000;
/** All client scenarios run at once, each with processes of its own. */
const CLIENT_MS = 150_000;

/** `[{ name, unscored, passed, failed, warned, words }]` of a server in the suite's order; `unscored` is its reason or null. */
export function scenarios(suite, url, version, out, only) {
  return all(suite, ["server", "--url", url], version, out, only, /^server-(.+)-(\d{4}-\d\d-\d\dT[\d-]+Z)$/);
}

/** The same of us as a client, through `client.mjs`; `environment` says where the service is. */
export async function clientScenarios(suite, environment, version, out, only) {
  const adapter = `${process.execPath} ${fileURLToPath(new URL("client.mjs", import.meta.url))}`;
  const which = ["client", "--command", adapter, "--timeout", `${CLIENT_MS}`];
  const named = /^(.+)-(\d{4}-\d\d-\d\dT[\d-]+Z)$/;
  const found = await all(suite, which, version, out, only, named, environment);
  return found.sort((one, other) => (one.name < other.name ? -1 : 1));
}

async function all(suite, what, version, out, only, named, environment = {}) {
  const which = only ? ["--spec-version", version, "--scenario", only] : ["--requirements", version];
  const command = [`${suite}/dist/index.js`, ...what, "-o", out, ...which];
  const text = await run(command, `${out}.log`, environment);
  const unscored = new Map([...text.matchAll(/^\s+[✓✗] (\S+) \(([a-z-]+)\)$/gm)].map(([, name, why]) => [name, why]));
  const found = new Map();
  // Its folders end in the time, which is their order.
  const files = readdirSync(out, { recursive: true }).filter((file) => file.endsWith("/checks.json"));
  const folders = files.map((file) => ({ file, parts: file.slice(0, -"/checks.json".length).match(named) }));
  folders.sort((one, other) => (one.parts[2] < other.parts[2] ? -1 : 1));
  for (const { file, parts } of folders) {
    const checks = JSON.parse(readFileSync(`${out}/${file}`, "utf8"));
    found.set(parts[1], [...(found.get(parts[1]) ?? []), ...checks]);
  }
  if (found.size === 0) throw new Error(`the suite ran nothing: ${text.slice(-400)}`);
  const scenarios = [...found];
  // Of us as a client some checks are made with each request, and how many those are is nobody's business.
  const each = (checks) => (what[0] === "client" ? distinct(checks) : checks);
  return scenarios.map(([name, checks]) => ({ name, unscored: unscored.get(name) ?? null, ...count(each(checks)) }));
}

async function run(command, log, environment) {
  const env = { ...process.env, ...environment };
  const child = spawn(process.execPath, command, { stdio: ["ignore", "pipe", "pipe"], timeout: LONGEST_MS, env });
  const file = createWriteStream(log);
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (piece) => {
      text += piece;
      file.write(piece);
    });
  }
  const [, signal] = await once(child, "close");
  file.end();
  // Its status says that a check failed; which may is judged here.
  if (signal) throw new Error(`the suite did not end in ${LONGEST_MS} ms: ${text.slice(-400)}`);
  return text;
}

function distinct(checks) {
  return [...new Map(checks.map((check) => [`${check.id} ${check.name} ${check.status}`, check])).values()];
}

function count(checks) {
  const all = (status) => checks.filter((check) => check.status === status);
  const words = [...all("FAILURE"), ...all("WARNING")].map((check) => check.errorMessage ?? check.description ?? check.id);
  return {
    passed: all("SUCCESS").length,
    failed: all("FAILURE").length,
    warned: all("WARNING").length,
    words: [...new Set(words)].join(" / "),
  };
}
