// What workers can do, for the planner: what they were measured to do (calibrate.ts), or assumptions of the right size,
// scaled by their cores; plans made with those say so.
import { h200, type Link, parseRates, type Rates, sameLinks } from "@weft/core/internal/cost";
import type { WorkerInfo } from "./protocol.js";

/** Links over shared memory: members read each other directly and share memory bandwidth. */
const sharedMemory = (members: number): Link => ({
  members,
  latency: 5e-6 * members,
  bandwidth: 6e9 / Math.sqrt(members / 2),
});

const scaled = (points: [number, number][], by: number): [number, number][] => points.map(([x, y]) => [x, y * by]);

function cpuRates(threads: number): Rates {
  const bandwidth = Math.min(threads, 4);
  const products = scaled(
    [
      [32, 5e9],
      [128, 30e9],
      [512, 70e9],
      [2048, 90e9],
    ],
    threads,
  );
  return {
    name: `CPU workers of ${threads} core${threads === 1 ? "" : "s"} (assumed)`,
    assumed: true,
    matmul: {
      float32: products,
      float64: scaled(products, 0.5),
      complex64: scaled(products, 0.25),
      complex128: scaled(products, 0.12),
    },
    linalg: 2e9 * threads,
    bandwidth: scaled(
      [
        [1e5, 20e9],
        [1e7, 10e9],
        [1e8, 8e9],
      ],
      bandwidth,
    ),
    simple: 4e9 * threads,
    special: 0.8e9 * threads,
    lookup: 0.4e9 * threads,
    random: 0.15e9 * threads,
    kernel: 2e-6,
    call: 250e-6,
    links: sameLinks([2, 4, 8].map(sharedMemory)),
  };
}

/** Minimum cost of a call through the dispatcher. */
const leastCall = 200e-6;

function measured(workers: readonly WorkerInfo[]): Rates | null {
  const told = workers.map((worker) => worker.rates).find((rates) => rates !== null && rates !== undefined);
  if (told === undefined) return null;
  try {
    const rates = parseRates(told);
    const alone = Object.values(rates.links).every((links) => links.every((link) => link.members < 2));
    const links = alone ? sameLinks([2, 4, 8].map(sharedMemory)) : rates.links;
    const call = Math.max(rates.call, leastCall);
    const { crowded } = rates;
    if (crowded === undefined) return { ...rates, call, links };
    return { ...rates, call, links, crowded: { ...crowded, rates: { ...crowded.rates, call } } };
  } catch {
    // Of another version: assumptions do.
    return null;
  }
}

export function ratesFor(workers: readonly WorkerInfo[]): Rates {
  const known = measured(workers);
  if (known !== null) return known;
  if (workers.some((worker) => worker.device.startsWith("cuda"))) return { ...h200, call: 250e-6 };
  return cpuRates(Math.max(1, Math.min(...workers.map((worker) => worker.threads))));
}

/**
 * Rates with very slow links: plans made with them avoid communication where possible. Measured link curves are
 * dropped, because they would take precedence.
 */
export function withoutLinks(rates: Rates): Rates {
  const slow = Object.entries(rates.links).map(([kind, links]) => [
    kind,
    links.map(({ members, latency, bandwidth }) => ({ members, latency, bandwidth: bandwidth / 1000 })),
  ]);
  return { ...rates, links: Object.fromEntries(slow) as Rates["links"] };
}
