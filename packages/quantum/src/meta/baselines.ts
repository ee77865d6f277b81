// Baselines of meta-learning: robust pulses, a policy without adaptation (domain randomization), and a pulse optimized per task.
// All are evaluated on the same tasks with the same integration settings.
import { key, type Tensor } from "@weft/core/internal/tensor";
import { chooseSteps, controlFidelities, grape, grapeEach, type RobustObjective } from "../control/index.js";
import { drawTasks, type Tasks } from "../noise/index.js";
import { MetaTrainer } from "./train.js";

/** Fidelities of one baseline over the tasks. */
export interface Baseline {
  /** What was compared. */
  name: string;
  /** Mean fidelity over tasks. */
  mean: number;
  /** Standard deviation of the fidelity over tasks. */
  deviation: number;
  /** Smallest fidelity over tasks. */
  worst: number;
  /** Estimated integration error of the fidelities. */
  error: number;
  /** Time to compute the pulses, without training of policies. */
  seconds: number;
}

/** Options of `compareBaselines`. @inline */
interface BaselineOptions {
  /** Number of tasks; they differ from those of training and validation. */
  tasks?: number;
  /** Seed of the tasks. */
  seed?: number;
  /** Number of adaptation steps. */
  steps?: number;
  /** Iterations of GRAPE per task. */
  iterations?: number;
  /** Number of tasks of the robust pulses. */
  ensemble?: number;
  /** Objectives of the robust pulses. */
  objectives?: readonly RobustObjective[];
  /** Iterations of domain randomization. Default: 0, which skips it. */
  randomized?: number;
}

const nameOf = (objective: RobustObjective): string =>
  typeof objective === "string" ? objective : Object.entries(objective)[0].join(" ");

/** Compares a trained policy with robust pulses, domain randomization and GRAPE per task. */
export function compareBaselines(trainer: MetaTrainer, options: BaselineOptions = {}): Baseline[] {
  const { config, prepared } = trainer;
  const {
    tasks: count = 15,
    seed = 1000003,
    steps = 20,
    iterations = 200,
    ensemble = 32,
    objectives = ["mean", { cvar: 0.1 }],
    randomized = 0,
  } = options;
  const tasks = drawTasks(config.tasks, key(seed), count);
  const { segments, controls } = config.problem;
  const pulseShape = [segments, controls.length];

  /** Fidelities of pulses [count, segments, controls], with steps chosen for these pulses. */
  const evaluate = (pulses: Tensor): { values: number[]; error: number } => {
    const probes = { controls: pulses.cast("float64"), rates: tasks.rates };
    const chosen = chooseSteps(prepared, config.integration.evaluation, probes);
    return { values: controlFidelities(prepared, chosen, probes), error: chosen.error };
  };
  const row = (name: string, make: () => Tensor): Baseline => {
    const start = performance.now();
    const { values, error } = evaluate(make());
    const seconds = (performance.now() - start) / 1e3;
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const deviation = Math.sqrt(values.reduce((s, v) => s + (v - mean) ** 2, 0) / values.length);
    return { name, mean, deviation, worst: Math.min(...values), error, seconds };
  };
  const adapted = (of: MetaTrainer, k: number, all: Tasks): Tensor => of.pulses(all, k).index(":", k);

  const rows = [
    row("meta-learned, no adaptation", () => adapted(trainer, 0, tasks)),
    row(`meta-learned, ${steps} steps`, () => adapted(trainer, steps, tasks)),
  ];
  if (randomized > 0) {
    const plain = new MetaTrainer({ ...config, inner: { ...config.inner, steps: 0 }, iterations: randomized });
    plain.run();
    rows.push(row("domain randomization", () => adapted(plain, 0, tasks)));
    rows.push(row(`domain randomization, ${steps} steps`, () => adapted(plain, steps, tasks)));
  }
  const others = drawTasks(config.tasks, key(seed + 1), ensemble);
  for (const objective of objectives)
    rows.push(
      row(`robust pulse (${nameOf(objective)})`, () =>
        grape(prepared, others.rates, { objective, steps: trainer.training, method: "adam", iterations })
          .params.pulse.unsqueeze(0)
          .expand([count, ...pulseShape]),
      ),
    );
  rows.push(
    row(
      `GRAPE for each task, ${iterations} iterations`,
      () => grapeEach(prepared, tasks.rates, { steps: trainer.training, iterations }).pulses,
    ),
  );
  return rows;
}
