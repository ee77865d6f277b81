// jit against single operations: four small programs, each as one compiled program and as one call per operation, on one
// device. Measures the first call, later calls and the number of launched kernels.
import { type Node, topological } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import { jit, key, matmul, randn, relu, softmax, type Tensor, valueAndGrad } from "@weft/core/internal/tensor";

/** Times of a program. */
interface JitTimes {
  /** Seconds of the first call: trace, compile, run. */
  first: number;
  /** Seconds of every later call. */
  calls: number[];
  kernelsPerCall: number;
}

/** One program as single operations and compiled. */
export interface JitRow {
  label: string;
  /** Operations in the graph of one call. */
  operations: number;
  opByOp: JitTimes;
  jit: JitTimes;
  /** Largest relative difference of the two results. */
  error: number;
}

interface Workload {
  label: string;
  inputs: () => Tensor[];
  /** The program; all its results are read. */
  run(...inputs: Tensor[]): Tensor[];
}

const draw = (shapes: number[][]): Tensor[] =>
  shapes.map((shape, i) =>
    randn(shape, { key: key(i) })
      .mul(0.1)
      .realize(),
  );

const stepDown = (parameters: Tensor[], gradients: Tensor[]): Tensor[] =>
  parameters.map((p, i) => p.sub(gradients[i].mul(0.01)));

const workloads: Workload[] = [
  {
    label: "matmul chain (64x64, three products, gradient)",
    inputs: () =>
      draw([
        [64, 64],
        [64, 64],
        [64, 64],
        [64, 64],
      ]),
    run: (x, ...ws) => {
      const loss = (parameters: Tensor[]): Tensor => parameters.reduce((h, w) => h.matmul(w), x).sum();
      const [value, gradient] = valueAndGrad(loss)(ws);
      return [value, ...gradient];
    },
  },
  {
    label: "MLP training step (16 x 32-64-32-10)",
    inputs: () =>
      draw([
        [16, 32],
        [16, 10],
        [32, 64],
        [64, 32],
        [32, 10],
      ]),
    run: (x, target, ...ws) => {
      const loss = ([a, b, c]: Tensor[]): Tensor => {
        const out = relu(relu(x.matmul(a)).matmul(b)).matmul(c);
        return out.sub(target).square().mean();
      };
      const [value, gradient] = valueAndGrad(loss)(ws);
      return [value, ...stepDown(ws, gradient)];
    },
  },
  {
    label: "attention block (64x64)",
    inputs: () =>
      draw([
        [64, 64],
        [64, 64],
        [64, 64],
        [64, 64],
      ]),
    run: (x, wq, wk, wv) => {
      const scores = matmul(x.matmul(wq), x.matmul(wk).transpose()).mul(1 / 8);
      return [matmul(softmax(scores, -1), x.matmul(wv))];
    },
  },
  {
    label: "mixed operations (32x32)",
    inputs: () =>
      draw([
        [32, 32],
        [32, 32],
      ]),
    run: (a, b) => {
      const c = a.add(b).mul(2).exp().sub(1);
      const d = relu(c).div(b.square().add(1));
      return [d.sum(0), c.matmul(d).tanh().mean()];
    },
  },
];

const now = (): number => performance.now() / 1e3;

/** One session call per node, in order, as a framework without a compiler does. */
function runEach(nodes: Node[]): void {
  const current = session();
  for (const node of topological(nodes, (n) => n.value !== null))
    if (node.value === null && node.outputs === null) current.realize([node]);
}

function timed(call: () => Tensor[], read: (outputs: Tensor[]) => void, warmup: number, repeats: number): JitTimes {
  const times: number[] = [];
  let first = 0;
  let kernels = 0;
  for (let i = -warmup; i < repeats; i++) {
    const before = session().kernelsRun;
    const start = now();
    const outputs = call();
    read(outputs);
    session().device.synchronize();
    const seconds = now() - start;
    if (i === -warmup) first = seconds;
    else if (i >= 0) times.push(seconds);
    kernels = session().kernelsRun - before;
    for (const output of outputs) output.dispose();
  }
  return { first, calls: times, kernelsPerCall: kernels };
}

export function runJitSuite(options: {
  warmup: number;
  repeats: number;
  onRow?(label: string, done: number, of: number): void;
}): JitRow[] {
  return workloads.map((work, index) => {
    options.onRow?.(work.label, index, workloads.length);
    const inputs = work.inputs();
    const nodesOf = (outputs: Tensor[]): Node[] => outputs.map((t) => t.node);
    const eager = (): Tensor[] => work.run(...inputs);
    const operations = topological(nodesOf(eager()), (n) => n.value !== null).filter((n) => n.value === null).length;
    const compiled = jit(work.run);
    const together = (outputs: Tensor[]): void => session().realize(nodesOf(outputs));
    const opByOp = timed(eager, (outputs) => runEach(nodesOf(outputs)), options.warmup, options.repeats);
    const asJit = timed(() => compiled(...inputs), together, options.warmup, options.repeats);
    const expected = eager();
    runEach(nodesOf(expected));
    const found = compiled(...inputs);
    let error = 0;
    expected.forEach((t, i) => {
      const [a, b] = [t.dataSync() as Float32Array, found[i].dataSync() as Float32Array];
      for (let j = 0; j < a.length; j++) error = Math.max(error, Math.abs(a[j] - b[j]) / (1 + Math.abs(a[j])));
    });
    for (const input of inputs) input.dispose();
    return { label: work.label, operations, opByOp, jit: asJit, error };
  });
}
