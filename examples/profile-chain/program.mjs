// @ts-check
// Profiles the components of a gate on a chain of fluxonium qubits with one device and with two, and ranks them.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { barChart, savePicture, small, verify, weftCommand } from "../example.mjs";

/** @typedef {{ devices: number, component: string, ms: number, compileMs: number, speedup: number }} Row */

const counts = small ? ["1"] : ["1", "2"];
const gate = join(import.meta.dirname, small ? "small.yaml" : "chain.yaml");
const args = ["quantum", "profile", gate, "--devices", ...counts, "--patterns", "automatic", "--json"];
const done = spawnSync(process.execPath, [weftCommand, ...args, "--repeats", small ? "2" : "5"], {
  encoding: "utf8",
  stdio: ["ignore", "pipe", "inherit"],
});
if (done.status !== 0) throw new Error(`weft quantum profile failed with exit status ${done.status}`);
/** @type {{ rows: Row[], verdict: { status: string }, disturbance: string | null }} */
const { rows, verdict, disturbance } = JSON.parse(done.stdout);

// Components of one device, the longest first, each with its time on two.
const ms = (/** @type {number} */ value) => `${value.toPrecision(3)} ms`;
const ranked = rows.filter((row) => row.devices === 1).sort((a, b) => b.ms - a.ms);
const groups = ranked.map(({ component }) => ({
  name: component,
  values: rows.filter((row) => row.component === component).map((row) => row.ms),
}));
for (const { name, values } of groups) console.log(name.padEnd(24), ...values.map(ms));
console.log(`verdict: ${verdict.status}${disturbance === null ? "" : ` (${disturbance})`}`);
verify(
  "every component was measured on every count",
  groups.every(({ values }) => values.length === counts.length),
);
savePicture(
  import.meta.dirname,
  "components.svg",
  barChart(
    groups,
    counts.map((n) => `${n} device${n === "1" ? "" : "s"}`),
    {
      title: "Components of a gate on a fluxonium chain",
      subtitle: `median time per call, compilation excluded${disturbance === null ? "" : `; not valid: others used the machine`}`,
      show: ms,
    },
  ),
);
