// The same key gives the same random numbers on every device, to the last bit, also inside fused loops; and they have the
// distribution that they claim, by moments and by the closed form of the normal tails.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { device as emulated, prepareEmulator, skip as skipEmulated } from "./cuda/emulated/testkit.js";

const { CpuDevice, ReferenceDevice } = weft;
const count = 100_000;
const seed = 11;

const draws: Record<string, () => weft.Tensor> = {
  ...Object.fromEntries(
    (["float32", "float64", "float16", "bfloat16"] as const).flatMap((dtype) => [
      [`normal ${dtype}`, () => weft.randn([count], { seed, dtype })],
      [`uniform ${dtype}`, () => weft.rand([count], { seed, dtype })],
    ]),
  ),
  "normal, fused with a sum": () => weft.randn([count], { seed }).add(0.3),
  "normal float64, fused with a sum": () => weft.randn([count], { seed, dtype: "float64" }).add(0.3),
  "normal with mean and deviation": () => weft.randn([count], { seed, mean: 0.7, std: 1.3 }),
  "uniform between": () => weft.rand([count], { seed, low: -0.7, high: 2.9 }),
  "whole numbers": () => weft.randint(-7, 1000, [count], { seed }),
  bernoulli: () => weft.bernoulli(0.3, [count], { seed }),
  keys: () => weft.splitKey(weft.key(seed), count),
  "a permutation": () => weft.permutation(1000, { seed }),
  "dropout mask": () => weft.dropoutMask([count], 0.3, weft.key(seed)),
};

const bytesOf = (t: weft.Tensor): Buffer => {
  const raw = t.rawSync();
  return Buffer.from(raw.buffer as ArrayBuffer, raw.byteOffset, raw.byteLength);
};

function suite(name: string, device: () => unknown, skip: string | false): void {
  describe(`random numbers on ${name} are those of the reference`, { skip }, () => {
    for (const [what, draw] of Object.entries(draws))
      test(what, () => {
        weft.useDevice(new ReferenceDevice());
        const expected = bytesOf(draw());
        weft.useDevice(device() as never);
        const got = bytesOf(draw());
        assert.equal(got.length, expected.length);
        const bad = got.findIndex((byte, i) => byte !== expected[i]);
        assert.equal(bad, -1, `byte ${bad} differs`);
      });
  });
}

suite("cpu", () => new CpuDevice(), CpuDevice.available() ? false : "no C compiler on this machine");
suite(
  "the emulated GPU",
  () => {
    prepareEmulator();
    return emulated();
  },
  skipEmulated,
);

/** The probability that a standard normal number is beyond x, by its continued fraction (x > 2) or series. */
function tail(x: number): number {
  const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  if (x > 2) {
    let fraction = x;
    for (let k = 200; k >= 1; k--) fraction = x + k / fraction;
    return density / fraction;
  }
  let [term, sum] = [x, x];
  for (let k = 1; k < 200; k++) {
    term *= (x * x) / (2 * k + 1);
    sum += term;
  }
  return 0.5 - density * sum;
}

for (const dtype of ["float32", "float64"] as const)
  test(`normal ${dtype}: close to the exact transform, moments and tails as they should be`, () => {
    weft.useDevice(new ReferenceDevice());
    const data = Array.from(weft.randn([count], { seed: 5, dtype }).dataSync() as Float64Array);
    // Twice the standard error of each moment, and then some.
    const moment = (k: number): number => data.reduce((sum, x) => sum + x ** k, 0) / count;
    for (const [k, value, variance] of [
      [1, 0, 1],
      [2, 1, 2],
      [3, 0, 15],
      [4, 3, 96],
    ])
      assert.ok(Math.abs(moment(k) - value) < 4 * Math.sqrt(variance / count), `moment ${k}: ${moment(k)}`);
    for (const x of [0, 0.5, 1, 2, 3, 3.5]) {
      const p = tail(x);
      for (const side of [1, -1]) {
        const seen = data.filter((y) => side * y > x).length / count;
        assert.ok(Math.abs(seen - p) < 4.5 * Math.sqrt(p / count), `beyond ${side * x}: ${seen}, expected ${p}`);
      }
    }
    const bits = weft.splitKey(weft.key(5), 1);
    assert.ok(bits.size === 2);
    assert.ok(Math.max(...data.map(Math.abs)) < (dtype === "float32" ? 5.8 : 6.7));
  });
