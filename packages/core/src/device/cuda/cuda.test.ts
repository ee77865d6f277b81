// What can be checked of the CUDA device without a GPU: that its source compiles, that the plan of launches is right, and
// that its absence is explained.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { scheduleFunction } from "../../compile/index.js";
import type { GraphFn, Node } from "../../graph/index.js";
import * as weft from "../../index.js";
import { build } from "../../ops/index.js";
import { nativeSource } from "../native-source.js";
import { unfused } from "./compiler.js";
import { cudaLibraries } from "./driver.js";
import { CudaDevice } from "./index.js";
import { libraryFiles, libraryModule } from "./library-modules.js";
import { preludeFiles } from "./prelude.js";
import { cudaScheduleOptions, writeCudaProgram } from "./source.js";

const options = cudaScheduleOptions;

/** A device that keeps the graphs it is asked to compile. */
class Recorder extends weft.ReferenceDevice {
  readonly graphs: GraphFn[] = [];
  override compile(fn: GraphFn) {
    this.graphs.push(fn);
    return super.compile(fn);
  }
}

/** The graph of a function as a device gets it. */
function graphOf(fn: (...args: weft.Tensor[]) => unknown, ...shapes: number[][]): GraphFn {
  const device = new Recorder();
  weft.setDevice(device);
  const inputs = shapes.map((shape, i) => weft.randn(shape, { seed: i + 1 }).realize());
  weft.jit(fn)(...inputs);
  return device.graphs[device.graphs.length - 1];
}

const x = [8, 96];

const programs: [string, () => GraphFn][] = [
  ["softmax", () => graphOf((a) => weft.softmax(a), x)],
  ["columns", () => graphOf((a) => [a.sum(0), a.max(0), weft.complex(a, a).prod(0)], x)],
  ["arguments of extrema", () => graphOf((a) => [a.argmax(1), a.argmin(0)], x)],
  ["half types", () => graphOf((a) => [a.cast("float16").mul(2), a.cast("bfloat16").sum(1)], x)],
  [
    "complex functions",
    () =>
      graphOf((a) => {
        const z = weft.complex(a, a);
        return [z.exp(), z.tanh(), z.sqrt(), z.log(), z.sin()];
      }, x),
  ],
  [
    "random numbers",
    () => graphOf((a) => [weft.rand(a.shape, { seed: 1 }), weft.randn(a.shape, { seed: 1, dtype: "float64" })], x),
  ],
  ["integers", () => graphOf((a) => [a.cast("int32").mod(3), a.cast("int64").pow(2), a.cast("uint8").add(200)], x)],
  [
    "padding and joining",
    () =>
      graphOf(
        (a) =>
          weft.concat(
            [
              a.pad([
                [1, 1],
                [2, 0],
              ]),
              weft.ones([3, 98]),
            ],
            0,
          ),
        x,
      ),
  ],
  ["a gradient", () => graphOf((a) => weft.grad((p: weft.Tensor) => weft.layerNorm(p).gelu().sum())(a), x)],
  [
    "a loop",
    () => graphOf((a) => weft.scan((s: weft.Tensor, v: weft.Tensor) => [s.mul(v), s.sum()], a.index(0), a) as never, x),
  ],
];

test("elements beyond 2^31 are counted in 64 bits, in launches of their own", () => {
  const large = [0, 1].map((i) => build.input([3_000_000_001], "int8", `x${i}`));
  const fn = { params: large, outputs: large.map((x) => build.mul(x, x)) };
  const { source, kernels } = writeCudaProgram(scheduleFunction(fn, options), 2112);
  assert.deepEqual(
    [...kernels.values()].map(({ n }) => n),
    [3_000_000_001, 3_000_000_001],
  );
  assert.match(source, /const long long n = /);
  assert.doesNotMatch(source, /int n = /);
});

test("kernels of linear algebra are compiled for one dtype, small matrices apart", () => {
  for (const [kernel, own, other] of [
    ["w_transpose_float32", "W_LINALG(float32,", "W_LINALG(complex128,"],
    ["w_small_solve_float64", "W_SMALL(float64,", "W_SMALL(float32,"],
  ]) {
    const { source } = libraryModule(kernel);
    assert.ok(source.includes(own) && !source.includes(other), kernel);
  }
  assert.equal(
    libraryModule("w_scatter_light_f32").key,
    libraryModule("w_product_join_f32").key,
    "one module for a file",
  );
});

test("threads that reduce several columns join all of them at once", () => {
  const x = build.input([8192, 8192], "float32", "x");
  const { source } = writeCudaProgram(
    scheduleFunction({ params: [x], outputs: [build.reduce("max", x, [0])] }, options),
    2112,
  );
  assert.match(source, /w_tiles_max<8>\(r0\);/);
});

test("rows that are read again to find their extremum are rounded alike each time", () => {
  const isUnfused = (shape: number[], isCompared: boolean): boolean => {
    const given = build.input(shape, "float32", "x");
    const scaled = build.mul(given, build.fullLike(given, 0.7));
    const sum = build.add(build.unary("sin", scaled), scaled);
    const whole = (reduced: Node): Node => build.expand(build.reshape(reduced, [shape[0], 1]), shape);
    const top = whole(build.reduce("max", sum, [1]));
    const found = isCompared ? build.cast(build.binary("eq", sum, top), "float32") : build.sub(sum, top);
    const share = build.binary("div", found, whole(build.reduce("sum", found, [1])));
    return writeCudaProgram(scheduleFunction({ params: [given], outputs: [share] }, options), 2112).source.startsWith(
      unfused,
    );
  };
  assert.deepEqual([isUnfused([64, 300], true), isUnfused([1024, 300], true)], [false, false], "kept in registers");
  assert.ok(isUnfused([1024, 20000], true), "read again");
  assert.ok(isUnfused([1 << 15, 20], true), "read again from shared memory");
  assert.ok(!isUnfused([1024, 20000], false), "not compared");
});

const compiler = spawnSync("nvcc", ["--version"]).status === 0 ? "nvcc" : null;

test("the generated CUDA compiles for Hopper and for older GPUs", {
  skip: compiler === null ? "nvcc is not installed" : false,
}, () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-cuda-"));
  try {
    // One file: the prelude once, every program in a namespace of its own.
    const bodies = programs.map(([, make], i) => {
      const { source } = writeCudaProgram(scheduleFunction(make(), options), 2112);
      const start = source.indexOf("template <int N> struct Args");
      const kernels = source.slice(start + source.slice(start).indexOf("\n") + 1);
      return `namespace p${i} {\n${kernels.replaceAll('extern "C" __global__', "static __global__")}\n}`;
    });
    const uses = "template <int N> struct Args { void* p[N]; };\n";
    writeFileSync(join(folder, "all.cu"), nativeSource(...preludeFiles, ...libraryFiles) + uses + bodies.join("\n"));
    for (const architecture of ["sm_75", "sm_90"]) {
      const done = spawnSync(
        "nvcc",
        [
          ...[`-arch=${architecture}`, "-cubin", "-o", join(folder, "out.cubin"), join(folder, "all.cu")],
          // Whether it compiles does not depend on optimizations, which take most of the time.
          ...["-Xcicc", "-O0", "-Xptxas", "-O0"],
        ],
        { encoding: "utf8" },
      );
      assert.equal(
        done.status,
        0,
        done.stderr
          .split("\n")
          .filter((l) => l.includes("error"))
          .slice(0, 5)
          .join("\n"),
      );
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("launches fit their kernels: one row per warp, 32 columns per tile, threads for every element", () => {
  const launch = (make: () => GraphFn): { blocks: number; threads: number; text: string }[] => {
    const { kernels } = writeCudaProgram(scheduleFunction(make(), options), 2112);
    return [...kernels.values()];
  };
  const [softmax] = launch(programs[0][1]);
  assert.deepEqual([softmax.blocks, softmax.threads], [1, 256], "8 rows of 32 threads in one block");
  assert.match(softmax.text, /w_join_max<32>/);
  const wide = launch(() => graphOf((a) => a.sum(0), [200, 96]));
  assert.deepEqual([wide[0].blocks, wide[0].threads], [3, 256], "96 columns in tiles of 32");
  const [flat] = launch(() => graphOf((a) => a.exp(), [1000]));
  assert.deepEqual([flat.blocks, flat.threads], [4, 256]);
});

test("equal kernels are written once, and results never share memory by assumption", () => {
  const { source, names } = writeCudaProgram(
    scheduleFunction(
      graphOf(
        (a) => [
          a.exp().sum(1),
          a
            .mul(3)
            .exp()
            .matmul(weft.ones([96, 2])),
          a
            .mul(3)
            .exp()
            .matmul(weft.ones([96, 3])),
        ],
        x,
      ),
      options,
    ),
    2112,
  );
  assert.equal(new Set(names).size, names.length);
  assert.equal(source.match(/__global__/g)!.length, new Set(names).size);
});

test("kernels with many library functions call them, others have them written out", () => {
  const chain = (n: number) => (v: weft.Tensor) => {
    let y = v;
    for (let i = 0; i < n; i++) y = y.mul(1.01).sin();
    return y;
  };
  const sourceOf = (n: number) => writeCudaProgram(scheduleFunction(graphOf(chain(n), x), options), 256).source;
  assert.ok(!sourceOf(8).includes("#define W_MANY_CALLS"));
  assert.ok(sourceOf(100).startsWith("#define W_MANY_CALLS"));
  // Many kernels with a few each are not slow to compile, and must not become slow to run.
  const wide = graphOf((...t) => t.map((v) => chain(8)(v)), ...Array.from({ length: 10 }, (_, i) => [8, 96 + i]));
  assert.ok(!writeCudaProgram(scheduleFunction(wide, options), 256).source.includes("#define W_MANY_CALLS"));
});

test("where there is no GPU, the error says what is missing", {
  skip: CudaDevice.available() ? "this machine has a GPU" : false,
}, () => {
  assert.equal(CudaDevice.available(), false);
  const expected = cudaLibraries() === null ? /libcuda\.so\.1\) was not found/ : /cuda:/;
  assert.throws(() => weft.setDevice("cuda"), expected);
  assert.throws(() => weft.setDevice("cuda:99"), /cuda/);
  assert.throws(() => weft.setDevice("tpu"), /there is no device "tpu"; devices are: reference, cpu, cuda/);
  for (const nothing of [undefined, null, 5, {}])
    assert.throws(
      () => weft.setDevice(nothing as never),
      /useDevice: expected a device, got .*; setDevice takes names/,
    );
});
