// Model-agnostic meta-learning (MAML) for any loss of a parameter tree and a task: K gradient steps per task, and the first-order or
// second-order gradient of the adapted loss, in one program.
import { WeftError } from "@weft/core/internal/graph";
import { grad, stack, stopGradient, type Tensor, treeMap, valueAndGrad, vmap } from "@weft/core/internal/tensor";

/** Loss of parameters on one task. */
export type TaskLoss<P, T> = (params: P, task: T) => Tensor;

/** Inner loop of meta-learning. */
export interface Adaptation {
  /** Number of gradient steps on a task. */
  steps: number;
  /** Step size of the gradient steps. */
  rate: number;
}

/** Throws if the settings are out of range. */
function checkAdaptation({ steps, rate }: Adaptation): void {
  if (!Number.isInteger(steps) || steps < 0)
    throw new WeftError(`adaptation: steps must be a whole number >= 0, got ${steps}`);
  if (!(rate >= 0 && Number.isFinite(rate))) throw new WeftError(`adaptation: rate must be >= 0, got ${rate}`);
}

const descend = <P>(params: P, grads: P, rate: number): P => treeMap((p, g) => p.sub(g.mul(rate)), params, grads);

/** Parameters after gradient steps on one task. Differentiable in the initial parameters. */
export function adapt<P, T>(loss: TaskLoss<P, T>, params: P, task: T, adaptation: Adaptation): P {
  checkAdaptation(adaptation);
  let now = params;
  for (let k = 0; k < adaptation.steps; k++) now = descend(now, grad((p: P) => loss(p, task))(now), adaptation.rate);
  return now;
}

/** Options of `metaGradient`. @inline */
interface MetaOptions extends Adaptation {
  /** 1: first order (FOMAML), which ignores the derivative of the steps; 2: differentiates through the steps. */
  order: 1 | 2;
}

/** Result of `metaGradient`. */
export interface MetaGradient<P> {
  /** Mean loss after adaptation over the tasks. */
  loss: Tensor;
  /** Gradient of the mean loss. */
  grads: P;
  /** Losses after adaptation: [tasks]. */
  losses: Tensor;
}

/** Mean loss after adaptation over a batch of tasks, and its gradient with respect to the initial parameters. */
export function metaGradient<P, T>(loss: TaskLoss<P, T>, params: P, tasks: T, options: MetaOptions): MetaGradient<P> {
  if (options.order !== 1 && options.order !== 2)
    throw new WeftError(`meta: order must be 1 or 2, got ${options.order}`);
  if (options.order === 2) {
    const total = (start: P): [Tensor, Tensor] => {
      const losses = vmap((task: T) => loss(adapt(loss, start, task, options), task))(tasks) as Tensor;
      return [losses.mean(), losses];
    };
    const [[mean, losses], grads] = valueAndGrad(total, { hasAux: true })(params) as [[Tensor, Tensor], P];
    return { loss: mean, grads, losses };
  }
  const one = (task: T): [Tensor, P] => {
    const adapted = treeMap((p) => stopGradient(p), adapt(loss, params, task, options));
    return valueAndGrad((p: P) => loss(p, task))(adapted) as [Tensor, P];
  };
  const [losses, each] = vmap(one)(tasks) as [Tensor, P];
  return { loss: losses.mean(), grads: treeMap((g) => g.mean(0), each), losses };
}

/** Losses [tasks, steps + 1] before adaptation and after every step. */
export function adaptationCurves<P, T>(loss: TaskLoss<P, T>, params: P, tasks: T, adaptation: Adaptation): Tensor {
  checkAdaptation(adaptation);
  const one = (task: T): Tensor => {
    const losses: Tensor[] = [];
    let now = params;
    for (let k = 0; k < adaptation.steps; k++) {
      const [value, grads] = valueAndGrad((p: P) => loss(p, task))(now) as [Tensor, P];
      losses.push(value);
      now = descend(now, grads, adaptation.rate);
    }
    losses.push(loss(now, task));
    return stack(losses);
  };
  return vmap(one)(tasks) as Tensor;
}
