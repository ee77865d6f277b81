// The rows of the GPU table: what is run, how its result is checked, which peer's row it is compared with, and what is
// wanted. A row's `make` returns { run, check, unit? }: `run` issues one unit of work, `check` throws where it is wrong.
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import { singleQubit, twoQubits } from "../lib/ensembles.mjs";
import { classifierStep, sizes } from "./classifier-step.mjs";

export const squares = [4096, 8192, 16384].map((n) => [n, n, n]);
export const products = [...squares, [8192, 4096, 4096], [16384, 4096, 4096], [32768, 2048, 2048]];
const networks = [
  [4096, [4096, 4096, 4096]],
  [8192, [4096, 8192, 4096]],
  [16384, [2048, 4096, 2048]],
];

const demand = (ok, problem) => {
  if (!ok) throw new Error(problem);
};
const number = (t) => Number(t.dataSync()[0]);
const drop = (tree) => {
  if (Array.isArray(tree)) tree.forEach(drop);
  else if (tree && typeof tree === "object") tree.dispose ? tree.dispose() : Object.values(tree).forEach(drop);
};

/** |a (b r) - c r| against |a| |b| |r|: Freivalds' test with the products of the check in exact float32. */
function freivalds(a, b, c, tolerance) {
  const exact = { precision: "float32" };
  const r = weft.randn([b.shape[1], 1], { seed: 9 });
  const [x, y, z] = [a, b, c].map((t) => t.cast("float32"));
  const difference = x.matmul(y.matmul(r, exact), exact).sub(z.matmul(r, exact));
  const scale = number(z.matmul(r, exact).abs().mean());
  const error = number(difference.abs().max()) / scale;
  demand(error <= tolerance, `Freivalds' test is off by ${error} (allowed ${tolerance})`);
}

function matmulRow([m, k, n], precision) {
  const work = `matmul ${precision} ${m}x${k}x${n}`;
  return {
    id: `matmul-${precision}-${m}x${k}x${n}`,
    title: work,
    work,
    flops: 2 * m * k * n,
    inner: 5,
    reps: 9,
    live: [{ kind: "matmul", peer: "torch", precision, shape: [m, k, n], inner: 5 }],
    wanted: { ratio: 0.98, against: ["torch"] },
    make() {
      const half = precision === "bf16";
      const operand = (shape, seed) =>
        (half ? weft.randn(shape, { seed }).cast("bfloat16") : weft.randn(shape, { seed })).realize();
      const [a, b] = [operand([m, k], 1), operand([k, n], 2)];
      const f = weft.jit((x, y) => x.matmul(y, half ? {} : { precision: "tf32" }));
      return { run: () => drop(f(a, b)), check: () => freivalds(a, b, f(a, b), half ? 0.1 : 0.02) };
    },
  };
}

/** `reused`: the result goes into the array of the call before, as the peer's goes into memory that it pinned once. */
function wholeRow([m, k, n], reused) {
  const work = `end-to-end fp32(tf32) ${m}x${k}x${n}`;
  const users = { 4096: 59, 8192: 244, 16384: 970 };
  return {
    id: `whole-${reused ? "reused-" : ""}${m}x${k}x${n}`,
    title: `randn, randn, matmul, fetch ${m}x${k}x${n} (tf32)${reused ? " into the same array" : ""}`,
    work,
    inner: 1,
    reps: 8,
    live: [
      reused
        ? { kind: "pinned", peer: "torch pinned", precision: "tf32", shape: [m, k, n] }
        : { kind: "whole", peer: "torch", precision: "tf32", shape: [m, k, n] },
    ],
    wanted: reused
      ? { ratio: 1, against: ["torch pinned"] }
      : { ratio: m === n && users[m] ? 8 : 1, against: ["torch"] },
    make() {
      let kept;
      const whole = async () => {
        const [a, b] = [weft.randn([m, k]), weft.randn([k, n])];
        const c = a.matmul(b, { precision: "tf32" });
        const data = reused ? c.dataSync(kept) : await c.data();
        if (reused) kept = data;
        drop([a, b, c]);
        return data;
      };
      return {
        run: whole,
        async check() {
          const data = await whole();
          demand(data.length === m * n, "wrong size");
          let sum = 0;
          for (let i = 0; i < data.length; i += 997) sum += data[i] ** 2;
          const variance = sum / Math.ceil(data.length / 997);
          demand(Math.abs(variance / k - 1) < 0.05, `entries have variance ${variance}, expected ${k}`);
        },
      };
    },
  };
}

function mlpRow([batch, dims]) {
  const work = `mlp forward tf32 b${batch} [${dims.join(", ")}]`;
  return {
    id: `mlp-${batch}`,
    title: work,
    work,
    flops: dims.slice(1).reduce((sum, d, i) => sum + 2 * batch * dims[i] * d, 0),
    inner: 20,
    reps: 9,
    live: [
      { kind: "mlp", peer: "torch", precision: "tf32", shape: [batch, ...dims], inner: 20 },
      { kind: "mlp compiled", peer: "torch.compile", precision: "tf32", shape: [batch, ...dims], inner: 20 },
    ],
    wanted: { ratio: 1, against: ["torch", "torch.compile"], best: true },
    make() {
      const layers = dims.slice(1).map((out, i) => nn.linear.init({ in: dims[i], out }, weft.key(i)));
      const x = weft.randn([batch, dims[0]], { seed: 3 }).realize();
      const forward = (precision) => (params, y) =>
        weft.withPrecision(precision, () =>
          params.reduce((h, layer, i) => {
            const z = nn.linear.apply(layer, h);
            return i < params.length - 1 ? weft.relu(z) : z;
          }, y),
        );
      const f = weft.jit(forward("tf32"));
      return {
        run: () => drop(f(layers, x)),
        check() {
          const exact = weft.jit(forward("float32"))(layers, x);
          const error = number(f(layers, x).sub(exact).abs().max()) / number(exact.abs().max());
          demand(error < 5e-3, `off by ${error} of the largest output`);
        },
      };
    },
  };
}

function trainRow(size, precision, limit) {
  const work = `train step ag-${size} ${precision}`;
  return {
    id: `train-${size}-${precision}`,
    title: work,
    work,
    inner: 20,
    wanted: limit === undefined ? undefined : { milliseconds: limit },
    profile: true,
    make() {
      const step = classifierStep(sizes[size], { precision });
      const key = weft.key(3);
      let { params, state } = step;
      let loss = null;
      const run = () => {
        loss?.dispose();
        [params, state, loss] = step.step(params, state, step.x, step.y, key);
      };
      return {
        run,
        info: () => ({ kernels: step.step.kernels(params, state, step.x, step.y, key).length }),
        check() {
          const exact = classifierStep(sizes[size], { precision: "float32" });
          const [p, s, expected] = exact.step(exact.params, exact.state, exact.x, exact.y, key);
          run();
          const [got, want] = [number(loss), number(expected)];
          drop([p, s, expected]);
          demand(Math.abs(got - want) < 0.03 * want, `the first loss is ${got}, in float32 ${want}`);
          for (let i = 0; i < 30; i++) run();
          demand(number(loss) < got, `the loss rose from ${got} to ${number(loss)} on one batch`);
        },
      };
    },
  };
}

const handWritten = { 1: 0.015, 4096: 0.022, 65536: 0.078, 1048576: 0.88 };

function ensembleRow(B) {
  const work = `lindblad d2 60xRK4 value+grad B=${B}`;
  return {
    id: `lindblad-${B}`,
    title: `single-qubit Lindblad ensemble, 60 RK4 steps, value and gradient, B=${B}`,
    work,
    inner: B > 100000 ? 5 : 50,
    wanted: handWritten[B] === undefined ? undefined : { milliseconds: 2 * handWritten[B] },
    make() {
      const { loss } = singleQubit(weft);
      const f = weft.jit((u, gd, gr) => weft.valueAndGrad(loss)(u, gd, gr));
      const u = new Float32Array(B * 120);
      for (let i = 0; i < B * 60; i++) {
        const k = i % 60;
        u[2 * i] = (Math.PI / 2) * (1 + 0.1 * Math.sin((2 * Math.PI * k) / 60));
        u[2 * i + 1] = 0.2 * Math.cos((2 * Math.PI * k) / 60);
      }
      const args = [
        weft.tensor(u, { shape: [B, 60, 2] }),
        weft.full([B], 0.05).realize(),
        weft.full([B], 0.025).realize(),
      ];
      return {
        run: () => drop(f(...args)),
        check() {
          const [value, du] = f(...args);
          const fidelity = 1 - number(value);
          demand(Math.abs(fidelity - 0.9778427990483176) < 5e-6, `fidelity ${fidelity}`);
          const norm = Math.hypot(...du.index(B - 1).dataSync()) * B;
          demand(Math.abs(norm / 2.934092024e-3 - 1) < 2e-3, `norm of the gradient ${norm}`);
          drop([value, du]);
        },
      };
    },
  };
}

const twoQubitRow = {
  id: "lindblad-two-qubits",
  title: "two-qubit (4x4) Lindblad, 6 controls, 60 RK4 steps, 12 states, value and gradient, B=4096",
  work: "lindblad d4",
  inner: 10,
  // A quarter of the float32 limit: 370 GFLOP, counted for full complex 4x4 products, take 67 TFLOP/s 5.6 ms.
  wanted: { milliseconds: 4 * 5.6 },
  make() {
    const { loss } = twoQubits(weft);
    const f = weft.jit((u, gd, gr) => weft.valueAndGrad(loss)(u, gd, gr));
    const args = (B) => [
      weft.randn([B, 60, 6], { seed: 1 }).realize(),
      weft.full([B], 0.05).realize(),
      weft.full([B], 0.025).realize(),
    ];
    const all = args(4096);
    return {
      run: () => drop(f(...all)),
      check() {
        // A small step along the gradient changes the loss by its squared length.
        const few = args(4);
        const [value, du] = f(...few);
        const length = number(du.square().sum());
        const step = 1e-3 / Math.sqrt(length);
        const moved = (s) => number(f(few[0].add(du.mul(s)), few[1], few[2])[0]);
        const slope = (moved(step) - moved(-step)) / (2 * step);
        demand(
          Math.abs(slope / length - 1) < 0.05,
          `slope ${slope}, squared gradient ${length}, value ${number(value)}`,
        );
      },
    };
  },
};

const tinyRow = {
  id: "tiny",
  title: "tiny jitted call, host time",
  work: "tiny",
  inner: 2000,
  issueOnly: true,
  wanted: { milliseconds: 0.025 },
  make() {
    const f = weft.jit((x) => x.mul(2).add(1));
    const x = weft.ones([16]).realize();
    return {
      run: () => drop(f(x)),
      check: () =>
        demand(
          f(x)
            .dataSync()
            .every((v) => v === 3),
          "2 x 1 + 1 is not 3",
        ),
    };
  },
};

export const rows = [
  ...["tf32", "bf16"].flatMap((precision) => products.map((shape) => matmulRow(shape, precision))),
  ...products.map((shape) => wholeRow(shape, false)),
  ...products.map((shape) => wholeRow(shape, true)),
  ...networks.map(mlpRow),
  trainRow("small", "tf32", 0.65),
  trainRow("small", "bf16"),
  trainRow("large", "tf32", 9),
  trainRow("large", "bf16", 4.3),
  ...[1, 16, 4096, 65536, 2 ** 20].map(ensembleRow),
  twoQubitRow,
  tinyRow,
];
