// weft quantum profile: times and memory of the components of a gate at several device counts and sharding patterns, with speedups,
// serial fractions and the lab's assessment.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { type ClusterBuffer, connect } from "@weft/cluster";
import { medianOrNull } from "@weft/formats/stats";
import { emptyRun, judge, karpFlatt, MachineWitness, type Study, summarizeStudy } from "@weft/lab/internal";
import type { GateProblem } from "@weft/quantum";
import { type Command, InvalidArgumentError, Option } from "commander";
import {
  attempt,
  CommandError,
  counts,
  ProgressLine,
  significant,
  size,
  table,
  time,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { type ComponentTime, measureComponents, type Pattern, patterns } from "./quantum-components.js";
import { loadProblem } from "./quantum-run.js";

interface Options {
  set?: string[];
  devices?: number[];
  patterns?: Pattern[];
  device: string;
  tasks: number;
  repeats: number;
  json?: boolean;
}

const help = `
Examples:
  weft quantum profile --devices 1 2
  weft quantum profile gate.yaml --devices 1 2
  weft quantum profile gate.yaml --devices 1,2,4 --patterns states time --json

Each device is a worker with one core or one GPU; a time ends when all workers have finished. Compilation is reported
separately. Patterns: states (columns of the propagator), time (pieces of time), tasks (an ensemble of gates), both
(columns and pieces of time), and automatic (chosen by the sharding planner).`;

const whole = (value: string): number => {
  const n = Number(value);
  if (!Number.isInteger(n) || n < 1) throw new InvalidArgumentError("should be a whole number of 1 or more");
  return n;
};

export function add(program: Command): void {
  program
    .command("profile")
    .description("Time and memory of components at several device counts, and how each scales.")
    .argument("[file]", "specification, YAML or JSON (default: X on a chain of three fluxonium qubits)")
    .option("--devices <counts...>", "device counts: 1,2 or 1 2 (default 1 2)", counts)
    .addOption(new Option("--patterns <names...>", "sharding patterns").choices([...patterns]))
    .option("--device <kind>", "device of the workers: cpu, cuda or reference", "cpu")
    .option("--tasks <n>", "number of gates of the pattern tasks", whole, 8)
    .option("--set <key=value...>", "override parameters of the device, or keys of the file: evolution.steps=200")
    .option("--repeats <n>", "number of measured calls", whole, 5)
    .option("--json", "write all measurements as JSON to standard output")
    .addHelpText("after", help)
    .action((file: string | undefined, options: Options) =>
      attempt(() => engineWork(() => withFile(file, (path) => run(path, options)))),
    );
}

const example = `
device: {chain: {kind: fluxonium, qubits: 3, el: [0.9, 1.0, 1.1], jc: 0.02, jl: -0.002}}
pulses: [{recipe: X, on: all, length: 50}]
evolution: {steps: 5000}
target: {gate: X, compensation: virtual-z}
`;

/** Runs with the given file, or with the example in a temporary file. */
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

/** Measurements of one pattern at one device count. */
interface Measured {
  components: Record<string, ComponentTime>;
  heldBytes: number;
  /** The planner's explanation of the evolution with its gradient. */
  plan: string;
  devicesUsed: number;
  moved: { kind: string; bytes: number }[];
}

/** Measures all patterns at one device count, with one set of workers. */
async function measureCount(
  problem: GateProblem,
  devices: number,
  chosen: readonly Pattern[],
  options: Options,
  onPattern: (pattern: Pattern) => void,
): Promise<Map<Pattern, Measured>> {
  const { tasks, repeats, device: kind } = options;
  const cluster = await connect({ devices, device: kind, cores: 1, pin: kind === "cpu" });
  // An interrupt closes the workers; the pending call then fails, and the finally block cleans up.
  const stop = (): void => void cluster.close();
  process.once("SIGINT", stop);
  try {
    const { device } = cluster;
    const results = new Map<Pattern, Measured>();
    for (const pattern of chosen) {
      onPattern(pattern);
      const before = device.memory().usedBytes;
      let plan = { why: "one device", used: 1, moved: [] as Measured["moved"] };
      const components = await measureComponents(problem, {
        pattern,
        devices,
        tasks,
        repeats,
        settle: async (tensors) => {
          await Promise.all(
            tensors.map((t) => device.computed((t.node.value as unknown as { buffer: ClusterBuffer }).buffer)),
          );
        },
        mesh: (axes) => {
          device.executables.constraints = {
            ...device.executables.constraints,
            mesh: devices === 1 ? undefined : axes,
          };
        },
        onEvolution: () => {
          const last = device.lastPlan;
          plan = {
            why: device.lastChoice ?? plan.why,
            used: last?.mesh.size ?? 1,
            moved: last?.moves.map(({ kind: what, bytes }) => ({ kind: what, bytes })) ?? [],
          };
        },
      });
      const heldBytes = device.memory().usedBytes - before;
      results.set(pattern, { components, heldBytes, plan: plan.why, devicesUsed: plan.used, moved: plan.moved });
    }
    return results;
  } finally {
    process.removeListener("SIGINT", stop);
    await cluster.close();
  }
}

interface Row {
  pattern: Pattern;
  devices: number;
  component: string;
  /** Median steady-state time, milliseconds. */
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
  plan: string;
  devicesUsed: number;
  moved: { kind: string; bytes: number }[];
}

function rowsOf(pattern: Pattern, devices: number, result: Measured, base: readonly Row[]): Row[] {
  return Object.entries(result.components).map(([component, { firstMs, steadyMs, bytes }]) => {
    const ms = medianOrNull(steadyMs) ?? 0;
    const single = base.find((r) => r.component === component && r.pattern === pattern);
    const speedup = single === undefined ? 1 : single.ms / ms;
    return {
      pattern,
      devices,
      component,
      ms,
      compileMs: Math.max(0, firstMs - ms),
      bytes,
      speedup,
      serialFraction: devices === 1 ? null : karpFlatt(speedup, devices),
    };
  });
}

async function run(file: string, options: Options): Promise<void> {
  if (!existsSync(file)) throw new CommandError(`${file} does not exist`);
  const problem = loadProblem(file, options.set);
  const list = [...new Set([1, ...(options.devices ?? [1, 2])])].sort((a, b) => a - b);
  const chosen = [...new Set<Pattern>([...(options.patterns ?? patterns), "automatic"])];
  if (options.device === "cpu" && list.at(-1)! > availableParallelism())
    throw new CommandError(
      `--devices ${list.at(-1)}: this machine has ${availableParallelism()} cores, and each device needs one`,
      wrongUsage,
    );
  const progress = new ProgressLine();
  const witness = new MachineWitness({ gpus: options.device === "cuda" });
  const rows: Row[] = [];
  const totals: Total[] = [];
  try {
    for (const devices of list) {
      const note = (pattern: Pattern): void =>
        progress.note(`${pattern}, ${devices} device${devices === 1 ? "" : "s"}`);
      const measured = await measureCount(problem, devices, chosen, options, note);
      for (const [pattern, result] of measured) {
        rows.push(...rowsOf(pattern, devices, result, rows));
        totals.push(totalOf(pattern, devices, result, totals));
      }
    }
  } finally {
    progress.clear();
  }
  const { disturbance } = witness.report();
  const choice = choose(totals);
  const verdict = lab(totals, choice.pattern);
  if (options.json) {
    process.stdout.write(
      `${JSON.stringify({ file, cores: availableParallelism(), rows, totals, choice, verdict, disturbance }, null, 2)}\n`,
    );
    return;
  }
  process.stdout.write(`${report(rows, totals, choice, verdict, disturbance)}\n`);
}

/** Components of one call. With the pattern tasks a call evolves many gates. */
const inTotal = ["eigen-solve", "evolution and gradient", "fidelity", "transfers"];

function totalOf(pattern: Pattern, devices: number, result: Measured, known: readonly Total[]): Total {
  const { components, heldBytes, plan, devicesUsed, moved } = result;
  const samples = components["evolution and gradient"].steadyMs.map((_, k) =>
    inTotal.reduce((sum, name) => sum + (components[name].steadyMs[k] ?? 0), 0),
  );
  const ms = medianOrNull(samples) ?? 0;
  const single = known.find((t) => t.pattern === pattern && t.devices === 1);
  const speedup = single === undefined ? 1 : single.ms / ms;
  return { pattern, devices, ms, speedup, heldBytes, samples, plan, devicesUsed, moved };
}

interface Choice {
  pattern: Pattern;
  devices: number;
  why: string;
  /** The plan of the sharding planner at the largest count, compared with the best measured pattern. */
  planner: { plan: string; devicesUsed: number; ms: number; best: Pattern; ofBest: number };
}

/** Compares the planner's choice at the largest count with the fastest pattern; sharding must gain at least 10%. */
function choose(totals: readonly Total[]): Choice {
  const gates = totals.filter((t) => t.pattern !== "tasks");
  const most = Math.max(...gates.map((t) => t.devices));
  const best = [...gates].sort((a, b) => a.ms - b.ms)[0];
  const single = gates.filter((t) => t.devices === 1).sort((a, b) => a.ms - b.ms)[0];
  const own = gates.find((t) => t.pattern === "automatic" && t.devices === most)!;
  const planner = {
    plan: own.plan,
    devicesUsed: own.devicesUsed,
    ms: own.ms,
    best: best.pattern,
    ofBest: best.ms / own.ms,
  };
  const gain = single.ms / best.ms;
  if (best.devices === 1) return { pattern: best.pattern, devices: 1, why: "one device is fastest", planner };
  if (gain < 1.1) {
    const why = `no pattern gains 10% (best: ${best.pattern}, ${significant(gain)}x)`;
    return { pattern: best.pattern, devices: 1, why, planner };
  }
  const why = `${significant(single.ms)} ms on one device, ${significant(best.ms)} ms on ${best.devices} (${significant(gain)}x)`;
  return { pattern: best.pattern, devices: best.devices, why, planner };
}

/** Samples per call in the study; divisible by common device counts. */
const work = 5040;

/** The measured calls as a study, assessed by the lab's rules. */
function lab(totals: readonly Total[], pattern: Pattern) {
  const study: Study = {
    name: `quantum profile, ${pattern}`,
    runs: totals
      .filter((t) => t.pattern === pattern)
      .map((t) => ({
        ...emptyRun(`${pattern}-${t.devices}`, t.devices, { kind: "points", path: "profile" }),
        status: "ok" as const,
        workload: { scaling: "strong" as const },
        // Every worker has its share of the work: the planner divided it.
        epochs: Array.from({ length: t.devices }, (_, rank) =>
          t.samples.map((ms, epoch) => ({ rank, epoch, seconds: ms / 1e3, samples: work / t.devices, steps: 1 })),
        ).flat(),
      })),
    warmup: 0,
    machine: { cores: availableParallelism() },
    problems: [],
  };
  const { valid, status, findings, scaling } = judge(summarizeStudy(study));
  return {
    valid,
    status,
    scaling: scaling.map(({ devices, speedup, efficiency, interval, karpFlatt: serial, class: kind }) => ({
      devices,
      speedup,
      efficiency,
      interval,
      serialFraction: serial,
      class: kind,
    })),
    findings: findings.map(({ id, title, severity }) => ({ id, title, severity })),
  };
}

function report(
  rows: readonly Row[],
  totals: readonly Total[],
  choice: Choice,
  verdict: ReturnType<typeof lab>,
  disturbance: string | null,
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
      ["pattern", "devices", "one call", "speedup", "memory held", "communicated per gradient"],
      totals.map((t) => [
        t.pattern,
        String(t.devices),
        time(t.ms * 1e3),
        significant(t.speedup),
        size(t.heldBytes),
        t.moved.length === 0
          ? "nothing"
          : `${size(t.moved.reduce((sum, { bytes }) => sum + bytes, 0))} in ${t.moved.length} collectives`,
      ]),
    ),
    "",
    disturbance === null
      ? `choice: ${choice.pattern} on ${choice.devices} device${choice.devices === 1 ? "" : "s"}: ${choice.why}`
      : `choice: cannot say: ${disturbance}; measured fastest: ${choice.pattern} on ${choice.devices}`,
    `planner: ${choice.planner.plan}; ${time(choice.planner.ms * 1e3)}, ${significant(choice.planner.ofBest)} of the best (${choice.planner.best})`,
    `lab: the comparison is ${verdict.status}` + verdict.findings.map((f) => `; ${f.severity}: ${f.title}`).join(""),
    ...verdict.scaling
      .filter((s) => s.devices > 1)
      .map(
        (s) =>
          `  ${s.devices} devices: ${significant(s.speedup)}x, efficiency ${significant(s.efficiency)}, ${s.class}`,
      ),
  );
  return lines.join("\n");
}
