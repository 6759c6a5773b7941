// Starts what run.sh names, runs the suite through the gateway and against the server itself, writes the page.

import { readFileSync, writeFileSync } from "node:fs";
import { House } from "./house.mjs";
import { expected, judge, page, table } from "./page.mjs";
import { scenarios } from "./suite.mjs";

const VERSIONS = ["2025-11-25", "2026-07-28"];
const { BIN, WORK, SUITE, OUT, FIXTURE, RIG_HOME, SCENARIO } = process.env;

const house = new House(BIN, WORK);
let failures = [];
try {
  const fixture = FIXTURE === "rig" ? await house.rigFixture(RIG_HOME) : await house.peer();
  const gateway = await house.gateway(fixture);
  const reasons = expected(readFileSync(new URL("expected-failures.yml", import.meta.url), "utf8"));
  const results = [];
  for (const version of VERSIONS) {
    const through = await scenarios(SUITE, gateway, version, `${WORK}/through-${version}`, SCENARIO);
    const direct = await scenarios(SUITE, fixture, version, `${WORK}/direct-${version}`, SCENARIO);
    const judged = judge(version, through, direct, reasons[version] ?? {}, Boolean(SCENARIO));
    console.log(table(judged));
    results.push(judged);
    failures.push(...judged.failures.map((failure) => `${version}: ${failure}`));
  }
  if (OUT && !SCENARIO) {
    const { version } = JSON.parse(readFileSync(`${SUITE}/package.json`, "utf8"));
    writeFileSync(OUT, page(results, version, FIXTURE === "rig"));
    console.log(`written: ${OUT}`);
  }
} catch (error) {
  failures.push(error.stack);
  console.error(house.logs());
} finally {
  await house.end();
}
for (const failure of failures) console.error(`✗ ${failure}`);
process.exit(failures.length > 0 ? 1 : 0);
