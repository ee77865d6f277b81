// Programs that communicate through a helper of their own (`reduce_mean(x)`): one line issues the calls of many. There the line
// that called the helper tells the calls apart, and is the one to look at.
import { type Call, type HangEvidence, isUserFrame, type Site } from "./evidence.js";

/** Ranks whose order of calls is looked at. */
const ranksToSee = 4;

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
  let seen = 0;
  const ranks = new Map<string, number>();
  for (const { calls } of evidence.ranks.values()) {
    const own = new Set<string>();
    for (let i = 0; calls !== undefined && i < calls.count; i++) {
      const text = texts.get(evidence.calls[calls.call[i]]);
      if (text !== undefined) own.add(text);
    }
    for (const text of own) ranks.set(text, (ranks.get(text) ?? 0) + 1);
  }
  if (new Set(ranks.values()).size > 1) return true;
  for (const { calls } of evidence.ranks.values()) {
    if (calls === undefined || seen++ === ranksToSee) continue;
    const left = new Set<string>();
    let last: string | undefined;
    for (let i = 0; i < calls.count; i++) {
      const text = texts.get(evidence.calls[calls.call[i]]);
      if (text === undefined || text === last) continue;
      if (left.has(text)) return true;
      if (last !== undefined) left.add(last);
      last = text;
    }
  }
  return false;
}
