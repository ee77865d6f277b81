// weft quantum profile: measures times and memory of the components of a gate at several device counts and sharding patterns.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import { attempt, parseCounts } from "../terminal/index.js";
import { engineWork } from "./engine-work.js";
import { type Pattern, patterns } from "./quantum-components.js";

/** What the user gave. */
export interface ProfileOptions {
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
    .action((file: string | undefined, options: ProfileOptions) =>
      attempt(() =>
        engineWork(async () => {
          // The lab and the cluster take as long to load as the engine: no other subcommand should wait for them.
          const { profile } = await import("./quantum-measure.js");
          await withFile(file, (path) => profile(path, options));
        }),
      ),
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
