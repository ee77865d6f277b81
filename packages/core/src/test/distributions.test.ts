// Random distributions: Kolmogorov-Smirnov distances and moments against closed forms, and the same numbers on every device.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { type Tensor, tensor, useDevice } from "../index.js";
import { testDevices } from "./devices.js";

const n = 4000;
const seed = 11;
const numbersOf = (t: Tensor): number[] => Array.from(t.dataSync() as ArrayLike<number | bigint>, Number);

/** The error function by its series; enough digits for a distribution function. */
function erf(x: number): number {
  if (Math.abs(x) > 5) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let k = 1; k < 200; k++) {
    term *= (-x * x) / k;
    sum += term / (2 * k + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}
const normal = (x: number): number => (1 + erf(x / Math.SQRT2)) / 2;

/** Largest distance between the empirical and the exact distribution function. */
function distance(data: number[], cdf: (x: number) => number): number {
  const sorted = [...data].sort((a, b) => a - b);
  return Math.max(
    ...sorted.map((x, i) => Math.max(Math.abs(cdf(x) - i / data.length), Math.abs(cdf(x) - (i + 1) / data.length))),
  );
}
/** Exceeded by chance once in 10^5. */
const critical = 2.47 / Math.sqrt(n);

const continuous: [string, () => Tensor, (x: number) => number][] = [
  ["exponential", () => weft.exponential([n], { seed, rate: 2 }), (x) => 1 - Math.exp(-2 * x)],
  ["gumbel", () => weft.gumbel([n], { seed, loc: 1, scale: 2 }), (x) => Math.exp(-Math.exp(-(x - 1) / 2))],
  [
    "laplace",
    () => weft.laplace([n], { seed, loc: -1, scale: 2 }),
    (x) => (x < -1 ? Math.exp((x + 1) / 2) / 2 : 1 - Math.exp(-(x + 1) / 2) / 2),
  ],
  [
    "truncatedNormal",
    () => weft.truncatedNormal(-1, 2, [n], { seed }),
    (x) => (normal(x) - normal(-1)) / (normal(2) - normal(-1)),
  ],
  // Integer parameters have elementary distribution functions.
  ["gamma 1", () => weft.gamma(1, [n], { seed }), (x) => 1 - Math.exp(-x)],
  ["gamma 3", () => weft.gamma(3, [n], { seed, dtype: "float64" }), (x) => 1 - Math.exp(-x) * (1 + x + (x * x) / 2)],
  ["gamma 1/2", () => weft.gamma(0.5, [n], { seed }), (x) => erf(Math.sqrt(x))],
  ["beta 2, 1", () => weft.beta(2, 1, [n], { seed }), (x) => x * x],
  ["beta 1/2, 1/2", () => weft.beta(0.5, 0.5, [n], { seed }), (x) => (2 / Math.PI) * Math.asin(Math.sqrt(x))],
  ["cauchy", () => weft.cauchy([n], { seed, loc: 1, scale: 2 }), (x) => 0.5 + Math.atan((x - 1) / 2) / Math.PI],
  ["logistic", () => weft.logistic([n], { seed, loc: -1, scale: 3 }), (x) => 1 / (1 + Math.exp(-(x + 1) / 3))],
  ["rayleigh", () => weft.rayleigh([n], { seed, scale: 2 }), (x) => 1 - Math.exp((-x * x) / 8)],
  ["logNormal", () => weft.logNormal([n], { seed, mean: 1, std: 0.5 }), (x) => normal((Math.log(x) - 1) / 0.5)],
  ["pareto", () => weft.pareto(3, [n], { seed }), (x) => 1 - x ** -3],
  ["weibull", () => weft.weibull(1.5, [n], { seed }), (x) => 1 - Math.exp(-(x ** 1.5))],
  [
    "triangular",
    () => weft.triangular(-1, 0, 3, [n], { seed }),
    (x) => (x < 0 ? (x + 1) ** 2 / 4 : 1 - (3 - x) ** 2 / 12),
  ],
  [
    "multivariateNormal",
    () => {
      const draws = weft.multivariateNormal(
        tensor([1, -1]),
        tensor([
          [2, 1],
          [1, 3],
        ]),
        [n],
        { seed },
      );
      return draws.matmul(tensor([1, 2])); // normal with mean -1 and variance 2 + 4 + 12
    },
    (x) => normal((x + 1) / Math.sqrt(18)),
  ],
  ["studentT 2", () => weft.studentT(2, [n], { seed }), (x) => 0.5 + x / (2 * Math.sqrt(2 + x * x))],
];

/** Chi-square distance of counts to probabilities, in standard deviations of its distribution. */
function excess(data: number[], probabilities: number[]): number {
  const chi = probabilities.reduce((sum, p, k) => {
    const count = data.filter((x) => x === k).length;
    return sum + (count - p * data.length) ** 2 / (p * data.length);
  }, 0);
  const degrees = probabilities.length - 1;
  return (chi - degrees) / Math.sqrt(2 * degrees);
}
const poissonOf = (rate: number, count: number): number[] => {
  const p = [Math.exp(-rate)];
  for (let k = 1; k < count; k++) p.push((p[k - 1] * rate) / k);
  return p;
};

for (const device of testDevices())
  describe(`distributions on ${device.name}`, () => {
    test("continuous ones have their distribution function", () => {
      useDevice(device.make());
      for (const [name, draw, cdf] of continuous) {
        const d = distance(numbersOf(draw()), cdf);
        assert.ok(d < critical, `${name}: distance ${d.toFixed(4)}, limit ${critical.toFixed(4)}`);
      }
    });

    test("discrete ones have their probabilities", () => {
      useDevice(device.make());
      const logits = tensor([0.2, 0.5, 0.3]).log();
      assert.ok(excess(numbersOf(weft.categorical(logits, { seed, shape: [n] })), [0.2, 0.5, 0.3]) < 5);
      assert.ok(
        excess(
          numbersOf(weft.poisson(3, [n], { seed })).map((k) => Math.min(k, 9)),
          [...poissonOf(3, 9), 1 - poissonOf(3, 9).reduce((a, b) => a + b)],
        ) < 5,
      );
      for (const probability of [0.3, 0.7]) {
        // 4 trials: k successes have probability C(4, k) p^k (1 - p)^(4 - k).
        const chances = [1, 4, 6, 4, 1].map((ways, k) => ways * probability ** k * (1 - probability) ** (4 - k));
        assert.ok(excess(numbersOf(weft.binomial(4, probability, [n], { seed })), chances) < 5);
        const few = numbersOf(weft.binomial(100_000, probability, [n], { seed }));
        const share = few.reduce((a, b) => a + b) / n / 100_000;
        assert.ok(Math.abs(share - probability) < 5 * Math.sqrt(0.21 / 100_000 / n), `share ${share}`);
      }
      assert.deepEqual(new Set(numbersOf(weft.binomial(7, 1, [3], { seed }))), new Set([7]));
      const many = numbersOf(weft.poisson(10_000, [n], { seed }));
      const mean = many.reduce((a, b) => a + b) / n;
      assert.ok(Math.abs(mean - 10_000) < (5 * 100) / Math.sqrt(n), `mean ${mean}`);
      assert.ok(
        excess(numbersOf(weft.choice(4, [n], { seed, p: tensor([0.1, 0.2, 0.3, 0.4]) })), [0.1, 0.2, 0.3, 0.4]) < 5,
      );
      assert.ok(excess(numbersOf(weft.choice(5, [n], { seed })), [0.2, 0.2, 0.2, 0.2, 0.2]) < 5);
      const trials = numbersOf(weft.geometric(0.25, [n], { seed })).map((k) => Math.min(k - 1, 10));
      const chances = Array.from({ length: 11 }, (_, k) => (k < 10 ? 0.25 * 0.75 ** k : 0.75 ** 10));
      assert.ok(excess(trials, chances) < 5);
      assert.deepEqual(numbersOf(weft.geometric(1, [3], { seed })), [1, 1, 1]);
      for (const p of [undefined, tensor([0.1, 0.2, 0.3, 0.4])])
        assert.deepEqual(numbersOf(weft.choice(4, [4], { seed, replace: false, p })).sort(), [0, 1, 2, 3]);
      assert.deepEqual(numbersOf(weft.shuffle(tensor([5, 6, 7, 8]), 0, { seed })).sort(), [5, 6, 7, 8]);
    });

    test("dirichlet vectors add up to 1 and have their means", () => {
      useDevice(device.make());
      const x = weft.dirichlet(tensor([1, 2, 5]), [n], { seed, dtype: "float64" });
      assert.ok(x.sum(-1).sub(1).abs().max().itemSync() < 1e-12);
      for (const [i, mean] of numbersOf(x.mean(0)).entries())
        assert.ok(Math.abs(mean - [1, 2, 5][i] / 8) < 0.02, `${mean}`);
    });

    test("integers of every dtype cover their range", () => {
      useDevice(device.make());
      for (const dtype of ["int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"] as const) {
        const x = numbersOf(weft.randint(3, 9, [n], { seed, dtype }));
        assert.ok(
          excess(
            x.map((v) => v - 3),
            [1, 1, 1, 1, 1, 1].map((v) => v / 6),
          ) < 5,
          dtype,
        );
      }
      const { min, max } = weft.iinfo("int64");
      const wide = numbersOf(weft.randint(min, max, [n], { seed, dtype: "int64" }));
      assert.ok(distance(wide, (x) => x / 2 ** 64 + 0.5) < critical);
      const negative = numbersOf(weft.randint(-5, -2, [n], { seed, dtype: "int8" }));
      assert.deepEqual([...new Set(negative)].sort(), [-3, -4, -5]);
      assert.throws(() => weft.randint(0, 300, [1], { dtype: "uint8" }), /within uint8/);
    });
  });

test("all devices draw the same numbers", () => {
  const draws = testDevices().map((device) => {
    useDevice(device.make());
    return continuous.map(([, draw]) => numbersOf(draw().index(":50")));
  });
  for (const other of draws.slice(1))
    for (const [i, [name]] of continuous.entries())
      for (const [k, x] of draws[0][i].entries())
        assert.ok(Math.abs(other[i][k] - x) <= 2e-6 * Math.max(1, Math.abs(x)), `${name}: ${other[i][k]} and ${x}`);
});
