// What the results mean, and the page that says it.

/** Reads expected-failures.yml: `{ "server 2025-11-25": { scenario: reason } }`. */
export function expected(text) {
  const reasons = {};
  let side;
  for (const line of text.split("\n")) {
    if (/^\s*(#|$)/.test(line)) continue;
    const section = line.match(/^((?:server|client) \d{4}-\d\d-\d\d):$/);
    const entry = line.match(/^ {2}([a-z0-9\/*-]+): "(.+)"$/);
    if (section) reasons[(side = section[1])] = {};
    else if (entry && side) reasons[side][entry[1]] = entry[2];
    else throw new Error(`expected-failures.yml: not understood: ${line}`);
  }
  return reasons;
}

/** One side of one revision: its rows, and what must not be. `direct` is a server's alone. */
export function judge(side, version, through, direct, reasons, partly) {
  const straight = new Map(direct?.map((one) => [one.name, one]));
  const why = (name) => {
    const key = Object.keys(reasons).find((one) =>
      one.endsWith("*") ? name.startsWith(one.slice(0, -1)) : name === one,
    );
    return key && { key, words: reasons[key] };
  };
  const failures = [];
  const used = new Set();
  const rows = through.map((one) => {
    const reason = !passes(one) && why(one.name);
    if (reason) used.add(reason.key);
    if (!passes(one) && !reason && !one.unscored) failures.push(`${one.name}: ${one.words || "nothing was checked"}`);
    return { ...one, direct: straight.get(one.name), reason: reason ? reason.words : one.words };
  });
  for (const key of partly ? [] : Object.keys(reasons)) {
    if (!used.has(key)) failures.push(`expected-failures.yml names ${key}, which passes`);
  }
  return { side, version, rows, failures };
}

/** One that checked nothing proves nothing. */
function passes(one) {
  return one.failed === 0 && one.passed > 0;
}

function cell(one) {
  if (!one) return "–";
  const rest = [one.failed && `${one.failed} failed`, one.warned && `${one.warned} warned`].filter(Boolean);
  return `${passes(one) ? "✓" : "✗"} ${one.passed}${rest.length > 0 ? ` (${rest.join(", ")})` : ""}`;
}

function sum({ rows }) {
  const scored = rows.filter((row) => !row.unscored);
  const good = scored.filter(passes);
  const checks = scored.reduce((all, row) => all + row.passed, 0);
  return `${good.length} of ${scored.length} scored scenarios pass (${checks} checks).`;
}

/** For the terminal. */
export function table(judged) {
  const lines = judged.rows.map((row) => {
    const scored = row.unscored ? `not scored: ${row.unscored}` : "";
    return `  ${row.name.padEnd(46)} ${cell(row).padEnd(24)} ${cell(row.direct).padEnd(24)} ${scored}`;
  });
  const head = `  ${"scenario".padEnd(46)} ${"through".padEnd(24)} direct`;
  return [`\n${judged.side} ${judged.version}: ${sum(judged)}`, head, ...lines].join("\n");
}

const HEAD = (suite) => `# Conformance

Written by \`make conformance\` (tests/conformance/run.sh) with @modelcontextprotocol/conformance ${suite}. Each cell gives
the number of checks that passed. A check that warns is the suite's word for what a specification only recommends. A
scored scenario that fails and has no reason in tests/conformance/expected-failures.yml fails the run.
`;

const SERVER = (fixture) => `## As a server

\`bailiwick up\` with ${fixture} behind it, in a session that allows
everything; the suite asks \`/mcp/{session}?prefix=off&sources=conformance\`. A proxy in between adds the bearer token,
which the suite cannot send. The server's \`relaySampling\` is on. *Through* is the gateway, *direct* the same scenario
against the server itself.
`;

const CLIENT = `## As a client

The suite plays MCP server and authorization server. For each scenario tests/conformance/client.mjs makes a person and
a server by REST, connects (start, the provider's consent, callback, confirm) where the scenario is about
authorization, lets the service discover the tools, and calls each of them through the gateway as a client of the
scenario's revision; told to connect again, it does.
`;

const OURS = "our own server of the suite's tools (tests/src/conformance.rs)";
const RIG = "the suite's fixture server (examples/servers/typescript/everything-server.ts of its repository)";

/** The page. */
export function page(results, suite, rig) {
  const parts = [HEAD(suite), SERVER(rig ? RIG : OURS)];
  for (const judged of results.server) parts.push(...section(judged));
  parts.push(CLIENT);
  for (const judged of results.client) parts.push(...section(judged));
  return parts.join("\n");
}

function section(judged) {
  const direct = judged.side === "server";
  const parts = [`### ${judged.version}\n`, sum(judged), ""];
  parts.push(`| scenario | scored | through |${direct ? " direct |" : ""} reason |`, `|---|---|---|${direct ? "---|" : ""}---|`);
  for (const row of judged.rows) {
    const scored = row.unscored ? `no: ${row.unscored}` : "yes";
    const reason = row.reason.replaceAll("|", "\\|").replace(/\s+/g, " ").slice(0, 300);
    parts.push(`| ${row.name} | ${scored} | ${cell(row)} |${direct ? ` ${cell(row.direct)} |` : ""} ${reason} |`);
  }
  return [...parts, ""];
}
