// One row of the table of runs, from run.json and the ends of the other files: a table of hundreds of runs must not read them whole.
import { existsSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import {
  lenientParser,
  metricsColumn,
  parseRecord,
  type RecordOf,
  type RunFile,
  runFileSchema,
} from "@weft/formats/internal";
import { plainText } from "@weft/formats/text";
import type { RunRow, RunState, RunVerdict } from "../wire/index.js";
import { readEnd, readSmall } from "./files.js";
import { canTellHolder, isHeld, wasAliveAt } from "./holder.js";

/** Where a run is. */
export interface RunPlace {
  /** The runs folder, with links resolved. */
  root: string;
  folder: string;
  id: string;
  study?: string;
}

/** Specification of the gate that a run optimizes. */
export const gateFile = "gate.yaml";
const parseRunFile = lenientParser(runFileSchema);
/** Seconds without a new record after which a run on another host is called silent. */
const silentAfter = 120;
const tailBytes = 10 << 10;
const longTailBytes = 256 << 10;
/** Share of a step above which waiting is worth a word. */
const notable = 0.1;

/** Reads run.json; null if it is missing or invalid. */
export function readHead({ root, folder }: RunPlace): RunFile | null {
  const text = readSmall(root, join(folder, "run.json"));
  if (text === null) return null;
  try {
    const parsed = parseRunFile(JSON.parse(text));
    return parsed.ok ? parsed.value : null;
  } catch {
    return null;
  }
}

/** Time of the last change of the files of a run, in milliseconds; a key for caches. */
export function changeKey(folder: string): string {
  return ["run.json", "rank0.jsonl", "records.jsonl", "metrics.csv"]
    .map((name) => {
      const status = statSync(join(folder, name), { throwIfNoEntry: false });
      return status === undefined ? "-" : `${status.mtimeMs}:${status.size}`;
    })
    .join(" ");
}

function lastChange(folder: string): number {
  const times = ["run.json", "rank0.jsonl", "records.jsonl"].map(
    (name) => statSync(join(folder, name), { throwIfNoEntry: false })?.mtimeMs ?? 0,
  );
  return Math.max(...times) / 1000;
}

/** The state of a run that has not written its end, and why. */
function stateOf(place: RunPlace, head: RunFile): { state: RunState; message?: string } {
  if (head.status !== "running")
    return {
      state: head.status,
      ...(head.message !== undefined && { message: plainText(head.message.slice(0, 500)) }),
    };
  const quiet = Date.now() / 1000 - lastChange(place.folder);
  const host = head.machine?.host;
  if (host !== undefined && host !== hostname())
    return quiet > silentAfter
      ? { state: "silent", message: `no record from ${plainText(host)} for ${Math.round(quiet)} s` }
      : { state: "running" };
  if (isHeld(place.folder)) return { state: "running" };
  const rank = firstRank(place);
  const lives = rank?.pid !== undefined && wasAliveAt(rank.pid, rank.t ?? Number.POSITIVE_INFINITY);
  // A run that has just started has not written its process yet.
  if (lives || (rank === null && quiet < 10)) return { state: "running" };
  if (rank?.pid === undefined && !canTellHolder()) return { state: "unknown" };
  return { state: "died", message: "its process ended without writing why (killed, out of memory, or a lost machine)" };
}

function firstRank({ root, folder }: RunPlace): RecordOf<"rank"> | null {
  for (const line of readSmall(root, join(folder, "rank0.jsonl"), 8192)?.split("\n") ?? []) {
    const parsed = parseRecord(line);
    if (parsed.ok && parsed.record.type === "rank") return parsed.record;
  }
  return null;
}

/** The steps at the end of the first rank's file. */
function lastSteps({ root, folder }: RunPlace): RecordOf<"step">[] {
  const stepsIn = (bytes: number): RecordOf<"step">[] =>
    (readEnd(root, join(folder, "rank0.jsonl"), bytes)?.split("\n") ?? []).flatMap((line) => {
      if (!line.includes('"step"')) return [];
      const parsed = parseRecord(line);
      return parsed.ok && parsed.record.type === "step" ? [parsed.record] : [];
    });
  const steps = stepsIn(tailBytes);
  // Between long steps there are many samples of the devices.
  return steps.length > 0 ? steps : stepsIn(longTailBytes);
}

function lastAccuracy({ root, folder }: RunPlace): number | undefined {
  const lines = (readSmall(root, join(folder, "metrics.csv"), 1 << 18) ?? "").trim().split("\n");
  const column = lines[0].split(",").findIndex((name) => metricsColumn(name) === "valAccuracy");
  for (let i = lines.length - 1; i > 0 && column >= 0; i--) {
    const cell = lines[i].split(",")[column]?.trim() ?? "";
    if (cell !== "" && Number.isFinite(Number(cell))) return Number(cell);
  }
  return undefined;
}

const sum = (
  steps: readonly RecordOf<"step">[],
  field: "durationUs" | "dataWaitUs" | "exposedCommUs" | "samples",
): number => steps.reduce((total, step) => total + (step[field] ?? 0), 0);

/** What the last steps wait for. */
function verdictOf(state: RunState, steps: readonly RecordOf<"step">[]): RunVerdict | undefined {
  if (state === "failed" || state === "died" || state === "timeout") return { text: state, tone: "bad" };
  const duration = sum(steps, "durationUs");
  if (steps.length < 5 || duration <= 0) return undefined;
  const [data, communication] = [sum(steps, "dataWaitUs") / duration, sum(steps, "exposedCommUs") / duration];
  const percent = (share: number): string => `${Math.round(share * 100)}%`;
  if (data > notable && data >= communication) return { text: `waits for data ${percent(data)}`, tone: "bad" };
  if (communication > notable) return { text: `waits for ranks ${percent(communication)}`, tone: "bad" };
  return { text: `computes ${percent(Math.max(0, 1 - data - communication))}`, tone: "good" };
}

/** Builds the row of a run; null if the folder holds no run. */
export function readRow(place: RunPlace): RunRow | null {
  const head = readHead(place);
  if (head === null) return null;
  const { state, message } = stateOf(place, head);
  const steps = lastSteps(place);
  const last = steps.at(-1);
  const rank = firstRank(place);
  const duration = sum(steps, "durationUs") / 1e6;
  const samples = sum(steps, "samples");
  const ranks = Math.max(1, rank?.worldSize ?? head.devices);
  const step = last === undefined ? undefined : last.step + 1;
  const left =
    state === "running" && step !== undefined && head.steps !== undefined && steps.length > 0
      ? (Math.max(0, head.steps - step) * duration) / steps.length
      : undefined;
  const accuracy = head.test?.accuracy ?? lastAccuracy(place);
  // An optimization waits for nobody.
  const verdict = verdictOf(state, head.lossName === undefined ? steps : []);
  const seconds =
    head.seconds ??
    (head.startedAt === undefined
      ? undefined
      : (state === "running" ? Date.now() / 1000 : lastChange(place.folder)) - head.startedAt);
  const text = (value: string | undefined, key: string): object =>
    value === undefined ? {} : { [key]: plainText(value.slice(0, 200)) };
  return {
    id: place.id,
    name: plainText(head.id.slice(0, 200)),
    ...text(place.study, "study"),
    state,
    ...text(message, "message"),
    ...(head.startedAt !== undefined && { startedAt: head.startedAt }),
    ...(seconds !== undefined && { seconds }),
    devices: head.devices,
    ...text(rank?.device, "device"),
    ...text(head.machine?.host, "host"),
    ...text(head.workload?.model, "model"),
    ...text(head.workload?.dataset, "dataset"),
    ...(step !== undefined && { step }),
    ...(head.steps !== undefined && { steps: head.steps }),
    ...(last?.epoch !== undefined && { epoch: last.epoch }),
    ...(left !== undefined && { left }),
    ...(duration > 0 && samples > 0 && { samplesPerSecond: (samples * ranks) / duration }),
    ...(last?.loss !== undefined && { loss: last.loss }),
    ...text(head.lossName, "lossName"),
    ...(existsSync(join(place.folder, gateFile)) && { gate: true }),
    ...(accuracy !== undefined && { accuracy }),
    ...(verdict !== undefined && { verdict }),
  };
}
