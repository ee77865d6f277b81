// Diagnoses hangs in which ranks issue different collectives: in another order, one skipped or added, or with another size or dtype.
import { bestReadings } from "./alignment.js";
import { groupName, type HangContext, lastSequence, mainFrames, siteOfRank } from "./context.js";
import {
  type Call,
  type HangEvidence,
  isUserFrame,
  type RankCalls,
  type RankEvidence,
  type Site,
  userSite,
} from "./evidence.js";
import {
  callAt,
  type Departure,
  departures,
  difference,
  firstUnseen,
  goesBack,
  inOtherGroup,
  type Lane,
  lanesOf,
  payloadHistory,
  placeOf,
  wentOnEarly,
} from "./programs.js";
import { isInsideBlock, isOptional } from "./source.js";
import { evaluating, type HangKind, type HangVerdict, mismatchMessage, ranksText, siteText } from "./verdict.js";

/** Calls with the same number in one group that differ, or ranks that left the common order. */
export function disagreement(context: HangContext): HangVerdict | null {
  const mismatch = firstMismatch(context);
  const everybody = new Set(context.evidence.ranks.keys());
  const departed = departures(context.evidence, everybody);
  const aborted = [...context.evidence.ranks.values()].filter((own) => abortedByPeers(own));
  if (mismatch === null && aborted.length > 0) return fromOwnHistory(context, aborted);
  // Of several that departed the earliest in its own program: the others follow from it.
  const first = [...departed.values()].sort((a, b) => a.index - b.index)[0];
  const otherPayload = mismatch !== null && mismatch.kind !== "op" && (first === undefined || mismatch.samePlace);
  if (otherPayload && !isBetweenPlaces(context, mismatch)) return payloadMismatch(context, mismatch);
  // No rank has issued a different call: the missing ranks are outside of collectives, so the departure does not explain the hang.
  if (mismatch === null && first !== undefined && othersAreElsewhere(context, first)) return null;
  if (first !== undefined) return fromDeparture(context, first);
  if (mismatch !== null) return operationMismatch(context, mismatch);
  return null;
}

/**
 * Whether calls with one sequence number are at different lines that every rank has issued before: their order differs, not only the
 * payload.
 */
function isBetweenPlaces({ evidence }: HangContext, { sequence, samePlace, lanes }: Mismatch): boolean {
  const here = lanes.filter((lane) => callAt(lane, sequence) >= 0);
  const places = new Set(here.map((lane) => placeOf(evidence.calls[lane.calls.call[callAt(lane, sequence)]])));
  if (samePlace || places.size < 2) return false;
  if (here.some((lane) => inOtherGroup(evidence, lane.calls, callAt(lane, sequence)))) return false;
  const names = [...places];
  const ids = Int32Array.from(evidence.calls, (call) => names.indexOf(placeOf(call)));
  return here.every(({ calls }) => {
    const own = new Set<number>();
    for (let i = 0; i < calls.count; i++) if (ids[calls.call[i]] >= 0) own.add(ids[calls.call[i]]);
    return own.size === names.length;
  });
}

/** Whether every rank that does not wait with the departed one is in user code outside of torch, which does not communicate. */
function othersAreElsewhere({ evidence, waiting }: HangContext, { rank }: Departure): boolean {
  const others = [...evidence.ranks.values()].filter(
    (own) => own.rank !== rank && !waiting.some(({ ranks }) => ranks.includes(own.rank) && ranks.includes(rank)),
  );
  const isLocal = (own: RankEvidence): boolean => {
    const frames = mainFrames(own);
    return (
      frames.length > 0 &&
      own.raised === undefined &&
      !waiting.some(({ ranks }) => ranks.includes(own.rank)) &&
      !frames.some(({ file }) => /[/\\]torch[/\\](?:distributed|nn|autograd|_tensor)/.test(file))
    );
  };
  return others.length > 0 && others.every(isLocal);
}

/** gloo aborts a process whose partner sent another number of bytes: the partner is the suspect. */
function abortedByPeers(own: RankEvidence): boolean {
  return own.raised !== undefined && mismatchMessage.test(own.raised.message);
}

function firstMismatch(context: HangContext): Mismatch | null {
  let first: Mismatch | null = null;
  for (let group = 0; group < context.evidence.groups.length; group++) {
    const lanes = lanesOf(context.evidence, group);
    const found = mismatchIn(context.evidence, group, lanes);
    if (found !== null && (first === null || found.timeMs < first.timeMs)) first = found;
  }
  return first;
}

/** All ranks are at the same call, but with different sizes or types. */
function payloadMismatch(context: HangContext, { group, sequence, kind, lanes }: Mismatch): HangVerdict {
  const here = lanes.filter((lane) => callAt(lane, sequence) >= 0);
  const callOf = (lane: Lane) => context.evidence.calls[lane.calls.call[callAt(lane, sequence)]];
  // The suspects are the smallest set of ranks that agree with each other. Of equal sets, it is the one whose earlier calls differed from
  // this one.
  const sets: Lane[][] = [];
  for (const lane of here) {
    const set = sets.find((other) => difference(callOf(other[0]), callOf(lane)) === null);
    if (set === undefined) sets.push([lane]);
    else set.push(lane);
  }
  const unusual = (set: Lane[]) => {
    const { same, other } = payloadHistory(context.evidence, set[0].calls, callAt(set[0], sequence));
    return other > same ? 1 : 0;
  };
  sets.sort((a, b) => a.length - b.length || unusual(b) - unusual(a));
  const [odd] = sets;
  const usual = sets[sets.length - 1];
  const [got, expected] = [callOf(odd[0]), callOf(usual[0])];
  // The same place with the payload that another call of the loop has: the order differs, not the size.
  const swapped =
    issuedLater(context, usual[0], sequence, got) ||
    inOtherGroup(context.evidence, odd[0].calls, callAt(odd[0], sequence));
  const describe = (call: Call) =>
    kind === "dtype"
      ? (call.inputDtypes[0] ?? call.outputDtypes[0])
      : JSON.stringify(call.inputSizes[0] ?? call.outputSizes[0]);
  return context.verdict(
    swapped ? "order" : kind === "dtype" ? "dtype" : "shape",
    odd.map((lane) => lane.rank),
    {
      site: got.site ?? siteOfRank(context.evidence.ranks.get(odd[0].rank)),
      collective: { op: got.op, group: groupName(context.evidence, group), sequence },
      confidence: odd.length < usual.length || unusual(odd) === 1 ? "certain" : "guess",
      evidence: [
        `${ranksText(odd.map((lane) => lane.rank))}: ${got.op} of ${describe(got)}; ${ranksText(usual.map((lane) => lane.rank))}: ${describe(expected)} (number ${sequence} of group ${groupName(context.evidence, group)})`,
      ],
    },
  );
}

/** Whether a rank repeats a call of its loop while the others go on to one that nobody has issued before. */
function isOneMore(evidence: HangEvidence, calls: RankCalls, index: number, expected: Call): boolean {
  const place = placeOf(evidence.calls[calls.call[index]]);
  const next = placeOf(expected);
  let repeated = 0;
  for (let i = 0; i < index; i++) {
    const earlier = placeOf(evidence.calls[calls.call[i]]);
    if (earlier === next) return false;
    if (earlier === place) repeated++;
  }
  return repeated > 1;
}

function issuedLater(context: HangContext, lane: Lane, sequence: number, call: Call): boolean {
  for (let s = sequence + 1; s <= Math.min(lane.last, sequence + 16); s++) {
    const at = callAt(lane, s);
    if (at >= 0 && difference(context.evidence.calls[lane.calls.call[at]], call) === null) return true;
  }
  return false;
}

/** Only some ranks left a record, the others were aborted: the suspect is the rank at a call site that is new. */
function fromOwnHistory(context: HangContext, aborted: RankEvidence[]): HangVerdict {
  const seen = [...context.evidence.ranks.values()].filter((own) => own.calls !== undefined && own.calls.count > 0);
  const fact = `${ranksText(aborted.map((own) => own.rank))} aborted: ${aborted[0].raised?.message.split("\n")[0].slice(0, 200)}`;
  for (const own of aborted) {
    const frames = mainFrames(own);
    const site = userSite(frames);
    const isAt = (call: Call) => call.site !== null && call.site.file === site?.file && call.site.line === site.line;
    if (site === null || seen.length === 0 || context.evidence.calls.some(isAt)) continue;
    const op = frames.find((frame) => /distributed_c10d\.py$/.test(frame.file))?.name ?? "unknown";
    return context.verdict(evaluating.test(site.name) ? "evaluation" : "extra", [own.rank], {
      site,
      collective: { op, group: "", sequence: null },
      evidence: [fact, `rank ${own.rank} was at ${siteText(site)}, where no other rank has communicated`],
    });
  }
  for (const own of seen) {
    const calls = own.calls as NonNullable<typeof own.calls>;
    const i = calls.count - 1;
    const { same, other } = payloadHistory(context.evidence, calls, i);
    if (same > 0 || other < 2) continue;
    const call = context.evidence.calls[calls.call[i]];
    const before = [...calls.call.subarray(0, i)]
      .map((id) => context.evidence.calls[id])
      .find((c) => placeOf(c) === placeOf(call));
    const kind = before !== undefined && difference(before, call) === "dtype" ? "dtype" : "shape";
    return context.verdict(kind, [own.rank], {
      site: call.site ?? siteOfRank(own),
      collective: { op: call.op, group: groupName(context.evidence, calls.group[i]), sequence: calls.sequence[i] },
      evidence: [
        fact,
        `rank ${own.rank} issued ${call.op} with another ${kind} than in its ${other} earlier calls at this line`,
      ],
    });
  }
  const departed = [...departures(context.evidence, new Set(seen.map((own) => own.rank))).values()][0];
  if (departed !== undefined) return fromDeparture(context, departed);
  const [own] = seen;
  const calls = own?.calls;
  // Where a rank was aborted, if it has communicated there before; else the last call of a rank with a record.
  const abortSite = userSite(aborted[0].raised?.frames ?? []);
  const there = context.evidence.calls.find(
    ({ site }) => abortSite !== null && site?.file === abortSite.file && site.line === abortSite.line,
  );
  const last = there ?? (calls === undefined ? null : context.evidence.calls[calls.call[calls.count - 1]]);
  return context.verdict(
    "shape",
    aborted.map((one) => one.rank),
    {
      site: last?.site ?? siteOfRank(aborted[0]),
      collective:
        calls === undefined || last === null
          ? null
          : {
              op: last.op,
              group: groupName(context.evidence, calls.group[calls.count - 1]),
              sequence: calls.sequence[calls.count - 1],
            },
      confidence: "guess",
      evidence: [fact, "the ranks with a record did what they always did, so the size was different on one without"],
    },
  );
}

function fromDeparture(context: HangContext, departure: Departure): HangVerdict {
  const { rank, previous, got, expected, after } = departure;
  const own = context.evidence.ranks.get(rank) as RankEvidence;
  const calls = own.calls as NonNullable<RankEvidence["calls"]>;
  const at = {
    group: groupName(context.evidence, calls.group[departure.index]),
    sequence: calls.sequence[departure.index],
  };
  const where = (call: Call) => `${call.op}${call.site === null ? "" : ` (${call.site.file}:${call.site.line})`}`;
  const fact = `after ${where(previous)} rank ${rank} issued ${where(got)}${expected === null ? "" : `; the other ranks issue ${where(expected)}`}`;
  // In a loop of these calls, one that is left out and one that is repeated look the same, unless steps were counted.
  const repeated =
    placeOf(got) === placeOf(previous) && stepsAhead(context, rank) === null
      ? [`or it issued ${where(got)} once too often (an additional backward pass?)`]
      : [];
  const make = (kind: HangKind, call: Call, at2: Site | null): HangVerdict =>
    context.verdict(kind, [rank], {
      site: call.site ?? context.mainWaiting([rank])?.site ?? siteOfRank(own),
      at: at2,
      collective: { op: call.op, ...at },
      evidence: [fact, ...(kind === "skipped" ? repeated : [])],
      confidence: expected === null ? "guess" : "likely",
    });
  const names = got.frames.filter(isUserFrame).map((frame) => frame.name);
  const elsewhere = isPlaceOfOthers(context, rank, got);
  if (!elsewhere && names.some((name) => evaluating.test(name))) return make("evaluation", got, null);
  if (expected === null) return make("extra", got, null);
  // The right kind of call at a line of its own: the branch issues its calls in another order.
  const swapped = !elsewhere && difference(got, expected) === "op" && after !== null && difference(got, after) === null;
  if (!elsewhere && repeatsBetween(previous, got, expected)) return make("extra", got, null);
  if (swapped || (!elsewhere && isDueLater(context, departure))) return make("order", got, null);
  // Threads of one rank issue both calls, the second one first. A call that is left out fits such calls as well; then it tells
  // them apart that the rank went on while its first call was not complete.
  const readings = bestReadings(departure.own, departure.other);
  const early = readings.filter(({ kind }) => kind === "early").length;
  const overlaps = departure.index + 1 < calls.count && !isPassed(context, rank, calls, departure.index);
  if (elsewhere && early > 0 && (early === readings.length || overlaps)) return make("order", got, null);
  // A rank that issued one call too many has made fewer steps than the others; a rank that left one out has not.
  if (elsewhere && (stepsAhead(context, rank) ?? 0) < 0) return make("extra", got, null);
  if (elsewhere) return make("skipped", expected, got.site);
  // Behind the loop, or in a branch inside of it.
  const known = isInsideBlock(got, [expected, previous]);
  const loops =
    goesBack(context.evidence, previous, expected) &&
    !(known ?? isBetween(expected, got, previous)) &&
    !isStillInLoop(context, own, got);
  if (loops && known === null) context.facts.push(`or ${where(got)} is an additional call at the end of the loop`);
  return loops ? make("uneven", expected, got.site) : make("extra", got, null);
}

/** Whether the main thread of a rank is at a call of the loop while another thread issued the call that nobody else has. */
function isStillInLoop({ evidence }: HangContext, own: RankEvidence, got: Call): boolean {
  const site = siteOfRank(own);
  const isAt = (call: Call): boolean =>
    call !== got && call.site !== null && call.site.file === site?.file && call.site.line === site.line;
  return site !== null && got.site?.line !== site.line && evidence.calls.some(isAt);
}

/** How many steps a rank is ahead of all others (negative: behind); null where steps were not counted. */
function stepsAhead({ evidence }: HangContext, rank: number): number | null {
  const own = evidence.ranks.get(rank)?.steps;
  const others = [...evidence.ranks.values()]
    .filter((one) => one.rank !== rank)
    .map(({ steps }) => steps ?? Number.NaN);
  if (own === undefined || own + Math.max(0, ...others) === 0 || others.some(Number.isNaN)) return null;
  if (own < Math.min(...others)) return own - Math.min(...others);
  return Math.max(0, own - Math.max(...others));
}

function isPlaceOfOthers(context: HangContext, rank: number, call: Call): boolean {
  const place = placeOf(call);
  for (const { rank: other, calls } of context.evidence.ranks.values())
    for (let i = 0; other !== rank && calls !== undefined && i < calls.count; i++)
      if (placeOf(context.evidence.calls[calls.call[i]]) === place) return true;
  return false;
}

/** Whether a call is complete: its rank says so, and another rank of its group has issued the call after it. */
function isPassed({ evidence }: HangContext, rank: number, calls: RankCalls, index: number): boolean {
  if (calls.state[index] !== 2) return false;
  for (const own of evidence.ranks.values())
    if (own.rank !== rank && (lastSequence(own, calls.group[index]) ?? -1) > calls.sequence[index]) return true;
  return false;
}

/** The call before once more, at a line between it and the call that is due, such as a batch that is tried again. */
function repeatsBetween(previous: Call, got: Call, expected: Call): boolean {
  return difference(previous, got) === null && isBetween(previous, got, expected);
}

/** Whether a call stands between two others in one function. */
function isBetween(first: Call, call: Call, last: Call): boolean {
  const sites = [first.site, call.site, last.site];
  const [before, here, after] = sites;
  if (before === null || here === null || after === null) return false;
  const together = sites.every((site) => site?.file === here.file && site.name === here.name);
  return together && before.line < here.line && here.line < after.line;
}

/** Whether the other ranks issue this call in the same iteration of the loop, at another line, but not now. */
function isDueLater({ evidence }: HangContext, { previous, got, expected, other }: Departure): boolean {
  if (expected === null || got.site === null || difference(got, expected) === null) return false;
  const end = other.indexOf(placeOf(previous));
  const due = new Set(other.slice(1, end < 0 ? undefined : Math.max(2, end)));
  return evidence.calls.some(
    (call) => due.has(placeOf(call)) && call.site?.name === got.site?.name && difference(call, got) === null,
  );
}

/**
 * A set of ranks that went on as they never did before, shortly before the calls of the group differed: lines that issue the
 * same calls hide where it began. Null where none or several sets did.
 */
function leftCommonOrder(context: HangContext, group: number, sequence: number, sets: Lane[][]): HangVerdict | null {
  const { evidence } = context;
  const left = sets.map(([lane]) => firstUnseen(evidence, lane.calls, callAt(lane, sequence)));
  const odd = left.findIndex((index) => index >= 0);
  const usual = left.indexOf(-1);
  if (odd < 0 || usual < 0 || left.filter((index) => index >= 0).length > 1) return null;
  const { calls } = sets[odd][0];
  const at = callAt(sets[usual][0], calls.sequence[left[odd]]);
  if (calls.group[left[odd]] !== group || at < 0) return null;
  const got = evidence.calls[calls.call[left[odd]]];
  const expected = evidence.calls[sets[usual][0].calls.call[at]];
  if (placeOf(got) === placeOf(expected) || difference(got, expected) !== null) return null;
  const ranks = sets[odd].map((lane) => lane.rank);
  const where = (call: Call): string => `${call.op}${call.site === null ? "" : ` at ${siteText(call.site)}`}`;
  return context.verdict("skipped", ranks, {
    site: expected.site,
    at: got.site,
    collective: { op: expected.op, group: groupName(evidence, group), sequence: calls.sequence[left[odd]] },
    evidence: [
      `${ranksText(ranks)} issued ${where(got)}, as never before after the same calls; the others issue ${where(expected)}`,
    ],
  });
}

function operationMismatch(context: HangContext, { group, sequence, kind, lanes }: Mismatch): HangVerdict {
  const here = lanes.filter((lane) => callAt(lane, sequence) >= 0);
  const byOp = new Map<string, Lane[]>();
  for (const lane of here) {
    const call = context.evidence.calls[lane.calls.call[callAt(lane, sequence)]];
    const name = kind === "op" || call.site === null ? call.op : `${call.op} at ${siteText(call.site)}`;
    byOp.set(name, [...(byOp.get(name) ?? []), lane]);
  }
  const sorted = [...byOp].sort((a, b) => a[1].length - b[1].length);
  const left = leftCommonOrder(context, group, sequence, [...byOp.values()]);
  if (left !== null) return left;
  let [, odd] = sorted[0];
  let usual = sorted[sorted.length - 1][1];
  const callOf = (lane: Lane): Call => context.evidence.calls[lane.calls.call[callAt(lane, sequence)]];
  const without = ([lane]: Lane[], [other]: Lane[]): boolean =>
    leavesOut(context, lane, sequence, callOf(lane), callOf(other));
  // Of two equal sets the one that left a call out.
  if (odd.length === usual.length && !without(odd, usual) && without(usual, odd)) [odd, usual] = [usual, odd];
  const [got, expected] = [callOf(odd[0]), callOf(usual[0])];
  const early = ([lane]: Lane[]): boolean => wentOnEarly(context.evidence, lane.calls, callAt(lane, sequence));
  const seemsSkipped = without(odd, usual) || (early(odd) && !early(usual));
  const extra = seemsSkipped && isOptional(got, expected);
  const skipped = seemsSkipped && !extra;
  const call = skipped ? expected : got;
  const goesOn = !seemsSkipped && isOneMore(context.evidence, odd[0].calls, callAt(odd[0], sequence), expected);
  const leaves = !seemsSkipped && leavesLoop(context.evidence, odd[0].calls, callAt(odd[0], sequence), expected);
  const named = leaves ? expected : call;
  return context.verdict(
    extra ? "extra" : skipped ? "skipped" : goesOn || leaves ? "uneven" : "order",
    odd.map((lane) => lane.rank),
    {
      site: named.site,
      ...((skipped || leaves) && { at: got.site }),
      collective: { op: named.op, group: groupName(context.evidence, group), sequence },
      confidence: odd.length < usual.length ? "likely" : "guess",
      evidence: sorted.map(
        ([name, set]) => `${ranksText(set.map((lane) => lane.rank))}: ${name} is number ${sequence} of its group`,
      ),
    },
  );
}

/** Calls that a rank may have left out in a row. */
const mostLeftOut = 8;

/** Whether a rank went on to a call that it never issued before, out of a loop of the call that the others repeat. */
function leavesLoop(evidence: HangEvidence, calls: RankCalls, index: number, expected: Call): boolean {
  const place = (i: number): string => placeOf(evidence.calls[calls.call[i]]);
  const next = placeOf(expected);
  if (index < 2 || place(index - 1) !== next || place(index - 2) !== next) return false;
  for (let i = 0; i < index; i++) if (place(i) === place(index)) return false;
  return true;
}

/**
 * Whether a rank went on without a call that a loop repeats: what it issued has followed the call of the others before, at the
 * same lines. Where it repeats its own last call once more, it has one call too many instead.
 */
function leavesOut({ evidence }: HangContext, lane: Lane, sequence: number, got: Call, expected: Call): boolean {
  const { call } = lane.calls;
  const here = callAt(lane, sequence);
  const place = (i: number): string => placeOf(evidence.calls[call[i]]);
  const [gotPlace, expectedPlace] = [placeOf(got), placeOf(expected)];
  if (got.site === null || expected.site === null || here === 0 || place(here - 1) === gotPlace) return false;
  for (let i = 1; i < here; i++) {
    if (place(i) !== gotPlace) continue;
    if (place(i - 1) === expectedPlace) return true;
    // Several calls in a row, such as those of a function that returns early: they lay between the same two calls before.
    for (let k = 2; k <= Math.min(mostLeftOut, i - 1); k++)
      if (place(i - k) === expectedPlace && place(i - k - 1) === place(here - 1)) return true;
  }
  return false;
}

interface Mismatch {
  group: number;
  sequence: number;
  kind: "op" | "dtype" | "shape";
  timeMs: number;
  /** The calls stand at the same line: the ranks agree on the order, not on the payload. */
  samePlace: boolean;
  lanes: Lane[];
}

/** The first sequence number of a group at which calls differ. */
function mismatchIn(evidence: HangEvidence, group: number, lanes: Lane[]): Mismatch | null {
  if (lanes.length < 2) return null;
  const from = lanes.reduce((least, lane) => Math.min(least, lane.first), Infinity);
  const to = lanes.reduce((most, lane) => Math.max(most, lane.last), -Infinity);
  for (let sequence = from; sequence <= to; sequence++) {
    let reference = -1;
    for (const lane of lanes) {
      const at = callAt(lane, sequence);
      if (at < 0) continue;
      const id = lane.calls.call[at];
      if (reference < 0) reference = id;
      else if (id !== reference) {
        const [one, other] = [evidence.calls[reference], evidence.calls[id]];
        const kind = difference(one, other);
        const samePlace = one.site !== null && one.site.file === other.site?.file && one.site.line === other.site.line;
        if (kind !== null) return { group, sequence, kind, timeMs: lane.calls.timeMs[at], samePlace, lanes };
      }
    }
  }
  return null;
}
