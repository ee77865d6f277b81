// Compares what the ranks of a job have issued. Ranks of one program issue the same calls in the same order; who departs from
// the order that all followed before is the culprit, even between two ranks, where there is no majority.
import { withContinuation } from "./alignment.js";
import type { Call, HangEvidence, RankCalls, RankEvidence } from "./evidence.js";

/** Key of a call in its program: where it stands, or what it is where no frames are known. */
export function placeOf(call: Call): string {
  const { site, op, place } = call;
  if (place !== undefined) return place;
  if (site !== null) return `${site.file}:${site.line} ${op}`;
  return `${op} ${JSON.stringify(call.inputSizes)}`;
}

const elements = (sizes: readonly number[][]): number =>
  sizes.reduce((sum, size) => sum + size.reduce((product, n) => product * n, 1), 0);

/** The payload on which all ranks of a collective must agree, by kind of collective; others may differ (roots, all-to-all). */
const payloads: Readonly<Record<string, (call: Call) => number>> = {
  all_reduce: (call) => elements(call.inputSizes),
  broadcast: (call) => elements(call.outputSizes.length > 0 ? call.outputSizes : call.inputSizes),
  reduce: (call) => elements(call.inputSizes),
  all_gather: (call) => elements(call.inputSizes),
  reduce_scatter: (call) => elements(call.outputSizes),
};
/** Collectives whose participants need not pass a tensor of the same type on every rank. */
const untyped = new Set(["barrier", "gather", "scatter", "all_to_all", "monitored_barrier", "coalesced"]);

type Difference = "op" | "dtype" | "shape" | null;

/** The names of a call over backends and versions: "allreduce", "all_reduce_barrier" ... */
function family(op: string): string {
  const plain = op.toLowerCase().replace(/_?(?:tensor|into_tensor|sparse|object)$/, "");
  return plain.replace(/^all_?reduce$/, "all_reduce").replace(/^all_?gather$/, "all_gather");
}

/** In what two calls that should be one collective differ. */
export function difference(a: Call, b: Call): Difference {
  if (a === b) return null;
  const op = family(a.op);
  if (op !== family(b.op)) return "op";
  if (untyped.has(op)) return null;
  const types = (call: Call) => (call.inputDtypes[0] ?? call.outputDtypes[0] ?? "").toLowerCase();
  if (types(a) !== "" && types(b) !== "" && types(a) !== types(b)) return "dtype";
  const payload = payloads[op];
  if (payload === undefined || a.inputSizes.length + a.outputSizes.length === 0) return null;
  if (b.inputSizes.length + b.outputSizes.length === 0) return null;
  return payload(a) === payload(b) ? null : "shape";
}

/** Collectives of one rank in one group, by sequence number. */
export interface Lane {
  rank: number;
  first: number;
  last: number;
  /** Index into the rank's calls, by sequence number minus `first`; -1 where a number is missing. */
  index: Int32Array;
  calls: RankCalls;
}

const longestLane = 1 << 22;

/** The collectives of every rank in a group. */
export function lanesOf(evidence: HangEvidence, group: number): Lane[] {
  const lanes: Lane[] = [];
  for (const { rank, calls } of evidence.ranks.values()) {
    if (calls === undefined) continue;
    let first = Infinity;
    let last = -Infinity;
    for (let i = 0; i < calls.count; i++) {
      if (calls.group[i] !== group || calls.pointToPoint[i] === 1 || calls.sequence[i] < 0) continue;
      if (calls.sequence[i] < first) first = calls.sequence[i];
      if (calls.sequence[i] > last) last = calls.sequence[i];
    }
    if (last === -Infinity || last - first > longestLane) continue;
    const index = new Int32Array(last - first + 1).fill(-1);
    for (let i = 0; i < calls.count; i++)
      if (calls.group[i] === group && calls.pointToPoint[i] === 0 && calls.sequence[i] >= first)
        index[calls.sequence[i] - first] = i;
    lanes.push({ rank, first, last, index, calls });
  }
  return lanes;
}

export function callAt(lane: Lane, sequence: number): number {
  return sequence < lane.first || sequence > lane.last ? -1 : lane.index[sequence - lane.first];
}

/** A place where a rank continued differently than every other rank that was at the same place. */
export interface Departure {
  rank: number;
  /** Index of the call in the rank's calls. */
  index: number;
  previous: Call;
  got: Call;
  /** What the other ranks issue after `previous`; null when none has got there. */
  expected: Call | null;
  /** The call after `expected` on another rank; null when none has got there. */
  after: Call | null;
  /** Places of the calls from `got` on, and of those of another rank from `expected` on, with their likely continuation. */
  own: string[];
  other: string[];
}

interface Transitions {
  /** By place and next place: number of times, and ranks that did it (at most two are counted). */
  counts: Map<string, Map<string, { times: number; ranks: Set<number> }>>;
}

function transitions(evidence: HangEvidence, places: readonly string[]): Transitions {
  const counts: Transitions["counts"] = new Map();
  for (const { rank, calls } of evidence.ranks.values()) {
    if (calls === undefined) continue;
    for (let i = 1; i < calls.count; i++) {
      const from = places[calls.call[i - 1]];
      const to = places[calls.call[i]];
      let row = counts.get(from);
      if (row === undefined) counts.set(from, (row = new Map()));
      let cell = row.get(to);
      if (cell === undefined) row.set(to, (cell = { times: 0, ranks: new Set() }));
      cell.times++;
      if (cell.ranks.size < 2) cell.ranks.add(rank);
    }
  }
  return { counts };
}

/** For each rank the first place where it departed from the others for good; ranks that did not depart are missing. */
export function departures(evidence: HangEvidence, among: ReadonlySet<number>): Map<number, Departure> {
  const places = evidence.calls.map(placeOf);
  const { counts } = transitions(evidence, places);
  const lanes = evidence.groups.map((_, group) => lanesOf(evidence, group));
  const found = new Map<number, Departure>();
  for (const rank of among) {
    const own = evidence.ranks.get(rank);
    const calls = own?.calls;
    if (own === undefined || calls === undefined) continue;
    for (let i = 1; i < calls.count; i++) {
      const from = places[calls.call[i - 1]];
      const to = places[calls.call[i]];
      const row = counts.get(from);
      const cell = row?.get(to);
      // Others do it too, or this rank does it regularly (a line of its own for its own rank).
      if (row === undefined || cell === undefined || cell.ranks.size > 1 || cell.times > 1) continue;
      const usual = [...row.values()].some((other) => other !== cell && other.times > 1);
      if (!usual || meetsAgain(lanes, own, i, places)) continue;
      found.set(rank, {
        rank,
        index: i,
        previous: evidence.calls[calls.call[i - 1]],
        got: evidence.calls[calls.call[i]],
        own: placesOf(calls, places).slice(i),
        ...expectedAfter(evidence, lanes, own, i - 1, row, places),
      });
      break;
    }
  }
  return found;
}

/** True when the calls of a rank after `from` stand at the places of the other ranks again: it only took another line. */
function meetsAgain(lanes: Lane[][], own: RankEvidence, from: number, places: readonly string[]): boolean {
  const calls = own.calls as RankCalls;
  let same = 0;
  let other = 0;
  for (let i = from + 1; i < calls.count && i < from + 64; i++) {
    if (calls.pointToPoint[i] === 1) continue;
    for (const lane of lanes[calls.group[i]]) {
      const at = lane.rank === own.rank ? -1 : callAt(lane, calls.sequence[i]);
      if (at < 0) continue;
      if (places[lane.calls.call[at]] === places[calls.call[i]]) same++;
      else other++;
    }
  }
  return same > other;
}

const placesOf = (calls: RankCalls, places: readonly string[]): string[] =>
  Array.from(calls.call.subarray(0, calls.count), (id) => places[id]);

/** What the other ranks did after the call that a rank shares with them. */
function expectedAfter(
  evidence: HangEvidence,
  lanes: Lane[][],
  own: RankEvidence,
  previous: number,
  row: ReadonlyMap<string, { times: number }>,
  places: readonly string[],
): Pick<Departure, "expected" | "after" | "other"> {
  const calls = own.calls as RankCalls;
  if (calls.pointToPoint[previous] === 0)
    for (const lane of lanes[calls.group[previous]]) {
      if (lane.rank === own.rank) continue;
      const at = callAt(lane, calls.sequence[previous]);
      if (at < 0 || places[lane.calls.call[at]] !== places[calls.call[previous]] || at + 1 >= lane.calls.count)
        continue;
      const call = (i: number) => (i < lane.calls.count ? evidence.calls[lane.calls.call[i]] : null);
      const other = withContinuation(placesOf(lane.calls, places), at + 1);
      return { expected: call(at + 1), after: call(at + 2), other };
    }
  // No other rank has got there: what usually follows.
  const got = places[calls.call[previous + 1]];
  const usual = [...row].filter(([place]) => place !== got).sort((a, b) => b[1].times - a[1].times)[0]?.[0];
  const call = evidence.calls.find((_, i) => places[i] === usual);
  return { expected: call ?? null, after: null, other: [] };
}

/** True when a transition goes back to the beginning of a loop: its target stands, or was first issued, before its source. */
export function goesBack(evidence: HangEvidence, from: Call, to: Call): boolean {
  // In one function the lines tell; a call of every third step may come first later than those behind it.
  if (from.site !== null && from.site.file === to.site?.file && from.site.name === to.site.name)
    return to.site.line <= from.site.line;
  const [source, target] = [placeOf(from), placeOf(to)];
  for (const { calls } of evidence.ranks.values()) {
    if (calls === undefined) continue;
    for (let i = 0; i < calls.count; i++) {
      const place = placeOf(evidence.calls[calls.call[i]]);
      if (place === target) return true;
      if (place === source) return false;
    }
  }
  return false;
}

/** How often a rank issued a call at the place of `call` with exactly its payload, and with another one. */
export function payloadHistory(
  evidence: HangEvidence,
  calls: RankCalls,
  index: number,
): { same: number; other: number } {
  const call = evidence.calls[calls.call[index]];
  const place = placeOf(call);
  let same = 0;
  let other = 0;
  for (let i = 0; i < index; i++) {
    const earlier = evidence.calls[calls.call[i]];
    if (earlier === call) same++;
    else if (placeOf(earlier) === place) {
      if (difference(earlier, call) === null) same++;
      else other++;
    }
  }
  return { same, other };
}

/** Calls before another one that are compared. */
const longestContext = 12;

/** The first of the last calls up to `index` with which a rank went on as it never did before, or -1. */
export function firstUnseen(evidence: HangEvidence, calls: RankCalls, index: number): number {
  for (let i = Math.max(1, index - longestContext); i <= index; i++) if (isUnseen(evidence, calls, i)) return i;
  return -1;
}

/**
 * Whether a rank went on with a call that follows the one before it at other times, but never after the calls before that: it
 * left out what comes in between now and then.
 */
export function wentOnEarly(evidence: HangEvidence, calls: RankCalls, index: number): boolean {
  const place = (i: number): string => placeOf(evidence.calls[calls.call[i]]);
  for (let i = 1; i < index; i++)
    if (place(i) === place(index) && place(i - 1) === place(index - 1)) return isUnseen(evidence, calls, index);
  return false;
}

/**
 * Whether a rank went on as it never did before: some number of calls before it occurred earlier in its program, but was always
 * followed by another call. One call before is not enough where a line issues several of the same kind.
 */
function isUnseen(evidence: HangEvidence, calls: RankCalls, index: number): boolean {
  const places = new Map<number, string>();
  const place = (i: number): string => {
    const id = calls.call[i];
    let known = places.get(id);
    if (known === undefined) places.set(id, (known = placeOf(evidence.calls[id])));
    return known;
  };
  for (let length = 1; length <= Math.min(longestContext, index); length++) {
    let before = 0;
    let same = 0;
    for (let i = length; i < index; i++) {
      let k = 1;
      while (k <= length && place(i - k) === place(index - k)) k++;
      if (k <= length) continue;
      before++;
      if (place(i) === place(index)) same++;
    }
    if (before === 0) return false;
    if (same === 0 && before > 1) return true;
  }
  return false;
}

/** Whether a rank issued the calls of this line in another group before, and never in this one. */
export function inOtherGroup(evidence: HangEvidence, calls: RankCalls, index: number): boolean {
  const place = placeOf(evidence.calls[calls.call[index]]);
  if (evidence.calls[calls.call[index]].site === null) return false;
  let elsewhere = 0;
  for (let i = 0; i < index; i++) {
    if (placeOf(evidence.calls[calls.call[i]]) !== place) continue;
    if (calls.group[i] === calls.group[index]) return false;
    elsewhere++;
  }
  return elsewhere > 1;
}
