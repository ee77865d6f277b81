// Ranks that agree on the call but not on who takes part: other roots, other members of a new group, another number of ranks.
// No recorder shows why they wait.
import { type HangContext, siteOfRank } from "./context.js";
import type { RankEvidence, RootedCall, Site } from "./evidence.js";
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

/** Ranks grouped by their configured value, the smallest group first; null where all agree or too little is known. */
function sets<T>(
  ranks: readonly RankEvidence[],
  of: (own: RankEvidence) => T | undefined,
): [T, RankEvidence[]][] | null {
  const found = new Map<T, RankEvidence[]>();
  for (const own of ranks) {
    const value = of(own);
    if (value !== undefined) found.set(value, [...(found.get(value) ?? []), own]);
  }
  return found.size < 2 ? null : [...found].sort((a, b) => a[1].length - b[1].length);
}

/** Ranks that were started with another number of ranks: they wait for some that do not exist, or are waited for. */
export function differentWorlds(context: HangContext): HangVerdict | null {
  const found = sets([...context.evidence.ranks.values()], (own) => own.world);
  if (found === null) return null;
  const [[size, odd], [other, usual]] = [found[0]!, found.at(-1)!];
  return context.verdict(
    "world-size",
    odd.map(({ rank }) => rank),
    {
      site: siteOfRank(odd[0]),
      collective: { op: "init_process_group", group: "", sequence: null },
      confidence: odd.length < usual.length ? "certain" : "likely",
      evidence: [
        `${ranksText(odd.map(({ rank }) => rank))}: WORLD_SIZE ${size}; ${ranksText(usual.map(({ rank }) => rank))}: ${other}`,
      ],
    },
  );
}

/** Ranks that make process groups in another order: their groups of one name have different members. */
export function differentGroups(context: HangContext): HangVerdict | null {
  const ranks = [...context.evidence.ranks.values()];
  const most = ranks.reduce((length, own) => Math.max(length, own.made.length), 0);
  for (let i = 0; i < most; i++) {
    const found = sets(ranks, (own) => own.made[i]?.ranks.join());
    if (found === null) continue;
    const [[members, odd], [others, usual]] = [found[0]!, found.at(-1)!];
    return context.verdict(
      "order",
      odd.map(({ rank }) => rank),
      {
        site: odd[0]!.made[i]!.site,
        collective: { op: "new_group", group: "", sequence: i },
        confidence: odd.length < usual.length ? "likely" : "guess",
        evidence: [
          `${ranksText(odd.map(({ rank }) => rank))}: new group ${i + 1} of ranks ${members}; ${ranksText(usual.map(({ rank }) => rank))}: of ranks ${others}`,
        ],
      },
    );
  }
  return null;
}
