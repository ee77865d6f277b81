import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  allReduceUs,
  amdahl,
  busBandwidthGBps,
  classMeaning,
  ddpBuckets,
  fabrics,
  fitShape,
  fitUsl,
  gustafson,
  karpFlatt,
  popEfficiencies,
  powerShape,
  ringShape,
  scalingClass,
  simulateOverlap,
  uslThroughput,
} from "./index.js";

const fixture = (name: string) => JSON.parse(readFileSync(new URL(`../../testdata/${name}`, import.meta.url), "utf8"));
const close = (actual: number, expected: number, relative: number) =>
  assert.ok(Math.abs(actual / expected - 1) <= relative, `${actual} is not ${expected} within ${relative}`);

test("the USL fit reproduces the Cisco oracle within its tolerance", () => {
  const oracle = fixture("usl_cisco.json");
  const fit = fitUsl(oracle.n.map((n: number, i: number) => [n, oracle.throughput[i]]))!;
  const tolerance = oracle.expected.tolerance_rel;
  close(fit.sigma, oracle.expected.sigma, tolerance);
  close(fit.kappa, oracle.expected.kappa, tolerance);
  close(fit.lambda, oracle.expected.lambda, tolerance);
  assert.equal(fit.peakDevices, oracle.expected.n_max);
  close(fit.peakThroughput!, oracle.expected.x_max, tolerance);
  close(uslThroughput(fit, 20), oracle.expected["x(20)"], tolerance);
});

test("the USL fit stays inside its bounds on three points and refuses two", () => {
  const fit = fitUsl([
    [1, 100],
    [2, 205],
    [4, 380],
  ])!;
  assert.ok(fit.sigma >= 0 && fit.kappa >= 0);
  assert.ok(uslThroughput(fit, 16) > 0 && uslThroughput(fit, 16) <= 16 * fit.lambda);
  assert.equal(
    fitUsl([
      [1, 100],
      [2, 190],
      [2, 191],
    ]),
    null,
  );
});

/** Elements of ResNet-50's parameters in registration order. */
function resnet50(): number[] {
  const parameters = [64 * 3 * 49, 64, 64];
  let input = 64;
  for (const [blocks, width] of [
    [3, 64],
    [4, 128],
    [6, 256],
    [3, 512],
  ] as const)
    for (let block = 0; block < blocks; block++) {
      parameters.push(input * width, width, width, width * width * 9, width, width, width * width * 4);
      parameters.push(width * 4, width * 4);
      if (block === 0) parameters.push(input * width * 4, width * 4, width * 4);
      input = width * 4;
    }
  parameters.push(2048 * 1000, 1000);
  return parameters;
}

test("DDP buckets of ResNet-50 equal those of an NCCL trace", () => {
  const oracle = fixture("ddp_buckets_resnet50.json");
  const parameters = resnet50();
  assert.equal(
    parameters.reduce((a, b) => a + b, 0),
    oracle.resnet50_params,
  );
  assert.deepEqual(ddpBuckets(parameters), oracle.ddp_bucket_elems_in_launch_order);
  assert.equal(ddpBuckets(parameters, { capBytes: 1e12, firstCapBytes: 1e12 }).length, 1);
  assert.deepEqual(ddpBuckets([]), []);
});

test("the IMDB model's embedding is the last bucket and cannot overlap", () => {
  const d = 128;
  const layer = [3 * d * d, 3 * d, d * d, d, 256 * d, 256, d * 256, d, d, d, d, d];
  const bucketBytes = ddpBuckets([20000 * d, ...layer, ...layer, 4 * d, 4]).map((n) => n * 4);
  assert.deepEqual(bucketBytes, [1061904, 10240000]);
  const link = (bytes: number) => bytes / 12.81e3;
  const overlapped = simulateOverlap(bucketBytes, 5000, link, { workShares: [0.99, 0.01] });
  const without = simulateOverlap(bucketBytes, 5000, link, { overlap: false });
  close(overlapped.exposedUs, 10240000 / 12.81e3 + Math.max(0, 4950 + 1061904 / 12.81e3 - 5000), 1e-9);
  close(without.exposedUs, (1061904 + 10240000) / 12.81e3, 1e-9);
  assert.equal(overlapped.communicationUs, without.communicationUs);
});

test("laws at known points", () => {
  assert.equal(amdahl(0, 8), 8);
  close(amdahl(0.1, 10), 1 / 0.19, 1e-12);
  close(gustafson(0.1, 10), 9.1, 1e-12);
  close(karpFlatt(amdahl(0.2, 4), 4)!, 0.2, 1e-12);
  assert.equal(karpFlatt(1, 1), null);
  close(karpFlatt(0.4615, 4)!, 2.556, 1e-3);
  close(powerShape(1)(8), ringShape(8), 1e-12);
  close(powerShape(0)(8), 3, 1e-12);
  close(powerShape(1e-7)(8), 3, 1e-6);
  close(powerShape(-1)(8), 7, 1e-12);
  close(fitShape(ringShape, [{ devices: 4, relativeTime: 1 + 0.04 * 1.5 }])!, 0.04, 1e-12);
  assert.equal(fitShape(ringShape, []), null);
});

test("classes cover every value; the baseline has its own class", () => {
  for (let speedup = 0.01; speedup < 12; speedup += 0.01) assert.ok(classMeaning[scalingClass(speedup, 8)]);
  assert.equal(scalingClass(1, 1), "baseline");
  assert.equal(scalingClass(7, 8), "near-perfect");
  assert.equal(scalingClass(6.99, 8), "good");
  assert.equal(scalingClass(5, 8), "good");
  assert.equal(scalingClass(4.5, 8), "partial");
  assert.equal(scalingClass(4, 8), "partial");
  assert.equal(scalingClass(3.99, 8), "poor");
  assert.equal(scalingClass(2, 8), "poor");
  assert.equal(scalingClass(1.5, 8), "none");
  assert.equal(scalingClass(1, 8), "negative");
  assert.equal(scalingClass(8.2, 8), "super-linear");
  assert.equal(scalingClass(8.16, 8), "near-perfect");
});

test("communication: bus bandwidth inverts the ring model", () => {
  const fabric = { ...fabrics["nvlink3"]!, baseUs: 0, stepUs: 0 };
  close(busBandwidthGBps("allReduce", 1e9, allReduceUs(1e9, 8, fabric), 8)!, 235, 1e-9);
  assert.equal(allReduceUs(1e9, 1, fabric), 0);
  assert.equal(busBandwidthGBps("allReduce", 1e9, 0, 8), null);
  assert.equal(busBandwidthGBps("nonsense", 1e9, 5, 8), null);
});

test("POP efficiencies multiply", () => {
  const pop = popEfficiencies([8, 10, 6], 12.5, 25)!;
  close(pop.loadBalance, 0.8, 1e-12);
  close(pop.communication, 0.8, 1e-12);
  close(pop.parallel, 0.64, 1e-12);
  close(pop.global!, 0.64 * (25 / 24), 1e-12);
  assert.equal(popEfficiencies([], 1), null);
  assert.equal(popEfficiencies([1], 0), null);
});
