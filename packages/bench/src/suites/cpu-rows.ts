// Weft's side of the CPU suite: every row through jit, results disposed at once, parameters and optimizer state donated.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { openBlasPath } from "@weft/core/internal/device";
import * as nn from "@weft/core/nn";
import * as optim from "@weft/core/optim";
import koffi from "koffi";
import { type ClassifierSize, classifierSizes, sharedClassifierStep } from "./classifier.js";
import type { PreparedRow, RowMakers } from "./contestant.js";
import * as inputs from "./inputs.js";
import { peerScript } from "./peers.js";
import { profileCall } from "./profile.js";

export interface CpuSizes {
  products: number[];
  /** Elements of the fused chain. */
  chain: number;
  /** Rows and columns of softmax and layer norm. */
  rows: [number, number];
  /** Complex 8 x 8 matrices. */
  matrices: number;
  mlp: inputs.MlpSize;
  transformer: ClassifierSize;
}

export const cpuSizes = (quick: boolean): CpuSizes =>
  quick
    ? {
        products: [16, 48],
        chain: 4096,
        rows: [16, 64],
        matrices: 16,
        mlp: { sizes: [24, 16, 16, 10], batch: 8 },
        transformer: classifierSizes.tiny,
      }
    : {
        products: [64, 512, 2048, 4096],
        chain: 1 << 24,
        rows: [4096, 1024],
        matrices: 4096,
        mlp: inputs.mlpSize,
        transformer: classifierSizes.small,
      };

const tensor = (array: Float32Array | Int32Array, shape: number[]): Tensor => weft.tensor(array, { shape });
const values = (t: Tensor): ArrayLike<number> => t.dataSync() as ArrayLike<number>;
const sampled = (t: Tensor): number[] => {
  const all = values(t);
  return inputs.sampleIndices(all.length).map((i) => all[i]);
};

/** A function on fixed inputs. */
function single(fn: (...args: Tensor[]) => Tensor, args: Tensor[], check: (t: Tensor) => number[]): PreparedRow {
  const program = weft.jit(fn);
  const result = program(...args);
  const call = (): void => program(...args).dispose();
  return {
    check: check(result),
    info: { kernels: program.kernels(...args).length, profile: profileCall(call) },
    call,
    release: () => {
      for (const t of [...args, result]) t.dispose();
    },
  };
}

function matmul(n: number): PreparedRow {
  const [a, b] = [inputs.uniformNumbers(n * n, 1), inputs.uniformNumbers(n * n, 2)];
  return single(
    (x, y) => x.matmul(y),
    [tensor(a, [n, n]), tensor(b, [n, n])],
    (c) => [inputs.freivalds(a, b, values(c), n)],
  );
}

/** Training steps; the losses of the first five are the check. */
function training<P, S>(
  step: weft.Jitted<(params: P, state: S, x: Tensor, y: Tensor) => [P, S, Tensor]>,
  start: { params: P; state: S; batch: [Tensor, Tensor] },
): PreparedRow {
  let { params, state } = start;
  const call = (): Tensor => {
    let loss: Tensor;
    [params, state, loss] = step(params, state, ...start.batch);
    return loss;
  };
  const kernels = step.kernels(params, state, ...start.batch).length;
  const check = Array.from({ length: 5 }, () => call().itemSync() as number);
  return { check, info: { kernels, profile: profileCall(call) }, call };
}

function mlpStep(size: inputs.MlpSize): PreparedRow {
  const optimizer = optim.adam({ learningRate: 1e-3 });
  const params = inputs
    .mlpParameters(size)
    .map(({ out, inputs: from, weight, bias }) => ({ weight: tensor(weight, [out, from]), bias: tensor(bias, [out]) }));
  type Layers = typeof params;
  type State = ReturnType<typeof optimizer.init>;
  const apply = (layers: Layers, x: Tensor): Tensor =>
    layers.reduce((h, layer, i) => {
      const out = nn.linear.apply(layer, h);
      return i < layers.length - 1 ? out.relu() : out;
    }, x);
  const step = weft.jit(
    (p: Layers, state: State, x: Tensor, y: Tensor) => {
      const [loss, grads] = weft.valueAndGrad((q: Layers) => weft.crossEntropy(apply(q, x), y))(p);
      const [next, after] = optimizer.update(p, grads as Layers, state);
      return [next, after, loss] as [Layers, State, Tensor];
    },
    { donate: [0, 1] },
  );
  const { x, y } = inputs.mlpBatch(size);
  const batch: [Tensor, Tensor] = [tensor(x, [size.batch, size.sizes[0]]), tensor(y, [size.batch])];
  return training(step, { params, state: optimizer.init(params), batch });
}

/** Weft's rows by name. */
export function cpuRows(sizes: CpuSizes): RowMakers {
  const [rows, columns] = sizes.rows;
  const rowInput = (): Tensor => tensor(inputs.uniformNumbers(rows * columns, 5, -4, 4), [rows, columns]);
  const complex = (salt: number): Tensor =>
    weft.tensor(inputs.uniformNumbers(2 * sizes.matrices * 64, salt), {
      shape: [sizes.matrices, 8, 8],
      dtype: "complex64",
    });
  return {
    ...Object.fromEntries(sizes.products.map((n) => [`matmul-${n}`, () => matmul(n)])),
    chain: () =>
      single(
        (x) => x.mul(x).neg().mul(0.5).exp().mul(1.5).add(0.25).maximum(0.3).sub(0.1),
        [tensor(inputs.uniformNumbers(sizes.chain, 6, -3, 3), [sizes.chain])],
        sampled,
      ),
    softmax: () => single((x) => x.softmax(), [rowInput()], sampled),
    "layer-norm": () =>
      single(
        (x, weight, bias) => weft.layerNorm(x, { weight, bias }),
        [
          rowInput(),
          tensor(inputs.uniformNumbers(columns, 6, 0.5, 1.5), [columns]),
          tensor(inputs.uniformNumbers(columns, 7, 0, 1), [columns]),
        ],
        sampled,
      ),
    mlp: () => mlpStep(sizes.mlp),
    transformer: () => {
      const { step, ...start } = sharedClassifierStep(sizes.transformer);
      return training(step, start);
    },
    "complex-matmul": () => single((a, b) => a.matmul(b), [complex(8), complex(9)], sampled),
    tiny: () =>
      single(
        (a, b) => a.mul(b).add(1),
        [tensor(Float32Array.of(1, 2, 3, 4), [4]), tensor(Float32Array.of(5, 6, 7, 8), [4])],
        (t) => Array.from(values(t)),
      ),
  };
}

/** Native code as a peer: OpenBLAS called through koffi, and a compiled copy loop. */
export function nativeRows(sizes: CpuSizes): RowMakers {
  const threads = Number(process.env.OMP_NUM_THREADS ?? 1);
  const matrixProduct = (n: number): PreparedRow => {
    const path = openBlasPath();
    if (path === null) throw new Error("OpenBLAS was not found");
    const library = koffi.load(path);
    library.func("void openblas_set_num_threads(int n)")(threads);
    const sgemm = library.func(
      "void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda, " +
        "const float* b, int ldb, float beta, _Out_ float* c, int ldc)",
    );
    const [a, b, c] = [inputs.uniformNumbers(n * n, 1), inputs.uniformNumbers(n * n, 2), new Float32Array(n * n)];
    const call = (): void => sgemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
    call();
    return { check: [inputs.freivalds(a, b, c, n)], call };
  };
  const copy = (name: string): PreparedRow => {
    const folder = mkdtempSync(join(tmpdir(), "weft-copy-"));
    const target = join(folder, "copy.so");
    // Without the last flag gcc turns the loop into memcpy, which is the other row.
    const flags = ["-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-fno-tree-loop-distribute-patterns"];
    const done = spawnSync("cc", [...flags, peerScript("copy.c"), "-o", target], { encoding: "utf8" });
    if (done.status !== 0) throw new Error(`copy.c does not compile: ${done.stderr}`);
    const fn = koffi.load(target).func(`void ${name}(_Out_ float* to, const float* from, int64_t count, int threads)`);
    rmSync(folder, { recursive: true });
    const from = inputs.uniformNumbers(sizes.chain, 6, -3, 3);
    const to = new Float32Array(from.length);
    const call = (): void => fn(to, from, from.length, threads);
    call();
    return { check: inputs.sampleIndices(to.length).map((i) => to[i]), call };
  };
  return {
    ...Object.fromEntries(sizes.products.map((n) => [`matmul-${n}`, () => matrixProduct(n)])),
    chain: () => copy("copy_loop"),
    "chain-memcpy": () => copy("copy_memcpy"),
  };
}
