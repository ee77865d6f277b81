// Reductions of columns on the emulated GPU: variances in one pass, places of extremes, short columns, few columns.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
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
