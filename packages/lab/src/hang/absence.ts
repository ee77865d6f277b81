// Ranks that have not issued the call in which the others wait, and what they do instead.
import { groupName, type HangContext, lastSequence, mainFrames, siteOfRank } from "./context.js";
import { isUserFrame, type RankEvidence, rankEvidence, type Site, userSite } from "./evidence.js";
import { inOtherGroup } from "./programs.js";
import { evaluating, type HangKind, type HangVerdict, loading, ranksText, saving, type Waiting } from "./verdict.js";

/** Members of a group that have not issued the call in which the others wait. */
export function absentRank(context: HangContext): HangVerdict | null {
  for (const waiting of context.waiting) {
    if (waiting.sequence === null) continue;
    const group = context.evidence.groups.findIndex((_, i) => groupName(context.evidence, i) === waiting.group);
    const members = context.members(group);
    const absent = members.filter((rank) => {
      const own = context.evidence.ranks.get(rank);
      if (waiting.ranks.includes(rank)) return false;
      const last = own === undefined ? null : (lastSequence(own, group) ?? lastInLogs(own));
      return last === null || last < (waiting.sequence as number);
    });
    if (absent.length === 0) continue;
    // A rank that waits elsewhere is explained by the ranks that it waits for.
    const free = absent.filter(
      (rank) => !context.waiting.some((other) => other !== waiting && other.ranks.includes(rank)),
    );
    const culprits = free.length > 0 ? free : absent;
    return (
      unrecordedCall(context, culprits, waiting) ??
      otherGroup(context, culprits, waiting) ??
      explainAbsence(context, culprits, waiting)
    );
  }
  return null;
}

/** The last call that a rank has issued according to its log; null where that says nothing. */
function lastInLogs({ calls, watchdog, status }: RankEvidence): number | null {
  if (calls !== undefined || (watchdog === undefined && status.length === 0)) return null;
  return Math.max(watchdog?.sequence ?? -1, ...status.map(({ enqueued }) => enqueued));
}

/** A rank that waits in a call which it always issued in another group before. */
function otherGroup(context: HangContext, culprits: number[], waiting: Waiting): HangVerdict | null {
  const { evidence } = context;
  for (const rank of culprits) {
    const calls = evidence.ranks.get(rank)?.calls;
    const last = (calls?.count ?? 0) - 1;
    if (calls === undefined || last < 0 || !inOtherGroup(evidence, calls, last)) continue;
    const { op, site } = evidence.calls[calls.call[last]];
    const group = groupName(evidence, calls.group[last]);
    return context.verdict("order", [rank], {
      site,
      collective: { op, group, sequence: calls.sequence[last] },
      evidence: [
        `${ranksText(waiting.ranks)} wait in ${waiting.op} of group ${waiting.group}; rank ${rank} issued ${op} in group ${group}, at a line that always used another group before`,
      ],
    });
  }
  return null;
}

/** Calls that every rank of a group must make and that no recorder shows. */
const unrecorded = /^(?:new_group|new_subgroups\w*|monitored_barrier|init_process_group|destroy_process_group)$/;

/** Functions of torch.distributed that wait for other ranks. */
const collective =
  /^(?:new_group|new_subgroups\w*|monitored_barrier|init_process_group|destroy_process_group|barrier|all_reduce|all_gather\w*|all_to_all\w*|broadcast\w*|reduce|reduce_scatter\w*|gather\w*|scatter\w*)$/;

/** Ranks that wait in an unrecorded call: the others left it out, or, where they are more, these made one too many. */
function unrecordedCall(context: HangContext, inside: number[], waiting: Waiting): HangVerdict | null {
  const stacks = inside.map((rank) => {
    const own = context.evidence.ranks.get(rank);
    return own === undefined ? [] : mainFrames(own);
  });
  const names = stacks.map(
    (frames) => frames.find((frame) => !isUserFrame(frame) && unrecorded.test(frame.name))?.name,
  );
  const [op] = names;
  if (op === undefined || names.some((name) => name !== op)) return null;
  const isExtra = inside.length < waiting.ranks.length;
  return context.verdict(isExtra ? "extra" : "skipped", isExtra ? inside : waiting.ranks, {
    site: userSite(stacks[0]),
    at: isExtra ? null : waiting.site,
    collective: { op, group: "", sequence: null },
    evidence: [
      `${ranksText(inside)} wait in ${op}, which every rank must call; ${ranksText(waiting.ranks)} wait in ${waiting.op} number ${waiting.sequence} of group ${waiting.group}`,
    ],
    confidence: inside.length === waiting.ranks.length ? "guess" : "likely",
  });
}

/** No recorded call waits, but some ranks are in a call that no recorder shows: the others have not come to it. */
export function absentFromUnrecorded(context: HangContext): HangVerdict | null {
  const inside = new Map<number, { op: string; site: Site | null }>();
  // Without any record, only the stacks show which ranks are in a collective.
  const calls = context.evidence.calls.length === 0 ? collective : unrecorded;
  for (const own of context.evidence.ranks.values()) {
    const frames = mainFrames(own);
    const op = frames.find((frame) => !isUserFrame(frame) && calls.test(frame.name))?.name;
    if (op !== undefined) inside.set(own.rank, { op, site: userSite(frames) });
  }
  const [first] = inside.values();
  if (first === undefined) return null;
  const absent = Array.from({ length: context.world }, (_, rank) => rank).filter((rank) => !inside.has(rank));
  if (absent.length === 0 || absent.length >= context.world) return null;
  const waiting: Waiting = { op: first.op, group: "", sequence: null, site: first.site, ranks: [...inside.keys()] };
  const verdict = explainAbsence(context, absent, waiting);
  return { ...verdict, collective: { op: first.op, group: "", sequence: null } };
}

function explainAbsence(context: HangContext, culprits: number[], waiting: Waiting): HangVerdict {
  const own = context.evidence.ranks.get(culprits[0]);
  const reason = reasonOfAbsence(own);
  const fact = `${ranksText(waiting.ranks)} wait in ${waiting.op}${waiting.sequence === null ? "" : ` number ${waiting.sequence} of group ${waiting.group}`}; ${ranksText(culprits)} ${culprits.length === 1 ? "has" : "have"} not issued it`;
  if (reason === null)
    return context.verdict("dead", culprits, {
      site: waiting.site,
      confidence: "guess",
      evidence: [fact, `${ranksText(culprits)} left no file at all: it died, was stopped, or its file was not given`],
    });
  return context.verdict(reason.kind, culprits, {
    site: reason.site ?? waiting.site,
    at: siteOfRank(own),
    evidence: [fact, ...reason.facts],
    confidence: reason.kind === "late" ? "guess" : "likely",
  });
}

/** What frames of the standard library say about a rank that does not communicate. */
const occupations: readonly { frame: RegExp; does: string }[] = [
  { frame: /(?:^|[/\\])(?:pdb|bdb|ipdb|pudb|debugpy)\b|IPython[/\\]/, does: "waits for input in a debugger" },
  {
    frame: /(?:^|[/\\])subprocess\.py (?:wait|_wait|_try_wait|communicate|_communicate|run)/,
    does: "waits for another program",
  },
  {
    frame: /(?:^|[/\\])threading\.py (?:wait|acquire|join|_wait_for_tstate_lock)$/,
    does: "waits for another of its own threads",
  },
  {
    frame: /(?:^|[/\\])(?:socket|ssl|http[/\\]client|urllib[/\\]request|urllib3[/\\]\w+)\.py /,
    does: "waits for the network",
  },
  { frame: /(?:^|[/\\])filelock[/\\]|_filelock\.py|(?:^|[/\\])fasteners[/\\]/, does: "waits for the lock of a file" },
];

/** What a rank does instead of communicating; null when nothing is known about it. */
export function reasonOfAbsence(
  own: RankEvidence | undefined,
): { kind: HangKind; site: Site | null; facts: string[] } | null {
  if (own === undefined || own.files.length === 0) return null;
  if (own.process?.state === "exited")
    return { kind: "uneven", site: null, facts: [`rank ${own.rank} has ended: ${own.process.detail}`] };
  const frames = mainFrames(own);
  if (frames.length === 0 && own.process?.state === "running")
    return {
      kind: "late",
      site: null,
      facts: [`rank ${own.rank} wrote nothing, but ${own.process.detail}: a call into C keeps the interpreter lock`],
    };
  if (frames.length === 0 && own.calls === undefined) {
    const last = lastInLogs(own);
    if (last === null) return null;
    const fact =
      own.watchdog === undefined
        ? `rank ${own.rank} issued collectives up to number ${last}, says its log`
        : `rank ${own.rank} waits in ${own.watchdog.op.toLowerCase()} number ${own.watchdog.sequence}, says its log`;
    return { kind: "late", site: null, facts: [fact] };
  }
  if (frames.length === 0) return { kind: "late", site: null, facts: [] };
  const site = userSite(frames);
  const what = occupations.find(({ frame }) => frames.some(({ file, name }) => frame.test(`${file} ${name}`)))?.does;
  const fact = `rank ${own.rank} ${what === undefined ? "" : `${what}: it `}is in ${frames
    .slice(0, 3)
    .map((frame) => frame.name)
    .join(" < ")}`;
  const user = frames.filter(isUserFrame);
  const saves = frames.find((frame) => saving.test(frame.name) && !/forward|backward/.test(frame.name));
  if (saves !== undefined)
    return { kind: "checkpoint", site: user.find((frame) => saving.test(frame.name)) ?? site, facts: [fact] };
  if (frames.some((frame) => loading.test(frame.name) || loading.test(frame.file)))
    return { kind: "data-loading", site, facts: [fact] };
  if (user.some((frame) => evaluating.test(frame.name))) return { kind: "evaluation", site, facts: [fact] };
  return { kind: "late", site, facts: [fact] };
}

/** Nobody communicates, and somebody has made no progress for long: the ranks are in code of their own. */
export function nobodyWaits(context: HangContext): HangVerdict | null {
  const ranks = [...context.evidence.ranks.values()];
  const longest = ranks.reduce((most, own) => Math.max(most, own.stalledSeconds ?? 0), 0);
  const places = new Map<string, { site: Site; ranks: RankEvidence[] }>();
  for (const own of ranks) {
    const site = siteOfRank(own);
    if (site === null || own.raised !== undefined) return null;
    if (mainFrames(own).some((frame) => /[/\\]torch[/\\]distributed[/\\]/.test(`/${frame.file}`))) return null;
    const key = `${site.file}:${site.line}`;
    const place = places.get(key);
    if (place === undefined) places.set(key, { site, ranks: [own] });
    else place.ranks.push(own);
  }
  if (context.waiting.length > 0 || longest === 0 || ranks.length === 0 || ranks.length < context.world) return null;
  const sorted = [...places.values()].sort((a, b) => b.ranks.length - a.ranks.length);
  return context.verdict(
    "local",
    ranks.map((own) => own.rank),
    {
      site: sorted[0].site,
      collective: null,
      evidence: [
        `no progress for ${Math.round(longest)} s, and no rank is in a communication call`,
        ...sorted.slice(0, 4).flatMap((place) => reasonOfAbsence(place.ranks[0])?.facts ?? []),
      ],
    },
  );
}

/** Only logs: the rank whose last enqueued collective is smallest, or that reported none. */
export function fromLogs(context: HangContext): HangVerdict | null {
  const ranks = [...context.evidence.ranks.values()];
  const told = ranks.filter((own) => own.watchdog !== undefined || own.status.some((status) => status.enqueued >= 0));
  if (told.length === 0) return null;
  const enqueued = (own: RankEvidence) =>
    Math.max(own.watchdog?.sequence ?? -1, ...own.status.map((status) => status.enqueued));
  const most = Math.max(...told.map(enqueued));
  const behind = told.filter((own) => enqueued(own) < most);
  if (behind.length > 0 && behind.length < told.length) {
    const least = Math.min(...behind.map(enqueued));
    const culprits = behind.filter((own) => enqueued(own) === least);
    return context.verdict(
      "late",
      culprits.map((own) => own.rank),
      {
        site: siteOfRank(culprits[0]),
        evidence: [
          `${ranksText(culprits.map((own) => own.rank))} issued collectives up to ${least}, the others up to ${most}`,
        ],
        confidence: "likely",
      },
    );
  }
  const silent = Array.from({ length: context.world }, (_, rank) => rank).filter(
    (rank) => !told.some((own) => own.rank === rank),
  );
  if (silent.length === 0 || silent.length >= told.length) return null;
  const own = context.evidence.ranks.get(silent[0]) ?? rankEvidence(context.evidence, silent[0]);
  const reason = reasonOfAbsence(own);
  return context.verdict(reason?.kind ?? "late", silent, {
    site: reason?.site ?? siteOfRank(own),
    evidence: [
      `the watchdogs of ${told.length} ranks report a timeout; ${ranksText(silent)} reported nothing`,
      ...(reason?.facts ?? []),
    ],
    confidence: "guess",
  });
}
