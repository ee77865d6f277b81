// Reads MLPerf Training logs (`:::MLLOG {...}` lines): what a submission states about its batch, throughput, steps and times.
import { statSync } from "node:fs";
import { mostDevices } from "@weft/formats/internal";
import { ImportError, readLines } from "./lines.js";

/** One line of a log: its key, value, time in milliseconds and metadata. */
interface MlperfEvent {
  key: string;
  value: unknown;
  timeMs: number;
  metadata: Record<string, unknown>;
  line: number;
}

/** The events of a log. */
interface MlperfLog {
  path: string;
  events: MlperfEvent[];
  /** Lines with the marker that could not be read. */
  unreadable: number;
  /** Accelerators that the system description beside the results names. */
  devices: number | null;
}

/** What a log states, with the lines that it stands on. */
export interface MlperfResult {
  benchmark: string | null;
  submitter: string | null;
  devices: number | null;
  globalBatch: number | null;
  /** Median of the stated throughputs, samples per second. */
  throughput: number | null;
  throughputs: { value: number; line: number }[];
  /** Minutes from run_start to run_stop. */
  minutes: number | null;
  success: boolean | null;
  /** Samples that the last evaluation or block states. */
  samples: number | null;
  trainSamples: number | null;
  /** Samples per step between the first and the last event of a kind that count both, with their lines. */
  perStep: { key: string; samples: number; lines: [number, number] }[];
  lines: Record<string, number>;
}

const marker = ":::MLLOG";
const largestLog = 1 << 30;
/** Events that are kept: a log of millions of lines is not a result of a submission. */
const mostEvents = 1_000_000;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const number = (value: unknown): number | null => {
  const parsed = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof parsed === "number" && Number.isFinite(parsed) ? parsed : null;
};

/** Reads the events of a log; lines that are not events are skipped. */
export function readMlperfLog(path: string, devices: number | null = null): MlperfLog {
  if (statSync(path).size > largestLog) throw new ImportError(`${path}: larger than 1 GiB; not a log of one run`);
  const log: MlperfLog = { path, events: [], unreadable: 0, devices };
  for (const { text, number: line } of readLines(path)) {
    const at = text.indexOf(marker);
    if (at < 0) continue;
    try {
      const value: unknown = JSON.parse(text.slice(at + marker.length));
      if (!isObject(value) || typeof value["key"] !== "string") throw new Error("no key");
      const timeMs = number(value["time_ms"]);
      const metadata = isObject(value["metadata"]) ? value["metadata"] : {};
      log.events.push({ key: value["key"], value: value["value"], timeMs: timeMs ?? Number.NaN, metadata, line });
    } catch {
      log.unreadable++;
    }
    if (log.events.length > mostEvents) throw new ImportError(`${path}: more than ${mostEvents} events`);
  }
  return log;
}

/** Throughputs that a log states: tracked statistics, or keys of their own. */
function throughputsOf(events: readonly MlperfEvent[]): { value: number; line: number }[] {
  return events.flatMap(({ key, value, line }) => {
    const stated =
      key === "tracked_stats" && isObject(value)
        ? (value["throughput"] ?? value["samples_per_sec"] ?? value["samples_per_second"])
        : key === "throughput" || key === "samples_per_sec"
          ? isObject(value)
            ? value["throughput"]
            : value
          : undefined;
    const found = number(stated);
    return found !== null && found > 0 ? [{ value: found, line }] : [];
  });
}

/** Steps and samples that the events of one kind count: what one step takes by them. */
function samplesPerStep(events: readonly MlperfEvent[]): MlperfResult["perStep"] {
  const kinds = new Map<string, { step: number; samples: number; line: number }[]>();
  for (const { key, metadata, line } of events) {
    const step = number(metadata["step"] ?? metadata["step_num"] ?? metadata["curr_global_step"]);
    const samples = number(metadata["samples_count"]);
    if (step === null || samples === null) continue;
    const list = kinds.get(key) ?? [];
    list.push({ step, samples, line });
    kinds.set(key, list);
  }
  return [...kinds].flatMap(([key, list]) => {
    const [first, last] = [list[0]!, list.at(-1)!];
    const [steps, samples] = [last.step - first.step, last.samples - first.samples];
    return steps > 0 && samples > 0 ? [{ key, samples: samples / steps, lines: [first.line, last.line] }] : [];
  });
}

/** What a log states. */
export function mlperfResult(log: MlperfLog): MlperfResult {
  const lines: Record<string, number> = {};
  const first = (key: string): unknown => {
    const event = log.events.find((e) => e.key === key);
    if (event !== undefined) lines[key] = event.line;
    return event?.value;
  };
  const start = log.events.find((e) => e.key === "run_start");
  const stop = log.events.findLast((e) => e.key === "run_stop");
  const throughputs = throughputsOf(log.events);
  const sorted = throughputs.map((t) => t.value).sort((a, b) => a - b);
  const samplesOf = (e: MlperfEvent): number | null => number(e.metadata["samples_count"]);
  const last = log.events.findLast((e) => samplesOf(e) !== null);
  const nodes = number(first("number_of_nodes") ?? first("num_nodes"));
  const perNode = number(first("accelerators_per_node"));
  const world = number(first("world_size"));
  const stated = world ?? (nodes !== null && perNode !== null ? nodes * perNode : null);
  const devices = log.devices ?? stated;
  const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
  if (stop !== undefined) lines["run_stop"] = stop.line;
  if (start !== undefined) lines["run_start"] = start.line;
  if (last !== undefined) lines["samples_count"] = last.line;
  const ms = start !== undefined && stop !== undefined ? stop.timeMs - start.timeMs : Number.NaN;
  return {
    benchmark: text(first("submission_benchmark")),
    submitter: text(first("submission_org")),
    devices: devices !== null && devices >= 1 && devices <= mostDevices ? devices : null,
    globalBatch: number(first("global_batch_size")),
    throughput: sorted.length === 0 ? null : sorted[Math.floor(sorted.length / 2)]!,
    throughputs: throughputs.slice(0, 64),
    minutes: Number.isFinite(ms) && ms > 0 ? ms / 60000 : null,
    success: stop === undefined ? null : stop.metadata["status"] === "success",
    samples: last === undefined ? null : samplesOf(last),
    trainSamples: number(first("train_samples")),
    perStep: samplesPerStep(log.events),
    lines,
  };
}
