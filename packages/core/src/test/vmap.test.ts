// vmap of every suitable case against a loop, with several positions of the mapped axis and shared arguments; and vmap
// composed with the other transforms.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { ReferenceDevice, type Tensor, useDevice } from "../index.js";
import { type Case, cases, type DType, type Host, Source } from "./cases/index.js";
import { assertClose, toResult } from "./compare.js";
import { onEachDevice, testDevices } from "./devices.js";
import { functionOf, type Job, list, mismatches, runEagerly, runJobs, upload } from "./jobs.js";

const size = 3;

/** Positions of the mapped axis for each of the inputs, and in the results; `variant` picks one way. */
function axesFor(variant: number, ranks: readonly number[]): { inAxes: (number | null)[]; outAxes: number } {
  const choices = [
    { inAxes: ranks.map(() => 0), outAxes: 0 },
    { inAxes: ranks.map(() => -1), outAxes: -1 },
    { inAxes: ranks.map((_, k) => (k % 2 === 0 ? 0 : null)), outAxes: 0 },
    { inAxes: ranks.map((rank, k) => (k === 0 && ranks.length > 1 ? null : Math.min(1, rank))), outAxes: -1 },
  ];
  return choices[variant % choices.length];
}

interface MappedJob {
  mapped: Job;
  /** The same by a loop over the slices. */
  loop: () => Tensor[];
}

function mappedJob(item: Case, dtype: DType, variant: number): MappedJob {
  const examples = Array.from({ length: size }, (_, b) => item.inputs(new Source(dtype, `${item.name}#${b}`)));
  const { inAxes, outAxes } = axesFor(
    variant,
    examples[0].map((host) => host.shape.length),
  );
  const inputs = inAxes.map((axis, k): Host => {
    if (axis === null) return examples[0][k];
    const stacked = weft.stack(
      examples.map((inputsOfOne) => upload(inputsOfOne[k])),
      axis,
    );
    return toResult(stacked);
  });
  const loop = (): Tensor[] => {
    const results = examples.map((example) =>
      list(item.fn(...example.map((host, k) => upload(inAxes[k] === null ? examples[0][k] : host)))),
    );
    return results[0].map((_, r) =>
      weft.stack(
        results.map((one) => one[r]),
        outAxes,
      ),
    );
  };
  const fn = weft.vmap((...x: Tensor[]) => list(item.fn(...x)), { inAxes, outAxes });
  const name = `${item.name} (${dtype}), in ${JSON.stringify(inAxes)}, out ${outAxes}`;
  return { mapped: { name, dtype, inputs, fn, loose: item.loose ?? 1 }, loop };
}

const preferred: readonly DType[] = ["float64", "complex128", "int32", "bool"];

const suitable = cases.filter((item) => item.vmap !== false);

function jobsOf(item: Case, i: number): MappedJob[] {
  const wanted = item.dtypes.filter((dtype) => preferred.includes(dtype)).slice(0, 2);
  return (wanted.length > 0 ? wanted : [item.dtypes[0]]).map((dtype, k) => mappedJob(item, dtype, i + 2 * k));
}

describe("every case against a loop", () => {
  const names = [...new Set(suitable.map((item) => functionOf(item.name)))];
  for (const name of names)
    test(name, () => {
      useDevice(new ReferenceDevice());
      const problems = suitable.flatMap((item, i) =>
        item.name.startsWith(`${name}:`)
          ? jobsOf(item, i).flatMap(({ mapped, loop }) =>
              mismatches(mapped, runEagerly(mapped), loop().map(toResult), 4),
            )
          : [],
      );
      assert.equal(problems.join("\n"), "");
    });
});

for (const device of testDevices().filter(({ name }) => name !== "reference")) {
  test(`a choice of cases on ${device.name}`, () => {
    useDevice(new ReferenceDevice());
    const jobs = suitable.flatMap((item, i) => (i % 7 === 0 ? jobsOf(item, i) : []));
    const expected = jobs.map(({ loop }) => loop().map(toResult));
    useDevice(device.make());
    const actual = runJobs(jobs.map(({ mapped }) => mapped));
    const problems = jobs.flatMap(({ mapped }, j) => mismatches(mapped, actual[j], expected[j], 20));
    assert.equal(problems.join("\n"), "");
  });
}

const f64 = { dtype: "float64" } as const;
const data = (shape: number[], seed: number): Tensor => weft.randn(shape, { seed, ...f64 });

onEachDevice(() => {
  test("nested vmap is an outer product", () => {
    const [a, b] = [data([3], 1), data([4], 2)];
    const outer = weft.vmap((x: Tensor) => weft.vmap((y: Tensor) => x.mul(y).add(x))(b))(a);
    assertClose(outer, weft.outer(a, b).add(a.unsqueeze(1)));
    assert.deepEqual(outer.shape, [3, 4]);
  });

  test("nested vmap over other axes", () => {
    const x = data([2, 3, 4], 3);
    const inner = weft.vmap((v: Tensor) => v.softmax(), { inAxes: 1, outAxes: 1 });
    assertClose(weft.vmap(inner)(x), x.softmax(1));
  });

  test("shared arguments and trees", () => {
    const params = { w: data([3, 2], 4), b: data([2], 5) };
    const x = data([5, 3], 6);
    const layer = (p: typeof params, v: Tensor) => ({ out: v.matmul(p.w).add(p.b), norm: v.norm() });
    const result = weft.vmap(layer, { inAxes: [null, 0] })(params, x);
    assertClose(result.out, x.matmul(params.w).add(params.b));
    assertClose(result.norm, x.norm(1));
    const stacked = { w: data([4, 3, 2], 7), b: data([4, 2], 8) };
    const both = weft.vmap(layer)(stacked, data([4, 3], 9));
    assert.deepEqual(both.out.shape, [4, 2]);
  });

  test("a result that does not depend on the mapped argument is repeated", () => {
    const c = data([2], 10);
    const result = weft.vmap((_: Tensor) => c.mul(2), { outAxes: 1 })(data([3, 2], 11));
    assertClose(result, c.mul(2).unsqueeze(1).expand([2, 3]));
  });

  test("vmap of grad gives per-example gradients, jitted or not", () => {
    const w = data([3], 12);
    const [x, y] = [data([5, 3], 13), data([5], 14)];
    const loss = (p: Tensor, one: Tensor, target: Tensor) => p.mul(one).sum().tanh().sub(target).square();
    const perExample = weft.vmap(weft.grad(loss), { inAxes: [null, 0, 0] });
    const expected = weft.stack(Array.from({ length: 5 }, (_, i) => weft.grad(loss)(w, x.index(i), y.index(i))));
    assertClose(perExample(w, x, y), expected);
    assertClose(weft.jit(perExample)(w, x, y), expected);
    // And their sum is the gradient of the sum.
    const total = weft.grad((p: Tensor) =>
      weft
        .vmap(loss, { inAxes: [null, 0, 0] })(p, x, y)
        .sum(),
    );
    assertClose(total(w), expected.sum(0));
  });

  test("vmap of second derivatives and of jvp", () => {
    const x = data([4], 15);
    const f = (v: Tensor) => v.sin().mul(v.exp());
    const second = weft.vmap(weft.grad((v: Tensor) => weft.grad(f)(v)));
    assertClose(second(x), x.cos().mul(x.exp()).mul(2), { rtol: 1e-12 });
    const along = weft.vmap((v: Tensor, t: Tensor) => weft.jvp(f, [v], [t])[1]);
    assertClose(along(x, weft.ones([4], f64)), x.sin().add(x.cos()).mul(x.exp()), { rtol: 1e-12 });
  });

  test("a jacobian is vmap of a pullback", () => {
    const a = data([3, 4], 16);
    const x = data([4], 17);
    const [, pull] = weft.vjp((v: Tensor) => a.matmul(v).tanh(), x);
    const jacobian = weft.vmap((c: Tensor) => pull(c)[0])(weft.eye(3, f64));
    const slope = weft.sub(1, a.matmul(x).tanh().square());
    assertClose(jacobian, a.mul(slope.unsqueeze(1)), { rtol: 1e-12 });
  });

  test("vmap over scan: batched xs, batched carry, batched constants", () => {
    const [xs, init, w] = [data([3, 5, 2], 18), data([3, 2], 19), data([3, 2], 20)];
    const run = (x: Tensor, c: Tensor, p: Tensor) =>
      weft.scan((carry: Tensor, one: Tensor) => [carry.mul(p).add(one).tanh(), carry.sum()], c, x);
    for (const inAxes of [
      [0, 0, 0],
      [0, null, null],
      [null, 0, null],
      [null, null, 0],
    ]) {
      const pick = (t: Tensor, i: number, axis: number | null) => (axis === null ? t.index(0) : t.index(i));
      const args = [xs, init, w].map((t, k) => (inAxes[k] === null ? t.index(0) : t));
      const [last, ys] = weft.vmap(run, { inAxes })(args[0], args[1], args[2]);
      const expected = [0, 1, 2].map((i) =>
        run(pick(xs, i, inAxes[0]), pick(init, i, inAxes[1]), pick(w, i, inAxes[2])),
      );
      assertClose(last, weft.stack(expected.map(([c]) => c)), { name: `carry, in ${inAxes}` });
      assertClose(ys, weft.stack(expected.map(([, y]) => y)), { name: `ys, in ${inAxes}` });
    }
  });

  test("a carry that becomes batched inside the loop", () => {
    const x = data([3], 21);
    const run = (v: Tensor) =>
      weft.scan(([a, b]: Tensor[]) => [[b, a.add(v)], a], [weft.zeros([], f64), weft.ones([], f64)], null, {
        length: 4,
      })[1];
    assertClose(weft.vmap(run)(x), weft.stack([0, 1, 2].map((i) => run(x.index(i)))));
  });

  test("vmap of grad of scan", () => {
    const [xs, w] = [data([3, 6], 22), data([3], 23)];
    const loss = (p: Tensor, x: Tensor) =>
      weft.scan((c: Tensor, v: Tensor) => [c.mul(p).add(v).sin(), null], weft.zeros([], f64), x)[0];
    const expected = weft.stack([0, 1, 2].map((i) => weft.grad(loss)(w.index(i), xs.index(i))));
    assertClose(weft.vmap(weft.grad(loss))(w, xs), expected, { rtol: 1e-11 });
    assertClose(weft.jit(weft.vmap(weft.grad(loss)))(w, xs), expected, { rtol: 1e-11 });
  });

  test("vmap of customVjp keeps the custom gradient, for every shape", () => {
    const clipped = weft.customVjp(
      (x: Tensor, w: Tensor) => x.mul(w).sum(),
      ([x, w], _y, g) => [w.mul(g).clip(-1, 1), x.mul(g).mul(3)],
    );
    for (const n of [2, 5]) {
      const [x, w] = [data([4, n], 24), data([n], 25).mul(3)];
      const f = (p: Tensor, q: Tensor) => clipped(p, q);
      const [gx, gw] = weft.vmap(weft.grad(f, { argument: [0, 1] }), { inAxes: [0, null] })(x, w);
      assertClose(gx, w.clip(-1, 1).unsqueeze(0).expand([4, n]));
      assertClose(gw, x.mul(3));
      // Differentiating outside: the shared argument gets the sum.
      const outside = weft.grad((q: Tensor) =>
        weft
          .vmap(f, { inAxes: [0, null] })(x, q)
          .sum(),
      )(w);
      assertClose(outside, x.mul(3).sum(0));
    }
  });

  test("random numbers differ from slice to slice, and a seed repeats them", () => {
    const noise = () => weft.vmap((x: Tensor) => x.add(weft.rand([3], f64)))(weft.zeros([4, 3], f64));
    weft.manualSeed(1);
    const first = noise();
    const rows = new Set((first.arraySync() as number[][]).map(String));
    assert.equal(rows.size, 4);
    weft.manualSeed(1);
    assertClose(noise(), first);
  });

  test("invalid arguments throw at the call of vmap", () => {
    const id = (...x: Tensor[]) => x[0];
    assert.throws(() => weft.vmap(id)(weft.tensor(1)), /vmap: argument 0 holds a scalar/);
    assert.throws(
      () => weft.vmap(id)(weft.zeros([2]), weft.zeros([3])),
      /argument 1 has 3 slices along axis 0, another one has 2/,
    );
    assert.throws(() => weft.vmap(id, { inAxes: [null] })(weft.zeros([2])), /no argument is mapped over/);
    assert.throws(
      () => weft.vmap(id, { inAxes: [0] })(weft.zeros([2]), weft.zeros([2])),
      /inAxes has 1 entries for 2 arguments/,
    );
    assert.throws(() => weft.vmap(id, { inAxes: 2 })(weft.zeros([2])), /axis 2 is out of range/);
    assert.throws(() => weft.vmap((_: Tensor) => 3)(weft.zeros([2])), /returned no tensor/);
    assert.throws(() => weft.vmap(async (x: Tensor) => x)(weft.zeros([2])), /async/);
  });
});
