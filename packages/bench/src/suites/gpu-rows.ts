// The rows of the GPU suite: what is run, how its result is checked, the peers, and what is required.

import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import { classifierSizes, classifierStep } from "./classifier.js";
import type { ContestRow } from "./contest.js";
import type { PreparedRow } from "./contestant.js";
import { oneQubitLoss, twoQubitLoss } from "./density-matrices.js";
import { profileCall } from "./profile.js";

export interface GpuRow extends ContestRow {
  /** Name of the row in the lines that the scripts of other peers print. */
  work: string;
  /** Prepares the row; throws where the result is wrong. */
  make(): PreparedRow | Promise<PreparedRow>;
}

type Shape = [m: number, k: number, n: number];

function demand(ok: boolean, problem: string): void {
  if (!ok) throw new Error(problem);
}
const first = (t: Tensor): number => Number(t.dataSync()[0]);
const drop = (tree: unknown): void => {
  for (const leaf of weft.treeLeaves(tree as Tensor)) leaf.dispose();
};
/** Waits for the device; part of the time of every row but the one of the host. */
const finish = (): void => weft.session().device.synchronize();

/** Freivalds' test |a (b r) - c r| on the device, with products in exact float32. */
function checkProduct(a: Tensor, b: Tensor, c: Tensor, tolerance: number): void {
  const exact = { precision: "float32" } as const;
  const r = weft.randn([b.shape[1], 1], { seed: 9 });
  const [x, y, z] = [a, b, c].map((t) => t.cast("float32"));
  const difference = x.matmul(y.matmul(r, exact), exact).sub(z.matmul(r, exact));
  const error = first(difference.abs().max()) / first(z.matmul(r, exact).abs().mean());
  demand(error <= tolerance, `Freivalds' test is off by ${error} (allowed ${tolerance})`);
}

function productRow([m, k, n]: Shape, precision: "tf32" | "bf16"): GpuRow {
  const work = `matmul ${precision} ${m}x${k}x${n}`;
  return {
    id: `matmul-${precision}-${m}x${k}x${n}`,
    title: work,
    work,
    flops: 2 * m * k * n,
    peers: { torch: 0.98 },
    names: { torch: `matmul ${precision} ${m} ${k} ${n}` },
    make() {
      const half = precision === "bf16";
      const operand = (shape: number[], seed: number): Tensor => {
        const drawn = weft.randn(shape, { seed });
        return (half ? drawn.cast("bfloat16") : drawn).realize();
      };
      const [a, b] = [operand([m, k], 1), operand([k, n], 2)];
      const f = weft.jit((x: Tensor, y: Tensor) => x.matmul(y, half ? {} : { precision: "tf32" }));
      checkProduct(a, b, f(a, b), half ? 0.1 : 0.02);
      return { check: [], call: () => f(a, b).dispose(), finish };
    },
  };
}

/** Creation, product and fetch; `reused` fetches into the array of the call before, as the peer does into pinned memory. */
function endToEndRow([m, k, n]: Shape, reused: boolean): GpuRow {
  const peer = reused ? "torch pinned" : "torch";
  const isKnownSquare = m === n && [4096, 8192, 16384].includes(m);
  return {
    id: `end-to-end-${reused ? "reused-" : ""}${m}x${k}x${n}`,
    title: `randn, randn, matmul, fetch ${m}x${k}x${n} (tf32)${reused ? " into the same array" : ""}`,
    work: `end-to-end fp32(tf32) ${m}x${k}x${n}`,
    peers: { [peer]: reused ? 1 : isKnownSquare ? 8 : 1 },
    names: { [peer]: `${reused ? "pinned" : "whole"} tf32 ${m} ${k} ${n}` },
    async make() {
      let into: ReturnType<Tensor["dataSync"]> | undefined;
      const call = async (): Promise<ArrayLike<number>> => {
        const [a, b] = [weft.randn([m, k]), weft.randn([k, n])];
        const c = a.matmul(b, { precision: "tf32" });
        const data = reused ? c.dataSync(into as never) : await c.data();
        if (reused) into = data;
        drop([a, b, c]);
        return data as ArrayLike<number>;
      };
      const data = await call();
      demand(data.length === m * n, "wrong size");
      let sum = 0;
      let count = 0;
      for (let i = 0; i < data.length; i += 997, count++) sum += data[i] ** 2;
      const isTested = data.length > 1e6;
      demand(!isTested || Math.abs(sum / count / k - 1) < 0.05, `entries have variance ${sum / count}, expected ${k}`);
      return { check: [], call, isAsync: true, finish };
    },
  };
}

function networkRow([batch, dims]: [number, number[]]): GpuRow {
  const shape = [batch, ...dims].join(" ");
  const work = `mlp forward tf32 b${batch} [${dims.join(", ")}]`;
  return {
    id: `mlp-${batch}`,
    title: work,
    work,
    flops: dims.slice(1).reduce((sum, d, i) => sum + 2 * batch * dims[i] * d, 0),
    peers: { torch: 1, "torch.compile": 1 },
    fastestPeer: true,
    names: { torch: `mlp tf32 ${shape}`, "torch.compile": `mlp-compiled tf32 ${shape}` },
    make() {
      const layers = dims.slice(1).map((out, i) => nn.linear.init({ in: dims[i], out }, weft.key(i)));
      const x = weft.randn([batch, dims[0]], { seed: 3 }).realize();
      const forward = (precision: "tf32" | "float32") => (params: typeof layers, y: Tensor) =>
        weft.withPrecision(precision, () =>
          params.reduce((h, layer, i) => {
            const z = nn.linear.apply(layer, h);
            return i < params.length - 1 ? weft.relu(z) : z;
          }, y),
        );
      const f = weft.jit(forward("tf32"));
      const exact = weft.jit(forward("float32"))(layers, x);
      const error = first(f(layers, x).sub(exact).abs().max()) / first(exact.abs().max());
      demand(error < 5e-3, `off by ${error} of the largest output`);
      return { check: [], call: () => f(layers, x).dispose(), finish };
    },
  };
}

function trainRow(size: "small" | "large" | "tiny", precision: "tf32" | "bf16", limitMs?: number): GpuRow {
  const work = `train step ag-${size} ${precision}`;
  return {
    id: `train-${size}-${precision}`,
    title: work,
    work,
    ...(limitMs !== undefined && { limitMs }),
    make() {
      const key = weft.key(3);
      const exact = classifierStep(classifierSizes[size], "float32");
      const result = exact.step(exact.params, exact.state, exact.x, exact.y, key);
      const expected = first(result[2]);
      drop(result);
      const { step, x, y, ...start } = classifierStep(classifierSizes[size], precision);
      let { params, state } = start;
      let loss: Tensor | null = null;
      const call = (): void => {
        loss?.dispose();
        [params, state, loss] = step(params, state, x, y, key);
      };
      call();
      const got = first(loss!);
      demand(Math.abs(got - expected) < 0.03 * expected, `the first loss is ${got}, in float32 ${expected}`);
      for (let i = 0; i < 30; i++) call();
      demand(first(loss!) < got, `the loss rose from ${got} to ${first(loss!)} on one batch`);
      const kernels = step.kernels(params, state, x, y, key).length;
      return { check: [], call, finish, info: { kernels, profile: profileCall(call) } };
    },
  };
}

/** Milliseconds of hand-written kernels for the ensemble; twice as long is allowed. */
const handWrittenMs: Record<number, number> = { 1: 0.015, 4096: 0.022, 65536: 0.078, 1048576: 0.88 };

function ensembleRow(b: number): GpuRow {
  return {
    id: `lindblad-ensemble-${b}`,
    title: `single-qubit Lindblad ensemble, 60 RK4 steps, value and gradient, B=${b}`,
    work: `lindblad d2 60xRK4 value+grad B=${b}`,
    ...(handWrittenMs[b] !== undefined && { limitMs: 2 * handWrittenMs[b] }),
    make() {
      const f = weft.jit((u: Tensor, gd: Tensor, gr: Tensor) => weft.valueAndGrad(oneQubitLoss())(u, gd, gr));
      const pulses = new Float32Array(b * 120);
      for (let i = 0; i < b * 60; i++) {
        const angle = (2 * Math.PI * (i % 60)) / 60;
        pulses[2 * i] = (Math.PI / 2) * (1 + 0.1 * Math.sin(angle));
        pulses[2 * i + 1] = 0.2 * Math.cos(angle);
      }
      const rate = (x: number): Tensor => weft.full([b], x).realize();
      const args = [weft.tensor(pulses, { shape: [b, 60, 2] }), rate(0.05), rate(0.025)] as const;
      const [value, gradient] = f(...args) as [Tensor, Tensor];
      const fidelity = 1 - first(value);
      demand(Math.abs(fidelity - 0.9778427990483176) < 5e-6, `fidelity ${fidelity}`);
      const norm = Math.hypot(...(gradient.index(b - 1).dataSync() as Float32Array)) * b;
      demand(Math.abs(norm / 2.934092024e-3 - 1) < 2e-3, `norm of the gradient ${norm}`);
      return { check: [fidelity], call: () => drop(f(...args)), finish };
    },
  };
}

function twoQubitRow(b: number): GpuRow {
  return {
    id: "lindblad-two-qubits",
    title: `two-qubit (4x4) Lindblad, 6 controls, 60 RK4 steps, 12 states, value and gradient, B=${b}`,
    work: "lindblad d4",
    // A quarter of the float32 peak: 370 GFLOP, counted for full complex 4x4 products, take 5.6 ms at 67 TFLOP/s.
    limitMs: 4 * 5.6,
    make() {
      const f = weft.jit((u: Tensor, gd: Tensor, gr: Tensor) => weft.valueAndGrad(twoQubitLoss())(u, gd, gr));
      const inputs = (count: number) =>
        [
          weft.randn([count, 60, 6], { seed: 1 }).realize(),
          weft.full([count], 0.05).realize(),
          weft.full([count], 0.025).realize(),
        ] as const;
      // A small step along the gradient changes the loss by the squared length of the gradient.
      const few = inputs(4);
      const gradient = f(...few)[1] as Tensor;
      const length = first(gradient.square().sum());
      const step = 1e-3 / Math.sqrt(length);
      const moved = (s: number): number => first(f(few[0].add(gradient.mul(s)), few[1], few[2])[0]);
      const slope = (moved(step) - moved(-step)) / (2 * step);
      demand(Math.abs(slope / length - 1) < 0.05, `slope ${slope}, squared gradient ${length}`);
      const all = inputs(b);
      return { check: [], call: () => drop(f(...all)), finish };
    },
  };
}

const tinyRow: GpuRow = {
  id: "tiny",
  title: "tiny jitted call, host time",
  work: "tiny",
  limitMs: 0.025,
  make() {
    const f = weft.jit((x: Tensor) => x.mul(2).add(1));
    const x = weft.ones([16]).realize();
    demand(
      Array.from(f(x).dataSync() as Float32Array).every((v) => v === 3),
      "2 x 1 + 1 is not 3",
    );
    return { check: [], call: () => f(x).dispose(), settle: finish };
  },
};

/** All rows; `quick` has one tiny row of each kind. */
export function gpuTable(quick: boolean): GpuRow[] {
  const squares = [4096, 8192, 16384].map((n): Shape => [n, n, n]);
  const products: Shape[] = quick
    ? [[48, 32, 16]]
    : [...squares, [8192, 4096, 4096], [16384, 4096, 4096], [32768, 2048, 2048]];
  const networks: [number, number[]][] = quick
    ? [[8, [16, 16]]]
    : [
        [4096, [4096, 4096, 4096]],
        [8192, [4096, 8192, 4096]],
        [16384, [2048, 4096, 2048]],
      ];
  const training = quick
    ? [trainRow("tiny", "tf32")]
    : [
        trainRow("small", "tf32", 0.65),
        trainRow("small", "bf16"),
        trainRow("large", "tf32", 9),
        trainRow("large", "bf16", 4.3),
      ];
  return [
    ...(["tf32", "bf16"] as const).flatMap((precision) => products.map((shape) => productRow(shape, precision))),
    ...products.map((shape) => endToEndRow(shape, false)),
    ...products.map((shape) => endToEndRow(shape, true)),
    ...networks.map(networkRow),
    ...training,
    ...(quick ? [2] : [1, 16, 4096, 65536, 2 ** 20]).map(ensembleRow),
    twoQubitRow(quick ? 4 : 4096),
    tinyRow,
  ];
}
