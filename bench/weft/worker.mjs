// Weft as a contestant: every row through jit, results disposed as soon as they are there, parameters and optimiser
// state donated.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import * as data from "../lib/data.mjs";
import { serve } from "../lib/serve.mjs";
import { transformerStep } from "./transformer.mjs";

const tensor = (array, shape) => weft.tensor(array, { shape });
const sampled = (t) => {
  const values = t.dataSync();
  return data.places(values.length).map((i) => values[i]);
};

/** Where the time of one call goes (the fastest of five): kernels and library calls by name, most expensive first. */
function profileOf(call) {
  const folder = mkdtempSync(join(tmpdir(), "weft-bench-"));
  const path = join(folder, "trace.json");
  const once = () => {
    weft.profile.start();
    call();
    weft.profile.stop(path);
    const events = JSON.parse(readFileSync(path, "utf8")).traceEvents.filter(({ tid }) => tid === 2);
    return { events, us: events.reduce((sum, { dur }) => sum + dur, 0) };
  };
  const runs = Array.from({ length: 5 }, once);
  rmSync(folder, { recursive: true });
  const byName = new Map();
  for (const { name, dur, args } of runs.sort((a, b) => a.us - b.us)[0].events) {
    const at = byName.get(name) ?? { name, kind: args?.kind, calls: 0, us: 0 };
    at.calls++;
    at.us += dur;
    byName.set(name, at);
  }
  return [...byName.values()].sort((a, b) => b.us - a.us);
}

/** A row that calls a function on fixed inputs. */
function single(fn, inputs, check) {
  const program = weft.jit(fn);
  const result = program(...inputs);
  const call = () => program(...inputs).dispose();
  return {
    check: check(result),
    info: { kernels: program.kernels(...inputs).length, profile: profileOf(call) },
    call,
    release: () => {
      for (const t of [...inputs, result]) t.dispose();
    },
  };
}

function matmul(n) {
  const [a, b] = [data.uniform(n * n, 1), data.uniform(n * n, 2)];
  const inputs = [tensor(a, [n, n]), tensor(b, [n, n])];
  return single(
    (x, y) => x.matmul(y),
    inputs,
    (c) => data.freivalds(a, b, c.dataSync(), n),
  );
}

/** A row that takes training steps; the check are the losses of the first ones. */
function training(step, params, state, ...batch) {
  const losses = [];
  const call = () => {
    let loss;
    [params, state, loss] = step(params, state, ...batch);
    return loss;
  };
  const kernels = step.kernels(params, state, ...batch).length;
  for (let i = 0; i < 5; i++) losses.push(call().itemSync());
  return { check: losses, info: { kernels, profile: profileOf(call) }, call };
}

function mlpStep() {
  const optimizer = optim.adam({ learningRate: 1e-3 });
  const apply = (layers, x) =>
    layers.reduce((h, layer, i) => {
      const out = nn.linear.apply(layer, h);
      return i < layers.length - 1 ? out.relu() : out;
    }, x);
  const step = weft.jit(
    (params, state, x, y) => {
      const [loss, grads] = weft.valueAndGrad((p) => weft.crossEntropy(apply(p, x), y))(params);
      return [...optimizer.update(params, grads, state), loss];
    },
    { donate: [0, 1] },
  );
  const params = data
    .mlpParameters()
    .map(({ out, inputs, weight, bias }) => ({ weight: tensor(weight, [out, inputs]), bias: tensor(bias, [out]) }));
  const { x, y } = data.mlpBatch();
  return training(step, params, optimizer.init(params), tensor(x, [data.mlp.batch, 784]), tensor(y, [data.mlp.batch]));
}

const rowInput = () => tensor(data.uniform(4096 * 1024, 5, -4, 4), [4096, 1024]);

const rows = {
  ...Object.fromEntries([64, 512, 2048, 4096].map((n) => [`matmul-${n}`, async () => matmul(n)])),
  chain: async () =>
    single(
      (x) => x.mul(x).neg().mul(0.5).exp().mul(1.5).add(0.25).maximum(0.3).sub(0.1),
      [tensor(data.uniform(1 << 24, 6, -3, 3), [1 << 24])],
      sampled,
    ),
  softmax: async () => single((x) => x.softmax(), [rowInput()], sampled),
  "layer-norm": async () =>
    single(
      (x, weight, bias) => weft.layerNorm(x, { weight, bias }),
      [rowInput(), tensor(data.uniform(1024, 6, 0.5, 1.5), [1024]), tensor(data.uniform(1024, 7, 0, 1), [1024])],
      sampled,
    ),
  mlp: async () => mlpStep(),
  transformer: async () => {
    const { step, params, state, batch } = transformerStep();
    return training(step, params, state, ...batch);
  },
  "complex-matmul": async () => {
    const make = (salt) => weft.tensor(data.uniform(2 * 4096 * 64, salt), { shape: [4096, 8, 8], dtype: "complex64" });
    return single((a, b) => a.matmul(b), [make(8), make(9)], sampled);
  },
  tiny: async () =>
    single(
      (a, b) => a.mul(b).add(1),
      [tensor(Float32Array.of(1, 2, 3, 4), [4]), tensor(Float32Array.of(5, 6, 7, 8), [4])],
      (t) => Array.from(t.dataSync()),
    ),
};

const device = weft.session().device;
await serve(rows, { weft: "0.1.0", device: device.name, threads: device.threads, blas: device.blas });
