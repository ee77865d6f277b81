// Model-agnostic meta-learning over any loss of a tree of parameters and a task: K gradient steps for every task of a
// batch, and the gradient of what they lead to, of first or true second order. Everything is one program.
import { WeftError } from "@weft/core/internal/graph";
import { grad, stack, stopGradient, type Tensor, treeMap, valueAndGrad, vmap } from "@weft/core/internal/tensor";

/** A loss of one task. */
export type TaskLoss<P, T> = (params: P, task: T) => Tensor;

export interface Adaptation {
  /** Gradient steps on a task. */
  steps: number;
  rate: number;
}

export function checkAdaptation({ steps, rate }: Adaptation): void {
  if (!Number.isInteger(steps) || steps < 0)
    throw new WeftError(`adaptation: steps must be a whole number >= 0, got ${steps}`);
  if (!(rate >= 0 && Number.isFinite(rate))) throw new WeftError(`adaptation: rate must be >= 0, got ${rate}`);
}

const descend = <P>(params: P, grads: P, rate: number): P => treeMap((p, g) => p.sub(g.mul(rate)), params, grads);

/** Parameters after the steps on one task. Differentiable in the start: that is what second order means. */
export function adapt<P, T>(loss: TaskLoss<P, T>, params: P, task: T, adaptation: Adaptation): P {
  checkAdaptation(adaptation);
  let now = params;
  for (let k = 0; k < adaptation.steps; k++) now = descend(now, grad((p: P) => loss(p, task))(now), adaptation.rate);
  return now;
}

export interface MetaOptions extends Adaptation {
  /** 1 ignores how the adapted parameters depend on the start; 2 differentiates through the steps. */
  order: 1 | 2;
}

export interface MetaGradient<P> {
  /** Mean over the tasks of the loss after adaptation, and its gradient. */
  loss: Tensor;
  grads: P;
  /** [tasks]: losses after adaptation. */
  losses: Tensor;
}

/** Loss after adaptation and its gradient in the start, over a batch of tasks (their leading axis). */
export function metaGradient<P, T>(loss: TaskLoss<P, T>, params: P, tasks: T, options: MetaOptions): MetaGradient<P> {
  if (options.order !== 1 && options.order !== 2)
    throw new WeftError(`meta: order must be 1 or 2, got ${options.order}`);
  if (options.order === 2) {
    const total = (start: P): [Tensor, Tensor] => {
      const losses = vmap((task: T) => loss(adapt(loss, start, task, options), task))(tasks) as Tensor;
      return [losses.mean(), losses];
    };
    const [[mean, losses], grads] = valueAndGrad(total, { hasAux: true })(params) as unknown as [[Tensor, Tensor], P];
    return { loss: mean, grads, losses };
  }
  const one = (task: T): [Tensor, P] => {
    const adapted = treeMap((p) => stopGradient(p), adapt(loss, params, task, options));
    return valueAndGrad((p: P) => loss(p, task))(adapted) as [Tensor, P];
  };
  const [losses, each] = vmap(one)(tasks) as [Tensor, P];
  return { loss: losses.mean(), grads: treeMap((g) => g.mean(0), each), losses };
}

/** [tasks, steps + 1]: the loss before, and after every step of adaptation. */
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
