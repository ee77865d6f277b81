// Whole programs as graphs, for sharding: a training step of an MLP and of a transformer, and the gradient of a loop
// over many examples that share their weights. Small enough for the reference rules.
import type { GraphFn } from "../graph/index.js";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import * as nn from "../nn/index.js";
import type { Value } from "../ops/index.js";
import * as optim from "../optim/index.js";
import { simplify } from "../transform/index.js";
import { trace } from "./traced.js";

export interface Program {
  fn: GraphFn;
  args: Value[];
  /** How many of the last parameters are data: the rest is parameters and optimizer state. */
  data: number;
  /** Bytes of what is trained. */
  weights: number;
}

/** A function of trees as a graph; leaves in the order of the trees. */
function program(fn: (...args: never[]) => unknown, trees: readonly unknown[], data: number): Program {
  const { leaves, def } = weft.flattenTree(trees);
  const traced = trace((...x) => weft.treeLeaves(fn(...(def.rebuild(x) as never[]))), leaves as Tensor[]);
  const weights = weft.treeLeaves(trees[0]).reduce((n, t) => n + 4 * t.size, 0);
  return { fn: simplify(traced.fn), args: traced.args, data, weights };
}

const zeros = (tree: unknown): unknown =>
  weft.treeMap((t) => weft.zeros(t.shape, { dtype: t.dtype }), tree as Tensor[]);

/** Loss, gradients and the updated weights of a perceptron with two layers. */
export function mlpStep(batch: number, width: number, hidden: number, classes: number): Program {
  const params = {
    first: nn.linear.init({ in: width, out: hidden }, weft.key(1)),
    second: nn.linear.init({ in: hidden, out: classes }, weft.key(2)),
  };
  const x = weft.randn([batch, width], { seed: 3 });
  const y = weft.randint(0, classes, [batch], { seed: 4 });
  const step = (p: typeof params, input: Tensor, labels: Tensor): unknown => {
    const loss = (q: typeof params): Tensor =>
      weft.crossEntropy(nn.linear.apply(q.second, weft.relu(nn.linear.apply(q.first, input))), labels);
    const [value, grads] = weft.valueAndGrad(loss)(p);
    return [weft.treeMap((w, g) => w.sub(g.mul(0.1)), p, grads as typeof params), value];
  };
  return program(step as never, [params, x, y], 2);
}

export interface TransformerSize {
  batch: number;
  length: number;
  width: number;
  heads: number;
  layers: number;
  feedForward: number;
  vocabulary: number;
  classes: number;
}

/** A step of Adam on a text classifier. */
export function transformerStep(size: TransformerSize): Program {
  const { batch, length, heads, ...shape } = size;
  const params = nn.textClassifier.init({ heads, ...shape } as never, weft.key(0));
  const optimizer = optim.adam({ learningRate: 1e-3 });
  const ids = weft.randint(0, size.vocabulary, [batch, length], { seed: 1 });
  const labels = weft.randint(0, size.classes, [batch], { seed: 2 });
  const step = (p: typeof params, state: never, x: Tensor, y: Tensor): unknown => {
    const loss = (q: typeof params): Tensor => weft.crossEntropy(nn.textClassifier.apply(q, x, { heads } as never), y);
    const [value, grads] = weft.valueAndGrad(loss)(p);
    return [...optimizer.update(p, grads as never, state), value];
  };
  return program(step as never, [params, zeros(optimizer.init(params)), ids, labels], 2);
}

/** Many small systems that evolve step by step under shared weights: the gradient of their mean with respect to both. */
export function loopGradient(examples: number, size: number, steps: number): Program {
  const weights = weft.randn([size, size], { seed: 5 }).mul(0.3);
  const starts = weft.randn([examples, size], { seed: 6 });
  const evolve = (w: Tensor, x: Tensor): Tensor => {
    const [end] = weft.scan((state: Tensor) => [weft.tanh(weft.matmul(w, state)), state.sum()], x, null, {
      length: steps,
    }) as [Tensor, Tensor];
    return end.mul(end).sum();
  };
  const loss = (w: Tensor, xs: Tensor): Tensor =>
    weft
      .vmap((x: Tensor) => evolve(w, x))(xs)
      .mean();
  const both = (w: Tensor, xs: Tensor): unknown => weft.valueAndGrad(loss, { argument: [0, 1] })(w, xs);
  return program(both as never, [weights, starts], 1);
}

/** Small systems that evolve until each has decayed, with a branch on its sign: the gradient of their mean. */
export function stoppingGradient(examples: number, size: number): Program {
  const weights = weft.randn([size, size], { seed: 5 }).mul(0.3);
  const starts = weft.randn([examples, size], { seed: 6 });
  const evolve = (w: Tensor, x: Tensor): Tensor => {
    const end = weft.whileLoop(
      (state) => state.square().sum().greater(0.1),
      (state) => weft.tanh(weft.matmul(w, state)).mul(0.9),
      x,
      { maxTrips: 12 },
    );
    return weft.cond(
      x.sum().greater(0),
      () => end.square().sum(),
      () => end.sum(),
    );
  };
  const loss = (w: Tensor, xs: Tensor): Tensor =>
    weft
      .vmap((x: Tensor) => evolve(w, x))(xs)
      .mean();
  const both = (w: Tensor, xs: Tensor): unknown => weft.valueAndGrad(loss, { argument: [0, 1] })(w, xs);
  return program(both as never, [weights, starts], 1);
}
