// The charts as Vega-Lite specifications, for PNG, SVG and the interactive page. Nothing is clipped; measured and predicted
// points have different marks.
import type { Analysis } from "../diagnosis/index.js";
import { anchor, type EpochUse, plural, type ScalingRow, type StudyRows } from "./rows.js";
import { verdictTitle } from "./words.js";

/** A Vega-Lite or Vega specification. */
export type ChartSpec = Record<string, unknown>;

/** A chart of a report. */
export interface ReportChart {
  /** Suffix of the file name: `epoch_time_detailed`. */
  name: string;
  title: string;
  /** Text alternative. */
  description: string;
  spec: ChartSpec;
}

/** Okabe and Ito's color-blind-safe palette; in grayscale the point shapes distinguish series. */
export const palette = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#000000"];
/** The neutral color of the charts. */
export const gray = "#6B7280";

/** Mark of an epoch by its use in the analysis. */
const shapeOf: Record<EpochUse, string> = {
  counted: "circle",
  "warm-up": "cross",
  "other job": "triangle-up",
  "clock jump": "diamond",
  "cut short": "square",
};
const uses = Object.keys(shapeOf) as EpochUse[];

export const fontFamily = "DejaVu Sans";

const config: ChartSpec = {
  font: fontFamily,
  background: "white",
  view: { stroke: "#D1D5DB" },
  axis: {
    labelFontSize: 12,
    titleFontSize: 13,
    gridColor: "#E5E7EB",
    domainColor: "#9CA3AF",
    tickColor: "#9CA3AF",
    titleFontWeight: "normal",
  },
  legend: {
    labelFontSize: 12,
    titleFontSize: 12,
    orient: "bottom",
    labelLimit: 420,
    columns: 3,
    titleFontWeight: "normal",
  },
  title: {
    fontSize: 16,
    subtitleFontSize: 12,
    subtitleColor: "#374151",
    anchor: "start",
    offset: 12,
    subtitlePadding: 6,
  },
  range: { category: palette },
};

const schema = "https://vega.github.io/schema/vega-lite/v6.json";

interface Frame {
  title: string;
  subtitle: string | string[];
  description: string;
}

/** Adds title, subtitle and text alternative to a chart. */
export const framed = ({ title, subtitle, description }: Frame, body: ChartSpec): ChartSpec => ({
  $schema: schema,
  description,
  title: { text: title, subtitle },
  config,
  padding: 16,
  ...body,
});

const epochAxis: ChartSpec = {
  field: "epoch",
  type: "quantitative",
  title: "Epoch",
  axis: { tickMinStep: 1, format: "d" },
  scale: { zero: false, nice: false, padding: 10 },
};

function epochTime(analysis: Analysis, rows: StudyRows): ReportChart {
  const { report } = analysis;
  const data = rows.epochs;
  const used = [...new Set(data.map((r) => r.use))];
  const description = `Time of each epoch of ${report.name}, one line per run; ${report.runs
    .flatMap((r) => (r.epochSeconds === null ? [] : [`${plural(r.devices)} ${r.epochSeconds.mean.toFixed(2)} s`]))
    .join(", ")}.`;
  const first = report.warmup === 1 ? "first epoch" : `first ${report.warmup} epochs`;
  const notes = report.warmup > 0 ? [`the ${first} of a run is warm-up and not in its mean`] : [];
  if (used.includes("other job")) notes.push("a second job wrote into the same file");
  if (rows.omittedEpochs > 0) notes.push(`${rows.omittedEpochs} rows not drawn`);
  return {
    name: "epoch_time_detailed",
    title: `${report.name}: time of an epoch`,
    description,
    spec: framed(
      { title: `${report.name}: time of an epoch`, subtitle: notes.join("; "), description },
      {
        data: { values: data },
        width: 720,
        height: 340,
        encoding: {
          x: epochAxis,
          y: { field: "seconds", type: "quantitative", title: "Seconds per epoch", scale: { zero: true } },
          color: { field: "series", type: "nominal", title: null },
        },
        layer: [
          { mark: { type: "line", strokeWidth: 1.5 }, encoding: { detail: { field: "run" } } },
          {
            mark: { type: "point", size: 55, strokeWidth: 1.5 },
            encoding: {
              shape: {
                field: "use",
                type: "nominal",
                title: null,
                scale: {
                  domain: uses.filter((use) => used.includes(use)),
                  range: uses.filter((use) => used.includes(use)).map((use) => shapeOf[use]),
                },
              },
              tooltip: [
                { field: "run", title: "run" },
                { field: "epoch", title: "epoch" },
                { field: "seconds", title: "seconds", format: ".3f" },
                { field: "use", title: "used as" },
                { field: "source", title: "from" },
              ],
            },
          },
        ],
      },
    ),
  };
}

const shapes: Record<ScalingRow["kind"], string> = {
  measured: "circle",
  undecided: "square",
  "not a speedup": "cross",
  "work per second": "diamond",
  predicted: "triangle-up",
};
const colors: Record<ScalingRow["kind"], string> = {
  measured: palette[0]!,
  undecided: palette[4]!,
  "not a speedup": gray,
  "work per second": palette[2]!,
  predicted: palette[1]!,
};

/** Efficiencies from which scaling is called good and excellent (the classes of the report). */
const namedEfficiencies = [
  { value: 0.875, text: "excellent" },
  { value: 0.625, text: "good" },
];

function classLines(y: ChartSpec): ChartSpec[] {
  const data = { values: namedEfficiencies };
  return [
    { data, mark: { type: "rule", strokeDash: [2, 3], color: gray, opacity: 0.7 }, encoding: { y } },
    {
      data,
      mark: { type: "text", align: "left", dx: 4, dy: -5, fontSize: 10, color: gray },
      encoding: { y, x: { value: 0 }, text: { field: "text" } },
    },
  ];
}

function scalingPanel(
  rows: readonly ScalingRow[],
  field: "speedup" | "efficiency",
  title: string,
  counts: number[],
): ChartSpec {
  const share = field === "efficiency";
  const kinds = (Object.keys(shapes) as ScalingRow["kind"][]).filter((kind) => rows.some((r) => r.kind === kind));
  const base = counts[0]!;
  const scaleOf = (r: ScalingRow): number => (share ? r.devices / base : 1);
  const values = rows.map((r) => ({
    ...r,
    value: r[field],
    lowValue: r.low === null ? null : r.low / scaleOf(r),
    highValue: r.high === null ? null : r.high / scaleOf(r),
    text: share ? `${(r.efficiency * 100).toFixed(0)}%` : `${r.speedup.toFixed(2)}x`,
  }));
  const ideal = counts.map((devices) => ({ devices, value: share ? 1 : devices / base }));
  const x = {
    field: "devices",
    type: "quantitative",
    title: "Devices",
    // Space on the right for the labels of the last point.
    scale: {
      type: "log",
      base: 2,
      domain: [base * 0.8, counts.at(-1)! * 1.1 * (counts.at(-1)! / base) ** 0.24],
      nice: false,
    },
    axis: { values: counts, format: "d" },
  };
  const all = [...values.flatMap((v) => [v.value, v.highValue ?? v.value]), ...ideal.map((v) => v.value)];
  const top = Math.max(...all);
  // Logarithmic axes: ideal speedup is a straight line.
  const y = {
    field: "value",
    type: "quantitative",
    title,
    scale: share
      ? { domain: [0, top * 1.12], nice: true }
      : { type: "log", base: 2, domain: [Math.min(...all) * 0.75, top * 1.35], nice: false },
    axis: share ? { format: "%" } : { format: "~r", tickCount: 8 },
  };
  const kind = {
    field: "kind",
    type: "nominal",
    title: null,
    scale: { domain: kinds, range: kinds.map((k) => colors[k]) },
    legend: { symbolOpacity: 1 },
  };
  return {
    width: 330,
    height: 320,
    layer: [
      {
        data: { values: ideal },
        mark: { type: "line", strokeDash: [6, 4], color: gray, strokeWidth: 1.5 },
        encoding: { x, y },
      },
      ...(share ? classLines(y) : []),
      {
        data: { values: values.filter((v) => v.lowValue !== null) },
        mark: { type: "rule", strokeWidth: 5, opacity: 0.35 },
        encoding: { x, y: { ...y, field: "lowValue" }, y2: { field: "highValue" }, color: kind },
      },
      {
        data: { values },
        mark: { type: "point", size: 110, strokeWidth: 2, filled: true, opacity: 1 },
        encoding: {
          x,
          y,
          color: kind,
          shape: {
            field: "kind",
            type: "nominal",
            title: null,
            scale: { domain: kinds, range: kinds.map((k) => shapes[k]) },
          },
          tooltip: [
            { field: "devices", title: "devices" },
            { field: "kind", title: "what" },
            { field: "text", title: field },
            { field: "lowValue", title: "80% from", format: ".3f" },
            { field: "highValue", title: "to", format: ".3f" },
          ],
        },
      },
      {
        data: { values },
        mark: { type: "text", align: "left", dx: 8, dy: 9, fontSize: 12, fontWeight: "bold" },
        encoding: { x, y, text: { field: "text" }, color: kind },
      },
    ],
  };
}

function speedupEfficiency(analysis: Analysis, rows: StudyRows): ReportChart | null {
  if (rows.scaling.length < 2) return null;
  const { report } = analysis;
  const counts = [...new Set(rows.scaling.map((r) => r.devices))].sort((a, b) => a - b);
  const title =
    report.valid === false
      ? `${report.name}: what the times say, and do not`
      : `${report.name}: speedup and efficiency`;
  const description = `${verdictTitle(report)}. ${rows.scaling.map((r) => `${r.devices}: ${r.speedup.toFixed(2)} (${r.kind})`).join("; ")}.`;
  const legend = "dashed: ideal from the device count; bars: 80% intervals";
  return {
    name: "speedup_efficiency",
    title,
    description,
    spec: framed(
      { title, subtitle: [verdictTitle(report), legend], description },
      {
        hconcat: [
          scalingPanel(rows.scaling, "speedup", report.valid === false ? "Ratio to the baseline" : "Speedup", counts),
          scalingPanel(rows.scaling, "efficiency", "Efficiency", counts),
        ],
        spacing: 36,
      },
    ),
  };
}

function throughput(analysis: Analysis): ReportChart | null {
  const { report } = analysis;
  const values = report.runs.flatMap((run) => {
    if (run.samplesPerSecond === null) return [];
    const row = `run-${anchor(report.name)}-${anchor(run.id)}`;
    const common = { run: run.id, devices: run.devices, label: plural(run.devices), row };
    const rows = [{ ...common, what: "different samples", value: run.samplesPerSecond }];
    if (run.workSamplesPerSecond !== null && run.workSamplesPerSecond > run.samplesPerSecond * 1.05)
      rows.push({ ...common, what: "samples really worked on", value: run.workSamplesPerSecond });
    return rows;
  });
  if (values.length === 0) return null;
  const kinds = [...new Set(values.map((v) => v.what))];
  const description = `Samples per second of ${report.name}: ${values.map((v) => `${v.label} ${v.value.toFixed(0)} (${v.what})`).join(", ")}.`;
  const labels = [...new Set(values.map((v) => v.label))];
  const y = { field: "value", type: "quantitative", title: "Samples per second" };
  const x = { field: "label", type: "nominal", title: null, sort: labels, axis: { labelAngle: 0 } };
  const offset = kinds.length > 1 ? { xOffset: { field: "what", sort: kinds } } : {};
  return {
    name: "throughput",
    title: `${report.name}: throughput`,
    description,
    spec: framed(
      { title: `${report.name}: throughput`, subtitle: verdictTitle(report), description },
      {
        data: { values: values.map((v) => ({ ...v, text: String(Math.round(v.value)) })) },
        width: Math.max(360, labels.length * 150),
        height: 320,
        layer: [
          {
            mark: { type: "bar", cornerRadiusEnd: 2 },
            encoding: {
              x,
              ...offset,
              y,
              color: {
                field: "what",
                type: "nominal",
                title: null,
                scale: { domain: kinds, range: [palette[0], palette[2]] },
              },
              tooltip: [
                { field: "run", title: "run" },
                { field: "what", title: "what" },
                { field: "value", title: "samples/s", format: ".1f" },
              ],
            },
          },
          { mark: { type: "text", dy: -8, fontSize: 12 }, encoding: { x, ...offset, y, text: { field: "text" } } },
        ],
      },
    ),
  };
}

/** One line per run over the epochs. */
const epochLines = (
  data: readonly object[],
  { field, title, short }: { field: "valAccuracy" | "trainLoss"; title: string; short: string },
): ChartSpec => ({
  data: { values: data },
  width: 720,
  height: 340,
  mark: { type: "line", point: { size: 40 }, strokeWidth: 1.5 },
  encoding: {
    x: epochAxis,
    y: { field, type: "quantitative", title, scale: { zero: false } },
    color: { field: "series", type: "nominal", title: null },
    detail: { field: "run" },
    tooltip: [
      { field: "run", title: "run" },
      { field: "epoch", title: "epoch" },
      { field, title: short, format: ".4f" },
      { field: "source", title: "from" },
    ],
  },
});

function accuracy(analysis: Analysis, rows: StudyRows): ReportChart | null {
  const { report } = analysis;
  const data = rows.epochs.filter((r) => r.valAccuracy !== null);
  if (data.length === 0) return null;
  const finals = report.runs.flatMap((r) =>
    r.finalAccuracy === null ? [] : [`${plural(r.devices)} ${r.finalAccuracy.toFixed(3)}`],
  );
  const title = `${report.name}: validation accuracy`;
  const description = `Validation accuracy of ${report.name} over the epochs; last: ${finals.join(", ")}.`;
  const lines = epochLines(data, { field: "valAccuracy", title: "Validation accuracy", short: "accuracy" });
  const subtitle = `last epoch: ${finals.join(", ")}`;
  return { name: "accuracy", title, description, spec: framed({ title, subtitle, description }, lines) };
}

/** Training loss over the epochs, where it was recorded. */
function losses({ report }: Analysis, rows: StudyRows): ReportChart | null {
  const data = rows.epochs.filter((r) => r.trainLoss !== null);
  if (data.length === 0) return null;
  const title = `${report.name}: training loss`;
  const description = `Training loss of ${report.name} over the epochs, one line per run.`;
  const lines = epochLines(data, { field: "trainLoss", title: "Training loss", short: "loss" });
  const subtitle = "fewer steps per rank make the first epochs' loss larger";
  return { name: "loss", title, description, spec: framed({ title, subtitle, description }, lines) };
}

/** The parts of a mean step per run, where steps were recorded. */
function stepSplit({ report, verdict }: Analysis): ReportChart | null {
  const data = verdict.view.runs.flatMap(({ run, steps }) => {
    if (steps === null || (steps.dataShare === null && steps.exposedCommShare === null)) return [];
    const ms = steps.durationUs.mean / 1000;
    const data = (steps.dataShare ?? 0) * ms;
    const communication = (steps.exposedCommShare ?? 0) * ms;
    const parts = { "wait for data": data, "exposed communication": communication, compute: ms - data - communication };
    return Object.entries(parts).map(([part, value]) => ({ run: run.id, part, ms: Math.max(0, value) }));
  });
  if (data.length === 0) return null;
  const title = `${report.name}: parts of a step`;
  const description = `Mean step of each run of ${report.name}: waiting for data, exposed communication, and the rest.`;
  return {
    name: "step_split",
    title,
    description,
    spec: framed(
      { title, subtitle: "means over the counted steps of all ranks", description },
      {
        data: { values: data },
        width: 560,
        height: { step: 34 },
        mark: "bar",
        encoding: {
          y: { field: "run", type: "nominal", title: null, sort: null },
          x: { field: "ms", type: "quantitative", title: "Milliseconds per step", stack: "zero" },
          color: { field: "part", type: "nominal", title: null, scale: { range: palette.slice(0, 3) } },
          tooltip: [
            { field: "run", title: "run" },
            { field: "part", title: "part" },
            { field: "ms", title: "ms", format: ".3f" },
          ],
        },
      },
    ),
  };
}

/** The charts of a study that have data. */
export function studyCharts(analysis: Analysis, rows: StudyRows): ReportChart[] {
  const charts = [
    rows.epochs.length > 0 ? epochTime(analysis, rows) : null,
    speedupEfficiency(analysis, rows),
    throughput(analysis),
    losses(analysis, rows),
    accuracy(analysis, rows),
    stepSplit(analysis),
  ];
  return charts.filter((chart) => chart !== null);
}

/** Wraps text at this many characters. */
function wrap(text: string, letters: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + word.length < letters) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** The chart for narrow screens: one column, readable text. */
export function narrowChart(spec: ChartSpec): ChartSpec {
  const title = spec["title"] as { text: string; subtitle: string | string[] };
  const panels = spec["hconcat"] as ChartSpec[] | undefined;
  const { hconcat: _, ...rest } = spec;
  const size = { width: 250, height: 230 };
  return {
    ...rest,
    padding: 4,
    title: { text: wrap(title.text, 30), subtitle: [title.subtitle].flat().flatMap((line) => wrap(line, 44)) },
    config: {
      ...config,
      axis: { ...(config["axis"] as ChartSpec), labelFontSize: 11, titleFontSize: 12, labelOverlap: true },
      legend: { ...(config["legend"] as ChartSpec), columns: 1, labelLimit: 240 },
      title: { ...(config["title"] as ChartSpec), fontSize: 14, subtitleFontSize: 11 },
    },
    ...(panels === undefined ? size : { vconcat: panels.map((panel) => ({ ...panel, ...size })) }),
  };
}
