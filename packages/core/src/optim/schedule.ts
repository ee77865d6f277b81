// Learning-rate schedules as functions of the step count (1 at the first step): warm-up, constant, linear, cosine. They accept
// tensors inside a jitted step, and numbers.

import { checkOptions, WeftError } from "../graph/index.js";
import { cos, minimum, pow, Tensor, where } from "../tensor/index.js";
import { requireNumber } from "./common.js";

/** Names of the schedule shapes. */
const scheduleShapes = ["constant", "linear", "cosine"] as const;
/** Shape of a schedule after the warm-up. @inline */
type ScheduleShape = (typeof scheduleShapes)[number];

/** Options of {@link schedule}. @inline */
interface LearningRateScheduleOptions {
  /** How the rate falls after the warm-up. */
  shape?: ScheduleShape;
  /** The rate after the warm-up. */
  learningRate: number;
  /** Number of steps of the linear warm-up from 0. */
  warmupSteps?: number;
  /** Total number of steps; required by linear and cosine. */
  totalSteps?: number;
  /** Final learning rate as a fraction of the rate. */
  minRatio?: number;
  /** Exponent of a linear fall, which makes it polynomial; 1 by default. */
  power?: number;
  /** How often the rate falls from its largest to its smallest value (warm restarts); once by default. */
  cycles?: number;
}

/** Factor after the warm-up, by the fraction of steps done. */
const falling: Record<ScheduleShape, (done: number) => number> = {
  constant: () => 1,
  linear: (done) => 1 - done,
  cosine: (done) => 0.5 * (1 + Math.cos(Math.PI * done)),
};
const fallingTensor: Record<ScheduleShape, (done: Tensor) => Tensor | number> = {
  constant: () => 1,
  linear: (done) => done.neg().add(1),
  cosine: (done) => cos(done.mul(Math.PI)).add(1).mul(0.5),
};

/** A learning rate as a function of the step count. */
export interface LearningRateSchedule {
  (step: Tensor): Tensor | number;
  (step: number): number;
}

/** Creates a learning-rate schedule for an optimizer. Step k of a warm-up of w steps runs at k / w of the rate. */
export function schedule(options: LearningRateScheduleOptions): LearningRateSchedule {
  checkOptions("schedule", options, [
    "shape",
    "learningRate",
    "warmupSteps",
    "totalSteps",
    "minRatio",
    "power",
    "cycles",
  ]);
  const {
    shape = "constant",
    learningRate,
    warmupSteps = 0,
    totalSteps = 0,
    minRatio = 0,
    power = 1,
    cycles = 1,
  } = options;
  requireNumber("schedule", "learningRate", learningRate, 0);
  requireNumber("schedule", "warmupSteps", warmupSteps, 0);
  requireNumber("schedule", "minRatio", minRatio, 0, 1.0000001);
  requireNumber("schedule", "power", power, 0);
  requireNumber("schedule", "cycles", cycles, 1);
  if (!Number.isInteger(cycles)) throw new WeftError(`schedule: cycles is a whole number, got ${cycles}`);
  if (power !== 1 && shape !== "linear") throw new WeftError(`schedule: power belongs to linear, not to ${shape}`);
  if (!scheduleShapes.includes(shape))
    throw new WeftError(`schedule: shape "${shape}" is not one of ${scheduleShapes.join(", ")}`);
  if (shape !== "constant" && !(totalSteps > warmupSteps))
    throw new WeftError(`schedule: ${shape} needs totalSteps (${totalSteps}) above warmupSteps (${warmupSteps})`);
  // The first step after the warm-up runs at the full rate.
  const span = Math.max(1, totalSteps - warmupSteps);
  const ofNumber = (step: number): number => {
    if (warmupSteps > 0 && step <= warmupSteps) return (learningRate * step) / warmupSteps;
    const done = Math.min(1, Math.max(0, (step - 1 - warmupSteps) / span));
    const part = cycles > 1 && done < 1 ? (done * cycles) % 1 : done;
    return learningRate * (minRatio + (1 - minRatio) * falling[shape](part) ** power);
  };
  const ofTensor = (step: Tensor): Tensor | number => {
    const now = step.cast("float64");
    const done = minimum(now.sub(1 + warmupSteps).div(span), 1);
    const part = cycles > 1 ? where(done.less(1), done.mul(cycles).mod(1), 1) : done;
    const linear = fallingTensor[shape](part);
    const factor = power === 1 || typeof linear === "number" ? linear : linear.maximum(0).pow(power);
    const later =
      typeof factor === "number"
        ? learningRate
        : factor
            .mul(1 - minRatio)
            .add(minRatio)
            .mul(learningRate);
    if (warmupSteps === 0) return later;
    return where(now.lessEqual(warmupSteps), now.mul(learningRate / warmupSteps), later);
  };
  return ((step: Tensor | number) =>
    step instanceof Tensor ? ofTensor(step) : ofNumber(step)) as LearningRateSchedule;
}

/** Options of {@link decay}. @inline */
interface DecayOptions {
  /** The rate of the first step. */
  learningRate: number;
  /** Factor of the rate per `every` steps. */
  factor: number;
  /** Number of steps in which the rate falls by `factor`; 1 by default. */
  every?: number;
  /** Whether the rate changes only after every `every` steps; otherwise a little at each step. */
  staircase?: boolean;
}

/**
 * Creates a learning-rate schedule that falls exponentially, as torch.optim.lr_scheduler.ExponentialLR, or in steps (`staircase`), as
 * StepLR.
 */
export function decay(options: DecayOptions): LearningRateSchedule {
  checkOptions("decay", options, ["learningRate", "factor", "every", "staircase"]);
  const { learningRate, factor, every = 1, staircase = false } = options;
  requireNumber("decay", "learningRate", learningRate, 0);
  requireNumber("decay", "factor", factor, Number.MIN_VALUE);
  requireNumber("decay", "every", every, Number.MIN_VALUE);
  return ((step: Tensor | number) => {
    if (!(step instanceof Tensor)) {
      const times = (step - 1) / every;
      return learningRate * factor ** (staircase ? Math.floor(times) : times);
    }
    const times = step.cast("float64").sub(1).div(every);
    return pow(factor, staircase ? times.floor() : times).mul(learningRate);
  }) as LearningRateSchedule;
}
