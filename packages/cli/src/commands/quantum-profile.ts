// weft quantum profile: measures times and memory of the components of a gate at several device counts and sharding patterns.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { type ClusterBuffer, connect } from "@weft/cluster/internal";
import { MachineWitness } from "@weft/lab/internal";
import type { GateProblem } from "@weft/quantum";
import { type Command, InvalidArgumentError, Option } from "commander";
import {
  attempt,
  CommandError,
  ProgressLine,
  parseCounts,
  printJson,
  printText,
  wrongUsage,
} from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { componentNames, measureComponents, type Pattern, patterns } from "./quantum-components.js";
import {
  assess,
  chooseProfile,
  fastest,
  type Measured,
  type ProfileRow,
  profileReport,
  profileRows,
  rankProfiles,
  type Total,
  totalOf,
} from "./quantum-profile-report.js";
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

export default function add(program: Command): void {
  program
    .command("profile")
    .description("Time and memory of components at several device counts, and how each scales.")
    .argument("[file]", "specification, YAML or JSON (default: X on a chain of three fluxonium qubits)")
    .option("--devices <counts...>", "device counts: 1,2 or 1 2 (default 1 2)", parseCounts)
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

/** Measures all patterns at one device count, with one set of workers. */
async function measureCount(
  problem: GateProblem,
  devices: number,
  chosen: readonly Pattern[],
  options: Options,
  onComponent: (pattern: Pattern, name: string) => void,
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
        onComponent: (name) => onComponent(pattern, name),
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
  const steps = list.length * chosen.length * componentNames.length;
  let done = 0;
  const witness = new MachineWitness({ gpus: options.device === "cuda" });
  const rows: ProfileRow[] = [];
  const totals: Total[] = [];
  try {
    for (const devices of list) {
      const onComponent = (pattern: Pattern, name: string): void =>
        progress.update(`${devices} device${devices === 1 ? "" : "s"}, pattern ${pattern}: ${name}`, done++, steps);
      const measured = await measureCount(problem, devices, chosen, options, onComponent);
      for (const [pattern, result] of measured) {
        rows.push(...profileRows(pattern, devices, result, rows));
        totals.push(totalOf(pattern, devices, result, totals));
      }
    }
  } finally {
    progress.clear();
  }
  const { disturbance } = witness.report();
  const choice = chooseProfile(totals);
  const verdict = assess(totals, choice.pattern);
  const ranked = rankProfiles(rows, fastest(totals));
  if (options.json) {
    printJson({ file, cores: availableParallelism(), rows, totals, ranked, choice, verdict, disturbance });
    return;
  }
  printText(profileReport(rows, totals, choice, verdict, disturbance));
}
