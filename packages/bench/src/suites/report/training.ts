// The figures of docs/training.md, from stored results of the training suites.
import type { StoredFiles } from "./stored.js";
import { markdownTable } from "./table.js";

const percent = (x: number | null): string => (x === null ? "-" : `${(100 * x).toFixed(1)}%`);
const times = (x: number | null | undefined): string => (x === null || x === undefined ? "-" : `${x.toFixed(2)}x`);
const workersOf = (n: number): string => `${n} worker${n === 1 ? "" : "s"}`;
const medianMs = (list: readonly number[] | undefined): string =>
  list === undefined || list.length === 0
    ? "-"
    : `${(1e3 * [...list].sort((a, b) => a - b)[list.length >> 1]).toFixed(1)} ms`;

type Stored = StoredFiles[string];

function stepLines({ training, overlap, ...file }: Stored): string[] {
  const tokenize = file.tokenize ?? file.tokenise ?? null;
  const rows = training.flatMap(({ size, stepSeconds, ratio, efficiency, exposedShare }: Stored) =>
    [1, 2].map((workers) => [
      `${size}, ${workersOf(workers)}`,
      medianMs(stepSeconds.weft[workers]),
      medianMs(stepSeconds.torch[workers]),
      times(ratio[workers]),
      ...(workers === 1 ? ["", "", ""] : [percent(efficiency.weft), percent(efficiency.torch), percent(exposedShare)]),
    ]),
  );
  const columns =
    "training step,Weft,PyTorch,ratio,efficiency of Weft,efficiency of PyTorch,exposed communication".split(",");
  return [
    "One core per worker, alternating rounds:",
    "",
    ...markdownTable(columns, rows, "---:"),
    "",
    ...training.map(
      ({ size, settings, at, hardware, versions }: Stored) =>
        `- ${size}: ${settings.rounds} rounds of ${settings.steps} steps (${at.slice(0, 10)}, ${hardware.processor}, Node ${versions.node}${settings.sideBySide ? ", all runs at the same time on separate cores" : ""}).`,
    ),
    ...(tokenize === null
      ? []
      : [`- Hash-tokenizing ${tokenize.data}: ${times(tokenize.ratio)} plain Python on one core.`]),
    ...(overlap === null
      ? []
      : [
          `- Small model, two workers, overlap against none: ${times(overlap.ratio)}; exposed communication ${percent(overlap.exposedShare)} and ${percent(overlap.exposedShareNone)} of a step.`,
        ]),
    "",
  ];
}

function gpuLines({ rows, hardware: h, at }: Stored): string[] {
  const lines = rows.map(({ size, precision, stepMs, bareMs, overhead, tableMs, at: measured }: Stored) => [
    `ag-${size} ${precision} (${(measured ?? at).slice(11, 16)})`,
    `${stepMs.toFixed(3)} ms`,
    `${bareMs.toFixed(3)} ms`,
    percent(overhead),
    `${tableMs.toFixed(3)} ms`,
  ]);
  const columns = [
    "step (time of day)",
    "through the trainer",
    "own program, bare",
    "data, metrics, logging",
    "bare step of the table",
  ];
  return [
    `Through the trainer on ${h.device ?? h.gpu} (${at.slice(0, 10)}), against its own program in a bare loop and the bare step of the GPU table:`,
    "",
    ...markdownTable(columns, lines, "---:"),
    "",
  ];
}

const scaleLines = ({ at, hardware: h, runs }: Stored): string[] => [
  `\`weft scale\` on \`weft train\` at 1 and 2 workers, one core each (${at.slice(0, 10)}, ${h.processor}):`,
  "",
  ...runs.map(
    ({ model, steps, verdict, efficiency, efficiencyOfMedians: medians, followed }: Stored) =>
      `- ${model}, ${steps} steps: ${verdict}, efficiency ${percent(efficiency)}${medians ? ` (of median steps ${percent(medians)})` : ""}${followed ? `; ${followed}` : ""}.`,
  ),
  "",
];

const fullLine = (report: Stored): string =>
  `- ${report.name} on ${report.device}: test accuracy ${report.testAccuracy.toFixed(4)} after epoch ${report.epochs.length}, evaluated once; ${report.finalValidation.toFixed(4)} on the held-out rows (${report.at.slice(0, 10)}).`;

const workerLines = ({ name, epochs, globalBatch, runs, difference }: Stored): string[] => [
  `The same training (${name}, ${epochs} epochs, global batch ${globalBatch}) on ${runs.map((r: Stored) => `${workersOf(r.workers)}: test accuracy ${r.testAccuracy.toFixed(4)}`).join(", on ")}; ${(100 * difference).toFixed(2)} points apart.`,
  "",
];

const settingLines = ({ at, hardware: h, rows }: Stored): string[] => [
  `Settings of ag_news_small judged by held-out rows, without the test split (${at.slice(0, 10)}, ${h.device ?? h.gpu}); accuracy after each epoch:`,
  "",
  ...rows.map(({ name, validation }: Stored) => `- ${name}: ${validation.map((x: number) => x.toFixed(4)).join(", ")}`),
  "",
];

/** The lines between the marks of the page. */
export function trainingFigures(files: StoredFiles): string[] {
  const part = (name: string, show: (file: Stored) => string[]): string[] =>
    files[name] === undefined ? [] : show(files[name]);
  const full = Object.keys(files).filter((name) => name.startsWith("training-"));
  return [
    ...part("train", stepLines),
    ...part("train-scale", scaleLines),
    ...part("train-gpu", gpuLines),
    ...(full.length > 0
      ? ["Full trainings on the real rows:", "", ...full.sort().map((name) => fullLine(files[name])), ""]
      : []),
    ...part("train-workers", workerLines),
    ...part("train-choose", settingLines),
  ];
}
