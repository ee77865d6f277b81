// What preflight measured, for the planner of later programs of this user: rates of workers and of links between hosts, by the
// identity of hosts. One file in the cache; damaged, foreign or old entries are ignored.
import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Link, type Rates, sameLinks } from "@weft/core/internal/cost";
import { cacheRoot, makeFolder } from "@weft/core/internal/device";
import { type CollectiveKind, collectiveKinds } from "@weft/core/internal/graph";
import { z } from "zod";
import type { PreflightReport } from "./preflight.js";
import type { WorkerInfo } from "./protocol.js";
import { clusterSettings } from "./settings.js";

const version = 1;
const maxBytes = 4 << 20;
const maxAgeMs = 7 * 24 * 3600e3;

const rate = z.number().positive().finite();
const at = z.number().nonnegative().finite();
const link = z.object({ members: rate, latency: at, bandwidth: rate });
const saved = z.object({
  version: z.literal(version),
  workers: z.record(z.string(), z.object({ at, products: rate, memory: rate })),
  links: z.record(z.string(), z.object({ at, latency: at, bandwidth: rate })),
  groups: z.record(z.string(), z.object({ at, links: z.record(z.enum(collectiveKinds), z.array(link)) })),
});
type Saved = z.infer<typeof saved>;

type Facts = Pick<WorkerInfo, "process" | "device" | "threads">;

const file = (): string => join(cacheRoot(), "rates", "network.json");
const workerKey = ({ process: { host }, device, threads }: Facts): string => `${host}|${device}|${threads}`;
const hostKey = (hosts: readonly string[]): string => [...hosts].sort().join("|");
/** Members of a group by host: the order of the members does not matter to it. */
const groupKey = (workers: readonly Facts[]): string => hostKey(workers.map(({ process: { host } }) => host));

const nothing: Saved = { version, workers: {}, links: {}, groups: {} };
let cached: { modified: number; value: Saved } | null = null;

function fresh<T extends { at: number }>(entries: Record<string, T>): Record<string, T> {
  const now = Date.now();
  return Object.fromEntries(
    Object.entries(entries).filter(([, entry]) => now - entry.at < maxAgeMs && entry.at <= now + 60e3),
  );
}

function read(): Saved {
  if (clusterSettings.rates.get() === "assumed") return nothing;
  try {
    const { size, mtimeMs } = statSync(file());
    if (cached?.modified === mtimeMs) return cached.value;
    const { workers, links, groups } =
      size > maxBytes ? nothing : saved.parse(JSON.parse(readFileSync(file(), "utf8")));
    const value: Saved = { version, workers: fresh(workers), links: fresh(links), groups: fresh(groups) };
    cached = { modified: mtimeMs, value };
    return value;
  } catch {
    return nothing;
  }
}

/** Changes when something is measured. */
export function lastMeasured(): number {
  try {
    return statSync(file()).mtimeMs;
  } catch {
    return 0;
  }
}

/**
 * Links over a group, from every kind of collective over all its members at two sizes: what the larger one takes longer is
 * bandwidth, the rest is latency. A shaped link lets the first kilobytes pass at once, which one size alone takes for speed.
 */
export function groupLinks({ collectives }: Pick<PreflightReport, "collectives">): Record<CollectiveKind, Link[]> {
  const entries = collectiveKinds.map((kind): [CollectiveKind, Link[]] => {
    const rows = collectives.filter((row) => row.kind === kind).sort((a, b) => a.bytes - b.bytes);
    const { members, bytes, seconds } = rows[rows.length - 1];
    const smaller = rows[rows.length - 2] ?? { bytes: 0, seconds: 0 };
    const slope = (seconds - smaller.seconds) / (bytes - smaller.bytes);
    // Noise may hide the difference: at least half of the time is taken for bandwidth.
    const perByte = Math.min(seconds / bytes, Math.max(slope, seconds / bytes / 2));
    return [kind, [{ members, latency: Math.max(0, seconds - bytes * perByte), bandwidth: 1 / perByte }]];
  });
  return Object.fromEntries(entries) as Record<CollectiveKind, Link[]>;
}

/** Saves a report; false where the cache cannot be written. */
export function saveReport(report: PreflightReport, workers: readonly Facts[]): boolean {
  const now = Date.now();
  const before = read();
  const next: Saved = {
    version,
    workers: { ...before.workers },
    links: { ...before.links },
    groups: { ...before.groups },
  };
  report.workers.forEach(({ products, memory }, i) => {
    next.workers[workerKey(workers[i])] = { at: now, products, memory };
  });
  for (const { hosts, latency, bandwidth } of report.links)
    if (hosts[0] !== hosts[1]) next.links[hostKey(hosts)] = { at: now, latency, bandwidth };
  if (report.collectives.length > 0) next.groups[groupKey(workers)] = { at: now, links: groupLinks(report) };
  const own = `${file()}.${process.pid}`;
  try {
    makeFolder(join(cacheRoot(), "rates"));
    writeFileSync(own, JSON.stringify(saved.parse(next)), { mode: 0o600 });
    renameSync(own, file());
    cached = null;
    return true;
  } catch {
    rmSync(own, { force: true });
    return false;
  }
}

/** Measured products and memory of a worker, in operations and bytes per second; null if it was not measured. */
export const measuredWorker = (worker: Facts): { products: number; memory: number } | null =>
  worker.process === undefined ? null : (read().workers[workerKey(worker)] ?? null);

/** The slowest measured link between these hosts; null unless all of them were measured. */
function slowestLink(hosts: readonly string[]): { latency: number; bandwidth: number } | null {
  const { links } = read();
  const found = hosts.flatMap((a, i) => hosts.slice(i + 1).map((b) => links[hostKey([a, b])]));
  if (found.length === 0 || found.some((entry) => entry === undefined)) return null;
  return {
    latency: Math.max(...found.map(({ latency }) => latency)),
    bandwidth: Math.min(...found.map(({ bandwidth }) => bandwidth)),
  };
}

/** Measured links between workers of several hosts: as a group, or by their slowest pair; null if they were not measured. */
export function measuredLinks(workers: readonly Facts[]): Rates["links"] | null {
  const whole = read().groups[groupKey(workers)]?.links;
  const slowest = slowestLink([...new Set(workers.map(({ process: { host } }) => host))]);
  const pair: Link[] = slowest === null ? [] : [{ members: 2, ...slowest }];
  if (whole === undefined) return pair.length === 0 ? null : sameLinks([{ ...pair[0], members: workers.length }]);
  const entries = collectiveKinds.map((kind) => [kind, workers.length > 2 ? [...pair, ...whole[kind]!] : whole[kind]!]);
  return Object.fromEntries(entries) as Rates["links"];
}
