// The validity rules, most severe first. A finding of severity "invalid" means that the ratio at its count is not a speedup.

import { halfWidth95 } from "@weft/formats/stats";
import { shortNumber } from "@weft/formats/text";
import type { CountSummary } from "../metrics/index.js";
import { evidence, type RuleFinding } from "../model/index.js";
import { baselineMismatch } from "./comparable.js";
import { disturbedMachine, impossibleTime, oversubscribed, wrongLaunch } from "./machine-rules.js";
import type { StudyView, ValidityRule } from "./rule.js";
import { publishedStudy as study } from "./source.js";
import { modelsDiffer, repeatedOrder, workLeftOut, workNotDivided } from "./work-rules.js";

const scaled = (view: StudyView): CountSummary[] => view.counts.filter((count) => count !== view.baseline);

const twoJobs: ValidityRule = {
  id: "two-jobs-in-one-file",
  title: "More than one job wrote this file",
  source: `epochs must rise one by one; ${study} has 35 rows of two interleaved jobs`,
  find: (view) =>
    view.runs.flatMap((summary): RuleFinding[] => {
      const e = summary.epochs;
      if (e === null || e.jobs.length < 2 || e.seconds === null || e.mixed === null) return [];
      const resumed = !e.interleaved;
      const range = (job: { epoch: number }[]) => `${job[0]!.epoch} to ${job.at(-1)!.epoch}`;
      const shown = e.jobs.slice(0, 4).map((job) => `${job.length} rows, epochs ${range(job)}`);
      const extra = e.jobs.length > 4 ? ` and ${e.jobs.length - 4} more` : "";
      return [
        {
          severity: resumed ? "low" : "invalid",
          devices: summary.run.devices,
          run: summary.run.id,
          evidence: [
            evidence("jobs in the file", e.jobs.length, {
              rank: "counted",
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
          cause: resumed
            ? "The job was restarted, or one job after another wrote here: the rows of each follow those of the one before."
            : "Two jobs were started with the same output directory and ran at the same time, so they also shared the machine.",
          fix: resumed
            ? "Nothing, if the job was resumed; else give each job an output directory of its own."
            : "Run it again alone, with an output directory of its own (weft scale gives every run one).",
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
      const errors = summary.run.events.filter((e) => e.name === "error-in-output");
      for (const e of errors)
        list.push(
          evidence("errors in the output", 1, { rank: "counted", rows: [summary.run.id], text: e.message ?? "" }),
        );
      if (list.length === 0) return [];
      const missing = summary.run.problems.some((p) => p.id === "missing-ranks" || p.id === "cut-off");
      const lost = summary.run.problems.some((p) =>
        /^(bad-time|bad-epoch|bad-record|negative-time|short-row)$/.test(p.id),
      );
      return [
        {
          severity: missing || lost || jumps.length > 0 || errors.length > 0 ? "moderate" : "low",
          devices: summary.run.devices,
          run: summary.run.id,
          evidence: list,
          cause:
            errors.length > 0
              ? "The job met an error and went on, or ended as if nothing had happened: part of its work may be missing."
              : "The files hold rows that cannot be measurements, or lack some that should be there.",
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
      // With weak scaling equal times are what is hoped for.
      if (view.basis === "steps" || view.work[view.counts.indexOf(count)]?.growth !== 1) return [];
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
          severity: tight ? "high" : "unresolved",
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
                : view.runs.some((r) => r.run.devicesUnknown === true)
                  ? "Nothing says on how many devices this ran, and there is nothing to compare it with."
                  : `Only ${view.counts[0]!.devices} was measured.`,
            fix: "weft scale --devices 1,2,4 -- YOUR COMMAND with {n}",
            predicted: null,
            refutedBy: "A second device count.",
          },
        ],
};

export const validityRules: readonly ValidityRule[] = [
  workNotDivided,
  workLeftOut,
  modelsDiffer,
  baselineMismatch,
  twoJobs,
  wrongLaunch,
  notDistinguishable,
  impossibleTime,
  oversubscribed,
  disturbedMachine,
  dirtyRows,
  repeatedOrder,
  noisy,
  failedCount,
  oneCount,
];
