// Determines whether the work was divided: for each count, the work of all ranks per epoch relative to the baseline. It is counted
// from records, else inferred from symptoms, else assumed.

import { halfWidth95 } from "@weft/formats/stats";
import type { CountSummary, RunSummary, StudySummary } from "../metrics/index.js";
import { type Evidence, evidence } from "../model/index.js";

export interface WorkShare {
  devices: number;
  /** Work of all ranks per epoch relative to the data set: 1 when divided, N when every rank does all of it. */
  ratio: number;
  /** Work relative to the baseline: the factor of the work-normalized speedup. Differs from `ratio` for weak scaling. */
  done: number;
  known: "baseline" | "counted" | "inferred" | "assumed";
  divided: boolean;
  evidence: Evidence[];
}

/** Extra work above this ratio is more than the padding of the last batch. */
const extraWork = 1.05;
/** Decrease of the loss after the first epoch that counts as a symptom. */
const lossFall = 0.95;

/** Samples of all ranks per epoch: from steps, from epoch records, or from the lengths of the loaders. */
function countedSamples(summary: RunSummary): { samples: number; how: string } | null {
  const { run, steps } = summary;
  if (steps?.samplesPerEpoch != null) return { samples: steps.samplesPerEpoch, how: "steps of all ranks" };
  const byRank = new Map<number, number>();
  for (const row of run.epochs)
    if (row.samples !== undefined) byRank.set(row.rank ?? 0, Math.max(byRank.get(row.rank ?? 0) ?? 0, row.samples));
  if (byRank.size === run.devices)
    return { samples: [...byRank.values()].reduce((a, b) => a + b, 0), how: "epoch records of all ranks" };
  const lengths = run.ranks.flatMap((r) => (r.facts.samplerLength === undefined ? [] : [r.facts.samplerLength]));
  if (lengths.length === run.devices && lengths.length > 0)
    return { samples: lengths.reduce((a, b) => a + b, 0), how: "sampler lengths of all ranks" };
  const { stepsPerEpoch, batchPerRank } = run.workload;
  if (stepsPerEpoch !== undefined && batchPerRank !== undefined)
    return { samples: stepsPerEpoch * batchPerRank * run.devices, how: "ranks x steps x batch" };
  return null;
}

/** Symptoms in the facts of the ranks that all of them draw the same data. */
function samplerSigns({ run }: RunSummary): Evidence[] {
  const signs: Evidence[] = [];
  const hashes = run.ranks.flatMap((r) => (r.facts.indexHash === undefined ? [] : [r.facts.indexHash]));
  if (run.devices > 1 && hashes.length === run.devices && new Set(hashes).size === 1)
    signs.push(evidence("sample indices of all ranks", "identical", { rows: [run.id] }));
  const unsharded = run.ranks.filter((r) => r.facts.samplerSharded === false);
  if (run.devices > 1 && unsharded.length > 0)
    signs.push(
      evidence("sampler", unsharded[0]!.facts.samplerClass ?? "not sharded", {
        rows: [run.id],
        text: `sampler: ${unsharded[0]!.facts.samplerClass ?? "unknown"} on ${unsharded.length} of ${run.ranks.length} ranks does not divide the data set`,
      }),
    );
  return signs;
}

function ofCount(count: CountSummary, baseline: CountSummary): WorkShare {
  const ratioOfDevices = count.devices / baseline.devices;
  const first = count.runs[0]!;
  const base = baseline.runs[0]!;
  const weak = first.run.workload.scaling === "weak";
  const share = (ratio: number, known: WorkShare["known"], list: Evidence[]): WorkShare => ({
    devices: count.devices,
    ratio,
    done: weak ? ratio * ratioOfDevices : ratio,
    known,
    divided: ratio <= extraWork,
    evidence: list,
  });
  const here = countedSamples(first);
  const there = countedSamples(base)?.samples ?? base.run.workload.datasetSamples;
  if (here !== null && there !== undefined && there > 0) {
    const ratio = here.samples / (weak ? there * ratioOfDevices : there);
    const dataset = first.run.workload.datasetSamples;
    const list = [
      evidence("samples of all ranks in an epoch", here.samples, {
        rows: [first.run.id],
        text: `${count.devices} ranks together work on ${Math.round(here.samples)} samples per epoch (${here.how}), the baseline on ${Math.round(there)}${dataset === undefined ? "" : `, the data set has ${dataset}`}`,
      }),
      evidence("work ratio", ratio, { threshold: extraWork }),
    ];
    return share(ratio, "counted", [...list, ...samplerSigns(first)]);
  }
  const signs = samplerSigns(first);
  if (signs.length > 0 && !weak) return share(ratioOfDevices, "counted", signs);
  if (weak) return share(1, "assumed", []);
  const inferred = inferFromTimes(count, baseline, ratioOfDevices);
  return inferred === null ? share(1, "assumed", []) : share(ratioOfDevices, "inferred", inferred);
}

/** Without counts: a fixed problem cannot take longer on more devices and also learn faster per epoch. */
function inferFromTimes(count: CountSummary, baseline: CountSummary, ratio: number): Evidence[] | null {
  const first = count.runs[0]!;
  const base = baseline.runs[0]!;
  const list: Evidence[] = [];
  const e = count.karpFlatt;
  // A value just above 1 may be noise; the times themselves must differ.
  const spread = Math.hypot(halfWidth95(count.seconds) ?? 0, halfWidth95(baseline.seconds) ?? 0);
  const impossible = e !== null && e > 1 && count.seconds.mean - baseline.seconds.mean > spread;
  if (impossible)
    list.push(
      evidence("Karp-Flatt serial fraction", e, {
        threshold: 1,
        text: `Karp-Flatt serial fraction ${e.toFixed(2)}: above 1 is impossible for a fixed amount of work`,
      }),
    );
  const lossHere = first.epochs?.firstLoss ?? null;
  const lossThere = base.epochs?.firstLoss ?? null;
  const sameRate =
    first.run.workload.learningRate === undefined ||
    base.run.workload.learningRate === undefined ||
    first.run.workload.learningRate === base.run.workload.learningRate;
  const falls = lossHere !== null && lossThere !== null && sameRate && lossHere < lossThere * lossFall;
  const row = (s: RunSummary) =>
    `${s.run.id}:${s.epochs?.jobs.flat().find((r) => r.trainLoss === s.epochs?.firstLoss)?.line ?? "?"}`;
  if (falls)
    list.push(
      evidence("training loss after the first epoch", lossHere, {
        rows: [row(base), row(first)],
        text: `training loss after the first epoch falls with the devices (${lossThere.toFixed(3)} -> ${lossHere.toFixed(3)}); with a divided data set each rank takes fewer steps and it rises`,
      }),
    );
  // A clearly faster job cannot have repeated all the work on every rank.
  if (!impossible && !(falls && count.speedup < 1.2)) return null;
  const { datasetSamples, batchPerRank } = first.run.workload;
  if (datasetSamples !== undefined && batchPerRank !== undefined) {
    const whole = Math.ceil(datasetSamples / batchPerRank);
    const part = Math.ceil(whole / ratio);
    const ms = (seconds: number, steps: number) => ((seconds * 1000) / steps).toFixed(2);
    list.push(
      evidence("ranks x steps x batch / data set", ratio, {
        threshold: extraWork,
        text: `ranks x steps x batch / data set = ${ratio}: a step takes ${ms(count.seconds.mean, whole)} ms if each rank takes all ${whole} steps (baseline ${ms(baseline.seconds.mean, whole)} ms), and would take ${ms(count.seconds.mean, part)} ms if it took its share of ${part}`,
      }),
    );
  }
  return list;
}

export function assessWork(summary: StudySummary): WorkShare[] {
  const { baseline } = summary;
  if (baseline === null) return [];
  return summary.counts.map((count) =>
    count === baseline
      ? { devices: count.devices, ratio: 1, done: 1, known: "baseline", divided: true, evidence: [] }
      : ofCount(count, baseline),
  );
}
