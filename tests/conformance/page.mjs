// What the results mean, and the page that says it.

/** Reads expected-failures.yml: `{ version: { scenario: reason } }`. */
export function expected(text) {
  const reasons = {};
  let version;
  for (const line of text.split("\n")) {
    if (/^\s*(#|$)/.test(line)) continue;
    const section = line.match(/^(\d{4}-\d\d-\d\d):$/);
    const entry = line.match(/^ {2}([a-z0-9*-]+): "(.+)"$/);
    if (section) reasons[(version = section[1])] = {};
    else if (entry && version) reasons[version][entry[1]] = entry[2];
    else throw new Error(`expected-failures.yml: not understood: ${line}`);
  }
  return reasons;
}

/** One revision: its rows, and what must not be. */
export function judge(version, through, direct, reasons, partly) {
  const straight = new Map(direct.map((one) => [one.name, one]));
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
  return { version, rows, failures };
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
  return [`\n${judged.version}: ${sum(judged)}`, head, ...lines].join("\n");
}

const HEAD = (suite, fixture) => `# Conformance

Written by \`make conformance\` (tests/conformance/run.sh): it starts \`bailiwick up\`, registers
${fixture}, opens a session that allows everything, and runs
@modelcontextprotocol/conformance ${suite} against \`/mcp/{session}?prefix=off&sources=conformance\`. A proxy in between
adds the bearer token, which the suite cannot send. The server's \`relaySampling\` is on.

*Through* is the gateway, *direct* the same scenario against the server itself; each gives the number of checks that
passed. A check that warns is the suite's word for what a specification only recommends. A scored scenario that fails
and has no reason in tests/conformance/expected-failures.yml fails the run.
`;

const OURS = "our own server of the suite's tools (tests/src/conformance.rs)";
const RIG = "the suite's fixture server (examples/servers/typescript/everything-server.ts of its repository)";

/** The page. */
export function page(results, suite, rig) {
  const parts = [HEAD(suite, rig ? RIG : OURS)];
  for (const judged of results) {
    parts.push(`## ${judged.version}\n`, sum(judged), "");
    parts.push("| scenario | scored | through | direct | reason |", "|---|---|---|---|---|");
    for (const row of judged.rows) {
      const scored = row.unscored ? `no: ${row.unscored}` : "yes";
      const reason = row.reason.replaceAll("|", "\\|").replace(/\s+/g, " ").slice(0, 300);
      parts.push(`| ${row.name} | ${scored} | ${cell(row)} | ${cell(row.direct)} | ${reason} |`);
    }
    parts.push("");
  }
  return parts.join("\n");
}
