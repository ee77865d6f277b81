// What meta-learning must be compared with: one pulse for all tasks (robust), a policy that never adapts (domain
// randomization), and a pulse optimized for each task. All are judged on the same tasks by the same integration.
import { key, type Tensor } from "@weft/core/internal/tensor";
import { chooseSteps, controlFidelities, grape, grapeEach, type RobustObjective } from "../control/index.js";
import { drawTasks, type Tasks } from "../noise/index.js";
import { MetaTrainer } from "./train.js";

export interface Baseline {
  name: string;
  /** Over the tasks. */
  mean: number;
  deviation: number;
  worst: number;
  /** Seconds to get there, training of the policies apart. */
  seconds: number;
}

export interface BaselineOptions {
  /** Tasks to compare on, and the seed that draws them; those of training and validation have others. */
  tasks?: number;
  seed?: number;
  /** Steps of adaptation. */
  steps?: number;
  /** Of GRAPE on each task. */
  iterations?: number;
  /** Tasks and objective of the robust pulse. */
  ensemble?: number;
  objectives?: readonly RobustObjective[];
  /** Iterations of the policy without adaptation; 0 leaves it out. */
  randomized?: number;
}

const nameOf = (objective: RobustObjective): string =>
  typeof objective === "string" ? objective : Object.entries(objective)[0].join(" ");

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

  /** Fidelities of pulses [count, segments, controls], with steps chosen for these very pulses. */
  const judge = (pulses: Tensor): number[] => {
    const probes = { controls: pulses.cast("float64"), rates: tasks.rates };
    return controlFidelities(prepared, chooseSteps(prepared, config.integration.evaluation, probes), probes);
  };
  const row = (name: string, make: () => Tensor): Baseline => {
    const start = performance.now();
    const values = judge(make());
    const seconds = (performance.now() - start) / 1e3;
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const deviation = Math.sqrt(values.reduce((s, v) => s + (v - mean) ** 2, 0) / values.length);
    return { name, mean, deviation, worst: Math.min(...values), seconds };
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
