// `node bench/train.mjs`: the trainer against PyTorch on the CPU (eager, and DistributedDataParallel over gloo), one core a
// worker, in alternating rounds; tokenising against plain Python; overlap against none. Writes results/train.json.
// Options: --only small,large,tokenise,overlap  --rounds 3  --steps 24  --large-rounds 1  --large-steps 4  --out FILE
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { setup, sh } from "../scripts/setup.mjs";
import { allowedCores, pinned } from "./lib/contestant.mjs";
import { hardware, versions } from "./lib/hardware.mjs";
import { median } from "./lib/stats.mjs";

setup();
if (sh(process.execPath, [fileURLToPath(new URL("../scripts/build.mjs", import.meta.url))]) !== 0) process.exit(1);
const { torchPython } = await import("./lib/install.mjs");
const here = dirname(fileURLToPath(import.meta.url));
const weft = join(here, "../packages/cli/bin/weft.js");
const { values: options } = parseArgs({
  options: {
    only: { type: "string", default: "tokenise,small,overlap,large" },
    rounds: { type: "string", default: "3" },
    steps: { type: "string", default: "24" },
    "large-steps": { type: "string", default: "4" },
    "large-rounds": { type: "string", default: "1" },
    out: { type: "string" },
  },
});
const only = options.only.split(",");
const rounds = Number(options.rounds);
const cores = allowedCores();
const folder = mkdtempSync(join(tmpdir(), "weft-bench-train-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const python = torchPython();
const environment = { ...process.env, WEFT_DATA: join(folder, "home"), OMP_NUM_THREADS: "1" };
delete environment.WEFT_THREADS;

const models = {
  small: {
    vocab_size: 20000,
    d_model: 128,
    n_heads: 4,
    num_layers: 2,
    dim_feedforward: 256,
    max_seq_len: 128,
    dropout: 0.1,
  },
  large: {
    vocab_size: 20000,
    d_model: 256,
    n_heads: 8,
    num_layers: 4,
    dim_feedforward: 1024,
    max_seq_len: 256,
    dropout: 0.1,
  },
};
const batches = { small: 32, large: 128 };

/** Texts as long as the model reads: both sides work on every position. */
function makeTexts(length, rows) {
  const path = join(folder, `texts-${length}`);
  if (existsSync(path)) return path;
  spawnSync("mkdir", ["-p", path]);
  let state = 12345;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const lines = Array.from({ length: rows }, (_, i) =>
    JSON.stringify({
      label: i % 2,
      text: Array.from({ length }, () => `w${Math.floor(next() ** 2 * 30000)}`).join(" "),
    }),
  );
  writeFileSync(join(path, "train.jsonl"), `${lines.join("\n")}\n`);
  return path;
}

const run = (command, args, env = {}) =>
  new Promise((resolve, reject) => {
    const child = spawn(command, args, { env: { ...environment, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    let [out, err] = ["", ""];
    child.stdout.on("data", (d) => {
      out += d;
    });
    child.stderr.on("data", (d) => {
      err += d;
    });
    child.on("error", reject);
    child.on("close", (code) =>
      code === 0 ? resolve(out) : reject(new Error(`${command} ${args[0]}: ${err.slice(-800)}`)),
    );
  });

let serial = 0;
async function weftSteps(size, workers, steps, distributed = {}) {
  const name = `run-${serial++}`;
  const config = join(folder, `${name}.yaml`);
  const content = {
    name,
    model: models[size],
    data: { dataset: "imdb", path: makeTexts(models[size].max_seq_len, 2048) },
    training: { epochs: 1000, batch_per_rank: batches[size], gradient_clip: 1, evaluate: false },
    optimizer: { learning_rate: 3e-4 },
    ...(Object.keys(distributed).length > 0 && { distributed }),
  };
  writeFileSync(config, JSON.stringify(content));
  const output = join(folder, name);
  const args = [
    "train",
    config,
    "--devices",
    String(workers),
    "--max-steps",
    String(steps),
    "--output",
    output,
    "--json",
  ];
  const [command, line] = pinned(cores.slice(0, workers), process.execPath, [weft, ...args]);
  await run(command, line, { WEFT_DEVICE: "cpu" });
  const records = readFileSync(join(output, "rank0.jsonl"), "utf8")
    .trimEnd()
    .split("\n")
    .map((l) => JSON.parse(l));
  rmSync(output, { recursive: true });
  const taken = records.filter((r) => r.type === "step");
  const steady = taken.filter((r) => !r.compile).slice(1);
  return {
    seconds: steady.map((r) => r.durationUs / 1e6),
    exposed: steady.map((r) => r.exposedCommUs / r.durationUs),
    dataWait: steady.map((r) => r.dataWaitUs / r.durationUs),
    losses: taken.map((r) => r.loss),
  };
}

async function torchSteps(size, workers, steps) {
  const task = JSON.stringify({
    model: models[size],
    batch: batches[size],
    steps,
    data: join(makeTexts(models[size].max_seq_len, 2048), "train.jsonl"),
  });
  const port = String(20000 + Math.floor(Math.random() * 20000));
  const all = await Promise.all(
    Array.from({ length: workers }, (_, rank) => {
      const [command, line] = pinned([cores[rank]], python.python, [
        "-W",
        "ignore",
        join(here, "peers/torch_train.py"),
        task,
      ]);
      return run(command, line, {
        RANK: String(rank),
        WORLD_SIZE: String(workers),
        MASTER_ADDR: "127.0.0.1",
        MASTER_PORT: port,
      });
    }),
  );
  const { seconds, losses, torch } = JSON.parse(all[0].trim().split("\n").at(-1));
  return { seconds: seconds.slice(2), losses, torch };
}

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
/** Both start near the loss of guessing and fall; anything else is not the same work. */
function check(size, { losses }, who) {
  if (!losses.every(Number.isFinite) || losses[0] > 2.5) throw new Error(`${who} ${size}: losses ${losses.join(", ")}`);
}

async function trainRows(size) {
  const steps = size === "small" ? Number(options.steps) : Number(options["large-steps"]) + 2;
  const rows = { weft: { 1: [], 2: [] }, torch: { 1: [], 2: [] }, exposed: [], dataWait: [] };
  const counts = cores.length >= 2 ? [1, 2] : [1];
  for (let round = 0; round < (size === "small" ? rounds : Number(options["large-rounds"])); round++)
    for (const workers of counts)
      for (const who of round % 2 === 0 ? ["weft", "torch"] : ["torch", "weft"]) {
        if (who === "torch" && "reason" in python) continue;
        const got = await (who === "weft" ? weftSteps : torchSteps)(size, workers, steps);
        check(size, got, who);
        rows[who][workers].push(median(got.seconds));
        if (who === "weft") rows.dataWait.push(mean(got.dataWait));
        if (who === "weft" && workers === 2) rows.exposed.push(mean(got.exposed));
        process.stderr.write(`bench: ${size} ${who} ${workers}: ${(median(got.seconds) * 1e3).toFixed(1)} ms a step\n`);
      }
  const efficiency = (who) =>
    rows[who][2].length === 0 ? null : median(rows[who][1].map((one, i) => one / rows[who][2][i]));
  const ratio = (workers) =>
    rows.torch[workers].length === 0 ? null : median(rows.torch[workers].map((t, i) => t / rows.weft[workers][i]));
  return {
    size,
    batchPerRank: batches[size],
    stepSeconds: rows,
    ratio: { 1: ratio(1), 2: ratio(2) },
    efficiency: { weft: efficiency("weft"), torch: efficiency("torch") },
    exposedShare: rows.exposed.length === 0 ? null : median(rows.exposed),
    dataWaitShare: median(rows.dataWait),
  };
}

async function overlapRows() {
  if (cores.length < 2) return null;
  const samples = { overlap: [], none: [], exposed: [], exposedNone: [] };
  for (let round = 0; round < rounds; round++)
    for (const overlap of [true, false]) {
      const got = await weftSteps("small", 2, Number(options.steps), { overlap });
      samples[overlap ? "overlap" : "none"].push(median(got.seconds));
      samples[overlap ? "exposed" : "exposedNone"].push(mean(got.exposed));
    }
  return {
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
  for (let round = 0; round < rounds; round++) {
    const own = JSON.parse(
      await run(...pinned([cores[0]], process.execPath, [join(here, "weft/tokenise.mjs"), place])),
    );
    const theirs = JSON.parse(await run(...pinned([cores[0]], "python3", [join(here, "peers/tokenise.py"), file])));
    if (own.sum !== theirs.sum) throw new Error(`the ids differ: their sums are ${own.sum} and ${theirs.sum}`);
    seconds.weft.push(own.seconds);
    seconds.python.push(theirs.seconds);
  }
  return {
    data: real ? "IMDB, 25,000 reviews" : "made-up reviews",
    seconds,
    ratio: median(seconds.python.map((t, i) => t / seconds.weft[i])),
  };
}

const result = {
  benchmark: "train",
  at: new Date().toISOString(),
  hardware: hardware(cores),
  versions: versions(),
  settings: { rounds, steps: Number(options.steps), largeSteps: Number(options["large-steps"]) },
  absent: "reason" in python ? { torch: python.reason } : {},
  tokenise: only.includes("tokenise") ? await tokeniseRows() : null,
  training: [],
  overlap: null,
};
for (const size of ["small", "large"]) if (only.includes(size)) result.training.push(await trainRows(size));
if (only.includes("overlap")) result.overlap = await overlapRows();
const out = options.out ?? join(here, "results/train.json");
writeFileSync(out, `${JSON.stringify(result, null, 1)}\n`);
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
