// Ranks that call a collective with different roots: each waits for data that nobody sends, and no recorder shows why.
import type { HangContext } from "./context.js";
import type { RootedCall, Site } from "./evidence.js";
import { type HangVerdict, ranksText } from "./verdict.js";

const isAt = (call: RootedCall, blocked: RootedCall): boolean =>
  call.op === blocked.op && call.site?.file === blocked.site?.file && call.site?.line === blocked.site?.line;

/** Of the ranks at one call those whose root the fewest have; between equals the one that named another root before. */
export function differentRoots(context: HangContext): HangVerdict | null {
  const ranks = [...context.evidence.ranks.values()];
  for (const { rooted } of ranks) {
    const blocked = rooted.at(-1);
    if (blocked === undefined || blocked.done || blocked.site === null) continue;
    const calls = ranks.flatMap((own) => {
      const call = own.rooted.findLast((one) => isAt(one, blocked));
      return call === undefined || call.root === null ? [] : [{ own, call, root: call.root }];
    });
    const byRoot = new Map<number, typeof calls>();
    for (const one of calls) byRoot.set(one.root, [...(byRoot.get(one.root) ?? []), one]);
    if (byRoot.size < 2) continue;
    const isUnusual = (one: (typeof calls)[number]): number => {
      const before = one.own.rooted.filter((call) => call !== one.call && isAt(call, blocked));
      return before.length > 0 && before.every((call) => call.root !== one.root) ? 1 : 0;
    };
    const sets = [...byRoot.values()].sort((a, b) => isUnusual(b[0]) - isUnusual(a[0]) || a.length - b.length);
    const [odd, usual] = [sets[0], sets[sets.length - 1]];
    const culprits = odd.map(({ own }) => own.rank);
    return context.verdict("root", culprits, {
      site: odd[0].call.site as Site,
      collective: { op: blocked.op, group: "", sequence: null },
      confidence: isUnusual(odd[0]) === 1 || odd.length < usual.length ? "likely" : "guess",
      evidence: [
        `${ranksText(culprits)}: ${blocked.op} with root ${odd[0].root}; ${ranksText(usual.map(({ own }) => own.rank))}: root ${usual[0].root}`,
      ],
    });
  }
  return null;
}
