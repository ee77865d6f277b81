// jit with `vary`: calls of different sizes share a program, and give what the function gives without jit. WEFT_FUZZ=1000 runs
// more random programs, WEFT_FUZZ_SEED=7 starts with another one.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor, Tree } from "../index.js";
import * as weft from "../index.js";
import * as nn from "../nn/index.js";
import { assertClose, difference, type Result, toResult } from "./compare.js";
import { emulatedDevice, onEachDevice } from "./devices.js";
import { randomProgram, type VaryingProgram, varyingPrograms } from "./varying.js";

const f64 = { dtype: "float64" } as const;

/** What goes wrong between a program with and without jit at a size; null if nothing. */
function mismatch(expected: Tree, actual: Tree): string | null {
  const [want, got] = [expected, actual].map((tree): Result[] => weft.treeLeaves(tree).map(toResult));
  if (want.length !== got.length) return `${got.length} results instead of ${want.length}`;
  for (const [i, result] of want.entries()) {
    const found = difference(got[i], result, { rtol: 1e-9, atol: 1e-9 });
    if (found !== null) return `result ${i}: ${found}`;
  }
  return null;
}

function check(name: string, { run, args, vary }: VaryingProgram, sizes: readonly number[], programs: number): void {
  const jitted = weft.jit(run, { vary });
  for (const n of sizes) {
    const given = args(n);
    const found = mismatch(run(...given), jitted(...given));
    assert.equal(found, null, `${name} at size ${n}: ${found}`);
  }
  assert.ok(jitted.programs <= programs, `${name}: ${jitted.programs} programs for ${sizes.length} sizes`);
}

onEachDevice((_device, name) => {
  // Every program costs a run of the C compiler.
  const sizes = name === "reference" ? [8, 7, 5, 6, 8, 13, 9, 1, 0, 2] : [7, 5, 8];
  for (const [what, program] of Object.entries(varyingPrograms))
    test(`${what} has one program per bucket`, () => {
      // The smallest sizes have programs of their own. Some functions do not exist for them.
      const usable = sizes.filter((n) => n > 3 || what === "mean" || what === "softmax");
      // A convolution with a stride has results of one size for two sizes; a third size shows that they vary.
      const programs = usable.length > 4 ? 5 : 1;
      check(what, program, usable, what === "convolution along the size" ? 2 * programs : programs);
    });

  test("random programs give what they give without jit", () => {
    const count = Number(process.env.WEFT_FUZZ ?? (name === "reference" ? 40 : 6));
    const first = Number(process.env.WEFT_FUZZ_SEED ?? 1);
    for (let seed = first; seed < first + count; seed++)
      check(`program ${seed}`, randomProgram(seed), name === "reference" ? [7, 6, 11] : [7, 6], 3);
  });

  test("a training step compiles once for full and last batches", () => {
    const step = weft.jit(
      (w: Tensor, x: Tensor, y: Tensor) => {
        const [loss, g] = weft.valueAndGrad((v: Tensor) => weft.matmul(x, v).sub(y).square().mean())(w);
        return [w.sub(g.mul(0.1)), loss] as const;
      },
      { donate: [0], vary: [1, 2] },
    );
    const plain = (w: number[][], x: number[][], y: number[][]): number[][] =>
      w.map((row, i) =>
        row.map((value, j) => {
          const slope = x.reduce((sum, r, k) => sum + r[i] * (r.reduce((p, a, l) => p + a * w[l][j], 0) - y[k][j]), 0);
          return value - (0.1 * 2 * slope) / (x.length * row.length);
        }),
      );
    const batches = [16, 16, 11, 9, 16, 15].map((n) => {
      const [x, y] = [weft.randn([n, 2], { seed: n, ...f64 }), weft.randn([n, 1], { seed: n + 1, ...f64 })];
      return { x, y, host: [x, y].map((t) => t.arraySync() as number[][]) };
    });
    let w = weft.ones([2, 1], f64).realize();
    let expected = [[1], [1]];
    const compiles = weft.session().compiles;
    for (const { x, y, host } of batches) {
      expected = plain(expected, host[0], host[1]);
      w = step(w, x, y)[0];
      assertClose(w, expected.flat(), { rtol: 1e-10 });
    }
    assert.equal(step.programs, 1);
    assert.equal(weft.session().compiles - compiles, 1);
  });

  test("a growing sequence compiles once per bucket", () => {
    const attend = weft.jit((x: Tensor) => weft.matmul(weft.softmax(weft.matmul(x, x.transpose()), -1), x).index(-1), {
      vary: [0],
      buckets: [8, 24],
    });
    const whole = weft.randn([24, 3], { seed: 1, ...f64 }).arraySync() as number[][];
    for (let n = 2; n <= 24; n++) {
      const rows = whole.slice(0, n);
      const last = rows[n - 1];
      const weights = rows.map((r) => Math.exp(r.reduce((sum, a, i) => sum + a * last[i], 0)));
      const total = weights.reduce((sum, a) => sum + a, 0);
      const want = last.map((_, i) => rows.reduce((sum, r, k) => sum + (weights[k] / total) * r[i], 0));
      assertClose(attend(weft.tensor(rows, f64)), want, { rtol: 1e-9 });
    }
    assert.equal(attend.programs, 2);
  });

  test("random numbers are those of the unpadded program", () => {
    const draw = (x: Tensor): Tensor[] => [
      x.add(weft.randn(x.shape)),
      nn.dropout(x.add(1), { rate: 0.5, key: weft.key(3) } as never),
    ];
    const [exact, shared] = [weft.jit(draw), weft.jit(draw, { vary: { 0: [0, 1] } })];
    for (const n of [6, 5, 7]) {
      const x = weft.zeros([n, n + 1]);
      const results = [exact, shared].map((f) => {
        weft.manualSeed(5);
        return weft.treeLeaves(f(x)).map((t) => t.arraySync());
      });
      assert.deepEqual(results[1], results[0]);
    }
    assert.ok(shared.programs <= 2, `${shared.programs} programs`);
  });

  test("an argument that keeps its size but whose value depends on another's is not mistaken for it", () => {
    const f = weft.jit((x: Tensor, y: Tensor) => x.mean().add(y.mean()), { vary: [0, 1] });
    for (const [n, m] of [[6, 6], [6, 5], [5, 7], [8, 8]]) // biome-ignore format: pairs
      assertClose(f(weft.arange(n).cast("float64"), weft.arange(m).cast("float64")), (n + m - 2) / 2);
  });
});

const someKinds = ["attention", "sort", "concatenation", "gradient of a loss", "loop that stops early", "random masks"];

test("programs of several kinds on emulated CUDA", {
  skip: emulatedDevice.available() ? false : "no C++ compiler",
}, () => {
  weft.useDevice(emulatedDevice.make());
  for (const what of someKinds) check(what, varyingPrograms[what], [7, 6], 1);
});

test("what cannot be padded compiles for exact shapes and warns once", async () => {
  weft.useDevice(new weft.ReferenceDevice());
  const warnings: string[] = [];
  const listen = (warning: Error): void => void warnings.push(warning.message);
  process.on("warning", listen);
  const f = weft.jit((x: Tensor) => weft.fft(x.cast("complex64")).real(), { vary: [0] });
  for (const n of [5, 6, 7]) assertClose(f(weft.ones([n])), [n, ...new Array<number>(n - 1).fill(0)], { atol: 1e-5 });
  // At the size of the bucket the table is too short.
  const table = weft.arange(6).cast("float32");
  const g = weft.jit((x: Tensor) => x.add(table.index(`0:${x.shape[0]}`)), { vary: [0] });
  assertClose(g(weft.zeros([5])), [0, 1, 2, 3, 4]);
  const branches = weft.jit((x: Tensor) => (x.shape[0] > 6 ? x.mul(2) : x.sin().cos()), { vary: [0] });
  assertClose(branches(weft.ones([7])), new Array<number>(7).fill(2));
  assertClose(branches(weft.zeros([5])), new Array<number>(5).fill(1));
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", listen);
  assert.equal(f.programs, 3);
  assert.equal(warnings.length, 3, warnings.join("\n"));
  assert.match(
    warnings[0],
    /fft: a transformed axis depends on the size; such calls compile a program for their exact shapes/,
  );
});

test("options that make no sense are refused with what was given", () => {
  const f = (x: Tensor): Tensor => x;
  assert.throws(() => weft.jit(f, { vary: [-1] }), /vary names the argument -1/);
  assert.throws(() => weft.jit(f, { vary: { 0: 0.5 } }), /vary gives 0.5 for argument 0/);
  assert.throws(() => weft.jit(f, { vary: [0], buckets: [0] }), /buckets has 0/);
  assert.throws(() => weft.jit(f, { vary: { 0: 2 } })(weft.ones([3, 3])), /axis 2 of argument 0.*\[3, 3\]/);
  assert.throws(() => weft.jit(f, { vary: [0], buckets: () => 2 })(weft.ones([3])), /buckets\(3\) is 2/);
});

test("memory stays bounded over many sizes", () => {
  weft.useDevice(new weft.ReferenceDevice());
  const f = weft.jit((x: Tensor) => x.mul(2).sum(), { vary: [0], maxPrograms: 16 });
  for (let n = 2; n < 300; n++) assertClose(f(weft.ones([n])), 2 * n);
  weft.collectGarbage();
  const before = weft.memory().bytes;
  for (let n = 2; n < 300; n++) f(weft.ones([n])).dispose();
  weft.collectGarbage();
  assert.ok(weft.memory().bytes <= before + 4096, `${before} bytes before, ${weft.memory().bytes} after`);
});
