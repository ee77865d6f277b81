// Output of NCCL's RAS client (ncclras), as text and as JSON (NCCL 2.28.7 and later): ranks that are missing, dead, or behind in
// their collectives. Communicators number their own ranks: only those of the whole job are named by rank, others are noted.
import { type HangEvidence, isRankNumber, rankEvidence } from "./evidence.js";

export function looksLikeRas(text: string): boolean {
  return /^\s*Job summary\s*$/m.test(text) && /^\s*(?:Communicators|Errors|Warnings)/m.test(text);
}

/** Nodes, processes per node, GPUs per process, processes and GPUs of the job. */
const jobRow = /^\s*\d+\s+[\d-]+\s+[\d-]+\s+\d+\s+(\d+)\s*$/;
/** A row of the table of communicators: number of the group and ranks per communicator. */
const groupRow = /^\s*(\d+)\s+\d+\s+[\d-]+\s+[\d-]+\s+([\d-]+)\s+\d+\s+[A-Z]+\s+[A-Z]/;
const section = /^\s*(?:#(\d+)-(\d+) \(\w+\) )?(INCOMPLETE|DEAD|MISMATCH|NOCOMM|ABORT|TIMEOUT)\s*$/;
const operations = /ha(?:s|ve) (?:launched up to operation (\d{1,15})|not launched any operations)/;
const rankLine = /^\s*Rank (\d{1,7})\b(.*)$/;
const missing = /^\s*The missing ranks?: ([\d, -]+)$/;

const mostNotes = 32;

function* listed(text: string): Generator<number> {
  for (const part of text.split(",")) {
    const [first, last = first] = part.split("-").map((n) => Number(n.trim()));
    for (let rank = first!; rank <= last! && isRankNumber(rank); rank++) yield rank;
  }
}

/** Takes a RAS report into the evidence. Sections name a communicator and a condition first and list ranks below them. */
export function readRas(text: string, file: string, evidence: HangEvidence): void {
  const ranksPerComm = new Map<string, string>();
  let operation: number | null = null;
  let most = -1;
  let ofWholeJob = true;
  for (const line of text.split("\n")) {
    const job = jobRow.exec(line);
    if (job !== null && evidence.worldSize === null && isRankNumber(Number(job[1]) - 1))
      evidence.worldSize = Number(job[1]);
    const group = groupRow.exec(line);
    if (group !== null) ranksPerComm.set(group[1]!, group[2]!);
    const head = section.exec(line);
    if (head !== null) {
      operation = null;
      const size = head[1] === undefined ? undefined : ranksPerComm.get(head[1]);
      ofWholeJob = size === undefined || evidence.worldSize === null || size === String(evidence.worldSize);
    }
    if (/Communicator ranks have different|ranks have status/.test(line)) operation = null;
    const count = operations.exec(line);
    if (count !== null) operation = Number(count[1] ?? 0);
    const rank = rankLine.exec(line);
    const absent = missing.exec(line);
    if (!ofWholeJob) {
      if ((rank !== null || absent !== null || count !== null) && evidence.notes.length < mostNotes)
        evidence.notes.push(`a communicator of a part of the ranks: ${line.trim().slice(0, 200)}`);
      continue;
    }
    if (operation !== null) most = Math.max(most, operation);
    if (rank !== null && isRankNumber(Number(rank[1])) && operation !== null)
      launchedUpTo(evidence, file, Number(rank[1]), operation);
    // One rank has its operation in its own line.
    if (rank !== null && count !== null) operation = null;
    if (absent !== null) for (const one of listed(absent[1]!)) unreachable(evidence, file, one, "its data are missing");
  }
  everybodyElse(evidence, file, most);
}

function about(evidence: HangEvidence, file: string, rank: number) {
  const own = rankEvidence(evidence, rank);
  if (!own.files.includes(file)) own.files.push(file);
  return own;
}

function launchedUpTo(evidence: HangEvidence, file: string, rank: number, operation: number): void {
  about(evidence, file, rank).status.push({ group: "0", enqueued: operation, completed: operation });
}

function unreachable(evidence: HangEvidence, file: string, rank: number, why: string): void {
  about(evidence, file, rank).process ??= { state: "dead", detail: `NCCL RAS cannot reach it: ${why}` };
}

/** RAS lists only the smaller sets: everybody else has launched the most. */
function everybodyElse(evidence: HangEvidence, file: string, most: number): void {
  if (most < 0 || evidence.worldSize === null) return;
  for (let rank = 0; rank < evidence.worldSize; rank++) {
    const own = rankEvidence(evidence, rank);
    if (own.status.length === 0 && own.process === undefined) launchedUpTo(evidence, file, rank, most);
  }
}

const record = (value: unknown): Record<string, unknown> =>
  value !== null && typeof value === "object" ? (value as Record<string, unknown>) : {};
const list = (value: unknown): Record<string, unknown>[] => (Array.isArray(value) ? value.map(record) : []);

/** Whether a JSON file is a report of RAS. */
export const isRasJson = (value: unknown): boolean =>
  typeof record(value)["nccl_version"] === "string" && Array.isArray(record(value)["communicators"]);

/** Takes a RAS report in JSON: of its largest communicator, whose ranks are those of the job. */
export function readRasJson(value: unknown, file: string, evidence: HangEvidence): void {
  const size = (one: Record<string, unknown>): number => (typeof one["size"] === "number" ? one["size"] : 0);
  const comms = list(record(value)["communicators"]);
  if (comms.length === 0) return;
  const whole = comms.reduce((a, b) => (size(b) > size(a) ? b : a));
  if (evidence.worldSize === null && isRankNumber(size(whole) - 1)) evidence.worldSize = size(whole);
  for (const one of list(whole["ranks"])) {
    if (!isRankNumber(one["rank"] as number)) continue;
    const counts = Object.values(record(one["collective_counts"])).filter((n) => typeof n === "number");
    launchedUpTo(
      evidence,
      file,
      one["rank"] as number,
      counts.reduce((a, b) => a + b, 0),
    );
  }
  for (const one of list(whole["missing_ranks"]))
    if (isRankNumber(one["rank"] as number))
      unreachable(evidence, file, one["rank"] as number, `process ${String(one["pid"])} on ${String(one["host"])}`);
}
