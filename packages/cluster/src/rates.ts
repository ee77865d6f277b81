// Rates of a cluster's workers for the planner: those of the slowest worker, measured (calibrate.ts) or assumed.
import {
  matmulRate,
  type ProductTable,
  parseRates,
  type RateCurve,
  type Rates,
  valueAt,
} from "@weft/core/internal/cost";
import { assumedRates, hostLinks, networkLinks } from "./assumed-rates.js";
import { lastMeasured, measuredLinks, measuredWorker } from "./network-rates.js";
import type { WorkerInfo } from "./protocol.js";
import { slowestWorkerRates } from "./slowest-rates.js";

/** Minimum cost of a call through the dispatcher. */
const leastCall = 200e-6;

/** The rates that a worker measured; null if it sent none, or those of another version. */
function measuredRates({ rates: sent }: Pick<WorkerInfo, "rates">): Rates | null {
  if (sent === null || sent === undefined) return null;
  try {
    const rates = parseRates(sent);
    const single = Object.values(rates.links).every((links) => links.every((link) => link.members < 2));
    const links = single ? hostLinks : rates.links;
    const call = Math.max(rates.call, leastCall);
    const { crowded } = rates;
    if (crowded === undefined) return { ...rates, call, links };
    return { ...rates, call, links, crowded: { ...crowded, rates: { ...crowded.rates, call } } };
  } catch {
    return null;
  }
}

/** Where preflight measured products of float32 (preflight.ts), and how many bytes it read from memory. */
const measuredSide = 512;
const measuredBytes = 32e6;

type DeviceRates = Omit<Rates, "links" | "crowded">;

/** Rates of a device that computes and reads memory so many times faster. */
export function scaledDevice<R extends DeviceRates>(rates: R, compute: number, memory: number): R {
  const curve = (points: RateCurve, by: number): RateCurve => points.map(([x, y]) => [x, y * by]);
  const record = <V>(all: Partial<Record<string, V>> | undefined, by: (value: V) => V) =>
    all && Object.fromEntries(Object.entries(all).map(([key, value]) => [key, by(value as V)]));
  const table = (times: readonly number[]): number[] => times.map((seconds) => seconds / compute);
  return {
    ...rates,
    matmul: record(rates.matmul, (points: RateCurve) => curve(points, compute))!,
    bandwidth: curve(rates.bandwidth, memory),
    linalg: rates.linalg * compute,
    simple: rates.simple * compute,
    special: rates.special * compute,
    lookup: rates.lookup * memory,
    random: rates.random * compute,
    ...(rates.ops && { ops: record(rates.ops, (value: number) => value * compute) }),
    ...(rates.columns && { columns: curve(rates.columns, memory) }),
    ...(rates.products && {
      products: record(rates.products, (own: ProductTable) => ({
        ...own,
        nn: table(own.nn),
        tn: table(own.tn),
        nt: table(own.nt),
        ns: table(own.ns),
      })),
    }),
  };
}

/** Rates of one worker: its own or assumed ones, as fast as preflight found it. */
function ratesOfWorker(worker: Pick<WorkerInfo, "rates" | "accelerator" | "threads"> & Partial<WorkerInfo>): Rates {
  const rates = measuredRates(worker) ?? assumedRates(worker);
  const found = worker.process === undefined ? null : measuredWorker(worker as WorkerInfo);
  if (found === null) return rates;
  const compute = found.products / matmulRate(rates, "float32", measuredSide, measuredSide, measuredSide);
  const memory = found.memory / valueAt(rates.bandwidth, measuredBytes);
  const { crowded } = rates;
  return {
    ...scaledDevice(rates, compute, memory),
    name: `${rates.name}, scaled to what preflight measured`,
    ...(crowded && { crowded: { ...crowded, rates: scaledDevice(crowded.rates, compute, memory) } }),
  };
}

const cache = new WeakMap<readonly WorkerInfo[], { measured: number; rates: Rates }>();

/** Rates to plan with: those of the slowest worker. */
export function ratesFor(workers: readonly WorkerInfo[]): Rates {
  const measured = lastMeasured();
  const cached = cache.get(workers);
  if (cached?.measured === measured) return cached.rates;
  const facts = workers.length > 0 ? workers : [{ accelerator: null, threads: 1, rates: null }];
  const rates = slowestWorkerRates(facts.map(ratesOfWorker));
  cache.set(workers, { measured, rates });
  return rates;
}

/** Differences between workers below this are not worth uneven shards. */
const leastUneven = 1.15;
const mostUneven = 64;

/** How many times faster than the slowest worker each one computes products: all 1 where they are about the same. */
export function workerSpeeds(workers: readonly WorkerInfo[]): number[] {
  const speeds = workers.map((worker) =>
    matmulRate(ratesOfWorker(worker), "float32", measuredSide, measuredSide, measuredSide),
  );
  const slowest = Math.min(...speeds);
  if (!(Math.max(...speeds) > leastUneven * slowest)) return workers.map(() => 1);
  // Rounded, so that measurements of equal workers give equal shards.
  return speeds.map((speed) => Math.min(mostUneven, Math.round((10 * speed) / slowest) / 10));
}

/** Rates of workers on several hosts: their links are those of the network, measured by preflight or assumed. */
export function betweenHosts(rates: Rates, workers: readonly WorkerInfo[] = []): Rates {
  const measured = workers.length === 0 ? null : measuredLinks(workers);
  const name = `${rates.name}, with links between hosts (${measured === null ? "assumed" : "measured"})`;
  return { ...rates, name, links: measured ?? networkLinks };
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
