// Rates of machines that are not available here, for cost estimates and simulation. Every figure is published (vendor peak
// rates times a typical efficiency; all-reduce bandwidths and latencies measured by others); none was measured by Weft.
import { type Link, type Rates, sameLinks } from "./rates.js";

/** Ring latency of NCCL inside a node: a base, plus a step per hop in both directions. */
const ring = (members: number, bandwidth: number): Link => ({
  members,
  latency: (8.4 + 2 * (members - 1) * 3.4) * 1e-6,
  bandwidth: bandwidth * 1e9,
});

/** Bus bandwidths (GB/s) by number of GPUs. */
const nvlink4: Link[] = [ring(2, 367), ring(4, 363), ring(8, 473)];

/** Tensor cores need large tiles: small products reach a fraction of the peak. */
const tensorCores = (peak: number): [number, number][] => [
  [64, peak * 0.005],
  [256, peak * 0.1],
  [1024, peak * 0.5],
  [4096, peak * 0.75],
];

export const h200: Rates = {
  name: "H200 (assumed: vendor peaks, published NVLink 4 bandwidths)",
  assumed: true,
  matmul: {
    float32: tensorCores(60e12),
    float64: tensorCores(60e12),
    bfloat16: tensorCores(989e12),
    float16: tensorCores(989e12),
  },
  linalg: 2e12,
  bandwidth: [
    [1e5, 0.2e12],
    [1e7, 2e12],
    [1e8, 3.8e12],
    [1e9, 4.2e12],
  ],
  simple: 20e12,
  special: 4e12,
  lookup: 0.5e12,
  random: 0.3e12,
  kernel: 3e-6,
  call: 10e-6,
  links: sameLinks(nvlink4),
};

/** One core of a server, with workers that share memory: typical figures, for plans before anything was measured. */
export const serverCore: Rates = {
  name: "a server core (assumed)",
  assumed: true,
  matmul: {
    float32: [
      [16, 5e9],
      [64, 30e9],
      [256, 60e9],
      [1024, 70e9],
    ],
  },
  linalg: 5e9,
  bandwidth: [
    [1e4, 40e9],
    [1e6, 20e9],
    [1e8, 8e9],
  ],
  simple: 8e9,
  special: 0.5e9,
  lookup: 0.5e9,
  random: 0.2e9,
  kernel: 0.5e-6,
  call: 5e-6,
  links: sameLinks([
    { members: 2, latency: 5e-6, bandwidth: 4e9 },
    { members: 8, latency: 15e-6, bandwidth: 2e9 },
  ]),
};
