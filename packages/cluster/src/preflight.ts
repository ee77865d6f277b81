// Preflight: measures every worker of a cluster (products, memory, loading of data) and the links between them, names what is
// slow beside its neighbors, and records the rates for the planner.
import { type CollectiveKind, checkOptionNames, collectiveKinds, range, WeftError } from "@weft/core/internal/graph";
import { median } from "@weft/formats/stats";
import { loaderBytes, type Measurement } from "./clocks.js";
import type { Cluster } from "./connect.js";
import { saveReport } from "./network-rates.js";
import {
  bestOf,
  judgePreflight,
  type LinkRow,
  type PreflightFinding,
  suspectLinks,
  suspectWorkers,
  type WorkerRow,
} from "./preflight-judge.js";
import { collectiveBytes, type Probe, Prober, productsFn, streamFn } from "./prober.js";
import { hostsOf } from "./reach.js";

export type { PreflightFinding } from "./preflight-judge.js";

/** Options of `preflight`. @inline */
interface PreflightOptions {
  /** Seconds after which no repeat is begun (50 by default). */
  seconds?: number;
  /** Samples of each measurement before anything is looked at again (3 by default). */
  repeats?: number;
  /** Whether the rates are saved for the planner of this user's programs (true by default). */
  save?: boolean;
  /** Called with what is measured next, and about which share of the work is done. */
  onProgress?(text: string, share: number): void;
}

/** One measured worker: its best rates. */
export interface PreflightWorker {
  /** Its id. */
  worker: string;
  /** Its host. */
  host: string;
  /** Floating-point operations per second of products, and bytes per second from memory and from files. */
  products: number;
  /** Bytes per second from memory. */
  memory: number;
  /** Bytes per second from files. */
  loader: number;
  /** Every measurement, by what was measured. */
  samples: WorkerRow["samples"];
}

/** One measured link between two workers. */
export interface PreflightLink {
  /** Ids of the two workers. */
  workers: [string, string];
  /** Hosts of the two workers. */
  hosts: [string, string];
  /** Seconds of a tiny all-reduce. */
  latency: number;
  /** Bytes per second that each of the two receives. */
  bandwidth: number;
  /** Seconds of each all-reduce between the two. */
  samples: number[];
}

/** A collective over all workers, by its size. */
export interface PreflightCollective {
  /** The collective. */
  kind: CollectiveKind;
  /** Number of workers that took part. */
  members: number;
  /** Bytes of each member's operand. */
  bytes: number;
  /** Time of one call. */
  seconds: number;
}

/** What `preflight` measured and concluded. */
export interface PreflightReport {
  /** Measured workers. */
  workers: PreflightWorker[];
  /** Measured links. */
  links: PreflightLink[];
  /** Collectives over all workers. */
  collectives: PreflightCollective[];
  /** What is slow beside its neighbors. */
  findings: PreflightFinding[];
  /** What could not be judged, and why. */
  undecided: string[];
  /** Seconds that it took. */
  seconds: number;
}

/** Sides of the matrices, products per run, and seconds that the runs of one sample should take: longer than a quota's period. */
const side = { cpu: 512, accelerator: 4096 };
const chain = 4;
const sampleSeconds = 0.2;
const maxRuns = 64;
const memoryElements = 8 << 20;
/** Sides of the squares that are exchanged: a tiny one per member, and 1 MiB. */
const linkSide = 512;
const tinySide = 4;
/** Hosts up to which all pairs are measured; beyond, each with its neighbors at distances 1, 2, 4 ... */
const maxAllPairs = 16;
/** Links and workers of which there are so many that only those that seem slow are measured again. */
const manyLinks = 64;
const manyWorkers = 8;
/** Rounds of another look at what seems slow, how many of them also when the time is over, and the number of others that are measured with it. */
const lookAgain = 6;
const surelyAgain = 2;
const witnesses = 3;
/** Seconds of an all-reduce that is measured once at a time: what takes long varies less. */
const longSample = 0.1;
/** Seconds in which a collective over all workers is repeated, and how often. */
const collectiveSeconds = 0.5;
const maxRepeats = 8;

const least = (values: readonly number[]): number => Math.min(...values);

/** The sum of several runs in a row. */
function total(runs: readonly Measurement[]): Measurement {
  const sum = (of: (run: Measurement) => number): number => runs.reduce((n, run) => n + of(run), 0);
  return {
    ...runs[0],
    wall: sum(({ wall }) => wall),
    cpu: sum(({ cpu }) => cpu),
    wait: sum(({ wait }) => wait),
    throttled: sum(({ throttled }) => throttled),
    idle: sum(({ idle }) => idle),
  };
}

/** Links to measure: neighbors within each host, and pairs of hosts, by their first workers. */
function pairsOf(hosts: readonly (readonly number[])[]): [number, number][] {
  const near = hosts.flatMap((host) => host.slice(1).map((rank, i): [number, number] => [host[i], rank]));
  const count = hosts.length;
  const isMeasured = (apart: number): boolean => count <= maxAllPairs || Number.isInteger(Math.log2(apart));
  const far = range(count).flatMap((a) =>
    range(count)
      .filter((b) => b > a && isMeasured(Math.min(b - a, count - b + a)))
      .map((b): [number, number] => [hosts[a][0], hosts[b][0]]),
  );
  return [...near, ...far];
}

/** Pairs in lists, in none of which a worker occurs twice: the pairs of a list can be prepared together. */
function disjoint(pairs: readonly [number, number][]): [number, number][][] {
  const lists: [number, number][][] = [];
  for (const [a, b] of pairs) {
    const free = lists.find((list) => !list.flat().some((rank) => rank === a || rank === b));
    if (free === undefined) lists.push([[a, b]]);
    else free.push([a, b]);
  }
  return lists;
}

interface MeasuredWorker extends WorkerRow {
  products: Probe;
  memory: Probe;
  flops: number;
}

interface MeasuredLink extends LinkRow {
  /** Seconds that passed; what is judged is without the time that other processes took. */
  passed: { latency: number[]; seconds: number[] };
  tiny: Probe;
  large: Probe;
}

/** Parts of the work in their order, and about where each begins and ends. */
const phases = {
  compile: [0, 0.2],
  workers: [0.2, 0.45],
  join: [0.45, 0.6],
  links: [0.6, 0.8],
  again: [0.8, 0.85],
  collectives: [0.85, 1],
} as const;

class Preflight {
  readonly prober: Prober;
  readonly begin = performance.now();
  readonly deadline: number;
  readonly workers: MeasuredWorker[] = [];
  readonly links: MeasuredLink[] = [];
  readonly collectives: PreflightCollective[] = [];
  /** Runs of one sample of products. */
  #runs = 1;

  constructor(
    readonly cluster: Cluster,
    readonly options: PreflightOptions,
  ) {
    this.prober = new Prober(cluster);
    this.deadline = this.begin + (options.seconds ?? 50) * 1e3;
  }

  get late(): boolean {
    return performance.now() > this.deadline;
  }

  #say(text: string, phase: keyof typeof phases, done: number, of: number): void {
    const [begin, end] = phases[phase];
    this.options.onProgress?.(text, begin + ((end - begin) * done) / of);
  }

  async #prepareWorkers(): Promise<void> {
    const { workers } = this.cluster;
    for (const [rank, { id, process, device, threads, accelerator }] of workers.entries()) {
      this.#say(`compiles for worker ${rank + 1} of ${workers.length} (${id})`, "compile", rank, workers.length);
      const n = accelerator === null ? side.cpu : side.accelerator;
      const products = this.prober.prepare(new Map([[rank, productsFn(n, chain)]]));
      const memory = this.prober.prepare(new Map([[rank, streamFn(memoryElements)]]));
      const peers = `${device}, ${threads} threads`;
      this.workers.push({
        ...{ worker: id, host: process.host, threads: Math.max(1, threads), peers, products, memory },
        flops: chain * 2 * n ** 3,
        samples: { products: [], memory: [], loader: [] },
      });
      await this.prober.measure(memory, 1);
    }
    // The first run loads code; the second one says how many make a sample.
    const times: number[] = [];
    for (const { products } of this.workers) times.push(total((await this.prober.measure(products, 2))[1]).cpu);
    const usual = [...times].sort((a, b) => a - b)[times.length >> 1];
    this.#runs = Math.max(1, Math.min(maxRuns, Math.ceil(sampleSeconds / Math.max(1e-3, usual))));
  }

  async #sampleWorker(row: MeasuredWorker): Promise<void> {
    const { samples } = row;
    samples.products.push(total((await this.prober.measure(row.products, this.#runs)).flat()));
    for (const run of await this.prober.measure(row.memory, 2)) samples.memory.push(total(run));
    samples.loader.push(await this.prober.load(this.workers.indexOf(row)));
  }

  async #prepareLinks(): Promise<void> {
    const { workers } = this.cluster;
    const lists = disjoint(pairsOf(hostsOf(workers)));
    for (const [i, pairs] of lists.entries()) {
      this.#say(`joins links (${i + 1} of ${lists.length})`, "join", i, lists.length);
      const rows = pairs.map((pair): MeasuredLink => {
        const [a, b] = pair.map((rank) => workers[rank]);
        const tiny = this.prober.collective("allReduce", pair, 2 * tinySide);
        const large = this.prober.collective("allReduce", pair, linkSide);
        return {
          workers: [a.id, b.id],
          hosts: [a.process.host, b.process.host],
          latency: [],
          seconds: [],
          ...{ passed: { latency: [], seconds: [] }, tiny, large },
        };
      });
      this.links.push(...rows);
      // The first runs open connections and load code and memory.
      await Promise.all(rows.map(({ tiny }) => this.prober.measure(tiny, 1)));
      await Promise.all(
        rows.map(async (row) => {
          const [run] = await this.prober.measure(row.large, 1);
          // Beside this, what a first run costs in addition is nothing.
          if (least(run.map(({ wall }) => wall)) > longSample) this.#note(row, "seconds", run);
        }),
      );
    }
    for (const row of this.links) await this.#sampleLink(row);
  }

  #note(row: MeasuredLink, to: "latency" | "seconds", run: readonly Measurement[]): void {
    // The member that starts last does not wait: its time is that of the collective.
    row.passed[to].push(least(run.map(({ wall }) => wall)));
    row[to].push(least(run.map(({ wall, wait }) => Math.max(wall - wait, wall / 8))));
  }

  async #sampleLink(row: MeasuredLink): Promise<void> {
    const sample = async (probe: Probe, count: number, to: "latency" | "seconds"): Promise<void> => {
      for (const run of await this.prober.measure(probe, count)) this.#note(row, to, run);
    };
    await sample(row.tiny, 3, "latency");
    await sample(row.large, (row.seconds.at(-1) ?? 0) > longSample ? 1 : 2, "seconds");
  }

  /** Every collective over all workers, at two sizes: latency and bandwidth follow from both. */
  async #sampleCollectives(): Promise<void> {
    const members = this.workers.length;
    if (members < 2) return;
    const sideOf = (n: number): number => Math.ceil(n / members / tinySide) * members * tinySide;
    // Many members take long; few of them move as much as usual steps do.
    const largest = members > manyWorkers ? linkSide : 2 * linkSide;
    const sides = [sideOf(largest / 2), sideOf(largest)];
    for (const kind of collectiveKinds)
      for (const n of sides) {
        const { length: done } = this.collectives;
        this.#say(`${kind} over all ${members} workers`, "collectives", done, collectiveKinds.length * sides.length);
        const probe = this.prober.collective(kind, range(members), n);
        const seconds = await this.#collectiveSeconds(probe);
        this.collectives.push({ kind, members, bytes: collectiveBytes(kind, members, n), seconds });
      }
  }

  /** What a loop of steps pays for a collective. */
  async #collectiveSeconds(probe: Probe): Promise<number> {
    // The first run loads code and opens connections.
    await this.prober.elapsed(probe, 1);
    const single = await this.prober.elapsed(probe, 1);
    if (this.late) return single;
    const count = Math.min(maxRepeats, Math.floor(collectiveSeconds / single));
    // Beside what takes long, the way to the workers and back is nothing.
    if (count < 2) return (await this.prober.elapsed(probe, 2)) / 2;
    const times: number[] = [];
    for (const _ of range(3)) times.push(((await this.prober.elapsed(probe, 1 + count)) - single) / count);
    return Math.max(median(times), single / 8);
  }

  async run(): Promise<PreflightReport> {
    const { repeats = 3 } = this.options;
    await this.#prepareWorkers();
    // Of many workers those that seem slow are measured again below.
    const rounds = this.workers.length > manyWorkers ? 1 : repeats;
    for (const round of range(rounds)) {
      if (round > 0 && this.late) break;
      this.#say(`round ${round + 1} of ${rounds}: ${this.workers.length} workers`, "workers", round, rounds);
      for (const row of this.workers) await this.#sampleWorker(row);
    }
    await this.#prepareLinks();
    const linkRounds = this.links.length > manyLinks ? 1 : repeats;
    for (const round of range(linkRounds - 1)) {
      if (this.late) break;
      this.#say(`round ${round + 2} of ${linkRounds}: ${this.links.length} links`, "links", round, linkRounds - 1);
      for (const row of this.links) await this.#sampleLink(row);
    }
    await this.#lookAgain();
    await this.#sampleCollectives();
    return this.#report();
  }

  /** Measures what seems slow again, in turns with others: a neighbor that disturbed it has gone by then, or disturbs all. */
  async #lookAgain(): Promise<void> {
    for (const round of range(lookAgain)) {
      const workers = suspectWorkers(this.workers) as MeasuredWorker[];
      const links = suspectLinks(this.links, this.workers) as MeasuredLink[];
      if ((this.late && round >= surelyAgain) || workers.length + links.length === 0) return;
      const what = `${workers.length} workers and ${links.length} links`;
      this.#say(`looks again at ${what} (${round + 1} of ${lookAgain})`, "again", round, lookAgain);
      const others = <T>(all: readonly T[], some: readonly T[]): T[] => {
        const rest = all.filter((row) => !some.includes(row));
        return some.length === 0
          ? []
          : range(Math.min(witnesses, rest.length)).map((i) => rest[(round * witnesses + i) % rest.length]);
      };
      for (const row of [...workers, ...others(this.workers, workers)]) await this.#sampleWorker(row);
      for (const row of [...links, ...others(this.links, links)]) await this.#sampleLink(row);
    }
  }

  #report(): PreflightReport {
    const bytes = collectiveBytes("allReduce", 2, linkSide);
    return {
      workers: this.workers.map((row) => ({
        worker: row.worker,
        host: row.host,
        products: (row.flops * this.#runs) / bestOf(row, "products"),
        memory: (4 * memoryElements) / bestOf(row, "memory"),
        loader: loaderBytes / bestOf(row, "loader"),
        samples: row.samples,
      })),
      links: this.links.map(({ workers, hosts, passed: { latency, seconds } }) => ({
        workers,
        hosts,
        latency: least(latency),
        bandwidth: bytes / Math.max(least(seconds) / 8, least(seconds) - least(latency)),
        samples: seconds,
      })),
      collectives: this.collectives,
      ...judgePreflight(this.workers, this.links),
      seconds: (performance.now() - this.begin) / 1e3,
    };
  }
}

/**
 * Measures every worker and link of a connected cluster, and names those that are slow beside their neighbors.
 *
 * @param cluster A connected cluster; three workers of a kind at least, so that one of them can be told from the others.
 */
export async function preflight(cluster: Cluster, options: PreflightOptions = {}): Promise<PreflightReport> {
  checkOptionNames("preflight", options, ["seconds", "repeats", "save", "onProgress"]);
  if (cluster.workers.length === 0) throw new WeftError("preflight: the cluster has no workers");
  const work = new Preflight(cluster, options);
  try {
    const report = await work.run();
    if (options.save !== false) saveReport(report, cluster.workers);
    return report;
  } finally {
    work.prober.close();
  }
}
