// The validity rules, most severe first. A finding of severity "invalid" means that the ratio at its count is not a speedup.

import type { Workload } from "@weft/formats";
import { bootstrapInterval, halfWidth95, mean } from "@weft/formats/stats";
import { shortNumber } from "@weft/formats/text";
import type { CountSummary, RunSummary } from "../metrics/index.js";
import { type Evidence, evidence, type PredictedEffect, type RuleFinding } from "../model/index.js";
import { impossibleTime, oversubscribed, wrongLaunch } from "./machine-rules.js";
import type { StudyView, ValidityRule } from "./rule.js";
import { publishedStudy as study } from "./source.js";

const scaled = (view: StudyView): CountSummary[] => view.counts.filter((count) => count !== view.baseline);

/** Predicts the epoch time after sharding the data: the same step time, fewer steps. */
function estimateSharding(count: CountSummary, ratio: number): PredictedEffect {
  const to = count.seconds.mean / ratio;
  const rows = count.runs.flatMap((r) => r.epochs?.used.map((row) => row.seconds) ?? []);
  const drawn = rows.length < 3 ? null : bootstrapInterval([rows], ([x]) => mean(x!) / ratio);
  const [low, high] = drawn ?? [to, to];
  return {
    metric: "epochSeconds",
    devices: count.devices,
    from: count.seconds.mean,
    to,
    // Costs at the end of an epoch do not shrink with the steps; 5% on both sides covers them.
    interval: [low * 0.95, high * 1.05],
    unit: "s",
    reason: `the same step, ${shortNumber(ratio)} times fewer of them`,
  };
}

const workNotDivided: ValidityRule = {
  id: "work-not-divided",
  title: "The work is not divided",
  source: `ranks x steps x batch / data set > 1.05; Karp-Flatt > 1; first-epoch loss falls with N (${study})`,
  find: (view) =>
    view.work.flatMap((work, i): RuleFinding[] => {
      if (work.divided) return [];
      const count = view.counts[i]!;
      const ratio = count.devices / view.baseline!.devices;
      const normalized = count.speedup * work.ratio;
      return [
        {
          severity: "invalid",
          devices: count.devices,
          run: count.runs[0]!.run.id,
          evidence: [
            ...work.evidence,
            evidence("work-normalized speedup", normalized, {
              text: `work-normalized speedup: ${normalized.toFixed(2)}x (${((normalized / ratio) * 100).toFixed(0)}%), work per second relative to the baseline`,
            }),
          ],
          cause: `Each of the ${count.devices} ranks works on ${work.ratio >= ratio * 0.95 ? "the whole data set" : `${shortNumber(work.ratio)} times its share`}: no sampler divides it (in PyTorch: no DistributedSampler reaches the loader).`,
          alternatives:
            work.known === "counted"
              ? ["none needed: what each rank worked on was counted"]
              : [
                  `communication: it would have to cost ${shortNumber((count.seconds.mean * ratio) / view.baseline!.seconds.mean - 1)} times a whole single-device step in every step, and could not make the loss fall faster`,
                  "host contention: it slows the step, it does not change how many there are",
                ],
          fix: "Give each rank its own part: DistributedSampler(dataset, num_replicas=world_size, rank=rank) on the training loader, and set_epoch(epoch) each epoch; then measure again.",
          predicted: estimateSharding(count, work.ratio),
          refutedBy:
            `Count the batches of one rank in one epoch: a divided data set gives ${stepsText(count, ratio)}. ${work.known === "counted" ? "" : "The files do not hold that count; weft scale records it."}`.trim(),
        },
      ];
    }),
};

function stepsText(count: CountSummary, ratio: number): string {
  const { datasetSamples, batchPerRank } = count.runs[0]!.run.workload;
  if (datasetSamples === undefined || batchPerRank === undefined) return `1/${ratio} of the baseline's`;
  const whole = Math.ceil(datasetSamples / batchPerRank);
  return `${Math.ceil(whole / ratio)} of ${whole}`;
}

/** Fields that must agree. Learning rates may be scaled on purpose, so they are only a moderate finding. */
const comparable: { field: keyof Workload; name: string; severity: "invalid" | "moderate" }[] = [
  { field: "dataset", name: "data set", severity: "invalid" },
  { field: "datasetSamples", name: "samples in the data set", severity: "invalid" },
  { field: "model", name: "model", severity: "invalid" },
  { field: "parameters", name: "parameters", severity: "invalid" },
  { field: "precision", name: "precision", severity: "invalid" },
  { field: "sequenceLength", name: "sequence length", severity: "invalid" },
  { field: "accumulation", name: "gradient accumulation", severity: "invalid" },
  { field: "optimizer", name: "optimizer", severity: "moderate" },
  { field: "learningRate", name: "learning rate", severity: "moderate" },
];

function softwareOf(summary: RunSummary): Record<string, string | undefined> {
  const facts = summary.run.ranks[0]?.facts;
  return {
    framework: facts?.frameworkVersion,
    CUDA: facts?.cudaVersion,
    device: facts?.deviceName,
    processor: summary.run.machine?.cpuModel,
  };
}

const baselineMismatch: ValidityRule = {
  id: "baseline-mismatch",
  title: "The baseline is not comparable",
  source: `model, precision, batch, length, rate, data and software must agree between the counts (${study})`,
  find: (view) =>
    scaled(view).flatMap((count): RuleFinding[] => {
      const here = count.runs[0]!;
      const base = view.baseline!.runs[0]!;
      const differences: { evidence: Evidence; severity: "invalid" | "moderate" }[] = [];
      const differ = (name: string, a: unknown, b: unknown, severity: "invalid" | "moderate"): void => {
        if (a === undefined || b === undefined || a === b) return;
        differences.push({
          severity,
          evidence: evidence(name, String(b), {
            rows: [base.run.id, here.run.id],
            text: `${name}: ${String(a)} at ${view.baseline!.devices}, ${String(b)} at ${count.devices}`,
          }),
        });
      };
      for (const { field, name, severity } of comparable)
        differ(name, base.run.workload[field], here.run.workload[field], severity);
      const a = base.run.workload.batchPerRank;
      const b = here.run.workload.batchPerRank;
      // A fixed global batch is strong scaling; a fixed batch per rank is weak scaling; others are not comparable.
      const globalFixed = a !== undefined && b !== undefined && a * view.baseline!.devices === b * count.devices;
      if (!globalFixed) differ("batch per rank", a, b, "invalid");
      const softwareHere = softwareOf(here);
      for (const [name, value] of Object.entries(softwareOf(base))) differ(name, value, softwareHere[name], "moderate");
      if (differences.length === 0) return [];
      const invalid = differences.some((d) => d.severity === "invalid");
      return [
        {
          severity: invalid ? "invalid" : "moderate",
          devices: count.devices,
          run: here.run.id,
          evidence: differences.map((d) => d.evidence),
          cause: "The two runs differ in more than their device count, so their ratio is not a speedup.",
          fix: `Measure the baseline again with the settings of the ${count.devices}-device run.`,
          predicted: null,
          refutedBy: "A baseline run with equal settings that gives the same time.",
        },
      ];
    }),
};

const twoJobs: ValidityRule = {
  id: "two-jobs-in-one-file",
  title: "More than one job wrote this file",
  source: `epochs must rise one by one; ${study} has 35 rows of two interleaved jobs`,
  find: (view) =>
    view.runs.flatMap((summary): RuleFinding[] => {
      const e = summary.epochs;
      if (e === null || e.jobs.length < 2 || e.seconds === null || e.mixed === null) return [];
      const range = (job: { epoch: number }[]) => `${job[0]!.epoch} to ${job.at(-1)!.epoch}`;
      const shown = e.jobs.slice(0, 4).map((job) => `${job.length} rows, epochs ${range(job)}`);
      const extra = e.jobs.length > 4 ? ` and ${e.jobs.length - 4} more` : "";
      return [
        {
          severity: "invalid",
          devices: summary.run.devices,
          run: summary.run.id,
          evidence: [
            evidence("jobs in the file", e.jobs.length, {
              threshold: 1,
              rows: e.jobs.slice(0, 4).map((job) => `${summary.run.source.path}:${job[0]!.line ?? "?"}`),
              text: `${e.jobs.length} jobs in ${summary.run.source.path}: ${shown.join("; ")}${extra}`,
            }),
            evidence("mean epoch, mixed", e.mixed.mean, {
              unit: "s",
              text: `mean epoch ${e.mixed.mean.toFixed(2)} s mixed (${e.mixed.n} rows of the whole file after the warm-up)`,
            }),
            evidence("mean epoch, separated", e.seconds.mean, {
              unit: "s",
              text: `mean epoch ${e.seconds.mean.toFixed(2)} s separated (the ${e.seconds.n} rows of the complete job; used from here on)`,
            }),
          ],
          cause:
            "Two jobs were started with the same output directory and ran at the same time, so they also shared the machine.",
          fix: "Run it again alone, with an output directory of its own (weft scale gives every run one).",
          predicted: null,
          refutedBy: "A re-run alone whose epochs take the same time.",
        },
      ];
    }),
};

const dirtyRows: ValidityRule = {
  id: "dirty-data",
  title: "Rows were left out or are missing",
  source: "missing ranks, impossible times and half-written rows must be said, not averaged",
  find: (view) =>
    view.runs.flatMap((summary): RuleFinding[] => {
      const jumps = summary.epochs?.jumps ?? [];
      const list = summary.run.problems.map((p) =>
        evidence(p.id, p.count ?? 1, {
          rows: [p.line === undefined ? p.file : `${p.file}:${p.line}`],
          text: `${p.message}${(p.count ?? 1) > 1 ? ` (and ${p.count! - 1} more)` : ""}: ${p.file}${p.line === undefined ? "" : `:${p.line}`}`,
        }),
      );
      if (jumps.length > 0)
        list.push(
          evidence("clock jumps", jumps.length, {
            rows: jumps.map((row) => `${summary.run.source.path}:${row.line ?? "?"}`),
            text: `${jumps.length} epoch${jumps.length > 1 ? "s" : ""} more than 20 times the median left out as clock jumps`,
          }),
        );
      const stepJumps = summary.steps?.clockJumps ?? 0;
      if (stepJumps > 0)
        list.push(
          evidence("clock jumps in steps", stepJumps, {
            text: `${stepJumps} step${stepJumps > 1 ? "s" : ""} more than 1000 times the median left out as clock jumps`,
          }),
        );
      if (list.length === 0) return [];
      const missing = summary.run.problems.some((p) => p.id === "missing-ranks" || p.id === "cut-off");
      return [
        {
          severity: missing || jumps.length > 0 ? "moderate" : "low",
          devices: summary.run.devices,
          run: summary.run.id,
          evidence: list,
          cause: "The files hold rows that cannot be measurements, or lack some that should be there.",
          fix: "Look at the rows that are named; run again if the job was cut off.",
          predicted: null,
          refutedBy: "The same mean from a complete file.",
        },
      ];
    }),
};

const notDistinguishable: ValidityRule = {
  id: "not-distinguishable",
  title: "The difference is inside the noise",
  source: "difference below the combined 95% interval",
  find: (view) =>
    scaled(view).flatMap((count): RuleFinding[] => {
      if (view.basis === "steps") return [];
      const a = halfWidth95(view.baseline!.seconds);
      const b = halfWidth95(count.seconds);
      if (a === null || b === null) return [];
      const difference = Math.abs(view.baseline!.seconds.mean - count.seconds.mean);
      const bound = Math.hypot(a, b);
      if (difference >= bound) return [];
      // Precise times that agree mean that there is no speedup; scattered times are not a result.
      const tight = bound / view.baseline!.seconds.mean <= 0.05;
      return [
        {
          severity: tight ? "high" : "invalid",
          devices: count.devices,
          run: count.runs[0]!.run.id,
          evidence: [evidence("difference of the means", difference, { unit: "s", threshold: bound })],
          cause: tight
            ? `${count.devices} devices are as fast as ${view.baseline!.devices}, to within ${shortNumber((bound / view.baseline!.seconds.mean) * 100)}%.`
            : `${view.baseline!.devices} and ${count.devices} devices cannot be distinguished by these measurements.`,
          fix: tight ? null : "Measure more epochs or repeats, on an otherwise idle machine.",
          predicted: null,
          refutedBy: "More repeats whose 95% intervals do not overlap.",
        },
      ];
    }),
};

const noisy: ValidityRule = {
  id: "noisy",
  title: "The times scatter",
  source: "coefficient of variation above 5% (napkin-math-gpu flags the same)",
  find: (view) =>
    view.counts.flatMap((count): RuleFinding[] => {
      if (view.basis === "steps" || count.seconds.n < 3) return [];
      const cv = count.seconds.sampleStd / count.seconds.mean;
      if (cv <= 0.05) return [];
      return [
        {
          severity: "moderate",
          devices: count.devices,
          run: count.runs[0]!.run.id,
          evidence: [evidence("coefficient of variation", cv * 100, { unit: "%", threshold: 5 })],
          cause: "Other work on the machine, changing clocks, or a job whose epochs differ.",
          fix: "Repeat on an idle machine; look at the utilization samples for other work.",
          predicted: null,
          refutedBy: "Repeats that scatter by less than 5%.",
        },
      ];
    }),
};

const failedCount: ValidityRule = {
  id: "count-failed",
  title: "A run gave no measurement",
  source: "a count that failed is said, the others are kept",
  find: (view) =>
    view.failed.map(({ devices, run, reason }) => ({
      severity: "moderate" as const,
      devices,
      run,
      evidence: [evidence(`run ${run} at ${devices} device${devices === 1 ? "" : "s"}`, reason)],
      cause: "The command failed, was stopped, or wrote nothing that could be read.",
      fix: "Look at its stderr.log and run that count again.",
      predicted: null,
      refutedBy: "A run at this count that ends with measurements.",
    })),
};

const oneCount: ValidityRule = {
  id: "no-scaling-data",
  title: "There is nothing to compare",
  source: "a speedup needs two device counts",
  find: (view) =>
    view.counts.length >= 2
      ? []
      : [
          {
            severity: "info",
            evidence: [evidence("device counts with measurements", view.counts.length, { threshold: 2 })],
            cause:
              view.counts.length === 0
                ? "The study has no usable run."
                : `Only ${view.counts[0]!.devices} was measured.`,
            fix: "weft scale --devices 1,2,4 -- YOUR COMMAND with {n}",
            predicted: null,
            refutedBy: "A second device count.",
          },
        ],
};

export const validityRules: readonly ValidityRule[] = [
  workNotDivided,
  baselineMismatch,
  twoJobs,
  wrongLaunch,
  notDistinguishable,
  impossibleTime,
  oversubscribed,
  dirtyRows,
  noisy,
  failedCount,
  oneCount,
];
