// Programs that communicate through a helper of their own (`reduce_mean(x)`): one line issues the calls of many. There the line
// that called the helper tells the calls apart, and is the one to look at.
import { type Call, type HangEvidence, isUserFrame, type Site } from "./evidence.js";

const key = ({ file, line }: Site): string => `${file}:${line}`;

/**
 * Moves the line of calls that stand in helpers to the callers of the helper, and keeps apart what different callers issue. A line
 * belongs to a helper when its callers take turns, or when a rank has a caller of its own; a loop that runs twice, in a warm-up and
 * later, is none.
 */
export function nameHelpers(evidence: HangEvidence): void {
  const byLine = new Map<string, Call[]>();
  for (const call of evidence.calls) {
    if (call.site === null) continue;
    const line = `${key(call.site)} ${call.op}`;
    const calls = byLine.get(line);
    if (calls === undefined) byLine.set(line, [call]);
    else calls.push(call);
  }
  for (const calls of byLine.values()) {
    const chains = new Map(calls.map((call) => [call, call.frames.filter(isUserFrame)]));
    const texts = new Map(calls.map((call) => [call, (chains.get(call) as Site[]).map(key).join(" < ")]));
    if (new Set(texts.values()).size < 2 || !takeTurns(evidence, texts)) continue;
    // The innermost frame in which the callers differ.
    const all = [...chains.values()];
    let depth = 0;
    while (all.every((chain) => depth < chain.length && key(chain[depth]) === key(all[0][depth]))) depth++;
    for (const call of calls) {
      const chain = chains.get(call) as Site[];
      call.site = chain[Math.min(depth, chain.length - 1)];
      call.place = `${texts.get(call)} ${call.op}`;
    }
  }
}

/** Whether a rank came back to one caller after another one, or one has a caller that others do not have. */
function takeTurns(evidence: HangEvidence, texts: ReadonlyMap<Call, string>): boolean {
  // The caller of each call as a number; 0 for calls of other lines.
  const names = [...new Set(texts.values())];
  const callers = Int32Array.from(evidence.calls, (call) => names.indexOf(texts.get(call) ?? "") + 1);
  const ranks = new Int32Array(names.length + 1);
  for (const { calls } of evidence.ranks.values()) {
    if (calls === undefined) continue;
    const left = new Uint8Array(names.length + 1);
    let last = 0;
    for (let i = 0; i < calls.count; i++) {
      const caller = callers[calls.call[i]];
      if (caller === 0 || caller === last) continue;
      if (left[caller] === 1) return true;
      if (last > 0) left[last] = 1;
      last = caller;
    }
    for (let caller = 1; caller < ranks.length; caller++) if (left[caller] === 1 || caller === last) ranks[caller]++;
  }
  return new Set(ranks.subarray(1)).size > 1;
}
