// Judges what preflight measured: names workers, hosts and links that are slow beside their neighbors, with the measurements
// that say so. Minima over interleaved repeats are compared, and the time that other processes took away does not count: a
// disturbed worker is not a slow one. It knows numbers, not clusters.
import { median } from "@weft/formats/stats";
import type { Measurement } from "./clocks.js";

const workerKinds = ["products", "memory", "loader"] as const;
type WorkerKind = (typeof workerKinds)[number];

/** One measured worker. */
export interface WorkerRow {
  worker: string;
  host: string;
  threads: number;
  /** Workers with the same text are compared with each other. */
  peers: string;
  samples: Record<WorkerKind, Measurement[]>;
}

/** One measured link between two workers: seconds of a tiny and of a large all-reduce. */
export interface LinkRow {
  workers: [string, string];
  hosts: [string, string];
  latency: number[];
  seconds: number[];
}

/** Something that is slow, with the measurements that say so. */
export interface PreflightFinding {
  /** A worker, a host (all its links), or the link between two workers. */
  what: "worker" | "host" | "link";
  /** Ids of the workers that it concerns. */
  workers: string[];
  /** How many times slower than its neighbors. */
  slower: number;
  /** What was measured, as a sentence. */
  evidence: string;
}

interface PreflightVerdict {
  findings: PreflightFinding[];
  /** What could not be judged, and why. */
  undecided: string[];
}

/** How many times slower than the median of its neighbors something must be. Memory and files vary more than products. */
const workerFactor: Readonly<Record<WorkerKind, number>> = { products: 1.3, memory: 2, loader: 2 };
const linkFactor = 1.8;
/** The same for latencies, and seconds below which a latency is not worth a word. */
const latencyFactor = 4;
const leastLatency = 2e-3;
/** Share of a host's links that must be slow before the host is named instead. */
const hostShare = 0.7;
/**
 * Samples without which nothing is named: of a link, of all slow links of a host, and of a worker whose clocks do not say why it is
 * slow (of one whose clocks do, for another look).
 */
const enoughLinkSamples = 6;
const enoughHostSamples = 12;
const enoughWorkerSamples = 4;
const explainedWorkerSamples = 2;
/** How far above the bar something is that further samples will not change. */
const clearly = 1.2;
/** A slow processor makes the links of its host slow, because bytes are encrypted there: by up to so many times as much. */
const slowByWorker = 3;
const maxNoise = 5;
/** Share of the time above which other processes make products incomparable. */
const crowdedShare = 0.75;

const least = (values: readonly number[]): number => Math.min(...values);
const ms = (seconds: number): string => `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 0)} ms`;

/** The value below which a fifth of the values are, without interpolation: of three links two may be those of a slow host. */
const fasterFifth = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(0.2 * values.length)];

/** The best time of a link. Of several the best but one: beside busy neighbors, a single sample may seem shorter than it was. */
const bestOfLink = (samples: readonly number[]): number =>
  [...samples].sort((a, b) => a - b)[samples.length < enoughLinkSamples ? 0 : 1];

/** How much samples of the same thing differ: 1 where they do not. Differences between things must be larger than that. */
const noiseOf = (lists: readonly (readonly number[])[]): number =>
  Math.min(maxNoise, Math.max(1, median(lists.map((samples) => median(samples) / least(samples)))));

/**
 * Seconds that other processes took away. While a processor is idle, nobody else holds a thread back: what it waited then is a
 * quota's doing, also where the control group cannot be seen.
 */
function takenAway({ wait, throttled, wall, cpu, idle }: Measurement, threads: number): number {
  const held = Math.max(0, throttled, idle - cpu / threads);
  return Math.min(wall, Math.max(0, wait - held));
}

/**
 * Seconds that the work takes on this worker without others: what passed, less what other processes took away; with a quota at
 * least as long as the quota allows.
 */
export function effectiveSeconds(sample: Measurement, threads: number): number {
  const own = Math.max(sample.wall - takenAway(sample, threads), Math.min(sample.wall, sample.cpu / threads));
  const { quota } = sample;
  return quota === null || quota >= threads ? own : Math.max(own, sample.cpu / quota);
}

/** The best time of a worker. */
export const bestOf = (row: WorkerRow, kind: WorkerKind): number =>
  least(row.samples[kind].map((sample) => effectiveSeconds(sample, row.threads)));

/** Best time of a worker, that of the others of its kind, and whether it is slow beside them. */
function compare(
  row: WorkerRow,
  rows: readonly WorkerRow[],
  kind: WorkerKind,
): { own: number; usual: number; bad: boolean; clear: boolean; suspect: boolean } {
  const peers = rows.filter((other) => other !== row && other.peers === row.peers);
  const own = bestOf(row, kind);
  const usual = median(peers.map((other) => bestOf(other, kind)));
  const all = peers.map(({ samples, threads }) => samples[kind].map((sample) => effectiveSeconds(sample, threads)));
  const bar = workerFactor[kind] * (peers.length === 0 ? 1 : noiseOf(all)) * usual;
  return { own, usual, bad: own > bar, clear: own > clearly * bar, suspect: own > 0.9 * bar };
}

/** Why a worker may be slow, from its clocks. */
function causes(row: WorkerRow): string {
  const samples = row.samples.products;
  const wall = samples.reduce((n, sample) => n + sample.wall, 0);
  const share = (of: (sample: Measurement) => number): number => samples.reduce((n, s) => n + of(s), 0) / wall;
  const held = share(({ throttled }) => Math.max(0, throttled));
  const off = share(({ wall: all, cpu, wait }) => Math.max(0, all - cpu / row.threads - wait));
  const quota = least(samples.map((sample) => sample.quota ?? Number.POSITIVE_INFINITY));
  return [
    quota < row.threads ? `; its control group allows ${quota.toFixed(2)} processors for ${row.threads} threads` : "",
    held > 0.05 ? `; the quota held it back for ${Math.round(100 * held)}% of the time` : "",
    off > 0.1 ? `; it was stopped or blocked for ${Math.round(100 * off)}% of the time` : "",
  ].join("");
}

/** Workers that look slow so far, and need another look. */
export function suspectWorkers(rows: readonly WorkerRow[]): WorkerRow[] {
  return rows.filter((row) => {
    const seen = workerKinds.map((kind) => compare(row, rows, kind));
    if (!seen.some(({ suspect }) => suspect)) return false;
    const enough = causes(row) === "" ? enoughWorkerSamples : explainedWorkerSamples;
    return row.samples.products.length < enough || !seen.some(({ clear }) => clear);
  });
}

function judgeWorkers(rows: readonly WorkerRow[]): PreflightVerdict & { slow: Map<string, number> } {
  const verdict: PreflightVerdict = { findings: [], undecided: [] };
  const slow = new Map<string, number>();
  for (const peers of new Set(rows.map((row) => row.peers))) {
    const own = rows.filter((row) => row.peers === peers);
    if (own.length < 3)
      verdict.undecided.push(
        `${own.map(({ worker }) => worker).join(", ")}: ${own.length} of a kind (${peers}) cannot be compared; 3 can`,
      );
  }
  for (const row of rows) {
    const seen = workerKinds.map((kind) => ({ kind, ...compare(row, rows, kind) }));
    const bad = seen.filter((one) => one.bad);
    if (bad.length === 0) continue;
    const crowded =
      median(row.samples.products.map((sample) => takenAway(sample, row.threads) / sample.wall)) > crowdedShare;
    const alone = rows.filter(({ peers }) => peers === row.peers).length < 3;
    const text = bad.map(({ kind, own, usual }) => `${kind}: ${ms(own)}, the others ${ms(usual)}`).join("; ");
    const why = causes(row);
    // Two workers differ, and nobody knows which is the usual one, unless a clock says why.
    const few = row.samples.products.length < enoughWorkerSamples;
    if (why === "" && (alone || crowded || few)) {
      const because = crowded ? "; other processes use its processors" : few ? "; there was no time to look again" : "";
      verdict.undecided.push(`${row.worker}: ${text}${because}`);
      continue;
    }
    const slower = Math.max(...bad.map(({ own, usual }) => own / usual));
    slow.set(row.host, Math.max(slower, slow.get(row.host) ?? 0));
    verdict.findings.push({ what: "worker", workers: [row.worker], slower, evidence: `${text}${why}` });
  }
  return { ...verdict, slow };
}

interface JudgedLink {
  row: LinkRow;
  slower: number;
  text: string;
  bad: boolean;
  /** Whether further samples will not change that, and whether they might. */
  clear: boolean;
  suspect: boolean;
}

function compareLinks(rows: readonly LinkRow[]): JudgedLink[] {
  const lists = { seconds: rows.map(({ seconds }) => seconds), latency: rows.map(({ latency }) => latency) };
  // The faster ones are the usual ones: one slow host makes the links of all others to it slow.
  const usual = fasterFifth(lists.seconds.map(bestOfLink));
  const quick = fasterFifth(lists.latency.map(bestOfLink));
  const [unsteady, unsteadyLatency] = [noiseOf(lists.seconds), noiseOf(lists.latency)];
  return rows.map((row) => {
    const [own, latency] = [bestOfLink(row.seconds), bestOfLink(row.latency)];
    const late = latency > latencyFactor * unsteadyLatency * quick && latency - quick > leastLatency * unsteadyLatency;
    const slower = late ? Math.max(own / usual, latency / quick) : own / usual;
    const text = late
      ? `a tiny message takes ${ms(latency)}, on others ${ms(quick)}`
      : `${ms(own)}, on others ${ms(usual)}`;
    const bar = linkFactor * unsteady * usual;
    return { row, slower, text, bad: late || own > bar, clear: late || own > clearly * bar, suspect: own > 0.8 * bar };
  });
}

/** Whether the processor of one of its hosts explains a slow link. */
const isExplained = ({ row, slower }: JudgedLink, busy: ReadonlyMap<string, number>): boolean =>
  row.hosts.some((host) => slower < slowByWorker * (busy.get(host) ?? 0));

/**
 * Hosts most of whose links are among these, the ones with most first. Different links at different times are as good a proof as
 * one link many times: their samples count together.
 */
function slowHosts(
  links: readonly JudgedLink[],
  open: readonly JudgedLink[],
): { host: string; all: JudgedLink[]; bad: JudgedLink[] }[] {
  const of = (list: readonly JudgedLink[], host: string): JudgedLink[] =>
    list.filter(({ row }) => row.hosts.includes(host));
  return [...new Set(links.flatMap(({ row }) => row.hosts))]
    .map((host) => ({ host, all: of(links, host), bad: of(open, host) }))
    .filter(({ all, bad }) => bad.length > 1 && bad.length >= hostShare * all.length)
    .filter(({ bad }) => bad.reduce((n, { row }) => n + row.seconds.length, 0) >= enoughHostSamples)
    .sort((a, b) => b.bad.length / b.all.length - a.bad.length / a.all.length);
}

/** Links that look slow so far, and need another look. */
export function suspectLinks(rows: readonly LinkRow[], workers: readonly WorkerRow[]): LinkRow[] {
  const busy = judgeWorkers(workers).slow;
  return [true, false].flatMap((near) => {
    const links = compareLinks(rows.filter(({ hosts: [a, b] }) => (a === b) === near));
    const suspects = links.filter((link) => (link.bad || link.suspect) && !isExplained(link, busy));
    const clear = near
      ? []
      : slowHosts(
          links,
          suspects.filter((link) => link.clear),
        ).map(({ host }) => host);
    const isDecided = ({ row, clear: surely }: JudgedLink): boolean =>
      (surely && row.seconds.length >= enoughLinkSamples) || row.hosts.some((host) => clear.includes(host));
    return suspects.filter((link) => !isDecided(link)).map(({ row }) => row);
  });
}

function judgeLinks(rows: readonly LinkRow[], near: boolean, busy: ReadonlyMap<string, number>): PreflightVerdict {
  const verdict: PreflightVerdict = { findings: [], undecided: [] };
  const where = near ? "links within a host" : "links between hosts";
  if (rows.length === 0) return verdict;
  if (rows.length < 3) {
    verdict.undecided.push(`${where}: ${rows.length} cannot be compared; 3 can`);
    return verdict;
  }
  const links = compareLinks(rows);
  let open = links.filter((link) => link.bad && !isExplained(link, busy));
  if (!near) {
    const hosts = new Set(rows.flatMap((row) => row.hosts)).size;
    for (let found = true; found; ) {
      found = false;
      const counted = slowHosts(links, open);
      const [first, second] = counted;
      if (first === undefined) break;
      // Of three hosts, two slow ones look like three: every link is slow, and there is no usual one.
      if (second !== undefined && second.bad.length === first.bad.length && hosts < 4) {
        verdict.undecided.push(`${where}: ${open.length} of ${rows.length} are slow, of several hosts`);
        return verdict;
      }
      found = true;
      const { host, bad, all } = first;
      open = open.filter(({ row }) => !row.hosts.includes(host));
      const workers = [...new Set(bad.flatMap(({ row }) => row.workers[row.hosts.indexOf(host)]))];
      verdict.findings.push({
        what: "host",
        workers,
        slower: median(bad.map(({ slower }) => slower)),
        evidence: `${bad.length} of the ${all.length} links of this host are slow: ${bad[0].text}`,
      });
    }
  }
  const named = open.filter(({ row }) => row.seconds.length >= enoughLinkSamples);
  if (named.length < open.length)
    verdict.undecided.push(`${where}: ${open.length - named.length} seem slow; there was no time to look again`);
  for (const { row, slower, text } of named)
    verdict.findings.push({ what: "link", workers: [...row.workers], slower, evidence: text });
  return verdict;
}

/** Names what is slow. */
export function judgePreflight(workers: readonly WorkerRow[], links: readonly LinkRow[]): PreflightVerdict {
  const { slow, ...own } = judgeWorkers(workers);
  const all = [
    own,
    ...[true, false].map((near) =>
      judgeLinks(
        links.filter(({ hosts: [a, b] }) => (a === b) === near),
        near,
        slow,
      ),
    ),
  ];
  return { findings: all.flatMap(({ findings }) => findings), undecided: all.flatMap(({ undecided }) => undecided) };
}
