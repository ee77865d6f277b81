// W8: quantum programs on 1, 2, 4, 8 one-core workers as the planner divides them, against as many workers that share nothing.
// Tasks, ensembles, meta-batches, columns of a propagator and pieces of time; value and gradient. Every result is compared
// with that of one core, and what moves with what may. All processes compile first, side by side; then each row is measured
// in turns (independent workers, the cluster, and again), calls back to back as an optimiser issues them, and also one by one.
// Writes results/quantum-shard.json after every row.
// node bench/quantum-shard.mjs [--counts 1,2,4,8] [--rows tasks-65536,meta-256] [--all] [--seconds 0.2] [--limit 600] [--out FILE]
// --all: those that are too small to be worth dividing too
import { fork } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { coreOrder } from "@weft/bench";
import { hardware } from "./lib/hardware.mjs";
import { rows as known } from "./lib/quantum-shard-rows.mjs";
import { median, summary } from "./lib/stats.mjs";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const { values: options } = parseArgs({
  options: {
    counts: { type: "string", default: "1,2,4,8" },
    rows: { type: "string" },
    seconds: { type: "string", default: "0.2" },
    turns: { type: "string", default: "2" },
    limit: { type: "string", default: "600" },
    all: { type: "boolean", default: false },
    out: { type: "string" },
  },
});
// The cluster pins its workers in this order; the independent ones must have the same cores.
const cores = coreOrder();
const judged = Object.keys(known).filter((id) => known[id][2] === undefined);
const ids = options.rows?.split(",") ?? (options.all ? Object.keys(known) : judged);
for (const id of ids)
  if (!(id in known)) throw new Error(`there is no row ${id}; known: ${Object.keys(known).join(", ")}`);
const asked = options.counts.split(",").map(Number);
const counts = asked.filter((n) => n <= cores.length);
if (counts.length < asked.length)
  console.log(`left out: ${asked.filter((n) => n > cores.length)} workers; ${cores.length} cores are here`);
const [seconds, turns] = [Number(options.seconds), Number(options.turns)];
const begin = Date.now();
const deadline = begin + 1e3 * Number(options.limit);
const elapsed = () => ((Date.now() - begin) / 1e3).toFixed(0);

/** A process of this benchmark: asked one thing at a time, and ended when time is up. */
class Process {
  prepared = new Map();
  #tell = null;
  constructor(job) {
    this.job = job;
    this.child = fork(path("lib/quantum-shard-child.mjs"), { serialization: "advanced" });
    this.child.on("message", (answer) => this.#tell?.(answer));
    this.child.on("exit", () => this.#tell?.({ failed: "the process ended" }));
  }
  async ask(message) {
    if (!this.child.connected) return { failed: "the process ended" };
    let timer;
    const answer = await new Promise((resolve) => {
      this.#tell = resolve;
      timer = setTimeout(() => resolve({ failed: "out of time" }), Math.max(0, deadline - Date.now()));
      this.child.send(message, () => {});
    });
    clearTimeout(timer);
    this.#tell = null;
    if (answer.failed === "out of time") this.stop();
    return answer;
  }
  start() {
    return this.ask({ start: this.job });
  }
  /** Compiles all rows; a row that fails is remembered with the reason. */
  async prepare() {
    for (const id of ids) this.prepared.set(id, await this.ask({ prepare: id }));
  }
  stop() {
    this.child.kill();
  }
}

// One after the other: the first time on a machine workers measure what they can do, and must not disturb each other.
const clusters = new Map();
for (const count of counts) {
  const cluster = new Process({ mode: "sharded", count });
  clusters.set(count, cluster);
  const { failed } = await cluster.start();
  if (failed !== undefined) console.log(`${count} workers do not start: ${failed}`);
}
const singles = cores.slice(0, Math.max(...counts)).map((core) => new Process({ mode: "single", core }));
await Promise.all(singles.map((single) => single.start()));
const all = [...clusters.values(), ...singles];
console.log(`${elapsed()} s: ${all.length} processes with ${counts.reduce((a, b) => a + b)} workers are up`);
await Promise.all(all.map((one) => one.prepare()));
console.log(`${elapsed()} s: all rows are compiled`);

const out = options.out ?? (options.rows === undefined ? path("results/quantum-shard.json") : null);
const results = {};
const machine = hardware(cores);
const save = () => {
  const record = { format: "weft-quantum-shard", at: new Date().toISOString(), hardware: machine, wanted: 0.9 };
  if (out !== null) writeFileSync(out, `${JSON.stringify({ ...record, rows: results }, null, 1)}\n`);
};
const close = (a, b) =>
  a.length === b.length && a.every((x, i) => Math.abs(x - b[i]) <= 2e-4 * Math.max(1e-3, Math.abs(b[i])));

/** Independent workers and the cluster in turns; medians of each turn. */
async function measure(id, count) {
  const own = singles.slice(0, count);
  const cluster = clusters.get(count);
  const wrong = [...own, cluster].map((p) => p.prepared.get(id)?.failed).find((reason) => reason !== undefined);
  if (wrong !== undefined) return { workers: count, failed: wrong };
  const [told, expected] = [cluster.prepared.get(id), own[0].prepared.get(id).numbers];
  const right = close(told.numbers, expected);
  const [independent, shared, alone] = [own.map(() => []), [], []];
  const efficiencies = [];
  for (let turn = 0; turn < turns; turn++) {
    const each = await Promise.all(own.map((single) => single.ask({ measure: id, seconds })));
    const together = await cluster.ask({ measure: id, seconds });
    const failed = [...each, together].find((answer) => answer.failed !== undefined)?.failed;
    if (failed !== undefined) return { workers: count, failed };
    for (const [i, { samples }] of each.entries()) independent[i].push(...samples);
    shared.push(...together.samples);
    alone.push(...together.alone);
    const slowest = Math.max(...each.map(({ samples }) => median(samples)));
    efficiencies.push(slowest / (count * median(together.samples)));
  }
  return {
    workers: count,
    seconds: summary(shared),
    alone: summary(alone),
    independent: independent.map(median),
    efficiencies,
    efficiency: median(efficiencies),
    right,
    first: told.first,
    numbers: told.numbers,
    plan: told.plan,
    used: told.used,
    collectives: told.collectives,
    cut: told.cut,
  };
}

const ms = (x) => (x * 1e3).toFixed(2);
function report(id, row) {
  if (row.failed !== undefined) return `${id.padEnd(15)} ${row.workers} workers FAILED: ${row.failed}`;
  const slowest = Math.max(...row.independent);
  const moves = row.collectives.map(([kind, bytes]) => `${kind} ${Math.round(bytes)}`).join(", ") || "nothing";
  return `${id.padEnd(15)} ${row.workers} workers ${ms(row.seconds.median)} ms, one by one ${ms(row.alone.median)}; slowest of ${row.workers} independent ${ms(slowest)} ms; efficiency ${row.efficiency.toFixed(3)} (${row.efficiencies.map((e) => e.toFixed(2)).join(" ")})${row.right ? "" : "  WRONG NUMBERS"}${row.used < row.workers ? `; ${row.used} used` : ""}; moves ${moves}`;
}
for (const id of ids) {
  const [title, , { small } = {}] = known[id];
  results[id] = { title, ...(small !== undefined && { small }), counts: [] };
  for (const count of counts) {
    const row = await measure(id, count);
    results[id].counts.push(row);
    console.log(report(id, row));
    if (row.failed !== undefined || !row.right) process.exitCode = 1;
  }
  save();
}
console.log(`${elapsed()} s: done`);
await Promise.all(all.map((one) => one.ask({ stop: true })));
for (const one of all) one.stop();
