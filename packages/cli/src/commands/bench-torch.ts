// Runs the rows of the benchmark in PyTorch, if WEFT_PYTHON (or python3) has it.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { BenchOptions } from "@weft/bench";
import { cliSettings } from "./settings.js";

export interface TorchRow {
  compute: number[];
  endToEnd: number[];
  torch: string;
}

const script = fileURLToPath(new URL("../../assets/torch_rows.py", import.meta.url));

export function torchRows(bench: BenchOptions): TorchRow[] | { reason: string } {
  const python = cliSettings.python.get() ?? "python3";
  const { rows, device, warmup, repeats, precision, coresPerWorker, cores } = bench;
  const mine = cores.slice(0, coresPerWorker);
  const job = JSON.stringify({ rows, device, warmup, repeats, precision, threads: mine.length });
  const env = { ...process.env, OMP_NUM_THREADS: String(mine.length) };
  // The same cores as Weft's worker, so that the times can be compared.
  const command =
    device === "cpu" ? (["taskset", ["-c", mine.join(","), python, script]] as const) : ([python, [script]] as const);
  const done = spawnSync(command[0], command[1], { input: job, encoding: "utf8", env, maxBuffer: 1 << 26 });
  if (done.error !== undefined) return { reason: `${command[0]} could not be started: ${done.error.message}` };
  if (done.status !== 0) {
    const last = done.stderr.trim().split("\n").at(-1) ?? "";
    const missing = /No module named 'torch'/.test(done.stderr);
    return {
      reason: missing ? `${python} has no torch; pip install torch, or set WEFT_PYTHON to a Python that has it` : last,
    };
  }
  return done.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as TorchRow);
}
