// `node bench/train.mjs`: the trainer against PyTorch on the CPU (eager, and DistributedDataParallel over gloo), one core a
// worker, in alternating rounds; tokenising against plain Python; overlap against none. Writes results/train.json, part by
// part: what is not measured again stays. An interrupted measurement goes on where it was (`--fresh` starts it again).
//   node bench/train.mjs --model small                    about 2 minutes
//   node bench/train.mjs --model larger                   about 12 minutes on two cores, quiet ones
// Options: --only tokenise,small,overlap,larger (or --model NAME)  --rounds N  --steps N  --cores 0,1  --out FILE  --fresh
//   --side-by-side: all runs of a round at once, on cores of their own (six cores), for a machine that has them
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { allowedCores, pinned } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";
import { median } from "./lib/stats.mjs";
import { batches, findPython, inRepository, makeTexts, run, torchSteps, weftSteps } from "./lib/train-work.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    only: { type: "string", default: "tokenise,small,overlap,larger" },
    model: { type: "string" },
    rounds: { type: "string" },
    steps: { type: "string" },
    cores: { type: "string" },
    out: { type: "string", default: join(here, "results/train.json") },
    fresh: { type: "boolean", default: false },
    "side-by-side": { type: "boolean", default: false },
  },
});
if (inRepository) {
  const { setup, sh } = await import("../scripts/setup.mjs");
  setup();
  if (sh(process.execPath, [join(here, "../scripts/build.mjs")]) !== 0) process.exit(1);
}
const only = (options.model ?? options.only).split(",");
const cores = options.cores?.split(",").map(Number) ?? allowedCores();
const python = await findPython();
const progress = (text) => process.stderr.write(`${new Date().toISOString().slice(11, 19)} bench: ${text}\n`);
const defaults = { small: { rounds: 3, steps: 24 }, larger: { rounds: 2, steps: 3 }, tokenise: { rounds: 3 } };
const settingsOf = (part) => ({
  rounds: Number(options.rounds ?? defaults[part].rounds),
  steps: Number(options.steps ?? defaults[part].steps),
});

/** What an interrupted measurement has: a line a run. */
const partial = `${options.out}.part`;
if (options.fresh) rmSync(partial, { force: true });
const known = existsSync(partial) ? JSON.parse(readFileSync(partial, "utf8")) : {};
async function remembered(name, measure) {
  if (known[name] === undefined) {
    known[name] = await measure();
    writeFileSync(partial, JSON.stringify(known));
  } else progress(`${name}: known from before`);
  return known[name];
}

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
/** Both start near the loss of guessing; anything else is not the same work. */
function check(size, { losses }, who) {
  if (!losses.every(Number.isFinite) || losses[0] > 2.5) throw new Error(`${who} ${size}: losses ${losses.join(", ")}`);
}

async function measure(size, who, on, round, steps, again) {
  const which = again ? `${round + 1} again` : round + 1;
  const name = `${size} ${who} ${on.length} worker${on.length === 1 ? "" : "s"}, round ${which}, ${steps} steps`;
  return remembered(name, async () => {
    const got = who === "weft" ? await weftSteps(size, on, steps) : await torchSteps(python.python, size, on, steps);
    check(size, got, who);
    progress(`${name}: ${(median(got.seconds) * 1e3).toFixed(1)} ms a step`);
    return got;
  });
}

/** All runs of one round, one after another or each on cores of its own. */
async function oneRound(size, round, steps) {
  const names = round % 2 === 0 ? ["weft", "torch"] : ["torch", "weft"];
  const present = names.filter((who) => who === "weft" || !("reason" in python));
  const counts = cores.length >= 2 ? [1, 2] : [1];
  const jobs = counts.flatMap((workers) => present.map((who) => ({ workers, who, again: false })));
  // Few steps, and short ones beside PyTorch's: a second look in the opposite order, so that a machine that changes its speed
  // meanwhile is not taken for efficiency.
  if (size === "larger" && !options["side-by-side"])
    for (const workers of [...counts].reverse()) jobs.push({ workers, who: "weft", again: true });
  let next = 0;
  const place = (workers) => {
    if (!options["side-by-side"]) return cores.slice(0, workers);
    next += workers;
    if (next > cores.length) throw new Error(`--side-by-side needs 6 cores, there are ${cores.length}`);
    return cores.slice(next - workers, next);
  };
  const placed = jobs.map((job) => ({ ...job, on: place(job.workers) }));
  const results = [];
  if (options["side-by-side"])
    results.push(...(await Promise.all(placed.map(({ who, on }) => measure(size, who, on, round, steps, false)))));
  else for (const { who, on, again } of placed) results.push(await measure(size, who, on, round, steps, again));
  return placed.map((job, i) => ({ ...job, got: results[i] }));
}

async function trainRows(size) {
  const { rounds, steps } = settingsOf(size);
  const rows = { weft: { 1: [], 2: [] }, torch: { 1: [], 2: [] }, exposed: [], dataWait: [] };
  /** Every step, whichever run it was in. */
  const steady = { weft: { 1: [], 2: [] }, torch: { 1: [], 2: [] } };
  /** Processor time of the same steps: what a rank computes, without waiting for a core or for the other rank. */
  const processor = { 1: [], 2: [] };
  let torch = null;
  for (let round = 0; round < rounds; round++)
    for (const { who, workers, got } of await oneRound(size, round, steps)) {
      rows[who][workers].push(median(got.seconds));
      steady[who][workers].push(...got.seconds);
      if (who === "torch") torch = got.torch;
      if (who === "weft") rows.dataWait.push(mean(got.dataWait));
      if (who === "weft") processor[workers].push(...got.processor);
      if (who === "weft" && workers === 2) rows.exposed.push(mean(got.exposed));
    }
  const efficiency = (who) => (steady[who][2].length === 0 ? null : median(steady[who][1]) / median(steady[who][2]));
  const ratio = (workers) =>
    steady.torch[workers].length === 0 ? null : median(steady.torch[workers]) / median(steady.weft[workers]);
  return {
    size,
    ...stamp(),
    settings: { rounds, steps, sideBySide: options["side-by-side"] },
    torch,
    batchPerRank: batches[size],
    stepSeconds: rows,
    eachStep: steady,
    processorSeconds: { 1: median(processor[1]), 2: processor[2].length === 0 ? null : median(processor[2]) },
    ratio: { 1: ratio(1), 2: ratio(2) },
    efficiency: { weft: efficiency("weft"), torch: efficiency("torch") },
    exposedShare: rows.exposed.length === 0 ? null : median(rows.exposed),
    dataWaitShare: median(rows.dataWait),
  };
}

async function overlapRows() {
  if (cores.length < 2) return null;
  const { rounds, steps } = settingsOf("small");
  const samples = { overlap: [], none: [], exposed: [], exposedNone: [] };
  for (let round = 0; round < rounds; round++)
    for (const overlap of [true, false]) {
      const name = `overlap ${overlap}, round ${round + 1}, ${steps} steps`;
      const got = await remembered(name, () => weftSteps("small", cores.slice(0, 2), steps, { overlap }));
      progress(`${name}: ${(median(got.seconds) * 1e3).toFixed(1)} ms a step`);
      samples[overlap ? "overlap" : "none"].push(median(got.seconds));
      samples[overlap ? "exposed" : "exposedNone"].push(mean(got.exposed));
    }
  return {
    ...stamp(),
    ...samples,
    ratio: median(samples.none.map((t, i) => t / samples.overlap[i])),
    exposedShare: median(samples.exposed),
    exposedShareNone: median(samples.exposedNone),
  };
}

async function tokeniseRows() {
  const shared = join(process.env.WEFT_SHARED ?? join(here, "../../shared"), "data/imdb");
  const real = existsSync(shared);
  const place = real ? shared : makeTexts(230, 8000);
  const file = real ? join(place, "train.jsonl.gz") : join(place, "train.jsonl");
  const seconds = { weft: [], python: [] };
  for (let round = 0; round < settingsOf("tokenise").rounds; round++) {
    const own = JSON.parse(
      await run(...pinned([cores[0]], process.execPath, [join(here, "weft/tokenise.mjs"), place])),
    );
    const theirs = JSON.parse(await run(...pinned([cores[0]], "python3", [join(here, "peers/tokenise.py"), file])));
    if (own.sum !== theirs.sum) throw new Error(`the ids differ: their sums are ${own.sum} and ${theirs.sum}`);
    seconds.weft.push(own.seconds);
    seconds.python.push(theirs.seconds);
    progress(`tokenise: ${own.seconds.toFixed(2)} s, Python ${theirs.seconds.toFixed(2)} s`);
  }
  return {
    ...stamp(),
    data: real ? "IMDB, 25,000 reviews" : "made-up reviews",
    seconds,
    ratio: median(seconds.python.map((t, i) => t / seconds.weft[i])),
  };
}

/** When and on what: parts may be measured on different days. */
function stamp() {
  return { at: new Date().toISOString(), hardware: hardware(cores), versions: versions() };
}

/** Parts that are not measured now stay as they are. */
const before = existsSync(options.out) ? JSON.parse(readFileSync(options.out, "utf8")) : {};
const result = {
  benchmark: "train",
  absent: "reason" in python ? { torch: python.reason } : {},
  tokenise: before.tokenise ?? null,
  training: before.training ?? [],
  overlap: before.overlap ?? null,
};
const save = () => writeFileSync(options.out, `${JSON.stringify(result, null, 1)}\n`);
const parts = {
  tokenise: async () => {
    result.tokenise = await tokeniseRows();
  },
  small: () => training("small"),
  overlap: async () => {
    result.overlap = await overlapRows();
  },
  larger: () => training("larger"),
};
async function training(size) {
  const measured = await trainRows(size);
  result.training = [...result.training.filter((t) => t.size !== size), measured].sort((a, b) =>
    a.size < b.size ? 1 : -1,
  );
}
for (const name of only) {
  if (parts[name] === undefined) throw new Error(`--only ${name}: known are ${Object.keys(parts).join(", ")}`);
  await parts[name]();
  save();
}
rmSync(partial, { force: true });
console.log(
  JSON.stringify(
    {
      tokenise: result.tokenise?.ratio,
      training: result.training.map(({ size, ratio, efficiency, exposedShare }) => ({
        size,
        ratio,
        efficiency,
        exposedShare,
      })),
      overlap: result.overlap?.ratio,
    },
    null,
    1,
  ),
);
