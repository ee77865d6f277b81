// Minimization of functions of named parameters by gradient descent, Adam and L-BFGS on one flat float64 vector, within bounds if
// there are any, with resumable state. Value and gradient are one compiled program.
import { WeftError } from "@weft/core/internal/graph";
import { type Jitted, jit, type Tensor, tensor, valueAndGrad } from "@weft/core/internal/tensor";
import { type Bounds, Box } from "./bounds.js";
import { readTensorCheckpoint, writeTensorCheckpoint } from "./checkpoint.js";
import { strongWolfe } from "./wolfe.js";

/** Parameters of a loss by name. */
export type NamedParameters = Record<string, Tensor>;
/** Scalar loss of named parameters. */
export type ParameterLoss = (params: NamedParameters) => Tensor;

/** Names of minimization methods. */
export const minimizeMethods = ["descent", "adam", "lbfgs"] as const;
/** Name of a minimization method. */
export type MinimizeMethod = (typeof minimizeMethods)[number];

/** Options of `minimize`. @inline */
export interface MinimizeOptions {
  /** Default: L-BFGS. */
  method?: MinimizeMethod;
  /** Maximum number of iterations. Default: 200. */
  iterations?: number;
  /** Step size of descent and Adam. */
  rate?: number;
  /** Number of stored pairs of steps and gradient changes (L-BFGS). */
  history?: number;
  /** Stops when the largest entry of the gradient is below this. */
  gradientTolerance?: number;
  /** Stops when the value is below this. */
  target?: number;
  /** Lowest and highest values by parameter name. L-BFGS moves along the faces of this box (L-BFGS-B). */
  bounds?: Bounds;
}

const checkpointKind = "minimize";
/** Checkpoints of earlier versions have this kind. */
const formerCheckpointKind = "minimise";

/** Why a minimization ended. */
export type StopReason = "gradient" | "target" | "iterations" | "stalled" | "stopped";

/** State of a minimization. */
export interface MinimizeProgress {
  /** Number of finished iterations. */
  iteration: number;
  /** Current loss. */
  value: number;
  /** Largest entry of the gradient. */
  gradient: number;
  /** Number of evaluations of loss and gradient. */
  evaluations: number;
}

const dot = (a: Float64Array, b: Float64Array): number => a.reduce((sum, x, i) => sum + x * b[i], 0);
const plus = (a: Float64Array, b: Float64Array, factor: number): Float64Array => a.map((x, i) => x + factor * b[i]);
const largest = (a: Float64Array): number =>
  a.reduce((m, x) => (Math.abs(x) > m || Number.isNaN(x) ? Math.abs(x) : m), 0);

/** Conversion between named tensors and one vector. */
class Layout {
  readonly names: string[];
  readonly #pulseShapes: (readonly number[])[];
  readonly #dtypes: ("float32" | "float64")[];
  readonly size: number;

  constructor(readonly start: NamedParameters) {
    this.names = Object.keys(start).sort();
    if (this.names.length === 0) throw new WeftError("minimize: there are no parameters");
    this.#pulseShapes = this.names.map((name) => start[name].shape);
    this.#dtypes = this.names.map((name) => {
      const { dtype } = start[name];
      if (dtype !== "float32" && dtype !== "float64")
        throw new WeftError(`minimize: parameter "${name}" is ${dtype}; use float32 or float64`);
      return dtype;
    });
    this.size = this.#pulseShapes.reduce((n, shape) => n + shape.reduce((a, b) => a * b, 1), 0);
  }

  /** Number of entries of each parameter. */
  get sizes(): number[] {
    return this.#pulseShapes.map((shape) => shape.reduce((a, b) => a * b, 1));
  }

  vector(params: NamedParameters): Float64Array {
    const out = new Float64Array(this.size);
    let at = 0;
    for (const name of this.names) {
      const data = params[name].dataSync() as ArrayLike<number>;
      out.set(data, at);
      at += data.length;
    }
    return out;
  }

  params(vector: Float64Array): NamedParameters {
    let at = 0;
    return Object.fromEntries(
      this.names.map((name, i) => {
        const shape = this.#pulseShapes[i];
        const size = shape.reduce((a, b) => a * b, 1);
        at += size;
        const values = tensor(vector.slice(at - size, at), { shape });
        return [name, this.#dtypes[i] === "float64" ? values : values.cast(this.#dtypes[i])];
      }),
    );
  }
}

interface Evaluated {
  value: number;
  gradient: Float64Array;
}

/** State of a method as named vectors, for checkpoints. */
type Memory = Record<string, Float64Array>;

/** Minimizer that runs step by step and can be saved and resumed. */
export class Minimizer {
  /** All options. */
  readonly options: Required<MinimizeOptions>;
  readonly #layout: Layout;
  readonly #box: Box;
  readonly #program: Jitted<(params: NamedParameters) => [Tensor, NamedParameters]>;
  #x: Float64Array;
  #now: Evaluated;
  #memory: Memory = {};
  #steps: Float64Array[] = [];
  #changes: Float64Array[] = [];
  /** Number of finished iterations. */
  iteration = 0;
  /** Number of evaluations of loss and gradient. */
  evaluations = 0;
  /** Losses of all iterations, starting with the initial value. */
  readonly values: number[] = [];

  constructor(loss: ParameterLoss, start: NamedParameters, options: MinimizeOptions = {}) {
    const method = options.method ?? "lbfgs";
    if (!minimizeMethods.includes(method))
      throw new WeftError(`minimize: there is no method "${method}"; known: ${minimizeMethods.join(", ")}`);
    this.options = {
      method,
      iterations: 200,
      rate: method === "adam" ? 0.1 : 0.01,
      history: 10,
      gradientTolerance: 1e-8,
      target: Number.NEGATIVE_INFINITY,
      bounds: {},
      ...options,
    };
    for (const name of ["iterations", "history"] as const)
      if (!(Number.isInteger(this.options[name]) && this.options[name] >= 0))
        throw new WeftError(`minimize: ${name} must be a whole number >= 0, got ${this.options[name]}`);
    if (!(this.options.rate > 0)) throw new WeftError(`minimize: rate must be above 0, got ${this.options.rate}`);
    this.#layout = new Layout(start);
    this.#program = jit((params: NamedParameters) => valueAndGrad(loss)(params) as [Tensor, NamedParameters]);
    this.#box = Box.of(this.options.bounds, this.#layout.names, this.#layout.sizes);
    this.#x = this.#box.project(this.#layout.vector(start));
    this.#now = this.#evaluate(this.#x);
    if (!Number.isFinite(this.#now.value))
      throw new WeftError(`minimize: the loss is ${this.#now.value} at the start; use other initial parameters`);
    this.values.push(this.#now.value);
  }

  /** Current parameters. */
  get params(): NamedParameters {
    return this.#layout.params(this.#x);
  }

  /** Current state. */
  get progress(): MinimizeProgress {
    return {
      iteration: this.iteration,
      value: this.#now.value,
      gradient: this.#slope(),
      evaluations: this.evaluations,
    };
  }

  /** Largest entry of the gradient, without what points out of the bounds. */
  #slope(): number {
    return largest(this.#box.projectedGradient(this.#x, this.#now.gradient));
  }

  #evaluate(x: Float64Array): Evaluated {
    this.evaluations++;
    const [value, grads] = this.#program(this.#layout.params(x));
    return { value: value.itemSync(), gradient: this.#layout.vector(grads) };
  }

  /** The reason to stop, or null. */
  finished(): StopReason | null {
    if (this.#slope() <= this.options.gradientTolerance) return "gradient";
    if (this.#now.value <= this.options.target) return "target";
    return this.iteration >= this.options.iterations ? "iterations" : null;
  }

  /** Runs one iteration. Returns false if no step lowers the value (L-BFGS) or the value is not finite. */
  step(): boolean {
    const moved = stepRules[this.options.method](this);
    if (!moved) return false;
    this.iteration++;
    this.values.push(this.#now.value);
    return Number.isFinite(this.#now.value);
  }

  /** Runs until a stopping criterion is met or `onIteration` returns false. */
  run(onIteration?: (progress: MinimizeProgress) => boolean | undefined): StopReason {
    for (;;) {
      const reason = this.finished();
      if (reason !== null) return reason;
      if (!this.step()) return "stalled";
      if (onIteration?.(this.progress) === false) return "stopped";
    }
  }

  /** Gradient descent: x - rate * gradient. */
  descend(): boolean {
    this.#x = this.#box.project(plus(this.#x, this.#now.gradient, -this.options.rate));
    this.#now = this.#evaluate(this.#x);
    return true;
  }

  /** One step of Adam. */
  adam(): boolean {
    const { size } = this.#layout;
    const mean = this.#memory.mean ?? new Float64Array(size);
    const square = this.#memory.square ?? new Float64Array(size);
    const t = this.iteration + 1;
    const [c1, c2] = [1 - 0.9 ** t, 1 - 0.999 ** t];
    const g = this.#now.gradient;
    this.#memory = {
      mean: mean.map((m, i) => 0.9 * m + 0.1 * g[i]),
      square: square.map((v, i) => 0.999 * v + 0.001 * g[i] ** 2),
    };
    const { mean: m, square: v } = this.#memory;
    const moved = this.#x.map((x, i) => x - (this.options.rate * (m[i] / c1)) / (Math.sqrt(v[i] / c2) + 1e-8));
    this.#x = this.#box.project(moved);
    this.#now = this.#evaluate(this.#x);
    return true;
  }

  /** Two-loop recursion: minus the inverse Hessian times the gradient, in the space of the variables that may move. */
  #direction(): Float64Array {
    const free = (v: Float64Array): Float64Array => this.#box.free(v, this.#x, this.#now.gradient);
    const pairs = this.#steps
      .map((step, i) => ({ s: free(step), y: free(this.#changes[i]) }))
      .filter(({ s, y }) => dot(s, y) > 0);
    let q: Float64Array = free(this.#now.gradient);
    const shares: number[] = [];
    for (let i = pairs.length - 1; i >= 0; i--) {
      const { s, y } = pairs[i];
      shares[i] = dot(s, q) / dot(s, y);
      q = plus(q, y, -shares[i]);
    }
    const last = pairs.at(-1);
    if (last !== undefined) q = q.map((x) => (x * dot(last.s, last.y)) / dot(last.y, last.y));
    pairs.forEach(({ s, y }, i) => {
      q = plus(q, s, shares[i] - dot(y, q) / dot(s, y));
    });
    return q.map((x) => -x);
  }

  /** One step of L-BFGS with a strong Wolfe line search, or within bounds with a search along the projected line. */
  lbfgs(): boolean {
    let direction = this.#direction();
    if (!(dot(direction, this.#now.gradient) < 0)) {
      // Not a descent direction: restart with steepest descent.
      [this.#steps, this.#changes] = [[], []];
      direction = this.#box.free(this.#now.gradient, this.#x, this.#now.gradient).map((x) => -x);
    }
    const before = this.#now;
    const first = this.#steps.length === 0 ? Math.min(1, 1 / largest(before.gradient)) : 1;
    const bounded = Object.keys(this.options.bounds).length > 0;
    const found = bounded ? this.#projectedSearch(direction, first) : this.#lineSearch(direction, first);
    if (found === null) {
      if (this.#steps.length === 0) return false;
      [this.#steps, this.#changes] = [[], []];
      return this.lbfgs();
    }
    const step = plus(found.x, this.#x, -1);
    this.#x = found.x;
    this.#now = found.at;
    const change = plus(this.#now.gradient, before.gradient, -1);
    if (dot(step, change) > 1e-14 * dot(change, change)) {
      this.#steps.push(step);
      this.#changes.push(change);
      if (this.#steps.length > this.options.history) {
        this.#steps.shift();
        this.#changes.shift();
      }
    }
    return true;
  }

  #lineSearch(direction: Float64Array, first: number): { x: Float64Array; at: Evaluated } | null {
    const points = new Map<number, Evaluated>();
    const line = (step: number) => {
      const found = this.#evaluate(plus(this.#x, direction, step));
      points.set(step, found);
      return { step, value: found.value, slope: dot(found.gradient, direction) };
    };
    const { value, gradient } = this.#now;
    const taken = strongWolfe(line, { step: 0, value, slope: dot(gradient, direction) }, first);
    return taken === null ? null : { x: plus(this.#x, direction, taken.step), at: points.get(taken.step)! };
  }

  /** Halves the step along the projection of the line until the value decreases sufficiently. */
  #projectedSearch(direction: Float64Array, first: number): { x: Float64Array; at: Evaluated } | null {
    const { value, gradient } = this.#now;
    for (let step = first, k = 0; k < 40; k++, step /= 2) {
      const x = this.#box.project(plus(this.#x, direction, step));
      const descent = dot(gradient, plus(x, this.#x, -1));
      if (!(descent < 0)) continue;
      const at = this.#evaluate(x);
      if (at.value <= value + 1e-4 * descent) return { x, at };
    }
    return null;
  }

  /** Writes a checkpoint. */
  async save(path: string, note: unknown = null): Promise<void> {
    const { size } = this.#layout;
    const rows = (list: readonly Float64Array[]): Tensor =>
      tensor(Float64Array.from(list.flatMap((v) => Array.from(v))), { shape: [list.length, size] });
    const memory = Object.fromEntries(Object.entries(this.#memory).map(([name, v]) => [`memory.${name}`, tensor(v)]));
    await writeTensorCheckpoint(
      path,
      checkpointKind,
      { x: tensor(this.#x), steps: rows(this.#steps), changes: rows(this.#changes), ...memory },
      {
        names: this.#layout.names,
        method: this.options.method,
        iteration: this.iteration,
        evaluations: this.evaluations,
        values: this.values,
        note,
      },
    );
  }

  /** Continues from a checkpoint. Loss, method and parameter names must be those of the checkpoint. */
  async resume(path: string): Promise<void> {
    interface Saved {
      names: string[];
      method: string;
      iteration: number;
      evaluations: number;
      values: number[];
    }
    const { tensors, description } = await readTensorCheckpoint<Saved>(path, checkpointKind, formerCheckpointKind);
    const { x, steps, changes, ...memory } = tensors;
    if (description.names.join() !== this.#layout.names.join() || x.size !== this.#layout.size)
      throw new WeftError(`minimize: ${path} holds the parameters ${description.names.join(", ")}, not these`);
    if (description.method !== this.options.method)
      throw new WeftError(`minimize: ${path} was written by ${description.method}; method is ${this.options.method}`);
    const rows = (t: Tensor): Float64Array[] => {
      const data = t.dataSync() as Float64Array;
      return Array.from({ length: t.shape[0] }, (_, i) => data.slice(i * t.shape[1], (i + 1) * t.shape[1]));
    };
    this.#x = Float64Array.from(x.dataSync() as Float64Array);
    [this.#steps, this.#changes] = [rows(steps), rows(changes)];
    this.#memory = Object.fromEntries(
      Object.entries(memory).map(([name, t]) => [
        name.slice("memory.".length),
        Float64Array.from(t.dataSync() as Float64Array),
      ]),
    );
    this.#now = this.#evaluate(this.#x);
    this.iteration = description.iteration;
    this.evaluations = description.evaluations;
    this.values.splice(0, this.values.length, ...description.values);
  }
}

const stepRules: Record<MinimizeMethod, (m: Minimizer) => boolean> = {
  descent: (m) => m.descend(),
  adam: (m) => m.adam(),
  lbfgs: (m) => m.lbfgs(),
};

/** Result of `minimize`. */
export interface Minimum extends MinimizeProgress {
  /** The best parameters. */
  params: NamedParameters;
  /** Why the minimization ended. */
  reason: StopReason;
  /** Loss of each iteration. */
  values: number[];
}

/**
 * Minimizes a loss of named parameters.
 *
 * @param start - Initial parameters, float32 or float64.
 *
 * @example
 * ```ts
 * import { type Tensor, tensor } from "@weft/core";
 * import { minimize } from "@weft/quantum";
 *
 * const rosenbrock = ({ x }: Record<string, Tensor>) => {
 *   const [a, b] = [x.index(0), x.index(1)];
 *   return a.neg().add(1).square().add(b.sub(a.square()).square().mul(100));
 * };
 * const found = minimize(rosenbrock, { x: tensor([-1.2, 1], { dtype: "float64" }) });
 * console.log(found.reason, found.params.x.arraySync()); // gradient [ 1, 1 ], up to rounding
 * ```
 */
export function minimize(
  loss: ParameterLoss,
  start: NamedParameters,
  options: MinimizeOptions & { onIteration?: (progress: MinimizeProgress) => boolean | undefined } = {},
): Minimum {
  const { onIteration, ...rest } = options;
  const minimizer = new Minimizer(loss, start, rest);
  const reason = minimizer.run(onIteration);
  return { ...minimizer.progress, params: minimizer.params, reason, values: minimizer.values };
}
