// Writes the figures of docs/training.md from results/train.json and results/training-*.json. `--check` compares instead.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const page = join(here, "../docs/training.md");
const folder = join(here, "results");
const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
const percent = (x) => (x === null ? "-" : `${(100 * x).toFixed(1)}%`);
const times = (x) => (x === null || x === undefined ? "-" : `${x.toFixed(2)}x`);
const middle = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const milliseconds = (list) =>
  list === undefined || list.length === 0 ? "-" : `${(1e3 * middle(list)).toFixed(1)} ms`;

const measuredOn = ({ at, hardware: h, versions }) => `${at.slice(0, 10)}, ${h.processor}, Node ${versions.node}`;

function steps({ training, overlap, tokenise }) {
  const rows = training.flatMap(({ size, stepSeconds, ratio, efficiency, exposedShare }) =>
    [1, 2].map((workers) => {
      const cells = [
        `${size}, ${workers} worker${workers === 1 ? "" : "s"}`,
        milliseconds(stepSeconds.weft[workers]),
        milliseconds(stepSeconds.torch[workers]),
        times(ratio[workers]),
      ];
      const scaling =
        workers === 1 ? ["", "", ""] : [percent(efficiency.weft), percent(efficiency.torch), percent(exposedShare)];
      return `| ${[...cells, ...scaling].join(" | ")} |`;
    }),
  );
  return [
    "One core a worker, alternating rounds:",
    "",
    "| training step | Weft | PyTorch | ratio | efficiency, Weft | efficiency, PyTorch | exposed communication |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ...rows,
    "",
    ...training.map(
      (t) =>
        `- ${t.size}: ${t.settings.rounds} rounds of ${t.settings.steps} steps (${measuredOn(t)}${t.settings.sideBySide ? ", all runs side by side on cores of their own" : ""}).`,
    ),
    ...(tokenise === null
      ? []
      : [`- Hash-tokenising ${tokenise.data}: ${times(tokenise.ratio)} plain Python on one core.`]),
    ...(overlap === null
      ? []
      : [
          `- Small model, two workers, overlap against none: ${times(overlap.ratio)}; exposed communication ${percent(overlap.exposedShare)} and ${percent(overlap.exposedShareNone)} of a step.`,
        ]),
    "",
  ];
}

const gpu = ({ rows, hardware: h, at }) => [
  `Through the trainer on ${h.device} (${at.slice(0, 10)}), against its own program in a bare loop and the bare step of the GPU table:`,
  "",
  "| step (time of day) | through the trainer | own program, bare | data, metrics, logging | bare step of the table |",
  "| --- | ---: | ---: | ---: | ---: |",
  ...rows.map(
    ({ size, precision, stepMs, bareMs, overhead, tableMs, at: measured }) =>
      `| ag-${size} ${precision} (${(measured ?? at).slice(11, 16)}) | ${stepMs.toFixed(3)} ms | ${bareMs.toFixed(3)} ms | ${percent(overhead)} | ${tableMs.toFixed(3)} ms |`,
  ),
  "",
];

const scale = ({ at, hardware: h, runs }) => [
  `\`weft scale\` on \`weft train\` at 1 and 2 workers, one core each (${at.slice(0, 10)}, ${h.processor}):`,
  "",
  ...runs.map(
    ({ model, steps, verdict, efficiency, efficiencyOfMedians: medians, followed }) =>
      `- ${model}, ${steps} steps: ${verdict}, efficiency ${percent(efficiency)}${medians ? ` (of median steps ${percent(medians)})` : ""}${followed ? `; ${followed}` : ""}.`,
  ),
  "",
];

const full = (report) =>
  report.testAccuracy === undefined
    ? `- ${report.name} on ${report.device}: test accuracy ${report.finalAccuracy.toFixed(4)} after epoch ${report.epochs.length} (${report.at.slice(0, 10)}; settings were chosen on the test split).`
    : `- ${report.name} on ${report.device}: test accuracy ${report.testAccuracy.toFixed(4)} after epoch ${report.epochs.length}, looked at once; ${report.finalValidation.toFixed(4)} on the rows held out (${report.at.slice(0, 10)}).`;

const workers = ({ name, epochs, globalBatch, runs, difference }) => [
  `The same training (${name}, ${epochs} epochs, global batch ${globalBatch}) on ${runs.map((r) => `${r.workers} worker${r.workers === 1 ? "" : "s"}: test accuracy ${r.testAccuracy.toFixed(4)}`).join(", on ")}; ${(100 * difference).toFixed(2)} points apart.`,
  "",
];

const choose = ({ at, hardware: h, rows }) => [
  `Settings of ag_news_small judged by rows held out, the test split left alone (${at.slice(0, 10)}, ${h.device}); accuracy after each epoch:`,
  "",
  ...rows.map(({ name, validation }) => `- ${name}: ${validation.map((x) => x.toFixed(4)).join(", ")}`),
  "",
];

const trainings = readdirSync(folder)
  .filter((name) => /^training-.*\.json$/.test(name))
  .sort()
  .map(read);
const text = [
  ...Object.entries({ "train.json": steps, "train-scale.json": scale, "train-gpu.json": gpu }).flatMap(
    ([name, show]) => (existsSync(join(folder, name)) ? show(read(name)) : []),
  ),
  ...(trainings.length > 0 ? ["Full trainings on the real rows:", "", ...trainings.map(full), ""] : []),
  ...(existsSync(join(folder, "train-workers.json")) ? workers(read("train-workers.json")) : []),
  ...(existsSync(join(folder, "train-choose.json")) ? choose(read("train-choose.json")) : []),
];
const [start, end] = [
  "<!-- figures: written by bench/train-page.mjs from bench/results/ -->\n",
  "<!-- end of figures -->",
];
const before = readFileSync(page, "utf8");
const after = `${before.slice(0, before.indexOf(start) + start.length)}${text.length > 0 ? `\n${text.join("\n")}\n` : ""}${before.slice(before.indexOf(end))}`;
if (process.argv.includes("--check")) {
  if (before !== after) {
    console.error("docs/training.md is not what bench/train-page.mjs writes; run it");
    process.exit(1);
  }
} else writeFileSync(page, after);
