// Meta-training: one compiled program per iteration (sample tasks, adapt, differentiate, Adam), validation with its own integration
// settings, and checkpoints that resume bit for bit.
import { WeftError } from "@weft/core/internal/graph";
import { concat, key, stack, type Tensor, tensor, vmap } from "@weft/core/internal/tensor";
import { loadStateDict, stateDict } from "@weft/core/nn";
import { type AdamState, adam, clipByGlobalNorm } from "@weft/core/optim";
import { cachedProgram, structureKey } from "../cache/index.js";
import {
  type ChosenSteps,
  chooseSteps,
  controlFidelities,
  controlInfidelity,
  defaultProbes,
  explainSteps,
  halvingError,
  type PreparedProblem,
  type Probes,
  plainProblem,
  prepareProblem,
  readTensorCheckpoint,
  type SegmentSteps,
  withSteps,
  writeTensorCheckpoint,
} from "../control/index.js";
import { checkRates, drawTasks, type Tasks } from "../noise/index.js";
import { type MetaConfig, type MetaSettings, metaConfig } from "./config.js";
import { adapt, metaGradient, type TaskLoss } from "./maml.js";
import { type PolicyOptions, type PolicyParameters, policy } from "./policy.js";

/** State of meta-training. */
export interface MetaState {
  /** Parameters of the policy. */
  params: PolicyParameters;
  /** State of the outer optimizer. */
  optimizer: AdamState;
}

/** Fidelities on the validation tasks. */
export interface MetaValidation {
  /** Number of finished iterations. */
  iteration: number;
  /** Mean fidelity before adaptation. */
  before: number;
  /** Mean fidelity after adaptation. */
  after: number;
  /** Standard deviation after adaptation. */
  deviation: number;
  /** after - before. */
  gain: number;
  /** Mean fidelity after 0, 1, ... steps. */
  curve: number[];
  /** Estimated integration error of these fidelities, on the adapted pulses. */
  error: number;
  /** Estimated error of the training integration on the adapted pulses. */
  trainingError: number;
}

/** Meta-loss of one iteration. */
export interface MetaMetric {
  /** Number of the iteration. */
  iteration: number;
  /** Mean loss after adaptation. */
  loss: number;
}

interface Description {
  config: MetaConfig;
  /** Steps per segment in training and evaluation. */
  perSegment: [number, number];
  metrics: MetaMetric[];
  validations: MetaValidation[];
}

const checkpointKind = "meta-training";

/** Random streams. */
const streams = { parameters: 1, tasks: 2, validation: 3 } as const;
/** One seed per stream; the words of a key have 32 bits. */
const streamSeed = (seed: number, stream: keyof typeof streams): number => (seed * 4 + streams[stream]) % 2 ** 31;

const mean = (x: readonly number[]): number => x.reduce((a, b) => a + b, 0) / x.length;
const deviation = (x: readonly number[]): number => Math.sqrt(mean(x.map((v) => (v - mean(x)) ** 2)));

/**
 * Meta-trains a policy over a distribution of noise environments.
 *
 * @example
 * ```ts
 * import { MetaTrainer } from "@weft/quantum";
 *
 * const trainer = new MetaTrainer({ preset: "debug", iterations: 20 });
 * trainer.run();
 * const { before, after } = trainer.validations[trainer.validations.length - 1];
 * console.log(`fidelity ${before.toFixed(4)} before adaptation, ${after.toFixed(4)} after`);
 * ```
 */
export class MetaTrainer {
  /** All settings. */
  readonly config: MetaConfig;
  /** The control problem. */
  readonly prepared: PreparedProblem;
  /** Structure of the policy network. */
  readonly policyOptions: PolicyOptions;
  /** Parameters and optimizer state. */
  state: MetaState;
  /** Number of finished iterations. */
  iteration = 0;
  /** One entry per iteration. */
  readonly metrics: MetaMetric[] = [];
  /** One entry per validation. */
  readonly validations: MetaValidation[] = [];
  /** Integration steps of training. */
  training: ChosenSteps;
  /** Integration steps of validation. */
  evaluation: ChosenSteps;
  readonly #validationTasks: Tasks;
  readonly #seed: Tensor;
  #pending: { iteration: number; loss: Tensor }[] = [];

  constructor(settings: MetaSettings = {}) {
    this.config = metaConfig(settings);
    const { config } = this;
    this.prepared = prepareProblem(config.problem);
    this.policyOptions = {
      ...config.policy,
      features: 3,
      segments: config.problem.segments,
      controls: config.problem.controls.length,
    };
    const params = policy.init(this.policyOptions, key(streamSeed(config.seed, "parameters")));
    this.state = { params, optimizer: this.#optimizer().init(params) };
    this.#validationTasks = drawTasks(
      config.tasks,
      key(streamSeed(config.seed, "validation")),
      config.validation.tasks,
    );
    checkRates(this.#validationTasks.rates, "validation tasks");
    this.#seed = tensor(Int32Array.of(streamSeed(config.seed, "tasks")));
    const probes = defaultProbes(this.prepared, this.#validationTasks.rates);
    this.training = chooseSteps(this.prepared, config.integration.training, probes);
    this.evaluation = chooseSteps(this.prepared, config.integration.evaluation, probes);
  }

  #optimizer() {
    return adam({ learningRate: this.config.outer.rate });
  }

  /** Loss of one task with these integration steps. */
  loss(steps: SegmentSteps): TaskLoss<PolicyParameters, Tasks> {
    const { prepared, policyOptions } = this;
    return (params, task) =>
      controlInfidelity(prepared, steps, policy.apply(params, task.features, policyOptions), task.rates);
  }

  #key(what: string, ...more: unknown[]): string {
    const { config, prepared, training, policyOptions } = this;
    const { tasks, batch, inner, order, outer } = config;
    const structure = [tasks, batch, inner, order, outer, training.method, training.perSegment, policyOptions];
    return `${what} ${prepared.key} ${structureKey(structure, more)}`;
  }

  /** One iteration as a program: (state, seed) -> (state, loss). The step count of Adam selects the tasks. */
  program() {
    const { config } = this;
    const loss = this.loss(this.training);
    const optimizer = this.#optimizer();
    return cachedProgram(
      this.#key("meta iteration"),
      () =>
        (state: MetaState, seed: Tensor): [MetaState, Tensor] => {
          const drawKey = concat([seed, state.optimizer.step.reshape([1])]);
          const drawn = drawTasks(config.tasks, drawKey, config.batch);
          const tasks = { rates: drawn.rates.cast("float32"), features: drawn.features.cast("float32") };
          const result = metaGradient(loss, state.params, tasks, { ...config.inner, order: config.order });
          const [grads] = clipByGlobalNorm(result.grads, config.outer.clip);
          const [params, next] = optimizer.update(state.params, grads, state.optimizer);
          return [{ params, optimizer: next }, result.loss];
        },
      { donate: [0] },
    );
  }

  /** Names of the kernels and library calls of one iteration. */
  kernels(): string[] {
    return this.program().kernels(this.state, this.#seed);
  }

  /** Runs one iteration. The loss stays on the device until `readMetrics`. */
  step(): Tensor {
    const [state, loss] = this.program()(this.state, this.#seed);
    this.state = state;
    this.iteration++;
    this.#pending.push({ iteration: this.iteration, loss });
    // Losses stay on the device so that no iteration waits, in bounded number.
    if (this.#pending.length >= 256) this.readMetrics();
    return loss;
  }

  /** Reads the losses since the last call; throws if one is not finite. */
  readMetrics(): MetaMetric[] {
    const pending = this.#pending;
    this.#pending = [];
    if (pending.length === 0) return [];
    const values = Array.from(stack(pending.map((p) => p.loss)).dataSync() as ArrayLike<number>, Number);
    const read = pending.map(({ iteration }, i) => ({ iteration, loss: values[i] }));
    for (const { loss } of pending) loss.dispose();
    this.metrics.push(...read);
    const bad = read.find(({ loss }) => !Number.isFinite(loss));
    if (bad !== undefined)
      throw new WeftError(
        `meta: the loss became ${bad.loss} at iteration ${bad.iteration}; lower outer.rate or inner.rate, or use smaller steps`,
      );
    return read;
  }

  /** Pulses [tasks, steps + 1, segments, controls] before adaptation and after every step. */
  pulses(tasks: Tasks, steps = this.config.inner.steps): Tensor {
    const loss = this.loss(this.training);
    const { policyOptions } = this;
    const { rate } = this.config.inner;
    const program = cachedProgram(this.#key("pulses", steps), () => (params: PolicyParameters, all: Tasks): Tensor => {
      const one = (task: Tasks): Tensor => {
        let now = params;
        const out = [policy.apply(now, task.features, policyOptions)];
        for (let k = 0; k < steps; k++) {
          now = adapt(loss, now, task, { steps: 1, rate });
          out.push(policy.apply(now, task.features, policyOptions));
        }
        return stack(out);
      };
      return vmap(one)(all) as Tensor;
    });
    return program(this.state.params, { rates: tasks.rates.cast("float32"), features: tasks.features.cast("float32") });
  }

  /**
   * Fidelities [tasks][steps + 1] along the adaptation, with the evaluation integration. Its steps are refined if they exceed their
   * tolerance on the adapted pulses; a fidelity outside [0, 1] is an error.
   */
  curves(tasks: Tasks, steps = this.config.inner.steps): number[][] {
    const pulses = this.pulses(tasks, steps);
    this.evaluation = this.#refined("evaluation", { controls: pulses.index(":", -1), rates: tasks.rates });
    const [count, points, ...rest] = pulses.shape;
    const rates = tasks.rates.unsqueeze(1).expand([count, points, tasks.rates.shape[1]]);
    const all = controlFidelities(this.prepared, this.evaluation, {
      controls: pulses.reshape([count * points, ...rest]),
      rates: rates.reshape([count * points, tasks.rates.shape[1]]),
    });
    return Array.from({ length: count }, (_, i) => all.slice(i * points, (i + 1) * points));
  }

  /** Evaluates the policy on the validation tasks and refines the integration steps if needed. */
  validate(): MetaValidation {
    const tasks = this.#validationTasks;
    const curves = this.curves(tasks);
    const probes = { controls: this.pulses(tasks).index(":", -1), rates: tasks.rates };
    const trainingError = halvingError(this.prepared, this.training, probes);
    this.training = this.#refined("training", probes, trainingError);
    const last = curves.map((c) => c.at(-1)!);
    const curve = curves[0].map((_, k) => mean(curves.map((c) => c[k])));
    const result: MetaValidation = {
      iteration: this.iteration,
      before: curve[0],
      after: mean(last),
      deviation: deviation(last),
      gain: mean(last) - curve[0],
      curve,
      error: halvingError(this.prepared, this.evaluation, probes),
      trainingError,
    };
    this.validations.push(result);
    return result;
  }

  /** The integration steps, or shorter ones if they exceed their tolerance on these pulses. */
  #refined(use: "training" | "evaluation", probes: Probes, error?: number): ChosenSteps {
    const asked = this.config.integration[use];
    if (!("tolerance" in asked)) return this[use];
    const own = error ?? halvingError(this.prepared, this[use], probes);
    return own <= asked.tolerance ? this[use] : chooseSteps(this.prepared, asked, probes);
  }

  /** Trains up to `until`, yielding after every ten iterations (null) and after each validation. */
  *advance(until = this.config.iterations): Generator<MetaValidation | null> {
    const { every } = this.config.validation;
    while (this.iteration < until) {
      this.step();
      if (this.iteration % every === 0 || this.iteration === until) {
        this.readMetrics();
        yield this.validate();
      } else if (this.iteration % 10 === 0) yield null;
    }
  }

  /** Trains up to `config.iterations` or `until`. */
  run(
    options: { until?: number; onProgress?: (trainer: MetaTrainer, validation: MetaValidation | null) => void } = {},
  ): void {
    for (const validation of this.advance(options.until)) options.onProgress?.(this, validation);
  }

  /** Description of the integration steps. */
  explain(): string {
    return [explainSteps(this.training, "training"), explainSteps(this.evaluation, "evaluation")].join("\n");
  }

  /** Writes a checkpoint. */
  async save(path: string): Promise<void> {
    this.readMetrics();
    const description: Description = {
      config: { ...this.config, problem: plainProblem(this.config.problem) },
      perSegment: [this.training.perSegment, this.evaluation.perSegment],
      metrics: this.metrics,
      validations: this.validations,
    };
    await writeTensorCheckpoint(path, checkpointKind, stateDict(this.state), description);
  }

  /** A trainer that continues from a checkpoint. `changes` may set another number of iterations. */
  static async resume(path: string, changes: Pick<MetaSettings, "iterations"> = {}): Promise<MetaTrainer> {
    const { tensors, description } = await readTensorCheckpoint<Description>(path, checkpointKind);
    const trainer = new MetaTrainer({ ...description.config, ...changes });
    trainer.state = loadStateDict(trainer.state, tensors);
    trainer.iteration = trainer.state.optimizer.step.itemSync();
    trainer.metrics.push(...description.metrics);
    trainer.validations.push(...description.validations);
    // Restores steps that were refined during training.
    const [training, evaluation] = description.perSegment;
    trainer.training = withSteps(trainer.training, training);
    trainer.evaluation = withSteps(trainer.evaluation, evaluation);
    return trainer;
  }
}
