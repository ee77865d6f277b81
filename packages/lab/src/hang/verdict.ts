// The form of a verdict, and words that several rules share.
import type { Raised, Site } from "./evidence.js";

export type HangKind =
  | "skipped"
  | "extra"
  | "order"
  | "shape"
  | "dtype"
  | "uneven"
  | "raised"
  | "evaluation"
  | "dead"
  | "stopped"
  | "point-to-point"
  | "root"
  | "world-size"
  | "checkpoint"
  | "data-loading"
  | "late"
  | "local"
  | "none"
  | "unknown";

/** A rank that waits, and where. */
export interface Waiting {
  op: string;
  group: string;
  sequence: number | null;
  site: Site | null;
  ranks: number[];
}

export interface HangVerdict {
  kind: HangKind;
  /** Ranks that the others wait for; usually one. */
  culprits: number[];
  /** The communication call that it is about. */
  collective: { op: string; group: string; sequence: number | null } | null;
  /** The line to look at. */
  site: Site | null;
  /** Where the culprit is now, if that is another line. */
  at: Site | null;
  /** Facts that led to the verdict. */
  evidence: string[];
  /** "certain": recorded facts leave no other reading; "likely": the best of several; "guess": little is known. */
  confidence: "certain" | "likely" | "guess";
  waiting: Waiting[];
  worldSize: number | null;
  ranksWithoutEvidence: number[];
}

/** Errors that a rank reports because another one failed or disagreed. */
const consequence =
  /connection (?:reset|closed|refused|was)|broken pipe|timed? ?out|timeout|ncclRemoteError|remote process exited|NCCL communicator was aborted|preamble|collective mismatch|DistBackendError|DistNetworkError|DistStoreError|Socket closed|SIGTERM|SignalException|monitoredBarrier|heartbeat|failed to pass|Detected mismatch/i;
export const mismatchMessage = /preamble\.length|collective mismatch|Detected mismatch between collectives/i;

/** Frames from which errors of other ranks arrive: calls of torch.distributed, and backward passes and modules that make them. */
const communicates = /[/\\]torch[/\\](?:distributed|autograd|nn|_tensor\.py|optim|_C|_ops\.py|_dynamo|_inductor|cuda)/;
const ended = /SIGTERM|SignalException/;

/** Whether another rank brought an exception about. The same words from a loader process or a download are a cause. */
export function isConsequence({ type, message, frames }: Raised): boolean {
  const text = `${type}: ${message}`;
  if (!consequence.test(text)) return false;
  return ended.test(text) || frames.length === 0 || frames.some(({ file }) => communicates.test(`/${file}`));
}

export const evaluating =
  /(?:^|_)(?:eval|evaluate|evaluation|valid|validate|validation|test|infer|inference|generate|predict)(?:_|$|\d)/i;
export const saving =
  /(?:^|_)(?:save|checkpoint|ckpt|dump|snapshot|fsync|upload|persist)(?:_|$|\d)|save_pretrained|state_dict/i;
export const loading = /(?:DataLoader|_next_data|_try_get_data|fetch)$|dataloader\.py/;

/** "rank 3", "ranks 1 to 7" or "ranks 1, 4 and 12 more". */
export function ranksText(ranks: readonly number[]): string {
  const sorted = [...ranks].sort((a, b) => a - b);
  if (sorted.length === 1) return `rank ${sorted[0]}`;
  if (sorted.length > 2 && sorted[sorted.length - 1] - sorted[0] === sorted.length - 1)
    return `ranks ${sorted[0]} to ${sorted[sorted.length - 1]}`;
  if (sorted.length <= 6) return `ranks ${sorted.slice(0, -1).join(", ")} and ${sorted[sorted.length - 1]}`;
  return `ranks ${sorted.slice(0, 5).join(", ")} and ${sorted.length - 5} more`;
}

export const siteText = (site: Site): string =>
  `${site.file}:${site.line}${site.name === "" ? "" : ` in ${site.name}`}`;
