// W8: quantum programs on 1, 2, 4, 8 one-core workers as the planner divides them, against as many workers that share nothing.
// Tasks, ensembles, meta-batches, columns of a propagator and pieces of time; value and gradient. Every result is compared
// with that of one core, and what moves with what may. Writes results/quantum-shard.json.
// node bench/quantum-shard.mjs [--counts 1,2,4,8] [--rows tasks-65536,meta-32] [--seconds 1] [--limit 600] [--out FILE]
import { fork } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { allowedCores } from "./lib/contestant.mjs";
import { hardware } from "./lib/hardware.mjs";
import { rows as known } from "./lib/quantum-shard-rows.mjs";
import { summary } from "./lib/stats.mjs";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const { values: options } = parseArgs({
  options: {
    counts: { type: "string", default: "1,2,4,8" },
    rows: { type: "string" },
    seconds: { type: "string", default: "1" },
    least: { type: "string", default: "7" },
    limit: { type: "string", default: "900" },
    out: { type: "string" },
  },
});
const cores = allowedCores();
const ids = options.rows?.split(",") ?? Object.keys(known);
for (const id of ids)
  if (!(id in known)) throw new Error(`there is no row ${id}; known: ${Object.keys(known).join(", ")}`);
const asked = options.counts.split(",").map(Number);
const counts = asked.filter((n) => n <= cores.length);
if (counts.length < asked.length)
  console.log(`left out: ${asked.filter((n) => n > cores.length)} workers; ${cores.length} cores are here`);
const settings = { warmup: 2, seconds: Number(options.seconds), least: Number(options.least) };
const deadline = Date.now() + 1e3 * Number(options.limit);

/** Processes that go through the rows in step; the answers of each, by row. */
async function together(jobs) {
  const answers = new Map(ids.map((id) => [id, []]));
  let ready = 0;
  const children = jobs.map((job) => {
    const child = fork(path("lib/quantum-shard-child.mjs"), { serialization: "advanced" });
    child.send(job);
    return child;
  });
  const stop = () => {
    for (const child of children) child.kill();
  };
  const late = setTimeout(stop, Math.max(0, deadline - Date.now()));
  await Promise.all(
    children.map(
      (child) =>
        new Promise((resolve) => {
          child.on("message", (message) => {
            if (message.kind === "row" || message.kind === "failed") answers.get(message.id).push(message);
            if (message.kind === "broken")
              for (const id of ids) answers.get(id).push({ kind: "failed", id, message: message.message });
            // One that failed before the start must not keep the others waiting.
            if (message.kind === "failed") ready++;
            if (message.kind === "ready") ready++;
            if (ready >= children.length) {
              ready = 0;
              for (const each of children) if (each.connected) each.send("go");
            }
          });
          child.on("exit", resolve);
        }),
    ),
  );
  clearTimeout(late);
  return answers;
}

const close = (a, b) =>
  a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) <= 2e-4 * Math.max(1e-3, Math.abs(b[i])));
const results = Object.fromEntries(ids.map((id) => [id, { title: known[id][0], counts: [] }]));
const expected = new Map();
for (const count of counts) {
  const base = { ...settings, rows: ids };
  const own = await together(cores.slice(0, count).map((core) => ({ ...base, mode: "single", core })));
  const shared = await together([{ ...base, mode: "sharded", count }]);
  for (const id of ids) {
    const alone = own.get(id);
    const [row] = shared.get(id);
    const problem =
      alone.find((r) => r.kind === "failed")?.message ??
      row?.message ??
      (row === undefined || alone.length < count ? "out of time" : null);
    if (problem !== null) {
      results[id].counts.push({ workers: count, failed: problem });
      console.log(`${id.padEnd(15)} ${count} workers FAILED: ${problem}`);
      process.exitCode = 1;
      continue;
    }
    if (!expected.has(id)) expected.set(id, alone[0].numbers);
    const right = close(row.numbers, expected.get(id));
    const independent = alone.map((r) => summary(r.samples).median);
    const slowest = Math.max(...independent);
    const time = summary(row.samples);
    const efficiency = slowest / (count * time.median);
    const { plan, collectives, placements, first, numbers } = row;
    results[id].counts.push({
      workers: count,
      seconds: time,
      independent,
      efficiency,
      right,
      first,
      numbers,
      plan,
      collectives,
      placements,
    });
    console.log(
      `${id.padEnd(15)} ${count} workers ${(time.median * 1e3).toFixed(2)} ms (${(time.min * 1e3).toFixed(2)}); slowest of ${count} independent ${(slowest * 1e3).toFixed(2)} ms; efficiency ${efficiency.toFixed(3)}${right ? "" : "  WRONG NUMBERS"}; moves ${collectives.map(([k, b]) => `${k} ${Math.round(b)}`).join(", ") || "nothing"}`,
    );
    if (!right) process.exitCode = 1;
  }
}
const out = options.out ?? (options.rows === undefined ? path("results/quantum-shard.json") : null);
if (out !== null)
  writeFileSync(
    out,
    `${JSON.stringify({ format: "weft-quantum-shard", at: new Date().toISOString(), hardware: hardware(cores), wanted: 0.9, rows: results }, null, 1)}\n`,
  );
