// Context that all hang rules share: which ranks wait in which call, and how to write a verdict.
import { type HangEvidence, mostRanks, type RankEvidence, type Site, userSite } from "./evidence.js";
import { placeOf } from "./programs.js";
import type { HangKind, HangVerdict, Waiting } from "./verdict.js";

export const mainFrames = (rank: RankEvidence): Site[] =>
  (rank.stacks.find((stack) => stack.main) ?? rank.stacks[0])?.frames ?? [];

export const siteOfRank = (rank: RankEvidence | undefined): Site | null =>
  rank === undefined ? null : userSite(mainFrames(rank));

export function groupName(evidence: HangEvidence, group: number): string {
  const { name, description } = evidence.groups[group];
  return description !== "" && description !== "undefined" ? description : name;
}

export class HangContext {
  readonly world: number;
  readonly waiting: Waiting[];
  readonly facts: string[] = [];

  constructor(readonly evidence: HangEvidence) {
    const known = [...evidence.ranks.keys()];
    const listed = evidence.groups.flatMap((group) => group.ranks ?? []);
    const largest = [...known, ...listed].reduce((most, rank) => Math.max(most, rank), -1) + 1;
    this.world = Math.min(mostRanks, Math.max(evidence.worldSize ?? 0, largest));
    this.waiting = this.findWaiting();
  }

  /** Calls that have not completed, by place. */
  private findWaiting(): Waiting[] {
    const found = new Map<string, Waiting>();
    const add = (key: string, make: () => Omit<Waiting, "ranks">, rank: number) => {
      const waiting = found.get(key);
      if (waiting === undefined) found.set(key, { ...make(), ranks: [rank] });
      else waiting.ranks.push(rank);
    };
    for (const own of this.evidence.ranks.values()) {
      const i = firstIncomplete(own);
      const blocked = own.pointToPoint.find((call) => call.done === false);
      if (blocked !== undefined)
        add(`p2p ${own.rank}`, () => ({ op: blocked.op, group: "", sequence: null, site: blocked.site }), own.rank);
      else if (i >= 0 && own.calls !== undefined) {
        const { group, sequence, call } = own.calls;
        const record = this.evidence.calls[call[i]];
        const site = record.site ?? siteOfRank(own);
        add(
          `${group[i]} ${sequence[i]} ${placeOf(record)}`,
          () => ({ op: record.op, group: groupName(this.evidence, group[i]), sequence: sequence[i], site }),
          own.rank,
        );
      } else if (own.watchdog !== undefined) {
        const { op, sequence, group } = own.watchdog;
        add(
          `${group} ${sequence} ${op}`,
          () => ({ op: op.toLowerCase(), group, sequence, site: siteOfRank(own) }),
          own.rank,
        );
      }
    }
    return [...found.values()].sort((a, b) => b.ranks.length - a.ranks.length);
  }

  verdict(kind: HangKind, culprits: number[], about: Partial<HangVerdict>): HangVerdict {
    const without: number[] = [];
    for (let rank = 0; rank < this.world; rank++) {
      const own = this.evidence.ranks.get(rank);
      if (own === undefined || own.files.length === 0) without.push(rank);
    }
    const collective = about.collective === undefined ? this.mainCollective(culprits) : about.collective;
    return {
      kind,
      culprits: [...culprits].sort((a, b) => a - b),
      collective,
      site: null,
      at: null,
      confidence: "likely",
      waiting: this.waiting,
      worldSize: this.world || null,
      ranksWithoutEvidence: without,
      ...about,
      evidence: [...this.facts, ...(about.evidence ?? [])],
    };
  }

  /** The call in which most ranks other than the culprits wait. */
  mainWaiting(culprits: readonly number[]): Waiting | undefined {
    return this.waiting.find((waiting) => waiting.ranks.some((rank) => !culprits.includes(rank)));
  }

  mainCollective(culprits: readonly number[]): HangVerdict["collective"] {
    const waiting = this.mainWaiting(culprits);
    return waiting === undefined ? null : { op: waiting.op, group: waiting.group, sequence: waiting.sequence };
  }

  members(group: number): number[] {
    const listed = group < 0 ? null : this.evidence.groups[group].ranks;
    if (listed !== null) return listed;
    const description = group < 0 ? "" : this.evidence.groups[group].description;
    if (group >= 0 && description !== "default_pg" && this.evidence.groups.length > 1) {
      const seen = [...this.evidence.ranks.values()].filter((own) => lastSequence(own, group) !== null);
      return seen.map((own) => own.rank);
    }
    return Array.from({ length: this.world }, (_, rank) => rank);
  }
}

/** The first collective of a rank that has not completed; -1 when all have. */
export function firstIncomplete({ calls }: RankEvidence): number {
  if (calls === undefined) return -1;
  // Only what follows the last completed call of the same group counts: old entries of some versions never change their state.
  for (let i = calls.count - 1, open = -1; ; i--) {
    if (i < 0 || calls.state[i] === 2) return open;
    open = i;
  }
}

export function lastSequence({ calls }: RankEvidence, group: number): number | null {
  let last: number | null = null;
  for (let i = 0; calls !== undefined && i < calls.count; i++)
    if (calls.group[i] === group && calls.pointToPoint[i] === 0 && (last === null || calls.sequence[i] > last))
      last = calls.sequence[i];
  return last;
}
