// What is known about the ranks of a stuck job, whatever file it came from.

/** A place in a source file. */
export interface Site {
  file: string;
  line: number;
  name: string;
}

/** A communication call as far as ranks must agree on it; equal calls of all ranks share one record. */
export interface Call {
  /** "all_reduce", "send" …: without the name of the backend. */
  op: string;
  /** As recorded: "nccl:all_reduce". */
  name: string;
  inputSizes: number[][];
  inputDtypes: string[];
  outputSizes: number[][];
  outputDtypes: string[];
  /** Innermost frame first; empty when the call came from a thread without Python frames (gradients of DDP). */
  frames: Site[];
  /** First frame outside of PyTorch, and outside of a helper that issues the calls of many lines. */
  site: Site | null;
  /** Key of the call where `site` alone does not tell it from others: the lines that led to it. */
  place?: string;
  /** The other rank of a point-to-point call, where the recorder names it. */
  peer: number | null;
}

export interface GroupInfo {
  name: string;
  description: string;
  /** Global ranks; null when no file says. */
  ranks: number[] | null;
}

/** Recorded calls of one rank, in the order in which they were issued, as columns. */
export interface RankCalls {
  count: number;
  /** Index into `HangEvidence.groups`. */
  group: Int32Array;
  /** Sequence number in its group; point-to-point calls count separately. */
  sequence: Float64Array;
  /** Index into `HangEvidence.calls`. */
  call: Int32Array;
  /** 0 scheduled, 1 started, 2 completed. */
  state: Uint8Array;
  pointToPoint: Uint8Array;
  /** Unix milliseconds; 0 when unknown. */
  timeMs: Float64Array;
}

export interface ThreadStack {
  thread: string;
  main: boolean;
  /** Innermost first. */
  frames: Site[];
}

export interface Raised {
  type: string;
  message: string;
  /** Innermost first. */
  frames: Site[];
}

export interface PointToPoint {
  op: string;
  peer: number | null;
  tag: number | null;
  /** False: blocked in it; null: issued without waiting. */
  done: boolean | null;
  /** Number of this call among those of its kind with this partner; null where the dump does not say. */
  index: number | null;
  site: Site | null;
}

/** A collective with a root, as a rank called it. */
export interface RootedCall {
  op: string;
  root: number | null;
  /** False: blocked in it. */
  done: boolean;
  site: Site | null;
}

type ProcessState = "running" | "stopped" | "dead" | "exited";

/** A process group that a rank has made. */
export interface MadeGroup {
  ranks: number[];
  /** False: blocked in it. */
  done: boolean;
  site: Site | null;
}

export interface RankEvidence {
  rank: number;
  /** World size, as this rank was configured. */
  world?: number;
  files: string[];
  host?: string;
  pid?: number;
  calls?: RankCalls;
  stacks: ThreadStack[];
  raised?: Raised;
  /** The exception that the main thread handles: code in `except` and `finally` may communicate. */
  handling?: Raised;
  made: MadeGroup[];
  pointToPoint: PointToPoint[];
  rooted: RootedCall[];
  process?: { state: ProcessState; detail: string };
  steps?: number;
  /** Seconds without progress when the dump was written. */
  stalledSeconds?: number;
  stepsPerEpoch?: number;
  /** Last enqueued and completed collective per group, from logs and `pg_status`. */
  status: { group: string; enqueued: number; completed: number }[];
  /** The collective that the watchdog reported for this rank. */
  watchdog?: { sequence: number; op: string; group: string; numel: number | null };
}

export interface HangEvidence {
  ranks: Map<number, RankEvidence>;
  worldSize: number | null;
  calls: Call[];
  groups: GroupInfo[];
  /** Files that could not be used, in part or at all, and why. */
  problems: string[];
  /** Lines of the job's launcher that concern the whole job (node failure, time limit). */
  notes: string[];
}

export function newEvidence(): HangEvidence {
  return { ranks: new Map(), worldSize: null, calls: [], groups: [], problems: [], notes: [] };
}

export function rankEvidence(evidence: HangEvidence, rank: number): RankEvidence {
  let found = evidence.ranks.get(rank);
  if (found === undefined) {
    found = { rank, files: [], stacks: [], made: [], pointToPoint: [], rooted: [], status: [] };
    evidence.ranks.set(rank, found);
  }
  return found;
}

/** Frames of libraries; py-spy shortens their paths to what follows the search path. */
const library =
  /(?:^|[/\\])(?:site-packages|dist-packages|torch|python\d(?:\.\d+)?|multiprocessing|concurrent|asyncio)[/\\]|^<|weft_probe|^(?:threading|selectors|socket|ssl|zipfile|pickle|queue|subprocess|json|os|shutil|tempfile|inspect|contextlib|functools|runpy)\.py$/;

/** True for a frame of the user's own code. */
export function isUserFrame(frame: Site): boolean {
  return !library.test(frame.file);
}

/** The innermost frame of the user's code; null when there is none. */
export function userSite(frames: readonly Site[]): Site | null {
  return frames.find(isUserFrame) ?? null;
}

/** Largest rank number that is accepted: larger ones come from damaged files. */
export const mostRanks = 1 << 20;

export function isRankNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value < mostRanks;
}
