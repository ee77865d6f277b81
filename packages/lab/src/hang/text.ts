// Verdicts in words: what happened, where to look, what to do.
import { sourceLine } from "./source.js";
import type { HangKind, HangVerdict } from "./verdict.js";
import { ranksText, siteText } from "./verdict.js";

interface Words {
  /** Completes "rank 3 …". */
  did: string;
  fix: string;
}

/** What each kind means, and what to do about it. */
const hangWords: Readonly<Record<HangKind, Words>> = {
  skipped: {
    did: "did not issue a collective that the other ranks issue (skipped in a branch)",
    fix: "Issue the collective on every rank, outside of the condition; a rank with nothing to contribute passes zeros.",
  },
  extra: {
    did: "issued a collective that the other ranks do not issue",
    fix: "Issue it on every rank, or in a group of the ranks that reach this line (torch.distributed.new_group).",
  },
  order: {
    did: "issued its collectives in another order than the other ranks",
    fix: "Give all ranks the same order: no order that depends on the rank, on data, on hashes or on timing.",
  },
  shape: {
    did: "issued the collective with another number of elements than the other ranks",
    fix: "Pad to a common size, or exchange the sizes first (all_gather of the lengths).",
  },
  dtype: {
    did: "issued the collective with another type of elements than the other ranks",
    fix: "Convert to one dtype on every rank before the call.",
  },
  uneven: {
    did: "has another number of batches than the other ranks, which left the loop later or earlier (uneven last batch)",
    fix: "Give every rank the same number of batches: DistributedSampler with drop_last=True, or the Join context of torch.distributed.algorithms.",
  },
  raised: { did: "raised an exception", fix: "Fix the error; the other ranks only wait for this one." },
  evaluation: {
    did: "evaluates while the other ranks wait for it",
    fix: "Evaluate on every rank, or put a barrier with a longer timeout around it; call the module inside DDP (model.module) if one rank evaluates.",
  },
  dead: {
    did: "is gone",
    fix: "Look for the reason in its log and in the kernel's (dmesg: out of memory, Xid errors of the GPU), and restart the job from its checkpoint.",
  },
  stopped: {
    did: "is stopped (SIGSTOP, a debugger, or suspended by the scheduler)",
    fix: "Continue it (kill -CONT PID), or detach the debugger.",
  },
  "point-to-point": {
    did: "did not issue the other half of a send or receive",
    fix: "Pair every send with one receive of the same peer, tag and order.",
  },
  root: {
    did: "issued the collective with another root than the other ranks",
    fix: "Pass the same src or dst on every rank: a rank of the world, not of the group, and none that depends on the rank.",
  },
  "world-size": {
    did: "was started with another number of ranks than the others",
    fix: "Start all ranks with one WORLD_SIZE: look for a stale variable, a second job with the same address, or a node that was left out.",
  },
  checkpoint: {
    did: "writes a checkpoint for longer than the others wait",
    fix: "Write asynchronously (torch.distributed.checkpoint.async_save) or to a local disk, or raise the timeout of the process group.",
  },
  "data-loading": {
    did: "waits for its data loader",
    fix: "Look at the loader's workers and at the storage; weft diagnose says how long it waits per step.",
  },
  late: { did: "has not arrived, and does something else", fix: "Look at the line where it is." },
  local: {
    did: "is outside of communication, and no rank waits for another one",
    fix: "Look at the line: a lock that a dead job has left, a download, a program that is waited for, or a loop that does not end.",
  },
  none: { did: "", fix: "" },
  unknown: {
    did: "",
    fix: "Get dumps of all ranks: weft hang --live PID…, or a job under weft scale or WEFT_PROBE_DIR.",
  },
};

function collectiveText({ collective }: HangVerdict): string | null {
  if (collective === null) return null;
  const number = collective.sequence === null ? "" : `, number ${collective.sequence}`;
  return `${collective.op}${number}${collective.group === "" ? "" : ` of group ${collective.group}`}`;
}

/** The verdict as lines for a terminal. */
export function hangText(verdict: HangVerdict): string {
  const { kind, culprits, site, at, evidence, confidence, waiting, ranksWithoutEvidence } = verdict;
  const words = hangWords[kind];
  const lines: string[] = [];
  const row = (name: string, value: string) => lines.push(`  ${name.padEnd(12)} ${value}`);
  if (culprits.length > 0) {
    const who = ranksText(culprits);
    lines.push(
      `${who[0].toUpperCase()}${who.slice(1)} ${culprits.length > 1 ? words.did.replace(/^is\b/, "are").replace(/^has\b/, "have") : words.did}.`,
    );
  } else lines.push(kind === "none" ? "Nothing hangs in these files." : "No culprit can be named from these files.");
  const collective = collectiveText(verdict);
  if (collective !== null) row("collective", collective);
  if (site !== null) {
    row("line", siteText(site));
    const source = sourceLine(site)?.trim().slice(0, 160);
    if (source) row("", `    ${source}`);
  }
  if (at !== null && (at.file !== site?.file || at.line !== site.line)) row("it is at", siteText(at));
  for (const fact of evidence) row("evidence", fact);
  if (words.fix !== "") row("fix", words.fix);
  if (kind !== "none") row("confidence", confidence);
  if (waiting.length > 0) lines.push("", "Waiting:");
  for (const one of waiting.slice(0, 8)) {
    const number = one.sequence === null ? "" : ` number ${one.sequence}`;
    lines.push(`  ${ranksText(one.ranks)}: ${one.op}${number}${one.site === null ? "" : ` at ${siteText(one.site)}`}`);
  }
  if (waiting.length > 8) lines.push(`  (${waiting.length - 8} more places; --json shows them)`);
  if (ranksWithoutEvidence.length > 0 && ranksWithoutEvidence.length < (verdict.worldSize ?? 0))
    lines.push("", `No file of ${ranksText(ranksWithoutEvidence)}.`);
  return `${lines.join("\n")}\n`;
}
