// The input of diagnosis rules: one entry per measured run with its step parts, facts and traces. Only counts that passed the
// validity rules are included.

import type { ProbeFacts } from "@weft/formats/internal";
import { mean } from "@weft/formats/stats";
import type { CountSummary, RunSummary } from "../metrics/index.js";
import { disturbanceIn, type PredictedEffect, type Run, type TraceSummary } from "../model/index.js";
import { type EffectEstimate, effectOf, type StepParts } from "../predict/index.js";
import type { StudyView, Verdict } from "../validity/index.js";

export interface RunView {
  run: Run;
  summary: RunSummary;
  count: CountSummary | null;
  /** The facts of rank 0, or of the first rank that has any. */
  facts: ProbeFacts;
  isBaseline: boolean;
  devices: number;
  /** Null when no steps were recorded. */
  parts: StepParts | null;
  traces: readonly TraceSummary[];
  /** Mean device utilization in percent; null without samples. */
  utilization: number | null;
  onGpu: boolean;
  /** Others used the machine: what is inferred from times may be theirs. */
  disturbed: boolean;
  /** An estimate as the predicted effect on this run's time. */
  effect: (estimate: EffectEstimate) => PredictedEffect | null;
}

export interface DiagnosisView {
  study: StudyView;
  verdict: Verdict;
  /** The measured runs; empty for an invalid study, which supports no recommendation. */
  runs: RunView[];
}

/**
 * Communication by DDP's own timers. The rank that arrives last waits least, so that the least time of the ranks is the transfer;
 * what the others wait is imbalance.
 */
function ddpTimes(run: Run): { commUs: number; exposedUs: number } | null {
  const timed = run.ranks.flatMap(({ facts: { ddpCommUs, ddpOverlapUs, gradientSyncs, backwardPasses } }) => {
    if (ddpCommUs === undefined || ddpOverlapUs === undefined) return [];
    const often = gradientSyncs !== undefined && backwardPasses ? gradientSyncs / backwardPasses : 1;
    return [{ commUs: ddpCommUs * often, exposedUs: Math.max(0, ddpCommUs - ddpOverlapUs) * often }];
  });
  if (timed.length === 0 || timed.length !== (run.processes ?? run.devices)) return null;
  return timed.reduce((a, b) => (b.commUs < a.commUs ? b : a));
}

function partsOf(summary: RunSummary): StepParts | null {
  const { steps, run } = summary;
  if (steps === null) return null;
  const stepUs = steps.durationUs.mean;
  const timers = steps.exposedCommShare === null ? ddpTimes(run) : null;
  const exposedUs = Math.min(stepUs, timers?.exposedUs ?? (steps.exposedCommShare ?? 0) * stepUs);
  return {
    stepUs,
    dataUs: (steps.dataShare ?? 0) * stepUs,
    commUs: timers?.commUs ?? (steps.commShare === null ? exposedUs : steps.commShare * stepUs),
    exposedUs,
  };
}

/** Relative standard error of a mean; null for a single value. */
const relativeError = ({
  mean: middle,
  sampleStd,
  n,
}: {
  mean: number;
  sampleStd: number;
  n: number;
}): number | null => (n < 2 || !(middle > 0) || !Number.isFinite(sampleStd) ? null : sampleStd / middle / Math.sqrt(n));

function utilizationOf(run: Run): number | null {
  const values = run.samples.flatMap((s) =>
    (s.devices ?? []).flatMap((d) =>
      d.index < run.devices && d.utilizationPercent !== undefined ? [d.utilizationPercent] : [],
    ),
  );
  return values.length < 3 ? null : mean(values);
}

const basisMetric = { epoch: "epochSeconds", steps: "epochSeconds", run: "runSeconds" } as const;

function viewOf(summary: RunSummary, { view }: Verdict): RunView {
  const { run } = summary;
  const count = view.counts.find((c) => c.devices === run.devices) ?? null;
  const facts: ProbeFacts = { ...run.workload, ...run.ranks[0]?.facts };
  return {
    run,
    summary,
    count,
    facts,
    devices: run.devices,
    isBaseline: count !== null && count === view.baseline,
    parts: partsOf(summary),
    traces: run.traces ?? [],
    utilization: utilizationOf(run),
    disturbed: disturbanceIn(run) !== null,
    onGpu: facts.device?.startsWith("cuda") === true || (run.machine?.devices?.length ?? 0) > 0,
    effect: (estimate) => {
      if (count !== null && view.basis !== null)
        return effectOf(
          estimate,
          count.seconds.mean,
          "s",
          basisMetric[view.basis],
          run.devices,
          relativeError(count.seconds),
        );
      const times = summary.steps?.durationUs;
      return times === undefined
        ? null
        : effectOf(estimate, times.mean, "us", "stepUs", run.devices, relativeError(times));
    },
  };
}

export function diagnosisView(verdict: Verdict): DiagnosisView {
  const { view } = verdict;
  const runs = verdict.valid === false ? [] : view.runs.filter((r) => r.seconds !== null || view.counts.length === 0);
  return { study: view, verdict, runs: runs.map((summary) => viewOf(summary, verdict)) };
}
