// Determines whether the work was divided: for each count, the work of all ranks per epoch relative to the baseline. It is
// counted from records, else inferred from times and losses, else assumed. Only counts can show that it was not.
import type { CountSummary, RunSummary, StudySummary } from "../metrics/index.js";
import { type Evidence, type EvidenceRank, evidence, type Reading } from "../model/index.js";
import { readingsOfTimes } from "./readings.js";

export interface WorkShare {
  devices: number;
  /** Work of all ranks per epoch relative to the data set: 1 when divided, N when every rank does all of it. */
  ratio: number;
  /** Work relative to the baseline: the factor of the work-normalized speedup. Differs from `ratio` for weak scaling. */
  done: number;
  /** How many times the baseline's work there is to do: more than 1 for weak scaling. */
  growth: number;
  known: "baseline" | EvidenceRank;
  divided: boolean;
  /** The run that the evidence is about. */
  run: string;
  evidence: Evidence[];
  /** Both explanations, where nothing was counted and the times alone do not tell. */
  readings: Reading[];
}

/** Extra work above this ratio is more than the padding of the last batch. */
const extraWork = 1.05;

interface CountedSamples {
  samples: number;
  how: string;
  rank: EvidenceRank;
  /** What the way of counting may add: padding of a sampler, or the last batch of each rank. */
  slack: number;
}

/** Samples of all ranks per epoch: from steps, from epoch records, or from the lengths of the loaders. */
function countedSamples(summary: RunSummary): CountedSamples | null {
  const { run, steps } = summary;
  const processes = run.processes ?? run.devices;
  if (steps?.samplesPerEpoch != null)
    return {
      samples: steps.samplesPerEpoch,
      how:
        steps.perRank.length === processes
          ? "steps of all ranks"
          : `steps of ${steps.perRank.length} of ${processes} ranks`,
      rank: steps.perRank.length === processes ? "counted" : "derived",
      slack: processes,
    };
  const byRank = new Map<number, number>();
  for (const row of run.epochs)
    if (row.samples !== undefined) byRank.set(row.rank ?? 0, Math.max(byRank.get(row.rank ?? 0) ?? 0, row.samples));
  const total = (values: Iterable<number>): number => [...values].reduce((a, b) => a + b, 0);
  if (byRank.size === processes)
    return { samples: total(byRank.values()), how: "epoch records of all ranks", rank: "counted", slack: processes };
  const lengths = run.ranks.flatMap((r) => (r.facts.samplerLength === undefined ? [] : [r.facts.samplerLength]));
  if (lengths.length === processes && lengths.length > 0)
    return { samples: total(lengths), how: "sampler lengths of all ranks", rank: "derived", slack: processes };
  const { stepsPerEpoch, batchPerRank } = run.workload;
  if (stepsPerEpoch !== undefined && batchPerRank !== undefined)
    return {
      samples: stepsPerEpoch * batchPerRank * processes,
      how: "ranks x steps x batch",
      rank: "derived",
      slack: processes * batchPerRank,
    };
  return null;
}

/** The value of a fact on every rank, or null when a rank did not report it. */
function onAllRanks(summary: RunSummary, fact: "indexHash" | "contentHash" | "datasetHash"): string[] | null {
  const { run } = summary;
  const values = run.ranks.flatMap((r) => (r.facts[fact] === undefined ? [] : [r.facts[fact]]));
  return run.devices > 1 && values.length > 1 && values.length === (run.processes ?? run.devices) ? values : null;
}

/**
 * Whether the ranks drew the same samples. Equal values of the batches show it; equal indices alone do not, because each
 * rank may hold its own part of the data set under the same indices.
 */
function sameData(summary: RunSummary, processes: number): Evidence[] {
  const rows = [summary.run.id];
  const content = onAllRanks(summary, "contentHash");
  if (content !== null)
    return new Set(content).size === 1
      ? [
          evidence("values of the first batches", "identical", {
            rank: "counted",
            rows,
            text: `the first batches of all ${processes} ranks hold the same values`,
          }),
        ]
      : [];
  const indices = onAllRanks(summary, "indexHash");
  const list: Evidence[] = [];
  if (indices !== null && new Set(indices).size === 1)
    list.push(evidence("sample indices of all ranks", "identical", { rank: "inferred", rows }));
  const unsharded = summary.run.ranks.filter((r) => r.facts.samplerSharded === false);
  if (summary.run.devices > 1 && processes > 1 && unsharded.length > 0)
    list.push(
      evidence("sampler", unsharded[0]!.facts.samplerClass ?? "not sharded", {
        rank: "inferred",
        rows,
        text: `sampler: ${unsharded[0]!.facts.samplerClass ?? "unknown"} on ${unsharded.length} of ${processes} ranks divides nothing by itself`,
      }),
    );
  return list;
}

/**
 * Whether every rank takes as many samples as a rank of the baseline from data without a length: a stream that ends after a
 * number of steps. The data may be divided or not.
 */
function sameStepsOfStream(here: RunSummary, base: RunSummary): boolean {
  if (here.run.workload.datasetSamples !== undefined || base.run.workload.datasetSamples !== undefined) return false;
  if (here.run.devices === base.run.devices) return false;
  const [a, b] = [countedSamples(base), countedSamples(here)];
  if (a === null || b === null || a.samples === 0) return false;
  const perRank = (samples: number, { run }: RunSummary): number => samples / (run.processes ?? run.devices);
  return Math.abs(perRank(b.samples, here) / perRank(a.samples, base) - 1) < 0.02;
}

/** Whether the ranks were seen to draw different samples. */
function differentData(summary: RunSummary): boolean {
  const content = onAllRanks(summary, "contentHash");
  return content !== null && new Set(content).size === content.length;
}

/** Whether every rank holds a data set of its own; null where the data sets could not be read. */
function ownData(summary: RunSummary): boolean | null {
  const held = onAllRanks(summary, "datasetHash");
  return held === null ? null : new Set(held).size === held.length;
}

/** Whether every rank takes as many samples per epoch as a rank of the baseline. */
function sameWorkPerRank(here: RunSummary, base: RunSummary): boolean {
  const [a, b] = [countedSamples(base), countedSamples(here)];
  if (a === null || b === null || a.samples === 0 || here.run.devices === base.run.devices) return false;
  const ranks = ({ run }: RunSummary): number => run.processes ?? run.devices;
  return Math.abs(b.samples / ranks(here) / (a.samples / ranks(base)) - 1) < 0.02;
}

/** Weak scaling is declared, the data set grows with the devices, or every rank takes as many samples of a stream of its own. */
export function isWeak(here: RunSummary, base: RunSummary): boolean {
  if (here.run.workload.scaling !== undefined) return here.run.workload.scaling === "weak";
  if (sameStepsOfStream(here, base)) return differentData(here);
  if (sameWorkPerRank(here, base) && ownData(here) === true && differentData(here)) return true;
  const a = base.run.workload.datasetSamples;
  const b = here.run.workload.datasetSamples;
  if (a === undefined || b === undefined || a === 0 || here.run.devices === base.run.devices) return false;
  return Math.abs(b / a / (here.run.devices / base.run.devices) - 1) < 0.02;
}

/**
 * Samples of the baseline per epoch and of the data set, where the baseline works on a part of the data set only and this run on
 * all of it: then the work of this run is divided, and it is the baseline that does too little.
 */
export function partialBaseline(here: RunSummary, base: RunSummary): { counted: number; dataset: number } | null {
  const dataset = here.run.workload.datasetSamples;
  const [a, b] = [countedSamples(base), countedSamples(here)];
  if (dataset === undefined || dataset <= 0 || dataset !== base.run.workload.datasetSamples || a === null || b === null)
    return null;
  const whole = Math.abs(b.samples - dataset) <= Math.max(0.05 * dataset, b.slack);
  return whole && a.samples < 0.95 * dataset - a.slack && !isWeak(here, base) ? { counted: a.samples, dataset } : null;
}

/** The work of one run, relative to the baseline. */
function ofRun(summary: RunSummary, count: CountSummary, baseline: CountSummary): WorkShare {
  const ratioOfDevices = count.devices / baseline.devices;
  const base = baseline.runs[0]!;
  const { run } = summary;
  const weak = isWeak(summary, base);
  const processes = run.processes ?? run.devices;
  const share = (
    ratio: number,
    known: WorkShare["known"],
    divided: boolean,
    list: Evidence[],
    readings: Reading[] = [],
  ): WorkShare => ({
    devices: count.devices,
    ratio,
    done: weak ? ratio * ratioOfDevices : ratio,
    growth: weak ? ratioOfDevices : 1,
    known,
    divided,
    run: run.id,
    evidence: list,
    readings,
  });
  const same = sameData(summary, processes);
  const replicated = same.filter((e) => e.rank === "counted");
  const here = countedSamples(summary);
  const there = countedSamples(base)?.samples ?? base.run.workload.datasetSamples;
  if (here !== null && there !== undefined && there > 0) {
    const expected = weak ? there * ratioOfDevices : there;
    const ratio = here.samples / expected;
    const dataset = run.workload.datasetSamples;
    const list = [
      evidence("samples of all ranks in an epoch", here.samples, {
        rank: here.rank,
        rows: [run.id],
        text: `${ranksText(processes, count.devices)} on ${Math.round(here.samples)} samples per epoch (${here.how}), the baseline on ${Math.round(there)}${dataset === undefined ? "" : `, the data set has ${dataset}`}`,
      }),
      evidence("work ratio", ratio, { threshold: extraWork }),
    ];
    const part = partialBaseline(summary, base);
    if (part !== null) return share(here.samples / part.dataset, here.rank, true, list);
    const extra = ratio > extraWork && here.samples - expected > here.slack;
    // As many steps on every rank of a stream without a length: divided streams and copies of one look the same.
    if (extra && replicated.length === 0 && sameStepsOfStream(summary, base))
      return share(ratio, "inferred", false, list.map(asInferred), streamReadings(count.speedup, ratioOfDevices));
    // A data set of its own on every rank, or the whole one in another order: the data sets could not be read.
    if (extra && ownData(summary) === null && differentData(summary) && sameWorkPerRank(summary, base))
      return share(ratio, "inferred", false, list.map(asInferred), ownReadings(count.speedup, ratioOfDevices));
    if (extra) return share(ratio, here.rank, false, [...list, ...same]);
    // As many samples as a divided data set has, but the same ones on every rank: the epoch covers 1/N of the data.
    if (replicated.length > 0 && !weak) return share(ratio, "counted", false, [...list, ...replicated]);
    return share(ratio, here.rank, true, list);
  }
  if (replicated.length > 0 && !weak) return share(ratioOfDevices, "counted", false, replicated);
  if (weak) return share(1, "assumed", true, []);
  return readingsOfTimes(summary, count, baseline, same, share);
}

const asInferred = (e: Evidence): Evidence => ({ ...e, rank: "inferred" });

/** Even odds: the counts alone do not tell. */
const streamReadings = (speedup: number, ratio: number): Reading[] => [
  {
    text: `every rank reads the same stream: work per second ${(speedup * ratio).toFixed(2)}x, of the same samples`,
    likelihood: 0.5,
    speedup: speedup * ratio,
  },
  {
    text: `every rank reads a stream of its own (weak scaling): work per second ${(speedup * ratio).toFixed(2)}x`,
    likelihood: 0.5,
    speedup: speedup * ratio,
  },
];

/** A forgotten sampler is more frequent than weak scaling that nobody declared. */
const ownReadings = (speedup: number, ratio: number): Reading[] => [
  {
    text: `every rank draws the whole data set in an order of its own: work per second ${(speedup * ratio).toFixed(2)}x`,
    likelihood: 0.8,
    speedup: speedup * ratio,
  },
  {
    text: `every rank holds data of its own (weak scaling): work per second ${(speedup * ratio).toFixed(2)}x`,
    likelihood: 0.2,
    speedup: speedup * ratio,
  },
];

const ranksText = (processes: number, devices: number): string =>
  processes === devices
    ? `${devices} ranks together work`
    : `${processes} process${processes === 1 ? "" : "es"} on ${devices} devices work${processes === 1 ? "s" : ""}`;

/** The worst run of a count decides: a fault in one repeat is a fault. */
function ofCount(count: CountSummary, baseline: CountSummary): WorkShare {
  const shares = count.runs.map((summary) => ofRun(summary, count, baseline));
  return (
    shares.find((s) => !s.divided && s.evidence.some((e) => e.rank === "counted" || e.rank === "derived")) ??
    shares.find((s) => !s.divided) ??
    shares[0]!
  );
}

export function assessWork(summary: StudySummary): WorkShare[] {
  const { baseline } = summary;
  if (baseline === null) return [];
  return summary.counts.map((count) =>
    count === baseline
      ? {
          devices: count.devices,
          ratio: 1,
          done: 1,
          growth: 1,
          known: "baseline",
          divided: true,
          run: count.runs[0]!.run.id,
          evidence: [],
          readings: [],
        }
      : ofCount(count, baseline),
  );
}
