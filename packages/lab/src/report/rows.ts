// The measurements of a report as a flat list with anchors: charts draw them and pages link to them.
import type { Analysis } from "../diagnosis/index.js";
import type { ScalingPoint } from "../validity/index.js";

export type EpochUse = "counted" | "warm-up" | "clock jump" | "cut short" | "other job";

export interface EpochTableRow {
  /** Anchor in the report. */
  row: string;
  run: string;
  series: string;
  devices: number;
  epoch: number;
  seconds: number;
  trainLoss: number | null;
  valAccuracy: number | null;
  /** How the analysis used it. */
  use: EpochUse;
  source: string;
}

export interface ScalingRow {
  row: string;
  devices: number;
  kind: "measured" | "undecided" | "not a speedup" | "work per second" | "predicted";
  speedup: number;
  efficiency: number;
  low: number | null;
  high: number | null;
}

export interface StudyRows {
  epochs: EpochTableRow[];
  /** Number of rows that were thinned out of `epochs`. */
  omittedEpochs: number;
  scaling: ScalingRow[];
}

/** Runs with more rows than this are thinned in charts and pages; means use all rows. */
const shownRows = 400;

export const anchor = (text: string): string => text.replaceAll(/[^A-Za-z0-9]+/g, "-").replaceAll(/^-|-$/g, "");
/** "1 device", "2 devices". */
export const plural = (devices: number): string => `${devices} device${devices === 1 ? "" : "s"}`;

function epochRows({ verdict, report }: Analysis): { epochs: EpochTableRow[]; omitted: number } {
  const epochs: EpochTableRow[] = [];
  let omitted = 0;
  const several = new Set(report.runs.map((r) => r.devices)).size < report.runs.length;
  for (const { run, epochs: summary } of verdict.view.runs) {
    if (summary === null) continue;
    const counted = new Set(summary.used);
    const warmup = new Set(summary.warmup);
    const jumps = new Set(summary.jumps);
    const cut = new Set(summary.cut);
    const all = summary.jobs.flat();
    const stride = Math.ceil(all.length / shownRows);
    omitted += all.length - Math.ceil(all.length / stride);
    all.forEach((e, i) => {
      if (i % stride !== 0) return;
      const left = warmup.has(e) ? "warm-up" : jumps.has(e) ? "clock jump" : cut.has(e) ? "cut short" : "other job";
      const use = counted.has(e) ? "counted" : left;
      const name = several ? `${plural(run.devices)} (${run.id})` : plural(run.devices);
      epochs.push({
        row: `row-${anchor(report.name)}-${anchor(run.id)}-${e.line ?? `e${e.epoch}`}`,
        run: run.id,
        series: use === "other job" ? `${name}, other job` : name,
        devices: run.devices,
        epoch: e.epoch,
        seconds: e.seconds,
        trainLoss: e.trainLoss ?? null,
        valAccuracy: e.valAccuracy ?? null,
        use,
        source: `${run.source.path}${e.line === undefined ? "" : `:${e.line}`}`,
      });
    });
  }
  return { epochs, omitted };
}

function pointRows(point: ScalingPoint, base: number, name: string): ScalingRow[] {
  const ratio = point.devices / base;
  const row = `count-${anchor(name)}-${point.devices}`;
  const [low, high] = point.interval ?? [null, null];
  const measured: ScalingRow = {
    row,
    devices: point.devices,
    kind: point.valid ? "measured" : point.status === "undecided" ? "undecided" : "not a speedup",
    speedup: point.speedup,
    efficiency: point.efficiency,
    low,
    high,
  };
  if (point.valid || point.workRatio === 1 || point.workSpeedup === null) return [measured];
  const { workSpeedup } = point;
  const scale = (x: number | null): number | null => (x === null ? null : (x * workSpeedup) / point.speedup);
  return [
    measured,
    {
      ...measured,
      kind: "work per second",
      speedup: workSpeedup,
      efficiency: workSpeedup / ratio,
      low: scale(low),
      high: scale(high),
    },
  ];
}

export function studyRows(analysis: Analysis): StudyRows {
  const { report, verdict } = analysis;
  const base = verdict.view.baseline;
  const { epochs, omitted } = epochRows(analysis);
  if (base === null) return { epochs, omittedEpochs: omitted, scaling: [] };
  const scaling = report.scaling.flatMap((point) => pointRows(point, base.devices, report.name));
  for (const p of report.predictions) {
    // A value without an interval is not drawn as a prediction.
    if (p.value === null || p.interval === null) continue;
    // Weak scaling: the time is that of as many times the work.
    const growth = report.scaling.some((point) => point.weak) ? p.devices / base.devices : 1;
    const of = (seconds: number): number => (growth * base.seconds.mean) / seconds;
    scaling.push({
      row: `count-${anchor(report.name)}-${p.devices}`,
      devices: p.devices,
      kind: "predicted",
      speedup: of(p.value),
      efficiency: of(p.value) / (p.devices / base.devices),
      low: of(p.interval[1]),
      high: of(p.interval[0]),
    });
  }
  return { epochs, omittedEpochs: omitted, scaling };
}
