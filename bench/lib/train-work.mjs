// The work of bench/train.mjs: made-up texts, the steps of a run of `weft train`, and the same steps by PyTorch. Runs in the
// repository and from a folder that only holds the packages.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { pinned } from "./contestant.mjs";

const bench = join(dirname(fileURLToPath(import.meta.url)), "..");
export const inRepository = existsSync(join(bench, "../packages/cli/package.json"));
export const weftCommand = inRepository
  ? join(bench, "../packages/cli/bin/weft.js")
  : join(bench, "../node_modules/@weft/cli/bin/weft.js");

const shape = { vocab_size: 20000, dropout: 0.1 };
export const models = {
  small: { ...shape, d_model: 128, n_heads: 4, num_layers: 2, dim_feedforward: 256, max_seq_len: 128 },
  larger: { ...shape, d_model: 256, n_heads: 8, num_layers: 4, dim_feedforward: 1024, max_seq_len: 256 },
};
export const batches = { small: 32, larger: 128 };
/** Steps before those that count. */
const warm = { small: 2, larger: 1 };

const folder = mkdtempSync(join(tmpdir(), "weft-bench-train-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const environment = { ...process.env, WEFT_DATA: join(folder, "home"), OMP_NUM_THREADS: "1" };
delete environment.WEFT_THREADS;

/** PyTorch's Python, or why there is none. */
export async function findPython() {
  if (inRepository) return (await import("./install.mjs")).torchPython();
  const found = spawnSync("python3", ["-c", "import torch"], { stdio: "ignore" }).status === 0;
  return found ? { python: "python3" } : { reason: "python3 has no torch" };
}

/** Texts as long as the model reads: both sides work on every position. */
export function makeTexts(length, rows) {
  const path = join(folder, `texts-${length}`);
  if (existsSync(path)) return path;
  mkdirSync(path);
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

const children = new Set();
for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => {
    for (const child of children) child.kill("SIGTERM");
    process.exit(130);
  });

export const run = (command, args, env = {}) =>
  new Promise((resolve, reject) => {
    const child = spawn(command, args, { env: { ...environment, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    children.add(child);
    let [out, err] = ["", ""];
    child.stdout.on("data", (d) => {
      out += d;
    });
    child.stderr.on("data", (d) => {
      err += d;
    });
    child.on("error", reject);
    child.on("close", (code) => {
      children.delete(child);
      if (code === 0) resolve(out);
      else reject(new Error(`${command} ${args.slice(0, 4).join(" ")}: ${err.slice(-800)}`));
    });
  });

let serial = 0;
/** Seconds of each step of `weft train` with a core a worker. */
export async function weftSteps(size, cores, steps, distributed = {}) {
  const name = `run-${serial++}`;
  const config = join(folder, `${name}.yaml`);
  const output = join(folder, name);
  const content = {
    name,
    model: models[size],
    data: { dataset: "imdb", path: makeTexts(models[size].max_seq_len, 2048) },
    training: { epochs: 1000, batch_per_rank: batches[size], gradient_clip: 1, evaluate: false },
    optimizer: { learning_rate: 3e-4 },
    ...(Object.keys(distributed).length > 0 && { distributed }),
  };
  writeFileSync(config, JSON.stringify(content));
  const args = ["train", config, "--devices", cores.length, "--max-steps", steps + warm[size], "--output", output];
  const [command, line] = pinned(cores, process.execPath, [weftCommand, ...args.map(String), "--json"]);
  await run(command, line, { WEFT_DEVICE: "cpu" });
  const taken = readFileSync(join(output, "rank0.jsonl"), "utf8")
    .trimEnd()
    .split("\n")
    .map((l) => JSON.parse(l))
    .filter((r) => r.type === "step");
  rmSync(output, { recursive: true });
  const steady = taken.slice(warm[size]);
  return {
    seconds: steady.map((r) => r.durationUs / 1e6),
    processor: steady.map((r) => r.cpuUs / 1e6),
    exposed: steady.map((r) => r.exposedCommUs / r.durationUs),
    dataWait: steady.map((r) => r.dataWaitUs / r.durationUs),
    losses: taken.map((r) => r.loss),
  };
}

/** The same by PyTorch: eager, or DistributedDataParallel over gloo. */
export async function torchSteps(python, size, cores, steps) {
  const task = JSON.stringify({
    model: models[size],
    batch: batches[size],
    steps: steps + warm[size],
    data: join(makeTexts(models[size].max_seq_len, 2048), "train.jsonl"),
  });
  const port = String(20000 + Math.floor(Math.random() * 20000));
  const all = await Promise.all(
    cores.map((core, rank) => {
      const script = ["-W", "ignore", join(bench, "peers/torch_train.py"), task];
      const [command, line] = pinned([core], python, script);
      return run(command, line, {
        RANK: String(rank),
        WORLD_SIZE: String(cores.length),
        MASTER_ADDR: "127.0.0.1",
        MASTER_PORT: port,
      });
    }),
  );
  const { seconds, losses, torch } = JSON.parse(all[0].trim().split("\n").at(-1));
  return { seconds: seconds.slice(warm[size]), losses, torch };
}
