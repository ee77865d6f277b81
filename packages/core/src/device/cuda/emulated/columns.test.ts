// Reductions of columns on the emulated GPU: variances in one pass, places of extremes, short columns, few columns.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { Recorder } from "../schedule.testkit.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

/** Numbers far from zero: sums of squares without the mean would have no digits left. */
const far = (shape: number[], seed: number): weft.Tensor => data(shape, seed).add(3000);

const variances: Record<string, () => weft.Tensor | weft.Tensor[]> = {
  "columns, pieces of equal length": () => weft.variance(far([1024, 96], 1), 0),
  "columns of a prime number of rows": () => weft.variance(far([509, 40], 2), 0),
  "a middle axis": () => weft.std(far([3, 320, 48], 3), 1, { correction: 1 }),
  "outer and inner axes": () => weft.batchNorm(far([6, 5, 24, 24], 4)),
  "channels last": () => weft.batchNorm(far([4, 9, 9, 64], 5), { channelsLast: true }),
  "three columns": () => {
    const x = far([32, 32, 16, 3], 6);
    return [x.mean([0, 1, 2]), weft.std(x, [0, 1, 2])];
  },
  "a long line": () => weft.variance(far([40000], 7)),
  "long rows": () => weft.layerNorm(far([2, 20000], 8)),
  "a gradient": () =>
    weft.grad((x: weft.Tensor) => weft.variance(x, 0).mul(weft.arange(0, 40)).sum())(far([300, 40], 9)),
};

for (const [name, make] of Object.entries(variances))
  test(`variance of ${name}`, { skip }, () => {
    agree(make, 2e-3);
  });

test("a variance of columns reads its operand once", { skip }, () => {
  const x = far([1024, 96], 1).realize();
  const program = weft.jit((y: weft.Tensor) => weft.variance(y, 0));
  weft.setDevice(device() as never);
  const moved = weft.tensor(x.dataSync() as Float32Array, { shape: [1024, 96] });
  const large = program.kernels(moved).filter((kernel) => /_\d+x\d+x96/.test(kernel) && !/_1x/.test(kernel));
  assert.equal(large.length, 1, large.join(", "));
});

test("a variance of a number of rows without divisors is divided, too", () => {
  const recorder = new Recorder();
  weft.setDevice(recorder);
  weft
    .jit((x: weft.Tensor) => weft.variance(x, 0))(data([10007, 64], 36))
    .dispose();
  const deepest = recorder
    .plan()
    .steps.flatMap((step) =>
      (step.kind === "kernel" ? [step.kernel] : step.kind === "batch" ? step.kernels : []).map((kernel) =>
        kernel.reduced.reduce((n, { size }) => n * size, 1),
      ),
    );
  assert.ok(Math.max(...deepest) < 1000, deepest.join(", "));
});

const special = (shape: number[]): weft.Tensor => {
  const x = data(shape, 11).mul(4).round();
  const at = weft.arange(0, x.size, 1, { dtype: "int32" }).reshape(shape);
  // NaN in some columns, twice; ties everywhere.
  return weft.where(at.mod(997).equal(5), Number.NaN, x);
};
const places: Record<string, () => weft.Tensor | weft.Tensor[]> = {
  "many rows": () => special([1024, 96]).argmax(0),
  "a prime number of rows": () => special([509, 40]).argmin(0),
  "a middle axis": () => special([2, 300, 64]).argmax(1),
  "few rows of many columns": () => special([3, 21, 32768]).argmax(1),
  integers: () => data([512, 64], 12).mul(9).round().cast("int32").argmin(0),
  "rows that are all -infinity": () => weft.full([300, 64], Number.NEGATIVE_INFINITY).argmax(0),
};
for (const [name, make] of Object.entries(places))
  test(`places of extremes in columns: ${name}`, { skip }, () => {
    agree(make, 0);
  });

test("sums of short columns", { skip }, () => {
  agree(() => [data([8, 70000], 13).sum(0), data([5, 66000], 14).max(0), data([3, 7, 65536], 15).prod(1)], 1e-5);
  agree(
    () =>
      weft
        .complex(data([4, 65600], 16), data([4, 65600], 17))
        .sum(0)
        .abs(),
    1e-5,
  );
});

test("results along a short last axis", { skip }, () => {
  agree(() => {
    const x = data([2, 8, 64, 64], 18);
    return [
      weft.interpolate(x, { scale: 2, mode: "nearest" }),
      weft.interpolate(x.cast("bfloat16"), { scale: 2, mode: "nearest" }).cast("float32"),
      weft.interpolate(x.slice([0, 0, 0, 0], [2, 2, 60, 60]), { scale: 3, mode: "nearest" }),
      weft.repeat(x, 4, 3),
      weft.stack([x, x.mul(2)], -1),
    ];
  }, 0);
});

type Make = () => weft.Tensor | weft.Tensor[];
const scales = (n: number, seed: number): weft.Tensor => data([n], seed);
const finished: Record<string, Make> = {
  "roots of sums": () => data([700, 40], 21).square().sum(0).sqrt(),
  "several columns per thread": () => weft.exp(data([70, 65536], 22).mul(0.01).sum(0)),
  "a sum and an operand of its own": () => data([300, 64], 23).sum(0).mul(scales(64, 24)).add(scales(64, 25)),
  "two sums in one result": () => {
    const x = data([2, 90, 48], 26);
    return x.sum(1).div(x.abs().sum(1).add(1));
  },
  "a sum that is also a result": () => {
    const total = data([300, 33], 27).sum(0);
    return [total, total.mul(2).add(1)];
  },
  "complex sums": () => {
    const total = weft.complex(data([130, 40], 28), data([130, 40], 29)).sum(0);
    return [weft.real(total).mul(3), weft.abs(total)];
  },
  "places of extremes": () => data([260, 40], 30).argmax(0).mul(2).add(1),
  "half types": () => data([64, 12, 80], 31).cast("bfloat16").mean(1).mul(3).add(1),
  "a result that rows read": () => weft.softmax(data([300, 40], 32).mean(0)),
  "a result in another order": () => data([40, 30, 20], 33).mean(0).transpose().add(1),
};
for (const [name, make] of Object.entries(finished))
  test(`work on the results of columns: ${name}`, { skip }, () => {
    agree(make, name === "half types" ? 2e-2 : 1e-5);
  });

test("work on the results of columns takes no launch of its own, and writes over what is donated", () => {
  const recorder = new Recorder();
  weft.setDevice(recorder);
  const update = weft.jit((a: weft.Tensor, q: weft.Tensor) => q.sub(a.mean(0).mul(0.1)), { donate: [1] });
  update(data([512, 96], 34), data([96], 35)).dispose();
  const plan = recorder.plan(({ donated }) => donated !== undefined && donated.length > 0);
  assert.equal(plan.steps.length, 2);
  assert.equal(plan.aliases.size, 1);
});

const windows: Record<string, Make> = {
  "maxima of windows": () => weft.slidingWindow(data([40, 2007], 41), [7]).max(-1),
  "deviations of windows": () => weft.std(weft.slidingWindow(far([40, 2024], 42), [25]), -1),
  "sums of diagonals": () => weft.trace(data([300, 24, 24], 43)),
  "a transposed operand of odd size": () => {
    const x = data([131, 131], 44);
    return x.add(x.transpose().mul(2));
  },
  "colors in reverse": () => {
    const x = data([3, 40, 44, 3], 45).mul(100).cast("uint8");
    return weft.flip(x, 2).permute([0, 3, 1, 2]).cast("float32").div(255);
  },
};
for (const [name, make] of Object.entries(windows))
  test(`${name} on the emulated GPU`, { skip }, () => {
    agree(make, 1e-4);
  });

const places2 = (n: number, below: number): weft.Tensor =>
  weft.tensor(Int32Array.from({ length: n }, (_, i) => (i * 7919) % below));
const gathered: Record<string, [Make, number]> = {
  "an image interpolated along two axes": [
    () => weft.interpolate(data([1, 2, 50, 61], 51), { size: [23, 40], mode: "linear" }),
    1,
  ],
  "an image interpolated along three axes": [
    () => weft.interpolate(data([1, 2, 9, 8, 7], 52), { scale: 2, mode: "linear" }),
    2,
  ],
  "rows of a scaled table": [
    () =>
      weft.take(
        data([300, 20], 53)
          .mul(2)
          .add(data([20], 54)),
        places2(90, 300),
        0,
      ),
    1,
  ],
  "a table that is a result, too": [
    () => {
      const table = data([300, 20], 55).mul(2);
      return [table, weft.take(table, places2(90, 300), 0)];
    },
    2,
  ],
  "a table that is expensive": [() => weft.take(weft.gammaln(data([300, 20], 56).add(3)), places2(900, 300), 0), 2],
  "rows of rows": [() => weft.take(weft.take(data([300, 20], 57).add(1), places2(90, 300), 0), places2(40, 20), 1), 1],
};
for (const [name, [make, launches]] of Object.entries(gathered))
  test(`values that gathers read: ${name}`, { skip }, () => {
    const compiled = (): weft.Tensor | weft.Tensor[] => weft.jit(make as () => weft.Tensor)();
    const log = agree(compiled, 1e-5);
    assert.ok(log.filter((call) => /^k\d/.test(call)).length <= launches, log.join(", "));
  });
