// Summarizes runs per device count: time, speedup, efficiency, throughput, all in one time basis. validity/ decides whether a
// ratio may be called a speedup.

import { bootstrapInterval, mean, type Summary, summarize } from "@weft/formats/stats";
import { disturbanceIn, type Run, type Study } from "../model/index.js";
import { type EpochSummary, summarizeEpochs } from "./epochs.js";
import { karpFlatt } from "./laws.js";
import { type StepSummary, summarizeSteps } from "./steps.js";

/** What the times of a study measure: an epoch, an epoch computed from steps, or the whole run. */
type TimeBasis = "epoch" | "steps" | "run";

/** One run with its epoch and step statistics. */
export interface RunSummary {
  /** The run. */
  run: Run;
  /** Statistics of its epochs; null if there are none. */
  epochs: EpochSummary | null;
  /** Statistics of its steps; null if there are none. */
  steps: StepSummary | null;
  /** Seconds in the study's time basis; null when this run has none. */
  seconds: Summary | null;
  /** Samples per second over all ranks; null when they were not counted. */
  samplesPerSecond: number | null;
}

/** The runs of one device count: time, speedup, efficiency and throughput. */
export interface CountSummary {
  /** Number of devices. */
  devices: number;
  /** Runs at this count that its time is taken from: without those that others disturbed, if there are such. */
  runs: RunSummary[];
  /** Statistics over the runs of this count, or over the epochs of a single run. */
  seconds: Summary;
  /** Ratio of the baseline's time to this count's. */
  speedup: number;
  /** Speedup per device, relative to the baseline. */
  efficiency: number;
  /** 80% bootstrap interval over epochs or repeats; null when there is too little to resample. */
  speedupInterval: [number, number] | null;
  /** Serial fraction by Karp and Flatt; null for the baseline. */
  karpFlatt: number | null;
}

/** A study by device count, relative to its smallest count. */
export interface StudySummary {
  /** The study. */
  study: Study;
  /** What times are compared: epochs, steps or whole runs. */
  basis: TimeBasis | null;
  /** Summaries by run. */
  runs: RunSummary[];
  /** Summaries by device count. */
  counts: CountSummary[];
  /** The smallest count; null without runs. */
  baseline: CountSummary | null;
  /** Device counts without a usable time, with the reason. */
  failed: { devices: number; run: string; reason: string }[];
}

const defaultWarmup = 1;

function stepBasis(run: Run, steps: StepSummary): Summary | null {
  const perEpoch = run.workload.stepsPerEpoch ?? steps.stepsPerEpoch;
  if (perEpoch === null || perEpoch === undefined || perEpoch === 0) return null;
  const scale = perEpoch / 1e6;
  const d = steps.durationUs;
  return {
    n: d.n,
    mean: d.mean * scale,
    std: d.std * scale,
    sampleStd: d.sampleStd * scale,
    min: d.min * scale,
    max: d.max * scale,
    median: d.median * scale,
  };
}

/** The times of a run in each basis; a basis is usable when every successful run has it. */
const bases: Record<TimeBasis, (s: Omit<RunSummary, "seconds" | "samplesPerSecond">) => Summary | null> = {
  // A single epoch includes warm-up: steps are better where they exist.
  epoch: ({ epochs, steps }) =>
    epochs === null || (epochs.warmup.length === 0 && epochs.used.length < 2 && steps !== null) ? null : epochs.seconds,
  steps: ({ run, steps }) => (steps === null ? null : stepBasis(run, steps)),
  run: ({ run }) => (run.seconds !== undefined && run.seconds > 0 ? summarize([run.seconds]) : null),
};

const order: TimeBasis[] = ["epoch", "steps", "run"];

function usable(run: Run): boolean {
  return run.status === "ok" || run.status === "unknown";
}

function failureReason(run: Run): string {
  const code = run.exitCode === undefined ? "" : ` (exit ${run.exitCode})`;
  if (run.status === "ok" || run.status === "unknown") return "no usable measurement in it";
  return `${run.status}${code}${run.message === undefined ? "" : `: ${run.message}`}`;
}

/** Values to resample: epochs of a single run, means of several. */
function resamplable(count: { runs: readonly RunSummary[] }): number[] {
  if (count.runs.length > 1) return count.runs.map((r) => r.seconds!.mean);
  return count.runs[0]!.epochs?.used.map((row) => row.seconds) ?? [];
}

/** Summarizes the runs of a study per device count. */
export function summarizeStudy(study: Study): StudySummary {
  const epochWarmup = study.warmup ?? defaultWarmup;
  const parts = study.runs.map((run) => ({
    run,
    epochs: summarizeEpochs(run, epochWarmup),
    // A stated warm-up counts epochs, and steps where there are no epochs.
    steps: summarizeSteps(run, run.epochs.length === 0 ? study.warmup : undefined),
  }));
  const good = parts.filter((part) => usable(part.run));
  const measured = good.filter((part) => order.some((basis) => bases[basis](part) !== null));
  const basis =
    measured.length === 0
      ? null
      : (order.find((b) => measured.every((part) => bases[b](part) !== null)) ??
        order.find((b) => measured.some((part) => bases[b](part) !== null)) ??
        null);
  const runs = parts.map((part): RunSummary => {
    const seconds = basis === null || !usable(part.run) ? null : bases[basis](part);
    // One warm-up rule per report: where epochs are the basis, throughput comes from the same epochs.
    const perEpoch = part.steps?.samplesPerEpoch ?? null;
    const samplesPerSecond =
      basis === "epoch" && seconds !== null && perEpoch !== null
        ? perEpoch / seconds.mean
        : (part.steps?.samplesPerSecond ?? null);
    return { ...part, seconds, samplesPerSecond };
  });
  const byCount = new Map<number, RunSummary[]>();
  for (const r of runs) if (r.seconds !== null) byCount.set(r.run.devices, [...(byCount.get(r.run.devices) ?? []), r]);
  // Runs that others disturbed count only where a count has no others.
  const quietOf = (list: RunSummary[]): RunSummary[] => {
    const quiet = list.filter(({ run }) => disturbanceIn(run) === null);
    return quiet.length > 0 ? quiet : list;
  };
  const grouped = [...byCount]
    .sort((a, b) => a[0] - b[0])
    .map(([devices, all]) => ({ devices, list: quietOf(all) }))
    .map(({ devices, list }) => ({
      devices,
      runs: list,
      seconds: list.length === 1 ? list[0]!.seconds! : summarize(list.map((r) => r.seconds!.mean))!,
    }));
  const base = grouped[0];
  const counts = grouped.map((group): CountSummary => {
    const speedup = base!.seconds.mean / group.seconds.mean;
    const ratio = group.devices / base!.devices;
    const a = resamplable(base!);
    const b = resamplable(group);
    return {
      ...group,
      speedup,
      efficiency: speedup / ratio,
      speedupInterval:
        group === base || a.length < 3 || b.length < 3
          ? null
          : bootstrapInterval([a, b], ([x, y]) => mean(x!) / mean(y!), { seed: group.devices }),
      karpFlatt: karpFlatt(speedup, ratio),
    };
  });
  return {
    study,
    basis,
    runs,
    counts,
    baseline: counts[0] ?? null,
    failed: runs
      .filter((r) => r.seconds === null)
      .map((r) => ({ devices: r.run.devices, run: r.run.id, reason: failureReason(r.run) })),
  };
}
