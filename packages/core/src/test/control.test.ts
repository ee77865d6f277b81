// Loops and branches that depend on values: values and derivatives against JAX, under jit, grad, jvp and vmap, on every device.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import { Recorder } from "../device/cuda/schedule.testkit.js";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { controlPrograms } from "./control-programs.js";
import { emulatedDevice, testDevices } from "./devices.js";

interface Case {
  args: { dtype: "float64" | "int32"; shape: number[]; data: number[] }[];
  value: number[];
  grads: Record<string, number[]>;
}
const cases = JSON.parse(readFileSync(new URL("../../testdata/control-flow.json", import.meta.url), "utf8")) as Record<
  string,
  Case[]
>;

const argumentsOf = (list: Case["args"]): Tensor[] =>
  list.map(({ dtype, shape, data }) => weft.tensor(data, { dtype }).reshape(shape));

function close(name: string, actual: ArrayLike<number>, expected: readonly number[], within = 1e-9): void {
  assert.equal(actual.length, expected.length, name);
  expected.forEach((x, i) => {
    assert.ok(Math.abs(actual[i] - x) <= within * (1 + Math.abs(x)), `${name}: ${actual[i]} instead of ${x} at ${i}`);
  });
}

const numbers = (x: Tensor): number[] => Array.from(x.dataSync() as Float64Array, Number);
const weighted = (x: Tensor): Tensor =>
  x
    .mul(
      weft
        .arange(
          0,
          x.shape.reduce((n, d) => n * d, 1),
          1,
          { dtype: "float64" },
        )
        .cos()
        .reshape([...x.shape]),
    )
    .sum();

const devices = [...testDevices(), ...(emulatedDevice.available() ? [emulatedDevice] : [])];
for (const { name: device, make } of devices)
  describe(`on ${device}`, () => {
    before(() => void weft.useDevice(make()));
    for (const [name, rows] of Object.entries(cases)) {
      const program = controlPrograms[name];
      const wrt = Object.keys(rows[0].grads).map(Number);
      const loss = (...args: Tensor[]): Tensor => weighted(program(...args));
      const gradient = (...args: Tensor[]): Tensor[] =>
        weft.grad(loss, { argument: wrt })(...args) as unknown as Tensor[];

      test(`${name}: values, gradients and directional derivatives are those of JAX`, () => {
        const jitted = weft.jit(program);
        const slopes = weft.jit(gradient);
        for (const { args, value, grads } of rows) {
          const given = argumentsOf(args);
          close(`${name} jit`, numbers(jitted(...given)), value);
          const found = slopes(...given);
          wrt.forEach((k, i) => {
            close(`${name} gradient ${k}`, numbers(found[i]), grads[k]);
          });
          const tangents = given.map((x) => weft.cos(x.cast("float64")));
          const along = weft.jvp(
            (...active: Tensor[]) => loss(...given.map((x, k) => (wrt.includes(k) ? active[wrt.indexOf(k)] : x))),
            wrt.map((k) => given[k]),
            wrt.map((k) => tangents[k]),
          )[1] as Tensor;
          const expected = wrt.reduce(
            (sum, k) => sum + numbers(tangents[k]).reduce((s, t, i) => s + t * grads[k][i], 0),
            0,
          );
          close(`${name} jvp`, numbers(along), [expected]);
        }
        close(`${name} eager`, numbers(program(...argumentsOf(rows[0].args))), rows[0].value);
      });

      test(`${name}: vmap of value and gradient stops every row by itself`, () => {
        const stacked = rows[0].args.map((_, k) => weft.stack(rows.map(({ args }) => argumentsOf(args)[k])));
        const values = numbers(weft.jit(weft.vmap(program))(...stacked));
        close(
          `${name} vmap`,
          values,
          rows.flatMap((row) => row.value),
        );
        const inner = weft.jit(weft.vmap(gradient))(...stacked) as unknown as Tensor[];
        const outer = weft.jit(
          weft.grad((...args: Tensor[]) => (weft.vmap(loss)(...args) as Tensor).sum(), { argument: wrt }),
        )(...stacked) as unknown as Tensor[];
        wrt.forEach((k, i) => {
          const expected = rows.flatMap((row) => row.grads[k]);
          close(`${name} vmap of grad ${k}`, numbers(inner[i]), expected);
          close(`${name} grad of vmap ${k}`, numbers(outer[i]), expected);
        });
      });
    }

    test("a loop ends when its predicate is false, and a branch that is not chosen does not run", () => {
      const endless = (x: Tensor): Tensor =>
        weft.whileLoop(
          () => true,
          (c) => c.add(1),
          x,
        );
      const program = weft.jit((x: Tensor) => {
        const doubled = weft.whileLoop(
          (c) => c.less(1000),
          (c) => c.mul(2),
          x,
          { maxTrips: 2 ** 30 },
        );
        return weft.cond(doubled.greater(0), (c) => c.add(0.5), endless, doubled);
      });
      assert.equal(program(weft.tensor(3)).itemSync(), 1536.5);
    });

    test("random numbers differ between the steps of a loop", () => {
      weft.manualSeed(3);
      const draws = weft.jit(() =>
        weft.foriLoop(
          0,
          weft.tensor(4, { dtype: "int32" }),
          (i, all: Tensor) => weft.where(weft.arange(4, undefined, 1, { dtype: "int32" }).equal(i), weft.rand([]), all),
          weft.zeros([4]),
        ),
      );
      const found = numbers(draws());
      assert.equal(new Set(found).size, 4, String(found));
      assert.ok(
        found.every((x) => x > 0 && x < 1),
        String(found),
      );
    });
  });

for (const { name, make } of testDevices())
  test(`gradients of a batch of branches and loops ignore what a row did not run, on ${name}`, () => {
    weft.useDevice(make());
    const f64 = { dtype: "float64" } as const;
    const x = weft.tensor([4, -1, 0], f64);
    // The slope of the branch that is not taken is infinite or NaN.
    const root = (t: Tensor): Tensor =>
      weft.cond(
        t.greater(0),
        () => t.sqrt(),
        () => t.mul(3),
      );
    const sum = (f: (t: Tensor) => Tensor) => (t: Tensor) => weft.vmap(f)(t).sum();
    assert.deepEqual(weft.grad(sum(root))(x).arraySync(), [0.25, 3, 3]);
    assert.deepEqual(weft.hessian(sum(root))(x.index("0:2")).arraySync(), [
      [-1 / 32, 0],
      [0, 0],
    ]);
    // A scalar that all rows share, too.
    const shared = (s: Tensor): Tensor =>
      sum((t) =>
        weft.cond(
          t.greater(0),
          () => t.log().mul(s),
          () => s.mul(2),
        ),
      )(x);
    assert.equal(weft.grad(shared)(weft.tensor(1, f64)).itemSync(), Math.log(4) + 4);
    const halve = (t: Tensor): Tensor =>
      weft.whileLoop(
        (c) => c.greater(1),
        (c) => c.sub(1).sqrt(),
        t,
        { maxTrips: 4 },
      );
    assert.deepEqual(
      weft
        .grad(sum(halve))(weft.tensor([2, 1, 0.5], f64))
        .arraySync(),
      [0.5, 1, 1],
    );
  });

test("a batch of loops that end separately is one kernel, with its reverse pass", {
  skip: !weft.CpuDevice.available(),
}, () => {
  weft.useDevice(new weft.CpuDevice());
  const rows = weft.vmap((x: Tensor) => controlPrograms.newton(x));
  for (const fn of [rows, weft.grad((x: Tensor) => rows(x).sum())])
    assert.match(
      weft
        .jit(fn)
        .kernels(weft.full([50], 2, { dtype: "float64" }))
        .map(String)
        .join(" "),
      /^lanes_50x150\S*$/,
    );
});

test("an update writes into the memory of a donated cache, of a value that is not used again, and of a carry", () => {
  const device = new Recorder();
  weft.useDevice(device);
  const bytes = 4 * 64 * 1000 * 8;
  const [cache, row] = [weft.zeros([64, 1000, 8]), weft.ones([64, 1, 8])];
  const at = weft.tensor(3, { dtype: "int32" });
  const update = (c: Tensor, i: Tensor): Tensor => weft.dynamicUpdateSlice(c, row, [0, i, 0]);
  weft
    .jit(update, { donate: [0] })(weft.zeros([64, 1000, 8]), at)
    .realize();
  const donated = device.plan(({ donated }) => donated?.includes(true) ?? false);
  assert.equal(donated.aliases.size, 1);
  weft
    .jit((c: Tensor, i: Tensor) => update(update(c.add(1), i), i.add(1)).sum())(cache, at)
    .realize();
  const twice = device.plan();
  assert.ok(twice.scratchBytes < 1.5 * bytes, `${twice.scratchBytes} bytes of scratch memory for one cache`);
  weft
    .jit((c: Tensor, n: Tensor) => weft.foriLoop(0, n, (i, inner: Tensor) => update(inner, i), c))(cache, at)
    .realize();
  const inLoop = device.plan();
  assert.ok(inLoop.scratchBytes < 1.5 * bytes, `${inLoop.scratchBytes} bytes of scratch memory for one carry`);
});

test("errors name the argument and the remedy", () => {
  weft.useDevice(new weft.ReferenceDevice());
  const x = weft.tensor([1, 2]);
  const same = (c: Tensor): Tensor => c;
  assert.throws(
    () => weft.whileLoop((c) => c.less(3), same, x),
    /whileLoop: the predicate must be one bool, got bool \[2\]/,
  );
  assert.throws(() => weft.whileLoop((c) => c.sum(), same, x), /must be one bool, got float32 \[\]/);
  assert.throws(
    () =>
      weft.whileLoop(
        () => true,
        (c) => c.sum(),
        x,
      ),
    /carry 0 is float32 \[2\] at the start and float32 \[\]/,
  );
  assert.throws(() => weft.whileLoop(() => true, same, x, { maxTrips: -1 }), /maxTrips must be a whole number/);
  assert.throws(() => weft.whileLoop(() => true, (async (c: Tensor) => c) as never, x), /async/);
  assert.throws(() => weft.foriLoop(0, x, (_, c: Tensor) => c, x), /upper must be one int32, got float32 \[2\]/);
  assert.throws(() => weft.foriLoop(0.5, 3, (_, c: Tensor) => c, x), /whole numbers, got 0.5 and 3/);
  const yes = x.sum().greater(0);
  assert.throws(
    () =>
      weft.cond(
        yes,
        () => x,
        () => x.sum(),
      ),
    /result 0 is float32 \[2\] from whenTrue and float32 \[\] from whenFalse/,
  );
  assert.throws(
    () =>
      weft.cond<[], unknown>(
        yes,
        () => x,
        () => [x],
      ),
    /whenTrue returns another structure than whenFalse/,
  );
  assert.throws(
    () =>
      weft.cond(
        x.less(3),
        () => x,
        () => x,
      ),
    /cond: the predicate must be one bool/,
  );
  assert.throws(() => weft.switchCase(0, []), /list of functions is empty/);
  assert.throws(() => weft.switchCase(weft.tensor(1), [() => x]), /index must be one int32, got float32/);
  const double = (v: Tensor): Tensor =>
    weft.whileLoop(
      (c) => c.less(100),
      (c) => c.mul(2),
      v,
    );
  assert.throws(() => weft.grad(double)(weft.tensor(3)), /give maxTrips/);
  assert.equal((weft.jvp(double, [weft.tensor(3)], [weft.tensor(1)])[1] as Tensor).itemSync(), 64);
});
