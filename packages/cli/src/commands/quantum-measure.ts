// The measurements of `weft quantum profile`: every sharding pattern at every device count, on workers of this machine.
import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { type ClusterBuffer, connect } from "@weft/cluster/internal";
import { MachineWitness } from "@weft/lab/internal/runner";
import type { GateProblem } from "@weft/quantum";
import { CommandError, ProgressLine, printJson, printText, wrongUsage } from "../terminal/index.js";
import { componentNames, measureComponents, type Pattern, patterns } from "./quantum-components.js";
import type { ProfileOptions } from "./quantum-profile.js";
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

/** Measures all patterns at one device count, with one set of workers. */
async function measureCount(
  problem: GateProblem,
  devices: number,
  chosen: readonly Pattern[],
  options: ProfileOptions,
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

/** Measures, and prints what the times say. */
export async function profile(file: string, options: ProfileOptions): Promise<void> {
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
