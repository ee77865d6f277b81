// @ts-check
// Optimizes the pulses of an X gate on a transmon with six levels by gradients through the whole evolution (GRAPE).
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { GateProblem, Minimizer, parseGateSpec, populationsSvg, pulsesSvg, withError } from "@weft/quantum";
import { lineChart, savePicture, small, verify } from "../example.mjs";

const file = join(import.meta.dirname, "../quantum/transmon-x.yaml");
const problem = new GateProblem(parseGateSpec(readFileSync(file, "utf8"), "transmon-x"));
const before = problem.report();

const minimizer = new Minimizer(problem.loss, problem.learned(), {
  iterations: small ? 40 : 200,
  target: 1e-8,
  bounds: problem.spec.bounds,
});
while (minimizer.finished() === null && minimizer.step());
const after = problem.report(minimizer.params);
console.log(`infidelity before: ${withError(before.infidelity, before.error)}`);
console.log(`infidelity after ${minimizer.progress.iteration} iterations: ${withError(after.infidelity, after.error)}`);
console.log(`population outside of the qubit: ${(after.leaked ?? 0).toExponential(1)}`);
verify("the gate is better than 1e-4, within the error of its integration", after.infidelity + after.error < 1e-4);

savePicture(
  import.meta.dirname,
  "infidelity.svg",
  lineChart(
    [{ name: "infidelity", x: minimizer.values.map((_, k) => k), y: minimizer.values }],
    {
      title: "An X gate, optimized by L-BFGS",
      subtitle: "transmon of six levels, 10 ns",
      x: "iteration",
      y: "infidelity",
    },
    { logY: true },
  ),
);
const curves = ["x", "y"].map((name) => {
  const values = Array.from(/** @type {Float64Array} */ (minimizer.params[`q.${name}.values`].dataSync()));
  // Two samples per segment show its jumps.
  const x = Array.from({ length: 20 * values.length }, (_, k) => (k + 0.5) * (10 / (20 * values.length)));
  return { name: `q.${name}`, x, y: x.map((_, k) => values[Math.floor(k / 20)]) };
});
savePicture(import.meta.dirname, "pulses.svg", pulsesSvg(curves, "The pulses after the optimization"));
const { labels, times, weights } = problem.populations(200, [0], minimizer.params);
savePicture(
  import.meta.dirname,
  "populations.svg",
  populationsSvg(
    labels.slice(0, 4).map((label, s) => ({ name: `|${label}>`, x: times, y: weights.map((row) => row[s]) })),
    "Populations from |0>",
  ),
);
