// Adaptive optimizers besides Adam: torch.optim's Adagrad, Adadelta, Adamax, NAdam and RAdam, and optax's Lion and LAMB. They share one
// frame: weight decay, the step count, the rate, and a rule that gives the direction and the new running means of one parameter.
import { checkOptions } from "../graph/index.js";
import { fullLike, type Tensor, tensor, treeMap, where, zeros } from "../tensor/index.js";
import { type AdamState, shrinkage } from "./adam.js";
import {
  checkRate,
  decayRule,
  inPrecision,
  type LearningRate,
  type Optimizer,
  rateAt,
  refuseComplex,
  requireNumber,
  withDecay,
  zerosOf,
} from "./common.js";

/** Options of the adaptive optimizers; each has those that its description names. @inline */
interface AdaptiveOptions {
  /** A number, a tensor, or a function of the step. */
  learningRate?: LearningRate;
  /** Decay of the running mean of gradients and of their squares. */
  betas?: readonly [number, number];
  /** Added where a step is divided by the size of gradients. */
  epsilon?: number;
  /** Factor of the parameters that is added to the gradient (L2), or, decoupled, subtracted from the parameter with the rate. */
  weightDecay?: number;
  /** Whether weight decay bypasses the moments; always so in Lion and LAMB. */
  decoupled?: boolean;
  /** false: parameters with fewer than two dimensions (biases, norms) do not decay; true by default. */
  decayVectors?: boolean;
  /** Adadelta: decay of the running means. */
  rho?: number;
  /** Adagrad: the rate of step t is divided by 1 + (t - 1) rateDecay. */
  rateDecay?: number;
  /** Adagrad: the sum of squares before the first step. */
  initial?: number;
  /** NAdam: decay of the momentum. */
  momentumDecay?: number;
}

/** What a rule gets for one parameter: its decayed gradient, the running means, and the parameter. */
interface Moments {
  gradient: Tensor;
  mean: Tensor;
  square: Tensor;
  param: Tensor;
}

/** The new running means, and the direction that is subtracted times the rate. */
interface Direction {
  mean: Tensor;
  square: Tensor;
  direction: Tensor;
}

/** Scalars of a step, in float64. */
interface StepScalars {
  count: Tensor;
  /** 1 - beta1^t and 1 - beta2^t. */
  corrections: readonly [Tensor, Tensor];
  /** The product of NAdam's momenta up to this step. */
  product: Tensor;
}

interface Method {
  name: string;
  options: readonly (keyof AdaptiveOptions)[];
  defaults: AdaptiveOptions & { betas: readonly [number, number]; epsilon: number };
  /** Running means that the state holds; both by default. */
  moments?: "mean" | "square";
  /** Where weight decay acts if not by the option `decoupled`: on the parameter, or inside the rule. */
  decay?: "decoupled" | "rule";
  /** The momentum of NAdam, of which the state holds the product. */
  momentum?: (count: Tensor, options: Required<AdaptiveOptions>) => Tensor;
  rule: (of: Moments, step: StepScalars, options: Required<AdaptiveOptions>, decay: number) => Direction;
}

const always = ["learningRate", "weightDecay", "decayVectors"] as const;
/** Options of one method: those of all, and its own. */
type Own<K extends keyof AdaptiveOptions> = Pick<AdaptiveOptions, (typeof always)[number] | K>;

/** Moves a running mean toward a value. */
const toward = (mean: Tensor, value: Tensor, beta: number): Tensor => mean.add(value.sub(mean).mul(1 - beta));
const meanSquare = (square: Tensor, value: Tensor, beta: number): Tensor =>
  square.mul(beta).add(value.mul(value).mul(1 - beta));
/** beta^t as exp(t log beta). */
const power = (beta: number, count: Tensor): Tensor => count.mul(Math.log(beta)).exp();

function make(method: Method, given: AdaptiveOptions): Optimizer<AdamState> {
  const { name, defaults, moments } = method;
  checkOptions(name, given, [...always, ...method.options]);
  const usual = { weightDecay: 0, decoupled: false, decayVectors: true, rho: 0.9, rateDecay: 0, initial: 0 };
  const set = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const options = { momentumDecay: 4e-3, ...usual, ...defaults, ...set } as Required<AdaptiveOptions>;
  const decay = method.decay ?? (options.decoupled ? "decoupled" : "gradient");
  checkRate(name, options.learningRate);
  for (const [i, beta] of options.betas.entries()) requireNumber(name, `betas[${i}]`, beta, 0, 1);
  requireNumber(name, "rho", options.rho, 0, 1);
  for (const key of ["epsilon", "weightDecay", "rateDecay", "initial", "momentumDecay"] as const)
    requireNumber(name, key, options[key], 0);
  const decayOf = decayRule(name, options.weightDecay, options.decayVectors);

  return {
    init(params) {
      refuseComplex(name, params);
      return {
        step: zeros([], { dtype: "int32" }),
        mean: moments === "square" ? null : zerosOf(params),
        square: moments === "mean" ? null : treeMap((leaf) => fullLike(leaf, options.initial), params),
        ...(method.momentum === undefined ? {} : { product: tensor(1, { dtype: "float64" }) }),
      };
    },

    update<P>(params: P, grads: P, state: AdamState): [P, AdamState] {
      const step = state.step.add(1);
      const count = step.cast("float64");
      const rate = rateAt(options.learningRate, step);
      const momentum = method.momentum?.(count, options);
      const product = momentum === undefined ? count : momentum.mul(state.product!);
      const corrections = options.betas.map((beta) => power(beta, count).neg().add(1)) as [Tensor, Tensor];
      const results: Direction[] = [];
      const updated = treeMap(
        (param, grad, mean, square) => {
          const own = decayOf(param);
          const gradient = decay === "gradient" ? withDecay(grad, param, own) : grad;
          const result = method.rule({ gradient, mean, square, param }, { count, corrections, product }, options, own);
          results.push(result);
          const shrinks = decay === "decoupled" && own !== 0;
          const shrunk = shrinks ? param.mul(inPrecision(shrinkage(rate, own), param)) : param;
          return shrunk.sub(result.direction.mul(inPrecision(rate, param)));
        },
        params,
        grads,
        state.mean ?? params,
        state.square ?? params,
      );
      const all = (pick: (result: Direction) => Tensor): unknown => {
        let next = 0;
        return treeMap(() => pick(results[next++]), params);
      };
      const after: AdamState = {
        step,
        mean: moments === "square" ? null : all((result) => result.mean),
        square: moments === "mean" ? null : all((result) => result.square),
        ...(momentum === undefined ? {} : { product }),
      };
      return [updated, after];
    },
  };
}

/** The Adagrad optimizer, as torch.optim.Adagrad: options `rateDecay`, `initial`, `epsilon`, `weightDecay`. */
export const adagrad = (options: Own<"epsilon" | "rateDecay" | "initial"> = {}): Optimizer<AdamState> =>
  make(
    {
      name: "adagrad",
      options: ["epsilon", "rateDecay", "initial"],
      defaults: { learningRate: 0.01, betas: [0, 0], epsilon: 1e-10 },
      moments: "square",
      rule({ gradient, mean, square }, { count }, { epsilon, rateDecay }) {
        const sum = square.add(gradient.mul(gradient));
        const slower = count.sub(1).mul(rateDecay).add(1).reciprocal();
        const direction = gradient.div(sum.sqrt().add(epsilon)).mul(inPrecision(slower, gradient));
        return { mean, square: sum, direction };
      },
    },
    options,
  );

/** The Adadelta optimizer, as torch.optim.Adadelta: options `rho`, `epsilon`, `weightDecay`. */
export const adadelta = (options: Own<"epsilon" | "rho"> = {}): Optimizer<AdamState> =>
  make(
    {
      name: "adadelta",
      options: ["epsilon", "rho"],
      defaults: { learningRate: 1, betas: [0, 0], epsilon: 1e-6 },
      rule({ gradient, mean, square }, _, { epsilon, rho }) {
        const next = meanSquare(square, gradient, rho);
        const direction = mean.add(epsilon).sqrt().div(next.add(epsilon).sqrt()).mul(gradient);
        return { mean: meanSquare(mean, direction, rho), square: next, direction };
      },
    },
    options,
  );

/** The Adamax optimizer, as torch.optim.Adamax: options `betas`, `epsilon`, `weightDecay`. */
export const adamax = (options: Own<"betas" | "epsilon"> = {}): Optimizer<AdamState> =>
  make(
    {
      name: "adamax",
      options: ["betas", "epsilon"],
      defaults: { learningRate: 2e-3, betas: [0.9, 0.999], epsilon: 1e-8 },
      rule({ gradient, mean, square }, { corrections }, { betas, epsilon }) {
        const next = toward(mean, gradient, betas[0]);
        const largest = square.mul(betas[1]).maximum(gradient.abs().add(epsilon));
        const direction = next.div(largest).mul(inPrecision(corrections[0].reciprocal(), gradient));
        return { mean: next, square: largest, direction };
      },
    },
    options,
  );

/** Adam with Nesterov momentum, as torch.optim.NAdam: options `betas`, `epsilon`, `momentumDecay`, `weightDecay`, `decoupled`. */
export function nadam(options: Own<"betas" | "epsilon" | "momentumDecay" | "decoupled"> = {}): Optimizer<AdamState> {
  const momentum = (count: Tensor, { betas, momentumDecay }: Required<AdaptiveOptions>): Tensor =>
    power(0.96, count.mul(momentumDecay)).mul(-0.5).add(1).mul(betas[0]);
  return make(
    {
      name: "nadam",
      options: ["betas", "epsilon", "momentumDecay", "decoupled"],
      defaults: { learningRate: 2e-3, betas: [0.9, 0.999], epsilon: 1e-8 },
      momentum,
      rule({ gradient, mean, square }, { count, corrections, product }, own) {
        const { betas, epsilon } = own;
        const [next, spread] = [toward(mean, gradient, betas[0]), meanSquare(square, gradient, betas[1])];
        const size = spread.mul(inPrecision(corrections[1].reciprocal(), spread)).sqrt().add(epsilon);
        const [now, later] = [momentum(count, own), momentum(count.add(1), own)];
        const ofGradient = now.neg().add(1).div(product.neg().add(1));
        const ofMean = later.div(product.mul(later).neg().add(1));
        const sum = gradient.mul(inPrecision(ofGradient, gradient)).add(next.mul(inPrecision(ofMean, next)));
        return { mean: next, square: spread, direction: sum.div(size) };
      },
    },
    options,
  );
}

/** Rectified Adam, as torch.optim.RAdam: options `betas`, `epsilon`, `weightDecay`, `decoupled`. */
export const radam = (options: Own<"betas" | "epsilon" | "decoupled"> = {}): Optimizer<AdamState> =>
  make(
    {
      name: "radam",
      options: ["betas", "epsilon", "decoupled"],
      defaults: { learningRate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8 },
      rule({ gradient, mean, square }, { count, corrections }, { betas, epsilon }) {
        const [next, spread] = [toward(mean, gradient, betas[0]), meanSquare(square, gradient, betas[1])];
        const longest = 2 / (1 - betas[1]) - 1;
        const length = power(betas[1], count).mul(count).mul(2).div(corrections[1]).neg().add(longest);
        const isLong = length.greater(5);
        const safe = where(isLong, length, 6);
        const ratio = safe
          .sub(4)
          .mul(safe.sub(2))
          .mul(longest)
          .div(safe.mul((longest - 4) * (longest - 2)));
        const factor = ratio.sqrt().mul(corrections[1].sqrt());
        const scaled = where(isLong, spread.sqrt().add(epsilon).reciprocal().mul(inPrecision(factor, spread)), 1);
        const corrected = next.mul(inPrecision(corrections[0].reciprocal(), next));
        return { mean: next, square: spread, direction: corrected.mul(scaled) };
      },
    },
    options,
  );

/** The Lion optimizer (steps by the sign of the momentum), as optax.lion: options `betas`, `weightDecay`. */
export const lion = (options: Own<"betas"> = {}): Optimizer<AdamState> =>
  make(
    {
      name: "lion",
      options: ["betas"],
      defaults: { learningRate: 1e-4, betas: [0.9, 0.99], epsilon: 0, weightDecay: 1e-3 },
      moments: "mean",
      decay: "decoupled",
      rule: ({ gradient, mean, square }, _, { betas }) => ({
        mean: toward(mean, gradient, betas[1]),
        square,
        direction: toward(mean, gradient, betas[0]).sign(),
      }),
    },
    options,
  );

/** LAMB, for large batches: Adam's step scaled to the norm of every tensor, as optax.lamb: options `betas`, `epsilon`, `weightDecay`. */
export const lamb = (options: Own<"betas" | "epsilon"> = {}): Optimizer<AdamState> =>
  make(
    {
      name: "lamb",
      options: ["betas", "epsilon"],
      defaults: { learningRate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-6 },
      decay: "rule",
      rule({ gradient, mean, square, param }, { corrections }, { betas, epsilon }, decay) {
        const [next, spread] = [toward(mean, gradient, betas[0]), meanSquare(square, gradient, betas[1])];
        const size = spread.mul(inPrecision(corrections[1].reciprocal(), spread)).sqrt().add(epsilon);
        const corrected = next.mul(inPrecision(corrections[0].reciprocal(), next)).div(size);
        const step = withDecay(corrected, param, decay);
        const [own, ofStep] = [param.square().sum().sqrt(), step.square().sum().sqrt()];
        const isZero = own.equal(0).logicalOr(ofStep.equal(0));
        return { mean: next, square: spread, direction: step.mul(where(isZero, 1, own.div(where(isZero, 1, ofStep)))) };
      },
    },
    options,
  );
