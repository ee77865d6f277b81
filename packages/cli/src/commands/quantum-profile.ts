// weft quantum profile: where the time and memory of a gate go, component by component, at several device counts and for
// several ways to divide the work; each component's own speedup and serial fraction; and what the lab says of the whole.
import { type ChildProcess, fork } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { emptyRun, judge, karpFlatt, type Study, summariseStudy } from "@weft/lab";
import { type Command, InvalidArgumentError, Option } from "commander";
import {
  attempt,
  CommandError,
  counts,
  Progress,
  significant,
  size,
  table,
  time,
  wrongUsage,
} from "../terminal/index.js";
import type { ComponentTime, Job, Pattern, WorkerResult } from "./quantum-worker.js";

interface Options {
  devices?: number[];
  patterns?: Pattern[];
  device: string;
  tasks: number;
  repeats: number;
  json?: boolean;
}

const patterns: readonly Pattern[] = ["states", "time", "tasks", "both"];
const help = `
Examples:
  weft quantum profile --devices 1 2
  weft quantum profile gate.yaml --devices 1 2
  weft quantum profile gate.yaml --devices 1,2,4 --patterns states time --json

Each device is a process with one core of its own (or one GPU); all run at once, and the slowest counts. Compilation is
reported apart. Patterns: states (columns of the propagator), time (pieces of it), tasks (an ensemble of gates), both
(columns x pieces of time).`;

const whole = (value: string): number => {
  const n = Number(value);
  if (!Number.isInteger(n) || n < 1) throw new InvalidArgumentError("should be a whole number of 1 or more");
  return n;
};

export function add(program: Command): void {
  program
    .command("profile")
    .description("Component timings and memory at several device counts, and how each scales.")
    .argument("[file]", "specification, YAML or JSON; without one X on a chain of three fluxonium qubits")
    .option("--devices <counts...>", "device counts: 1,2 or 1 2 (default 1 2)", counts)
    .addOption(new Option("--patterns <names...>", "ways to divide the work").choices([...patterns]))
    .option("--device <kind>", "cpu or cuda", "cpu")
    .option("--tasks <n>", "gates in the ensemble of the pattern tasks", whole, 8)
    .option("--repeats <n>", "measured calls", whole, 5)
    .option("--json", "everything measured as JSON on standard output")
    .addHelpText("after", help)
    .action((file: string | undefined, options: Options) =>
      attempt(() => withFile(file, (path) => run(path, options))),
    );
}

const example = `
device: {chain: {kind: fluxonium, qubits: 3, el: [0.9, 1.0, 1.1], jc: 0.02, jl: -0.002}}
pulses: [{recipe: X, on: all, length: 50}]
evolution: {steps: 4999}
target: {gate: X, compensation: virtual-z}
`;

/** Workers read the specification themselves; the example becomes a file for as long as they need it. */
async function withFile(file: string | undefined, work: (path: string) => Promise<void>): Promise<void> {
  if (file !== undefined) return work(file);
  const folder = mkdtempSync(join(tmpdir(), "weft-profile-"));
  try {
    const path = join(folder, "chain.yaml");
    writeFileSync(path, example);
    await work(path);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? 0 : sorted[Math.floor((sorted.length - 1) / 2)];
};

/** Runs one pattern at one count: as many processes, ready together, timed together. */
async function measure(job: Omit<Job, "index">, children: Set<ChildProcess>): Promise<WorkerResult[]> {
  const path = fileURLToPath(new URL("./quantum-worker.js", import.meta.url));
  const workers = Array.from({ length: job.count }, () => fork(path, { stdio: ["ignore", "ignore", "pipe", "ipc"] }));
  for (const worker of workers) children.add(worker);
  try {
    const results: Promise<WorkerResult>[] = [];
    const ready = workers.map(
      (worker, index) =>
        new Promise<void>((resolve, reject) => {
          let last = "";
          worker.stderr?.on("data", (data: Buffer) => {
            last = data.toString();
          });
          results.push(
            new Promise<WorkerResult>((done, fail) => {
              const failing = (error: Error): void => {
                fail(error);
                reject(error);
              };
              worker.on("message", (m: { ready?: boolean; result?: WorkerResult; error?: string }) => {
                if (m.ready) resolve();
                if (m.result !== undefined) done(m.result);
                if (m.error !== undefined) failing(new CommandError(`worker ${index}: ${m.error}`));
              });
              worker.on("error", failing);
              worker.on("exit", (code) => {
                if (code !== 0) failing(new CommandError(`worker ${index} ended with ${code}: ${last.trim()}`));
              });
            }),
          );
          worker.send({ job: { ...job, index } });
        }),
    );
    for (const result of results) result.catch(() => undefined);
    await Promise.all(ready);
    for (const worker of workers) worker.send({ go: true });
    return await Promise.all(results);
  } finally {
    for (const worker of workers) {
      worker.kill();
      children.delete(worker);
    }
  }
}

interface Row {
  pattern: Pattern;
  devices: number;
  component: string;
  /** Steady state of the slowest device, milliseconds. */
  ms: number;
  compileMs: number;
  bytes: number;
  speedup: number;
  serialFraction: number | null;
}
interface Total {
  pattern: Pattern;
  devices: number;
  ms: number;
  speedup: number;
  heldBytes: number;
  samples: number[];
}

function rowsOf(pattern: Pattern, devices: number, results: readonly WorkerResult[], base: readonly Row[]): Row[] {
  return Object.keys(results[0].components).map((component) => {
    const times: ComponentTime[] = results.map((r) => r.components[component]);
    const ms = Math.max(...times.map((t) => median(t.steadyMs)));
    const first = Math.max(...times.map((t) => t.firstMs));
    const alone = base.find((r) => r.component === component);
    const speedup = alone === undefined ? 1 : alone.ms / ms;
    return {
      pattern,
      devices,
      component,
      ms,
      compileMs: Math.max(0, first - ms),
      bytes: times.reduce((sum, t) => sum + t.bytes, 0),
      speedup,
      serialFraction: devices === 1 ? null : karpFlatt(speedup, devices),
    };
  });
}

async function run(file: string, options: Options): Promise<void> {
  if (!existsSync(file)) throw new CommandError(`${file} does not exist`);
  const list = [...new Set([1, ...(options.devices ?? [1, 2])])].sort((a, b) => a - b);
  const chosen = options.patterns ?? [...patterns];
  if (options.device === "cpu" && list.at(-1)! > availableParallelism())
    throw new CommandError(
      `--devices ${list.at(-1)}: this machine has ${availableParallelism()} cores, and a device is one of them`,
      wrongUsage,
    );
  const children = new Set<ChildProcess>();
  // Workers that end fail the measurement, and everything is cleared up on the way out.
  const stop = (): void => {
    for (const child of children) child.kill();
  };
  process.once("SIGINT", stop);
  const progress = new Progress();
  const rows: Row[] = [];
  const totals: Total[] = [];
  try {
    for (const pattern of chosen) {
      let base: Row[] = [];
      for (const devices of list) {
        progress.note(`${pattern}, ${devices} device${devices === 1 ? "" : "s"}`);
        const { tasks, repeats, device } = options;
        const results = await measure({ file, device, pattern, count: devices, tasks, repeats }, children);
        const own = rowsOf(pattern, devices, results, base);
        if (devices === 1) base = own;
        rows.push(...own);
        totals.push(totalOf(pattern, devices, results, totals));
      }
    }
  } finally {
    progress.clear();
    process.removeListener("SIGINT", stop);
  }
  const choice = choose(totals);
  const verdict = lab(totals, choice.pattern);
  if (options.json) {
    process.stdout.write(
      `${JSON.stringify({ file, cores: availableParallelism(), rows, totals, choice, verdict }, null, 2)}\n`,
    );
    return;
  }
  process.stdout.write(`${report(rows, totals, choice, verdict)}\n`);
}

/** What one call costs: levels, evolution with its gradient, fidelity, results. The tasks' pattern does many gates a call. */
const inTotal = ["eigen-solve", "evolution and gradient", "fidelity", "transfers"];

function totalOf(pattern: Pattern, devices: number, results: readonly WorkerResult[], known: readonly Total[]): Total {
  const samples = results[0].components["evolution and gradient"].steadyMs.map((_, k) =>
    Math.max(...results.map((r) => inTotal.reduce((sum, name) => sum + (r.components[name].steadyMs[k] ?? 0), 0))),
  );
  const ms = median(samples);
  const alone = known.find((t) => t.pattern === pattern && t.devices === 1);
  const heldBytes = results.reduce((sum, r) => sum + r.heldBytes, 0);
  return { pattern, devices, ms, speedup: alone === undefined ? 1 : alone.ms / ms, heldBytes, samples };
}

interface Choice {
  pattern: Pattern;
  devices: number;
  why: string;
}

/** The fastest way that was measured for one gate; a division that gains less than a tenth is not worth its devices. */
function choose(totals: readonly Total[]): Choice {
  const gates = totals.filter((t) => t.pattern !== "tasks");
  const pool = gates.length > 0 ? gates : totals;
  const best = [...pool].sort((a, b) => a.ms - b.ms)[0];
  const alone = pool.find((t) => t.pattern === best.pattern && t.devices === 1)!;
  if (best.devices > 1 && best.speedup < 1.1)
    return {
      pattern: best.pattern,
      devices: 1,
      why: `no division gains a tenth (best: ${best.pattern}, ${significant(best.speedup)}x)`,
    };
  if (best.devices === 1) return { pattern: best.pattern, devices: 1, why: "one device is fastest" };
  return {
    pattern: best.pattern,
    devices: best.devices,
    why: `${significant(alone.ms)} ms on one device, ${significant(best.ms)} ms on ${best.devices} (${significant(best.speedup)}x)`,
  };
}

/** One call's work in parts: every device has its share of them. */
const work = 5040;

/** The measured calls as a study, judged by the lab's own rules. */
function lab(totals: readonly Total[], pattern: Pattern) {
  const study: Study = {
    name: `quantum profile, ${pattern}`,
    runs: totals
      .filter((t) => t.pattern === pattern)
      .map((t) => ({
        ...emptyRun(`${pattern}-${t.devices}`, t.devices, { kind: "points", path: "profile" }),
        status: "ok" as const,
        workload: { scaling: "strong" as const },
        epochs: t.samples.map((ms, epoch) => ({ epoch, seconds: ms / 1e3, samples: work / t.devices, steps: 1 })),
      })),
    warmup: 0,
    machine: { cores: availableParallelism() },
    problems: [],
  };
  const { valid, findings, scaling } = judge(summariseStudy(study));
  return {
    valid,
    scaling: scaling.map(({ devices, speedup, efficiency, interval, karpFlatt: serial, class: kind }) => ({
      devices,
      speedup,
      efficiency,
      interval,
      serialFraction: serial,
      class: kind,
    })),
    findings: findings.map(({ code, title, severity }) => ({ code, title, severity })),
  };
}

function report(
  rows: readonly Row[],
  totals: readonly Total[],
  choice: Choice,
  verdict: ReturnType<typeof lab>,
): string {
  const lines: string[] = [];
  for (const pattern of new Set(rows.map((r) => r.pattern)))
    lines.push(
      `pattern ${pattern}`,
      table(
        ["component", "devices", "steady", "compile", "bytes", "speedup", "serial"],
        rows
          .filter((r) => r.pattern === pattern)
          .map((r) => [
            r.component,
            String(r.devices),
            time(r.ms * 1e3),
            time(r.compileMs * 1e3),
            size(r.bytes),
            r.devices === 1 ? "-" : significant(r.speedup),
            r.serialFraction === null ? "-" : significant(r.serialFraction),
          ]),
      ),
      "",
    );
  lines.push(
    table(
      ["pattern", "devices", "one call", "speedup", "memory held"],
      totals.map((t) => [t.pattern, String(t.devices), time(t.ms * 1e3), significant(t.speedup), size(t.heldBytes)]),
    ),
    "",
    `choice: ${choice.pattern} on ${choice.devices} device${choice.devices === 1 ? "" : "s"}: ${choice.why}`,
    `lab: ${verdict.valid === null ? "one count, nothing to judge" : verdict.valid ? "the comparison is valid" : "not a valid comparison"}` +
      verdict.findings.map((f) => `; ${f.severity}: ${f.title}`).join(""),
    ...verdict.scaling
      .filter((s) => s.devices > 1)
      .map(
        (s) =>
          `  ${s.devices} devices: ${significant(s.speedup)}x, efficiency ${significant(s.efficiency)}, ${s.class}`,
      ),
  );
  return lines.join("\n");
}
