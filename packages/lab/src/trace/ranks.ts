// Compares the ranks of one job: missing ranks, waiting and transfer time of each collective, stragglers and clock offsets.
// Waiting needs no common clock: a collective ends on all ranks at once, so the shortest call did not wait.

import { median } from "@weft/formats/stats";
import { listSome } from "@weft/formats/text";
import { type CollectiveCall, collectiveKey } from "./kernels.js";
import { analyzeInWorkers, workersFor } from "./parallel.js";
import { type AnalyzedRank, analyzeTraceFile, type RankReport } from "./rank.js";
import type { TraceReadOptions } from "./read.js";

interface CollectiveSkew {
  collective: string;
  bytes: number | null;
  count: number;
  /** Mean over the calls: the shortest duration over the ranks, and the longest minus the shortest. */
  transferUs: number;
  skewUs: number;
  /** Rank that arrived last most often, and the number of those calls. */
  lastRank: number;
  lastCount: number;
}

interface Straggler {
  rank: number;
  /** Calls in which this rank arrived last, and all calls. */
  last: number;
  of: number;
  /** Total time that the other ranks waited in those calls. */
  causedWaitUs: number;
}

/** The analysis of the traces of all ranks. */
export interface TraceReport {
  /** One report per rank. */
  ranks: RankReport[];
  /** Ranks of the world size without a trace. */
  missingRanks: number[];
  /** Waiting and transfer of collectives. */
  skew: CollectiveSkew[];
  /** Ranks that the others waited for. */
  stragglers: Straggler[];
  /** Share of the communication time spent waiting for the last rank; null where ranks cannot be compared. */
  waitingPercent: number | null;
  /** Microseconds to add to a rank's times so that its collectives end when rank 0's (or the first one's) do. */
  clockOffsets: { rank: number; us: number }[];
  /** What could not be read or is doubtful. */
  problems: string[];
}

interface AnalyseOptions extends TraceReadOptions {
  onFile?: (file: string, index: number, of: number) => void;
}

/** Analyzes the traces of all ranks, a few at a time to bound memory. */
export async function analyzeTraces(files: readonly string[], options: AnalyseOptions = {}): Promise<TraceReport> {
  const ranks = await analyzeFiles(files, options);
  const problems: string[] = [];
  ranks.sort((a, b) => a.report.rank - b.report.rank);
  const twice = ranks.filter((r, i) => i > 0 && r.report.rank === ranks[i - 1].report.rank);
  for (const { report } of twice)
    problems.push(`rank ${report.rank} was given more than once (${report.file}): each is reported, none is compared`);
  const missingRanks = missing(ranks.map((r) => r.report));
  if (missingRanks.length > 0)
    problems.push(
      `traces of rank ${listSome(missingRanks)} are missing: waiting and stragglers are judged among the others only`,
    );
  const comparable = twice.length === 0 && ranks.length > 1;
  const { skew, stragglers, waitingPercent, note } = comparable
    ? compareCollectives(ranks)
    : { skew: [], stragglers: [], waitingPercent: null, note: null };
  if (note !== null) problems.push(note);
  return {
    ranks: ranks.map((r) => r.report),
    missingRanks,
    skew,
    stragglers,
    waitingPercent,
    clockOffsets: comparable ? clockOffsets(ranks) : ranks.map((r) => ({ rank: r.report.rank, us: 0 })),
    problems,
  };
}

async function analyzeFiles(files: readonly string[], options: AnalyseOptions): Promise<AnalyzedRank[]> {
  const workers = workersFor(files);
  if (workers > 0) return (await analyzeInWorkers(files, workers, options, options.onFile)).flat();
  const ranks: AnalyzedRank[] = [];
  for (const [index, file] of files.entries()) {
    options.onFile?.(file, index, files.length);
    ranks.push(...(await analyzeTraceFile(file, index, options)));
  }
  return ranks;
}

function missing(reports: readonly RankReport[]): number[] {
  const world = reports.reduce((most, r) => Math.max(most, r.worldSize ?? 0), 0);
  const have = new Set(reports.map((r) => r.rank));
  return Array.from({ length: world }, (_, rank) => rank).filter((rank) => !have.has(rank));
}

/** Collectives that every rank made, one list per collective in the order of the ranks, and those that could not be paired. */
interface Pairs {
  sets: CollectiveCall[][];
  unmatched: number;
  /** Why a pairing was given up although the counts agree. */
  refused: string | null;
}

/** Pairs by group, size and sequence number; without recorded numbers the order of the calls counts. */
function paired(ranks: readonly AnalyzedRank[]): Pairs {
  const perRank = ranks.map(({ calls }) => {
    const groups = new Map<string, CollectiveCall[]>();
    for (const call of calls) {
      // The two ends of a send do different things, and stages of a pipeline wait for each other by design.
      if (call.collective === "sendrecv") continue;
      const numbered = call.sequence === null ? "" : `|${call.sequence}`;
      const key = `${collectiveKey(call)}${numbered}`;
      const list = groups.get(key);
      if (list === undefined) groups.set(key, [call]);
      else list.push(call);
    }
    return groups;
  });
  const sets: CollectiveCall[][] = [];
  let unmatched = 0;
  for (const [key, first] of perRank[0]) {
    const lists = perRank.map((groups) => groups.get(key) ?? []);
    if (lists.some((list) => list.length !== first.length)) unmatched += first.length;
    else for (let i = 0; i < first.length; i++) sets.push(lists.map((list) => list[i]));
  }
  const refused = contradiction(ranks, sets);
  return refused === null ? { sets, unmatched, refused } : { sets: [], unmatched: 0, refused };
}

/** Largest difference between two clocks of one host, and between hosts with synchronized clocks. */
const sameHostUs = 1000;
const otherHostUs = 1e6;

/** The ends of one collective on two ranks, on the clocks of the traces: the second minus the first. */
function endDifferences(ranks: readonly AnalyzedRank[], sets: readonly CollectiveCall[][], i: number): number[] {
  const origin = ranks[i].originUs - ranks[0].originUs + headerOffset(ranks[0], ranks[i]);
  return sets.map((calls) => calls[i].ts + calls[i].dur - (calls[0].ts + calls[0].dur) + origin);
}

/** Microseconds by which the clock of a trace starts after that of the first one, as their headers say. */
function headerOffset(first: AnalyzedRank, other: AnalyzedRank): number {
  if (first.baseNanoseconds === null || other.baseNanoseconds === null) return 0;
  return Number(other.baseNanoseconds - first.baseNanoseconds) / 1000;
}

/** A collective ends on all ranks at about the same time: clocks that say otherwise show that the calls are different ones. */
function contradiction(ranks: readonly AnalyzedRank[], sets: readonly CollectiveCall[][]): string | null {
  if (sets.length === 0) return null;
  for (let i = 1; i < ranks.length; i++) {
    const differences = endDifferences(ranks, sets, i);
    const middle = median(differences);
    const longest = sets.reduce((most, calls) => Math.max(most, calls[0].dur, calls[i].dur), 0);
    const spread = median(differences.map((difference) => Math.abs(difference - middle)));
    const known = ranks[0].hostName !== null && ranks[0].hostName === ranks[i].hostName;
    const bound = known ? sameHostUs : otherHostUs;
    const who = `ranks ${ranks[0].report.rank} and ${ranks[i].report.rank}`;
    if (known && Math.abs(middle) > bound + longest)
      return `the collectives of ${who} are not compared: on the common clock of ${ranks[0].hostName} they end ${(Math.abs(middle) / 1000).toFixed(1)} ms apart, so they are different calls (other steps recorded)`;
    if (spread > bound && spread > longest)
      return `the collectives of ${who} are not compared: their ends differ by ${(spread / 1000).toFixed(1)} ms from each other, more than any of them takes, so they are different calls`;
  }
  return null;
}

function compareCollectives(
  ranks: readonly AnalyzedRank[],
): Pick<TraceReport, "skew" | "stragglers" | "waitingPercent"> & { note: string | null } {
  const { sets, unmatched, refused } = paired(ranks);
  const numbers = ranks.map((r) => r.report.rank);
  const last = new Array<number>(ranks.length).fill(0);
  const caused = new Array<number>(ranks.length).fill(0);
  const groups = new Map<string, { calls: CollectiveCall[][]; last: number[] }>();
  let waiting = 0;
  let total = 0;
  for (const calls of sets) {
    const shortest = calls.reduce((best, call, i) => (call.dur < calls[best].dur ? i : best), 0);
    const wait = calls.reduce((sum, call) => sum + call.dur - calls[shortest].dur, 0);
    waiting += wait;
    total += calls.reduce((sum, call) => sum + call.dur, 0);
    last[shortest]++;
    caused[shortest] += wait;
    const key = collectiveKey(calls[0]);
    let group = groups.get(key);
    if (group === undefined) groups.set(key, (group = { calls: [], last: new Array<number>(ranks.length).fill(0) }));
    group.calls.push(calls);
    group.last[shortest]++;
  }
  const skew = [...groups.values()]
    .map(({ calls, last }) => {
      const lows = calls.map((set) => Math.min(...set.map((call) => call.dur)));
      const highs = calls.map((set) => Math.max(...set.map((call) => call.dur)));
      const lastIndex = last.indexOf(Math.max(...last));
      return {
        collective: calls[0][0].collective,
        bytes: calls[0][0].bytes,
        count: calls.length,
        transferUs: mean(lows),
        skewUs: mean(highs) - mean(lows),
        lastRank: numbers[lastIndex],
        lastCount: last[lastIndex],
      };
    })
    .sort((a, b) => b.skewUs * b.count - a.skewUs * a.count);
  return {
    skew,
    stragglers: stragglersOf(numbers, last, caused, sets.length),
    waitingPercent: total > 0 ? (100 * waiting) / total : null,
    note:
      refused ??
      (unmatched > 0
        ? `${unmatched} collectives were not made by every rank and are not compared (different steps recorded, or different groups)`
        : null),
  };
}

const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

/** A straggler arrives last far more often than its share and makes the others wait more than 5%. */
function stragglersOf(numbers: number[], last: number[], caused: number[], sets: number): Straggler[] {
  const all = caused.reduce((a, b) => a + b, 0);
  return numbers
    .map((rank, i) => ({ rank, last: last[i], of: sets, causedWaitUs: caused[i] }))
    .filter((s, i) => sets >= 4 && s.last > (1.5 * sets) / numbers.length && caused[i] > (all / numbers.length) * 1.05)
    .sort((a, b) => b.causedWaitUs - a.causedWaitUs);
}

function clockOffsets(ranks: readonly AnalyzedRank[]): { rank: number; us: number }[] {
  const { sets } = paired(ranks);
  return ranks.map((rank, i) => {
    const fromHeader = headerOffset(ranks[0], rank);
    if (sets.length === 0 || i === 0) return { rank: rank.report.rank, us: fromHeader };
    const difference = median(endDifferences(ranks, sets, i));
    // Ends that agree to a millisecond already share a clock; shifting them would only add noise.
    return { rank: rank.report.rank, us: Math.abs(difference) < 1000 ? fromHeader : fromHeader - difference };
  });
}
