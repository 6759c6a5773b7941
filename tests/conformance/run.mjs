// Starts what run.sh names, runs the suite through the gateway and against the server itself, writes the page.

import { readFileSync, writeFileSync } from "node:fs";
import { House } from "./house.mjs";
import { expected, judge, page, table } from "./page.mjs";
import { clientScenarios, scenarios } from "./suite.mjs";

const VERSIONS = ["2025-11-25", "2026-07-28"];
const { BIN, WORK, SUITE, OUT, FIXTURE, RIG_HOME, SCENARIO, SIDE } = process.env;

const house = new House(BIN, WORK);
let failures = [];
try {
  const reasons = expected(readFileSync(new URL("expected-failures.yml", import.meta.url), "utf8"));
  const installation = await house.installation();
  const results = { server: [], client: [] };
  const keep = (side, version, through, direct) => {
    const judged = judge(side, version, through, direct, reasons[`${side} ${version}`] ?? {}, Boolean(SCENARIO));
    console.log(table(judged));
    results[side].push(judged);
    failures.push(...judged.failures.map((failure) => `${side} ${version}: ${failure}`));
  };
  if (SIDE !== "client") {
    const fixture = FIXTURE === "rig" ? await house.rigFixture(RIG_HOME) : await house.peer();
    const gateway = await house.gateway(fixture);
    for (const version of VERSIONS) {
      const through = await scenarios(SUITE, gateway, version, `${WORK}/through-${version}`, SCENARIO);
      keep("server", version, through, await scenarios(SUITE, fixture, version, `${WORK}/direct-${version}`, SCENARIO));
    }
  }
  if (SIDE !== "server") {
    for (const version of VERSIONS) {
      keep("client", version, await clientScenarios(SUITE, installation, version, `${WORK}/client-${version}`, SCENARIO));
    }
  }
  if (OUT && !SCENARIO && !SIDE) {
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
