// Compares the ranks of one job: missing ranks, waiting and transfer time of each collective, stragglers and clock offsets.
// Waiting needs no common clock: a collective ends on all ranks at once, so the shortest call did not wait.

import { median } from "@weft/formats/stats";
import { listSome } from "@weft/formats/text";
import { type CollectiveCall, collectiveKey } from "./kernels.js";
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
  ranks: RankReport[];
  /** Ranks of the world size without a trace. */
  missingRanks: number[];
  skew: CollectiveSkew[];
  stragglers: Straggler[];
  /** Share of the communication time spent waiting for the last rank; null where ranks cannot be compared. */
  waitingPercent: number | null;
  /** Microseconds to add to a rank's times so that its collectives end when rank 0's (or the first one's) do. */
  clockOffsets: { rank: number; us: number }[];
  problems: string[];
}

interface AnalyseOptions extends TraceReadOptions {
  onFile?: (file: string, index: number, of: number) => void;
}

/** Analyzes the traces of all ranks, one at a time to bound memory. */
export async function analyzeTraces(files: readonly string[], options: AnalyseOptions = {}): Promise<TraceReport> {
  const ranks: AnalyzedRank[] = [];
  const problems: string[] = [];
  for (const [index, file] of files.entries()) {
    options.onFile?.(file, index, files.length);
    ranks.push(...(await analyzeTraceFile(file, index, options)));
  }
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

function missing(reports: readonly RankReport[]): number[] {
  const world = reports.reduce((most, r) => Math.max(most, r.worldSize ?? 0), 0);
  const have = new Set(reports.map((r) => r.rank));
  return Array.from({ length: world }, (_, rank) => rank).filter((rank) => !have.has(rank));
}

/** The calls that every rank made, matched by kind, size and order. */
function matched(ranks: readonly AnalyzedRank[]): { calls: CollectiveCall[]; unmatched: number }[] {
  const perRank = ranks.map(({ calls }) => {
    const groups = new Map<string, CollectiveCall[]>();
    for (const call of calls) {
      const list = groups.get(collectiveKey(call));
      if (list === undefined) groups.set(collectiveKey(call), [call]);
      else list.push(call);
    }
    return groups;
  });
  const result: { calls: CollectiveCall[]; unmatched: number }[] = [];
  for (const [key, first] of perRank[0]) {
    const lists = perRank.map((groups) => groups.get(key) ?? []);
    if (lists.some((list) => list.length !== first.length)) {
      result.push({ calls: [], unmatched: first.length });
      continue;
    }
    for (let i = 0; i < first.length; i++) result.push({ calls: lists.map((list) => list[i]), unmatched: 0 });
  }
  return result;
}

function compareCollectives(
  ranks: readonly AnalyzedRank[],
): Pick<TraceReport, "skew" | "stragglers" | "waitingPercent"> & { note: string | null } {
  const all = matched(ranks);
  const unmatched = all.reduce((sum, m) => sum + m.unmatched, 0);
  const sets = all.filter((m) => m.calls.length > 0).map((m) => m.calls);
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
      unmatched > 0
        ? `${unmatched} collectives were not made by every rank and are not compared (different steps recorded, or different groups)`
        : null,
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
  const base = ranks[0].baseNanoseconds;
  const sets = matched(ranks)
    .map((m) => m.calls)
    .filter((calls) => calls.length > 0);
  return ranks.map((rank, i) => {
    const fromHeader = base !== null && rank.baseNanoseconds !== null ? Number(rank.baseNanoseconds - base) / 1000 : 0;
    if (sets.length === 0 || i === 0) return { rank: rank.report.rank, us: fromHeader };
    const offset = median(sets.map((calls) => calls[0].ts + calls[0].dur - (calls[i].ts + calls[i].dur)));
    // Ends that agree to a millisecond already share a clock; shifting them would only add noise.
    return { rank: rank.report.rank, us: Math.abs(offset - fromHeader) < 1000 ? fromHeader : offset };
  });
}
