// jax-js as a peer of the CPU suite, on its WebAssembly backend (its only one on Node). Needs a Node with `navigator`. Arrays are
// consumed by use; `.ref` keeps them for another one.
import { blockUntilReady, defaultDevice, init, jit, nn, numpy as np, valueAndGrad } from "@jax-js/jax";
import { LocalContestant, serveContestant } from "../dist/suites/contestant.js";
import * as data from "../dist/suites/inputs.js";

const devices = await init();
defaultDevice("wasm");

const array = (values, shape) => np.array(values).reshape(shape);

function apply(params, x) {
  let h = x;
  params.forEach(({ weight, bias }, i) => {
    h = np.matmul(h, np.transpose(weight)).add(bias);
    if (i < params.length - 1) h = nn.relu(h);
  });
  return h;
}

const crossEntropy = (params, x, labels) =>
  np.mean(np.sum(nn.logSoftmax(apply(params, x), -1).mul(labels), -1)).mul(-1);

/** Adam on one array: returns [parameter, mean, square]. */
function adam(p, g, m, v, correction1, correction2) {
  const mean = m.mul(0.9).add(g.ref.mul(0.1));
  const square = v.mul(0.999).add(g.ref.mul(g).mul(0.001));
  const step = mean.ref.div(correction1).div(np.sqrt(square.ref.div(correction2)).add(1e-8));
  return [p.sub(step.mul(1e-3)), mean, square];
}

const step = jit((params, means, squares, corrections, x, labels) => {
  const [loss, grads] = valueAndGrad(crossEntropy)(
    params.map(({ weight, bias }) => ({ weight: weight.ref, bias: bias.ref })),
    x,
    labels,
  );
  const next = params.map((layer, i) =>
    Object.fromEntries(
      ["weight", "bias"].map((name) => [
        name,
        adam(layer[name], grads[i][name], means[i][name], squares[i][name], corrections.c1.ref, corrections.c2.ref),
      ]),
    ),
  );
  corrections.c1.dispose();
  corrections.c2.dispose();
  const part = (k) => next.map(({ weight, bias }) => ({ weight: weight[k], bias: bias[k] }));
  return [part(0), part(1), part(2), loss];
});

async function mlp() {
  let params = data
    .mlpParameters()
    .map(({ out, inputs, weight, bias }) => ({ weight: array(weight, [out, inputs]), bias: array(bias, [out]) }));
  const zeros = () =>
    data.mlpParameters().map(({ out, inputs }) => ({ weight: np.zeros([out, inputs]), bias: np.zeros([out]) }));
  let [means, squares] = [zeros(), zeros()];
  const batch = data.mlpBatch();
  const x = array(batch.x, [data.mlpSize.batch, 784]);
  const oneHot = new Float32Array(data.mlpSize.batch * 10);
  batch.y.forEach((label, i) => {
    oneHot[10 * i + label] = 1;
  });
  const labels = array(oneHot, [data.mlpSize.batch, 10]);
  let count = 0;
  const advance = () => {
    count++;
    const corrections = { c1: np.array(1 - 0.9 ** count), c2: np.array(1 - 0.999 ** count) };
    let loss;
    [params, means, squares, loss] = step(params, means, squares, corrections, x.ref, labels.ref);
    return loss;
  };
  const call = async () => {
    const loss = advance();
    const [value] = await loss.data();
    await blockUntilReady([params, means, squares]);
    return value;
  };
  const check = [];
  for (let i = 0; i < 5; i++) check.push(await call());
  return { call, check, isAsync: true, info: { backend: "wasm", devices } };
}

await serveContestant(new LocalContestant({ mlp }, { jaxjs: "0.1.25", node: process.version }));
