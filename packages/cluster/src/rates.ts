// Rates of a cluster's workers for the planner: those of the slowest worker, measured (calibrate.ts) or assumed.
import { parseRates, type Rates } from "@weft/core/internal/cost";
import { assumedRates, hostLinks, networkLinks } from "./assumed-rates.js";
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

const cache = new WeakMap<readonly WorkerInfo[], Rates>();

/** Rates to plan with: those of the slowest worker. */
export function ratesFor(workers: readonly WorkerInfo[]): Rates {
  let rates = cache.get(workers);
  if (rates === undefined) {
    const facts = workers.length > 0 ? workers : [{ accelerator: null, threads: 1, rates: null }];
    rates = slowestWorkerRates(facts.map((worker) => measuredRates(worker) ?? assumedRates(worker)));
    cache.set(workers, rates);
  }
  return rates;
}

/** Rates of workers on several hosts: their links are those of the network, which are assumed. */
export const betweenHosts = (rates: Rates): Rates => ({
  ...rates,
  name: `${rates.name}, with links between hosts (assumed)`,
  links: networkLinks,
});

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
