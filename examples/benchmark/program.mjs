// @ts-check
// Benchmarks a function of one's own: checked first, then timed in turns at several sizes, with medians and quartiles.
import * as weft from "@weft/core";
import { quantile } from "@weft/formats/stats";
import { formatMicroseconds } from "@weft/formats/text";
import { lineChart, savePicture, small, verify, watchMachine } from "../example.mjs";

/** Distances of points to a center, summed: three operations and a reduction. */
const energy = (/** @type {weft.Tensor} */ x, /** @type {weft.Tensor} */ y) => x.square().add(y.square()).sqrt().sum();
const jitted = weft.jit(energy);
const plain = (/** @type {Float32Array} */ x, /** @type {Float32Array} */ y) => {
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += Math.sqrt(x[i] * x[i] + y[i] * y[i]);
  return sum;
};

const sizes = small ? [1e3, 1e5] : [1e3, 1e4, 1e5, 1e6, 1e7];
const rounds = small ? 5 : 15;
/** @type {Record<string, { us: number, low: number, high: number }[]>} */
const results = { "plain JavaScript": [], "Weft, eager": [], "Weft, jit": [] };
const remark = watchMachine();
for (const n of sizes) {
  const [x, y] = [weft.randn([n], { seed: 1 }), weft.randn([n], { seed: 2 })];
  const [a, b] = /** @type {Float32Array[]} */ ([x.dataSync(), y.dataSync()]);
  const candidates = {
    "plain JavaScript": () => plain(a, b),
    "Weft, eager": () => energy(x, y).itemSync(),
    "Weft, jit": () => jitted(x, y).itemSync(),
  };
  // A fast wrong answer is no answer.
  const expected = candidates["plain JavaScript"]();
  for (const [name, run] of Object.entries(candidates))
    verify(`${name} at ${n.toExponential(0)}`, Math.abs(run() / expected - 1) < 1e-4);
  // In turns, so that a busy moment of the machine meets every candidate.
  /** @type {Record<string, number[]>} */
  const times = {};
  for (let round = 0; round < rounds; round++)
    for (const [name, run] of Object.entries(candidates)) {
      const start = performance.now();
      run();
      (times[name] ??= []).push((performance.now() - start) * 1e3);
    }
  for (const [name, all] of Object.entries(times)) {
    const [low, us, high] = [0.25, 0.5, 0.75].map((share) => quantile(all, share));
    results[name].push({ us, low, high });
    console.log(
      `${n.toExponential(0)}  ${name.padEnd(18)}${formatMicroseconds(us)} (${formatMicroseconds(low)} to ${formatMicroseconds(high)})`,
    );
  }
}
savePicture(
  import.meta.dirname,
  "times.svg",
  lineChart(
    Object.entries(results).map(([name, rows]) => ({ name, x: sizes, y: rows.map(({ us }) => us) })),
    {
      title: "The sum of n distances",
      subtitle: `median of ${rounds} rounds, in turns; ${remark()}`,
      x: "n",
      y: "time in us",
    },
    { logX: true, logY: true },
  ),
);
