// The complete analysis of a study: validity, scaling, findings and predictions, in the form that `weft analyze --json` prints.
import type { PointSet } from "@weft/formats/internal";
import { fitUsl, type StudySummary, summarizeStudy, type Usl } from "../metrics/index.js";
import { disturbanceIn, type Finding, type ImportProblem, type Study } from "../model/index.js";
import { predict, readPoints, type ScalingPredictions } from "../predict/index.js";
import { judgeStudy, type ScalingPoint, type Verdict } from "../validity/index.js";
import { applyCatalog, type DiagnosisRule } from "./catalog.js";
import { communicationRules } from "./communication-rules.js";
import { deviceRules } from "./device-rules.js";
import { hostRules } from "./host-rules.js";
import { loopRules } from "./loop-rules.js";
import { causesOf } from "./main-cause.js";
import { onePerCause, studyDisturbance, withoutDisturbed } from "./reported.js";
import { diagnosisView } from "./view.js";

/** In the order of evaluation: host and loop before device before communication. */
export const diagnosisRules: readonly DiagnosisRule[] = [
  ...hostRules,
  ...loopRules,
  ...deviceRules,
  ...communicationRules,
];

/** Rules whose findings rest on times. */
const ofTimes: ReadonlySet<string> = new Set(diagnosisRules.flatMap((rule) => (rule.timeless ? [] : rule.id)));

/** One run of a study report. */
export interface RunReport {
  /** Name of the run in the study. */
  id: string;
  /** A name given by the user. */
  label?: string;
  /** Number of devices. */
  devices: number;
  /** Nothing says on how many devices it ran. */
  devicesUnknown?: true;
  /** Others used the machine during the run. */
  disturbed?: true;
  /** Where it was read. */
  source: string;
  /** How the run ended. */
  status: string;
  /** The probe recorded one step out of this number, because a step takes little more time than its record. */
  stepSampling?: number;
  /** Time of an epoch after the warm-up. */
  epochSeconds: { mean: number; std: number; n: number } | null;
  /** The mean over the whole file; only when two jobs wrote to it. */
  epochSecondsMixed?: { mean: number; std: number; n: number };
  /** Time of the whole training. */
  totalSeconds: number | null;
  /** Distinct samples per second: data set size over epoch time. */
  samplesPerSecond: number | null;
  /** Samples per second of all ranks together; larger than `samplesPerSecond` when work was replicated. */
  workSamplesPerSecond: number | null;
  /** Accuracy of the last epoch, if it was recorded. */
  finalAccuracy: number | null;
}

/** The report of a study, as `weft analyze --json` prints it. */
export interface StudyReport {
  /** Name of the study. */
  name: string;
  /** True if the study is valid, false if it is not, null if that is undecided or nothing can be compared. */
  valid: boolean | null;
  /** The verdict. */
  status: Verdict["status"];
  /** What times are compared: epochs, steps or whole runs. */
  basis: StudySummary["basis"];
  /** Epochs excluded at the start of each run. */
  warmup: number;
  /** The runs. */
  runs: RunReport[];
  /** Why the times support no advice: what others did to the machine; null if nothing was seen. */
  disturbance: string | null;
  /** Speedup and efficiency by device count. */
  scaling: ScalingPoint[];
  /** Findings, the most severe first. */
  findings: Finding[];
  /** Id of the finding that explains the study best; null when nothing needs an explanation. */
  mainCause: string | null;
  /** Fit of the universal scalability law; null if the study is not valid. */
  usl: Usl | null;
  /** Predictions at other device counts. */
  predictions: ScalingPredictions["predictions"];
  /** What could not be read. */
  problems: ImportProblem[];
}

/** The analysis of a study: its verdict, findings and report. */
export interface Analysis {
  /** The analysis as plain data. */
  report: StudyReport;
  /** The verdict with the view of the study that it is based on. */
  verdict: Verdict;
}

const short = (d: { mean: number; std: number; n: number }) => ({ mean: d.mean, std: d.std, n: d.n });

/** Counted from steps, else computed from data set size and epoch time; the work ratio converts one rate to the other. */
function rates(verdict: Verdict, index: number): { different: number | null; worked: number | null } {
  const summary = verdict.view.runs[index]!;
  const ratio = verdict.scaling.find((p) => p.devices === summary.run.devices)?.workRatio ?? 1;
  if (summary.samplesPerSecond !== null)
    return { different: summary.samplesPerSecond / ratio, worked: summary.samplesPerSecond };
  const { datasetSamples } = summary.run.workload;
  if (datasetSamples === undefined || summary.seconds === null || verdict.view.basis === "run")
    return { different: null, worked: null };
  const different = datasetSamples / summary.seconds.mean;
  return { different, worked: different * ratio };
}

function runReports(verdict: Verdict): RunReport[] {
  return verdict.view.runs.map((summary, i): RunReport => {
    const { run, epochs } = summary;
    const { different, worked } = rates(verdict, i);
    return {
      id: run.id,
      ...(run.label !== undefined && { label: run.label }),
      devices: run.devices,
      ...(run.devicesUnknown === true && { devicesUnknown: true as const }),
      ...(disturbanceIn(run) !== null && { disturbed: true as const }),
      ...((summary.steps?.sampling ?? 1) > 1 && { stepSampling: summary.steps!.sampling }),
      source: run.source.path,
      status: run.status,
      epochSeconds: summary.seconds === null ? null : short(summary.seconds),
      ...(epochs?.mixed != null && { epochSecondsMixed: short(epochs.mixed) }),
      totalSeconds: epochs?.totalSeconds ?? run.seconds ?? null,
      samplesPerSecond: different,
      workSamplesPerSecond: worked,
      finalAccuracy: epochs?.finalAccuracy ?? null,
    };
  });
}

/** Predictions at twice and four times the largest valid count; none for an invalid study. */
function extrapolate(verdict: Verdict): ScalingPredictions["predictions"] {
  const counts = verdict.view.counts;
  if (verdict.valid !== true || counts.length < 2) return [];
  const largest = counts.at(-1)!;
  const perNode = largest.runs[0]!.run.machine?.devicesPerNode;
  const read = readPoints({ ...studyPoints(verdict), ...(perNode !== undefined && { devicesPerNode: perNode }) });
  const { predictions } = predict(read, [largest.devices * 2, largest.devices * 4]);
  if (read.metric === "seconds") return predictions;
  // Weak scaling: the time of as much work as that many devices get.
  const secondsAt = (devices: number, rate: number): number => devices / counts[0]!.devices / rate;
  return predictions.map((p) => ({
    ...p,
    value: p.value === null ? null : secondsAt(p.devices, p.value),
    interval: p.interval === null ? null : [secondsAt(p.devices, p.interval[1]), secondsAt(p.devices, p.interval[0])],
    reason: `${p.reason}; weak scaling: the work grows with the devices`,
  }));
}

/** The measured times of a study as points; work per second, in epochs of the baseline, where the work grows with the devices. */
export function studyPoints({ view }: Verdict): PointSet {
  const weak = view.work.some((work) => work.growth !== 1);
  return {
    metric: weak ? "throughput" : "seconds",
    points: view.counts.flatMap((c, i) =>
      c.runs.map((r): [number, number] => [c.devices, weak ? view.work[i]!.growth / r.seconds!.mean : r.seconds!.mean]),
    ),
  };
}

/**
 * Analyzes a study: validity, scaling, findings and predictions.
 *
 * @example
 * ```ts
 * import { analyzeStudy, readStudies } from "@weft/lab";
 *
 * const [study] = readStudies(["experiments/"]);
 * const { report } = analyzeStudy(study);
 * console.log(report.valid, report.findings.map((finding) => finding.title));
 * ```
 */
export function analyzeStudy(study: Study): Analysis {
  const summary = summarizeStudy(study);
  const verdict = judgeStudy(summary);
  const view = diagnosisView(verdict);
  const ofTraces = view.runs.flatMap(({ run, devices }) =>
    (run.traceFindings ?? []).map((f): Finding => ({ ...f, run: run.id, devices })),
  );
  const found = [...verdict.findings, ...applyCatalog(diagnosisRules, view), ...ofTraces];
  const measured = summary.runs.filter((r) => r.seconds !== null).map((r) => r.run);
  const findings = onePerCause(withoutDisturbed(found, study.runs, ofTimes), study.runs, ofTimes);
  const disturbance = studyDisturbance(measured);
  const valid = verdict.valid !== false;
  return {
    verdict,
    report: {
      name: study.name,
      valid: verdict.valid,
      status: verdict.status,
      basis: summary.basis,
      warmup: study.warmup ?? 1,
      runs: runReports(verdict),
      disturbance,
      scaling: verdict.scaling,
      findings,
      mainCause: causesOf(findings, summary.counts.at(-1)?.devices)[0]?.id ?? null,
      usl: valid
        ? fitUsl(
            summary.counts.map((c, i): [number, number] => [c.devices, verdict.view.work[i]!.growth / c.seconds.mean]),
          )
        : null,
      predictions: disturbance === null ? extrapolate(verdict) : [],
      problems: study.problems,
    },
  };
}
