// The suite as a program, and what it leaves behind.

import { spawn } from "node:child_process";
import { createWriteStream, readFileSync, readdirSync } from "node:fs";
import { once } from "node:events";

const LONGEST_MS = 240_000;

/** `[{ name, unscored, passed, failed, warned, words }]` in the suite's order; `unscored` is its reason or null. */
export async function scenarios(suite, url, version, out, only) {
  const which = only ? ["--spec-version", version, "--scenario", only] : ["--requirements", version];
  const text = await run([`${suite}/dist/index.js`, "server", "--url", url, "-o", out, ...which], `${out}.log`);
  const unscored = new Map([...text.matchAll(/^\s+[✓✗] (\S+) \(([a-z-]+)\)$/gm)].map(([, name, why]) => [name, why]));
  const found = new Map();
  // Its folders end in the time, which is their order.
  const folders = readdirSync(out).map((folder) => folder.match(/^server-(.+)-(\d{4}-\d\d-\d\dT[\d-]+Z)$/));
  folders.sort((one, other) => (one[2] < other[2] ? -1 : 1));
  for (const [folder, name] of folders) {
    const checks = JSON.parse(readFileSync(`${out}/${folder}/checks.json`, "utf8"));
    found.set(name, [...(found.get(name) ?? []), ...checks]);
  }
  if (found.size === 0) throw new Error(`the suite ran nothing: ${text.slice(-400)}`);
  return [...found].map(([name, checks]) => ({ name, unscored: unscored.get(name) ?? null, ...count(checks) }));
}

async function run(command, log) {
  const child = spawn(process.execPath, command, { stdio: ["ignore", "pipe", "pipe"], timeout: LONGEST_MS });
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

function count(checks) {
  const all = (status) => checks.filter((check) => check.status === status);
  const words = [...all("FAILURE"), ...all("WARNING")].map((check) => check.errorMessage ?? check.id);
  return {
    passed: all("SUCCESS").length,
    failed: all("FAILURE").length,
    warned: all("WARNING").length,
    words: [...new Set(words)].join(" / "),
  };
}
