// The work of the meta-learning benchmarks, on whatever engine is passed in: ensembles of one-qubit problems with
// gradients (W1), and one iteration of first-order MAML (W2). Inputs come from the hash that peers/torch_meta.py holds too.
import { uniform } from "./data.mjs";

const segments = 60;
const sizes = [3, 128, 128, 128, 120];

/** Pulses [b, 60, 2] and rates [b, 2]; the first task is the published test pulse, whose fidelity is known. */
export function ensemble(b) {
  const controls = new Float32Array(b * segments * 2);
  const a = uniform(b * segments, 1);
  const c = uniform(b * segments, 2);
  for (let i = 0; i < b * segments; i++) {
    controls[2 * i] = (Math.PI / 2) * (1 + 0.1 * a[i]);
    controls[2 * i + 1] = 0.2 * c[i];
  }
  for (let k = 0; k < segments; k++) {
    controls[2 * k] = (Math.PI / 2) * (1 + 0.1 * Math.sin((2 * Math.PI * k) / segments));
    controls[2 * k + 1] = 0.2 * Math.cos((2 * Math.PI * k) / segments);
  }
  const rates = new Float32Array(2 * b);
  const [d, r] = [uniform(b, 3, 0.02, 0.15), uniform(b, 4, 0.01, 0.08)];
  for (let i = 0; i < b; i++) [rates[2 * i], rates[2 * i + 1]] = [d[i], r[i]];
  [rates[0], rates[1]] = [0.05, 0.025];
  return { controls, rates };
}

/** Tasks of iteration i: rates [n, 2] and features [n, 3]. */
export function taskBatch(n, i) {
  const [d, r] = [uniform(n, 100 + 2 * i, 0.02, 0.15), uniform(n, 101 + 2 * i, 0.01, 0.08)];
  const rates = new Float32Array(2 * n);
  const features = new Float32Array(3 * n);
  for (let k = 0; k < n; k++) {
    rates.set([d[k], r[k]], 2 * k);
    features.set([d[k] / 0.1, r[k] / 0.05, (d[k] + r[k]) / 0.15], 3 * k);
  }
  return { rates, features };
}

export const policyStart = () =>
  sizes.slice(1).map((out, i) => ({
    out,
    inputs: sizes[i],
    weight: uniform(out * sizes[i], 50 + i, -1 / Math.sqrt(sizes[i]), 1 / Math.sqrt(sizes[i])),
  }));

export function metaWork({ weft, quantum, optim }) {
  const tensor = (data, shape) => weft.tensor(data, { shape });
  const prepared = quantum.prepareProblem(quantum.qubitFlip({ segments }));
  const steps = { method: "rk4", perSegment: 1 };
  const read = (t) => Array.from(t.dataSync(), Number);

  /** Value and gradient in pulse and rates of every task. */
  function w1(b) {
    const given = ensemble(b);
    const controls = tensor(given.controls, [b, segments, 2]);
    const rates = tensor(given.rates, [b, 2]);
    const each = weft.vmap(
      weft.valueAndGrad((u, g) => weft.sub(1, quantum.controlInfidelity(prepared, steps, u, g)), { argument: [0, 1] }),
    );
    const program = weft.jit((u, g) => each(u, g));
    const [values, [du, dg]] = program(controls, rates);
    const check = [read(values)[0], read(values.mean())[0], read(du.square().sum().sqrt())[0], ...read(dg.mean(0))];
    const call = () => {
      const [value, [a, c]] = program(controls, rates);
      // On a GPU the call returns before the work is done: one number is read.
      const last = value.index(0).itemSync();
      for (const t of [value, a, c]) t.dispose();
      return last;
    };
    return { call, check, info: { kernels: program.kernels(controls, rates) } };
  }

  /** One iteration: n tasks, K steps, Adam. The check is the loss of the first ten iterations. */
  function w2(n = 32, order = 1, innerSteps = 5) {
    const options = { width: 128, hidden: 2, segments, controls: 2 };
    const loss = (params, task) =>
      quantum.controlInfidelity(prepared, steps, quantum.policy.apply(params, task.features, options), task.rates);
    const adam = optim.adam({ learningRate: 1e-3 });
    const step = weft.jit(
      (params, state, tasks) => {
        const { grads, loss: mean } = quantum.metaGradient(loss, params, tasks, {
          steps: innerSteps,
          rate: 0.01,
          order,
        });
        const [clipped] = optim.clipByGlobalNorm(grads, 1);
        return [...adam.update(params, clipped, state), mean];
      },
      { donate: [0, 1] },
    );
    let params = {
      layers: policyStart().map(({ out, inputs, weight }) => ({
        weight: tensor(weight, [out, inputs]),
        bias: weft.zeros([out]),
      })),
    };
    let state = adam.init(params);
    const batches = Array.from({ length: 10 }, (_, i) => {
      const { rates, features } = taskBatch(n, i);
      return { rates: tensor(rates, [n, 2]), features: tensor(features, [n, 3]) };
    });
    let at = 0;
    const one = () => {
      let mean;
      [params, state, mean] = step(params, state, batches[at++ % batches.length]);
      return mean;
    };
    const compileStart = performance.now();
    const first = one().itemSync();
    const compileSeconds = (performance.now() - compileStart) / 1e3;
    const check = [first, ...Array.from({ length: 9 }, () => one().itemSync())];
    return {
      call: () => one().itemSync(),
      check,
      info: { kernels: step.kernels(params, state, batches[0]), compileSeconds },
    };
  }

  /** The controlled-Z: twelve states of two qubits, 60 steps; value and gradient in pulse and rates of every task. */
  function w3(b) {
    const problem = quantum.prepareProblem(quantum.controlledZ());
    const controls = tensor(uniform(b * 30 * 6, 20, -2, 2), [b, 30, 6]);
    const rates = new Float32Array(2 * b);
    const [d, r] = [uniform(b, 3, 0.02, 0.15), uniform(b, 4, 0.01, 0.08)];
    for (let i = 0; i < b; i++) [rates[2 * i], rates[2 * i + 1]] = [d[i], r[i]];
    const given = tensor(rates, [b, 2]);
    const twice = { method: "rk4", perSegment: 2 };
    const each = weft.vmap(
      weft.valueAndGrad((u, g) => weft.sub(1, quantum.controlInfidelity(problem, twice, u, g)), { argument: [0, 1] }),
    );
    const program = weft.jit((u, g) => each(u, g));
    const [values, [du, dg]] = program(controls, given);
    const check = [read(values)[0], read(values.mean())[0], read(du.square().sum().sqrt())[0], ...read(dg.mean(0))];
    const call = () => {
      const [value, [a, c]] = program(controls, given);
      const last = value.index(0).itemSync();
      for (const t of [value, a, c]) t.dispose();
      return last;
    };
    return { call, check, info: { kernels: program.kernels(controls, given) } };
  }

  return { w1, w2, w3 };
}
