// Finds results that contradict themselves or their neighbors. Every finding names the lines of the log that it stands on, and
// the other readings that would explain it.
import { median } from "@weft/formats/stats";
import { shortNumber } from "@weft/formats/text";
import type { Submission, SubmissionRun } from "./submissions.js";

/** A contradiction in published results. */
export interface AuditFinding {
  /** Stable id of the rule. */
  id: "throughput-per-device" | "time-not-explained" | "samples-do-not-multiply" | "batch-times-steps";
  round: string;
  submitter: string;
  system: string;
  benchmark: string;
  text: string;
  /** `file:line` of the values. */
  rows: string[];
  /** What would explain it. */
  readings: string[];
}

const near = (a: number, b: number, share: number): boolean => Math.abs(Math.log(a / b)) <= Math.log(1 + share);
const named = (s: Submission): Pick<AuditFinding, "round" | "submitter" | "system" | "benchmark"> => ({
  round: s.round,
  submitter: s.submitter,
  system: s.system,
  benchmark: s.benchmark,
});

const rowOf = (run: SubmissionRun, key: string): string => `${run.path}:${run.lines[key] ?? "?"}`;
const throughputRows = (s: Submission): string[] =>
  s.runs.slice(0, 3).flatMap((run) => run.throughputs.slice(-1).map((t) => `${run.path}:${t.line}`));
const timeRows = (s: Submission): string[] =>
  s.runs.slice(0, 2).flatMap((run) => [rowOf(run, "run_start"), rowOf(run, "run_stop")]);

/** Samples that a submission took to train, by its stated throughput; null where it states none. */
const workOf = (s: Submission): number | null =>
  s.throughput === null || s.minutes === null ? null : s.throughput * s.minutes * 60;

/** How far two amounts of work to the same target may differ: seeds and batches change the number of epochs. */
const sameWork = 0.4;

/**
 * The samples that a benchmark takes to train: the amount that most submissions agree on, if a stated throughput is that of
 * all devices or of one. Both readings of one device count agree with each other, so that several counts are needed.
 */
function usualWork(group: readonly Submission[]): number | null {
  const rows = group.flatMap((s) => {
    const work = workOf(s);
    return work === null || s.devices === null ? [] : [{ work, devices: s.devices }];
  });
  if (rows.length < 4) return null;
  const fits = (center: number) =>
    rows.filter((r) => near(r.work, center, sameWork) || near(r.work * r.devices, center, sameWork));
  const centers = rows.flatMap((r) => [r.work, r.work * r.devices]);
  const best = centers
    .map((center) => ({ center, found: fits(center) }))
    .sort((a, b) => b.found.length - a.found.length)[0]!;
  const counts = new Set(best.found.map((r) => r.devices)).size;
  if (best.found.length < rows.length * 0.6 || counts < 3) return null;
  // The middle of those that agree, each in the reading that fits.
  return median(best.found.map((r) => (near(r.work, best.center, sameWork) ? r.work : r.work * r.devices)));
}

/** A throughput that fits the benchmark only if it is that of one device. */
function perDevice(s: Submission, usual: number, group: readonly Submission[]): AuditFinding[] {
  const work = workOf(s);
  if (work === null || s.devices === null || s.devices < 2) return [];
  if (near(work, usual, sameWork) || !near(work * s.devices, usual, sameWork)) return [];
  // Of those that state the usual work on as many devices, the one whose time is nearest.
  const [other] = group
    .filter((o) => o.devices === s.devices && near(workOf(o) ?? 1e-9, usual, sameWork))
    .sort((a, b) => Math.abs(Math.log(a.minutes! / s.minutes!)) - Math.abs(Math.log(b.minutes! / s.minutes!)));
  const compared =
    other === undefined
      ? ""
      : `; ${other.submitter} ${other.system} states ${shortNumber(other.throughput!)} on as many devices in ${shortNumber(other.minutes!)}`;
  return [
    {
      id: "throughput-per-device",
      ...named(s),
      text: `${shortNumber(s.throughput!)} samples/s on ${s.devices} devices in ${shortNumber(s.minutes!)} minutes are ${shortNumber(work)} samples, where this benchmark takes about ${shortNumber(usual)}: ${shortNumber(usual / work)} times as many${compared}`,
      rows: [...throughputRows(s), ...timeRows(s), ...(other === undefined ? [] : throughputRows(other))],
      readings: [`the throughput of one device is stated as that of all ${s.devices}`],
    },
  ];
}

/** Much more time than the stated throughput needs for the benchmark. */
function timeNotExplained(s: Submission, usual: number, group: readonly Submission[]): AuditFinding[] {
  const work = workOf(s);
  if (work === null || s.devices === null) return [];
  // In the reading that is nearer to the benchmark.
  const read =
    Math.abs(Math.log(work / usual)) <= Math.abs(Math.log((work * s.devices) / usual)) ? work : work * s.devices;
  if (read < usual * 1.6) return [];
  // Larger batches take more samples to the same target: only submissions with a similar batch are comparable.
  const similar = group.filter(
    (o) => o !== s && o.globalBatch !== null && s.globalBatch !== null && near(o.globalBatch, s.globalBatch, 0.5),
  );
  const usualFor = (o: Submission): boolean => {
    const w = workOf(o);
    return w !== null && (near(w, usual, sameWork) || (o.devices !== null && near(w * o.devices, usual, sameWork)));
  };
  const usualOnes = similar.filter(usualFor);
  if (usualOnes.length < 2) return [];
  const distance = (o: Submission): number => Math.abs(Math.log((o.throughput ?? 1e-9) / s.throughput!));
  const [other] = usualOnes.filter((o) => o.minutes !== null).sort((a, b) => distance(a) - distance(b));
  const compared =
    other === undefined
      ? ""
      : `; ${other.submitter} ${other.system} needs ${shortNumber(other.minutes!)} at ${shortNumber(other.throughput!)} samples/s`;
  return [
    {
      id: "time-not-explained",
      ...named(s),
      text: `${shortNumber(s.minutes!)} minutes at the stated throughput are ${shortNumber(read / usual)} times the samples that this benchmark usually takes: ${shortNumber((s.minutes! * usual) / read)} minutes would do${compared}`,
      rows: [...timeRows(s), ...throughputRows(s), ...(other === undefined ? [] : timeRows(other))],
      readings: [
        "more epochs were needed: another batch, seed or learning rate",
        "evaluation, checkpoints or start-up take time that the throughput does not count",
        "the stated throughput does not hold for the whole run",
      ],
    },
  ];
}

/** Samples that the log counts, against its throughput and time. */
function samplesMultiply(s: Submission): AuditFinding[] {
  return s.runs.slice(0, 16).flatMap((run): AuditFinding[] => {
    const { samples, minutes, throughput } = run;
    if (samples === null || minutes === null || throughput === null || samples <= 0) return [];
    const implied = samples / (minutes * 60);
    // Evaluation and start-up lower the mean; nothing raises it above the stated throughput.
    if (implied <= throughput * 1.3) return [];
    return [
      {
        id: "samples-do-not-multiply",
        ...named(s),
        text: `${shortNumber(samples)} samples in ${shortNumber(minutes)} minutes are ${shortNumber(implied)} samples/s, and the log states ${shortNumber(throughput)}`,
        rows: [rowOf(run, "samples_count"), rowOf(run, "run_start"), rowOf(run, "run_stop"), ...throughputRows(s)],
        readings: ["the throughput of a part of the devices is stated", "samples are counted in another unit"],
      },
    ];
  });
}

/** How far samples per step may be from the global batch: the last step of an epoch may be smaller. */
const batchTolerance = 0.1;

/** Steps times the global batch, against the samples that the same events count. */
function batchTimesSteps(s: Submission): AuditFinding[] {
  const found = s.runs.flatMap((run) =>
    run.globalBatch === null
      ? []
      : run.perStep
          .filter((p) => !near(p.samples, run.globalBatch!, batchTolerance))
          .map((p) => ({ run, ...p, batch: run.globalBatch! })),
  );
  const [first] = found;
  if (first === undefined) return [];
  const runs = new Set(found.map((f) => f.run.path)).size;
  return [
    {
      id: "batch-times-steps",
      ...named(s),
      text: `the ${first.key} events count ${shortNumber(first.samples)} samples per step, and the log states a global batch of ${shortNumber(first.batch)} (${runs} of ${s.runs.length} runs)`,
      rows: found
        .slice(0, 3)
        .flatMap(({ run, lines }) => [rowOf(run, "global_batch_size"), ...lines.map((line) => `${run.path}:${line}`)]),
      readings: [
        "steps are counted in micro-steps, or from another start than samples",
        "the stated batch is not the one that was used",
      ],
    },
  ];
}

/** Audits submissions against themselves and each other. */
export function auditSubmissions(submissions: readonly Submission[]): AuditFinding[] {
  const usual = new Map<string, number | null>();
  const groups = new Map<string, Submission[]>();
  for (const s of submissions) groups.set(s.benchmark, [...(groups.get(s.benchmark) ?? []), s]);
  for (const [benchmark, group] of groups) usual.set(benchmark, usualWork(group));
  return submissions.flatMap((s) => {
    const work = usual.get(s.benchmark) ?? null;
    const compared =
      work === null
        ? []
        : [...perDevice(s, work, groups.get(s.benchmark)!), ...timeNotExplained(s, work, groups.get(s.benchmark)!)];
    return [...compared, ...samplesMultiply(s).slice(0, 1), ...batchTimesSteps(s)];
  });
}
