// The page of `weft trace --html`: timeline, findings as cards that jump to their place, and tables, in one file.
import type { Finding } from "../model/index.js";
import { type RankReport, type Timeline, type TimelineRow, type TraceReport, timelineKinds } from "../trace/index.js";
import { rooflineSvg } from "./roofline.js";
import { tracePageScript, tracePageStyle } from "./trace-page-script.js";

const escape = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
/** JSON inside a script element must not end it. */
const json = (value: unknown): string => JSON.stringify(value).replaceAll("<", "\\u003c");
/** A time with four digits in the unit that fits. */
function time(us: number | null | undefined): string {
  if (us == null) return "-";
  // Larger numbers would get an exponent.
  const digits = (value: number): string => (value < 9999.5 ? String(Number(value.toPrecision(4))) : value.toFixed(0));
  const [unit, name] = us < 1e3 ? [1, "us"] : us < 1e6 ? [1e3, "ms"] : [1e6, "s"];
  return us === 0 ? "0" : `${digits(us / unit)} ${name}`;
}
const percent = (value: number | null | undefined): string => (value == null ? "-" : `${value.toFixed(1)}%`);

/** Events in which a finding shows: the longest of these kinds is where its card jumps to. */
const placeOfFinding: Readonly<Record<string, readonly (typeof timelineKinds)[number][]>> = {
  "trace-data-wait": ["data wait"],
  "trace-recompilation": ["compilation"],
  "trace-outside-operators": ["step"],
  "trace-host-callback": ["computation"],
  "trace-straggler": ["communication"],
  "trace-exposed-communication": ["communication"],
  "trace-synchronization": ["synchronization"],
  "trace-allocation": ["idle: launched late"],
  "trace-small-kernels": ["idle: launched late"],
  "trace-host-bound": ["idle: launched late"],
  "trace-copies": ["copy"],
  "trace-no-tensor-cores": ["computation"],
};

function longest(rows: readonly TimelineRow[], kinds: readonly string[]): number {
  const wanted = new Set(kinds.map((kind) => timelineKinds.indexOf(kind as (typeof timelineKinds)[number])));
  let best = -1;
  let most = -1;
  let at = 0;
  for (const row of rows) {
    for (let i = 0; i < row.count; i++)
      if (wanted.has(row.kind[i]) && row.duration[i] > most) {
        most = row.duration[i];
        best = at + i;
      }
    at += row.count;
  }
  return best;
}

const base64 = (array: Uint32Array | Uint8Array): string =>
  Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");

const longestCell = 400;

/** A table without the columns in which no row has a value. */
function table(names: readonly string[], all: readonly (readonly string[])[]): string {
  const used = names.map((_, i) => all.length === 0 || all.some((row) => row[i] !== "-" && row[i] !== ""));
  const [header, ...rows] = [names, ...all].map((row) => row.filter((_, i) => used[i]));
  const line = (cells: readonly string[], tag: string): string =>
    `<tr>${cells
      .map((cell) => escape(cell.slice(0, longestCell)))
      .map((cell) => `<${tag} title="${cell}">${cell}</${tag}>`)
      .join("")}</tr>`;
  return `<div class="scroll"><table><thead>${line(header, "th")}</thead><tbody>${rows.map((row) => line(row, "td")).join("")}</tbody></table></div>`;
}

function cards(findings: readonly Finding[], rows: readonly TimelineRow[]): string {
  if (findings.length === 0) return "<p>No findings: no rule found a problem in these traces.</p>";
  return findings
    .map((finding) => {
      const jump = longest(rows, placeOfFinding[finding.id] ?? []);
      const effect = finding.predicted;
      const predicted =
        effect?.to == null ? "" : `<small>Predicted step: ${time(effect.from)} to ${time(effect.to)}</small>`;
      const facts = finding.evidence.map((one) => escape(one.text)).join("; ");
      return `<button class="card ${finding.severity}" data-jump="${jump}" data-finding="${finding.id}"><b>${escape(finding.title)}</b>${facts}<small>${escape(finding.fix ?? "")}</small>${predicted}</button>`;
    })
    .join("\n");
}

/** The whole page as HTML. */
export function tracePage(
  title: string,
  report: TraceReport,
  findings: readonly Finding[],
  timeline: Timeline,
): string {
  const { rows, names, span, leftOut } = timeline;
  const count = rows.reduce((sum, row) => sum + row.count, 0);
  // Times as 32-bit numbers: nanoseconds up to four seconds, coarser beyond.
  const tick = Math.max(1, Math.ceil(span / 4e9));
  const starts = new Uint32Array(count);
  const durations = new Uint32Array(count);
  const nameIds = new Uint32Array(count);
  const kinds = new Uint8Array(count);
  let at = 0;
  const listed = rows.map((row, i) => {
    for (let k = 0; k < row.count; k++) {
      starts[at + k] = Math.round(row.start[k] / tick);
      durations[at + k] = Math.round(row.duration[k] / tick);
    }
    nameIds.set(row.name, at);
    kinds.set(row.kind, at);
    const entry = {
      rank: row.rank,
      label: row.label,
      at,
      count: row.count,
      first: i === 0 || rows[i - 1].rank !== row.rank,
    };
    at += row.count;
    return entry;
  });
  const meta = { tick, span, rows: listed, names: names.map((name) => name.slice(0, 300)), kinds: timelineKinds };
  const [first] = report.ranks;
  const note = leftOut > 0 ? `<p>${leftOut} short events are left out of the timeline; the tables count all.</p>` : "";
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escape(title)}</title><style>${tracePageStyle}</style></head>
<body><header><h1>${escape(title)}</h1>${table(
    ["rank", "on", "span", "idle", "compute", "exposed communication", "data wait", "steps", "mean step"],
    report.ranks.map((rank) => [
      String(rank.rank),
      rank.device,
      time(rank.spanUs),
      percent(rank.idlePercent),
      percent(rank.computePercent),
      time(rank.exposedCommunicationUs),
      time(rank.dataLoaderUs),
      String(rank.steps.length),
      rank.steps.length === 0 ? "-" : time(meanStep(rank)),
    ]),
  )}${problemList(report)}</header>
<main><section><h2>Findings</h2><div id="cards">${cards(findings, rows)}</div></section>
<div id="bar"><label>Search <input id="search" type="search" placeholder="kernel or operator"></label><span><kbd>W</kbd> <kbd>S</kbd> zoom, <kbd>A</kbd> <kbd>D</kbd> move, <kbd>F</kbd> focus, <kbd>/</kbd> search, <kbd>0</kbd> all</span><span id="detail" role="status"></span></div>
<div id="view" style="height: min(60vh, ${18 * rows.length + 40}px)" tabindex="0" role="application" aria-label="Timeline of ${count} events"><canvas id="canvas"></canvas></div>
<section><div class="legend" id="legend"></div>${note}</section>
${stepSection(report)}
${operatorSection(first)}
<section id="kernels"><h2>${first?.source === "kineto" && first.launches === null ? "Operators" : "Kernels"} of rank ${first?.rank ?? 0}</h2>${table(
    ["name", "type", "count", "sum", "mean", "longest"],
    (first?.kernels ?? [])
      .slice(0, 40)
      .map((kernel) => [
        kernel.name,
        kernel.type.toLowerCase(),
        String(kernel.count),
        time(kernel.sumUs),
        time(kernel.meanUs),
        time(kernel.maxUs),
      ]),
  )}</section>
${whatIfSection(first)}</main>
<script type="application/json" id="meta">${json(meta)}</script><script type="text/plain" id="starts">${base64(starts)}</script><script type="text/plain" id="durations">${base64(durations)}</script><script type="text/plain" id="nameIds">${base64(nameIds)}</script><script type="text/plain" id="kinds">${base64(kinds)}</script>
<script>${tracePageScript}</script></body></html>
`;
}

function whatIfSection(rank: RankReport | undefined): string {
  if (rank?.whatIf == null || rank.whatIf.rows.length === 0) return "";
  const rows = rank.whatIf.rows.map((row) => [row.name, time(row.stepUs), `${row.speedup.toFixed(2)}x`]);
  return `<section id="what-if"><h2>What if</h2>${table(["change", "step", "samples/s"], rows)}</section>`;
}

/** What could not be read or is doubtful: the numbers of the page are to be read with it. */
function problemList({ problems, ranks }: TraceReport): string {
  const several = ranks.length > 1;
  const all = [
    ...problems,
    ...ranks.flatMap((rank) => rank.problems.map((problem) => (several ? `rank ${rank.rank}: ${problem}` : problem))),
  ];
  const shown = [...new Set(all)].slice(0, mostProblems);
  return shown.length === 0
    ? ""
    : `<ul id="problems">${shown.map((problem) => `<li>${escape(problem)}</li>`).join("")}</ul>`;
}

/** Three digits, without an exponent. */
const number = (value: number | null, unit = 1): string =>
  value === null ? "-" : value / unit < 999.5 ? (value / unit).toPrecision(3) : (value / unit).toFixed(0);

/** Operators with rates, the roofline, and the modules and lines behind the kernels. */
function operatorSection(rank: RankReport | undefined): string {
  const operators = rank?.operators;
  if (operators == null || operators.rows.length === 0) return "";
  const { peaks, mfuPercent, mfuDefinition } = operators;
  const places = (title: string, list: readonly { name: string; us: number }[]): string =>
    list.length === 0
      ? ""
      : `<div><h3>${title}</h3>${table(
          [title.toLowerCase(), "device time"],
          list.slice(0, 15).map((place) => [place.name, time(place.us)]),
        )}</div>`;
  const utilization =
    mfuPercent === null ? "" : `Model FLOP utilization ${mfuPercent.toPrecision(3)}%: ${escape(mfuDefinition)}. `;
  return `<section id="operators"><h2>Operators of rank ${rank?.rank ?? 0}</h2><p>${utilization}Tensor cores run in ${percent(operators.tensorCorePercent)} of the computing time; ${percent(operators.attributedPercent)} of the device time is attributed to operators.${peaks === null ? "" : ` Rates of ${escape(peaks.name)}: ${peaks.from}.`}</p>${rooflineSvg(operators)}${table(
    [
      "operator",
      "calls",
      "device time",
      "GFLOP",
      "TFLOP/s",
      "GB/s",
      "of the roof",
      "limit",
      "tensor cores",
      "largest inputs",
    ],
    operators.rows
      .slice(0, 40)
      .map((row) => [
        row.name,
        String(row.calls),
        time(row.deviceUs),
        number(row.flops, 1e9),
        number(row.tflops),
        number(row.bandwidthGBps),
        percent(row.roofPercent),
        row.limit ?? "-",
        percent(row.tensorCorePercent),
        row.shapes,
      ]),
  )}<div class="columns">${places("Modules", operators.modules)}${places("Lines", operators.lines)}</div></section>`;
}

const mostProblems = 20;
const mostSteps = 200;
const mostRanks = 24;

const meanStep = ({ steps }: RankReport): number =>
  steps.reduce((sum, step) => sum + step.us, 0) / Math.max(1, steps.length);

/** Step times; of many ranks those of the slowest. */
function stepSection({ ranks }: TraceReport): string {
  const shown = ranks.length <= mostRanks ? ranks : [...ranks].sort((a, b) => meanStep(b) - meanStep(a));
  const columns = shown
    .slice(0, mostRanks)
    .map((rank) => ({ rank: rank.rank, us: new Map(rank.steps.map((step) => [step.number, step.us])) }));
  const numbers = [...new Set(columns.flatMap(({ us }) => [...us.keys()]))].sort((a, b) => a - b);
  const rows = numbers
    .slice(0, mostSteps)
    .map((number) => [String(number), ...columns.map(({ us }) => time(us.get(number)))]);
  const notes = [
    ...(ranks.length > mostRanks ? [`the ${mostRanks} slowest of ${ranks.length} ranks`] : []),
    ...(numbers.length > mostSteps ? [`the first ${mostSteps} of ${numbers.length} steps`] : []),
  ];
  if (rows.length === 0) return "";
  const note = notes.length === 0 ? "" : `<p>Shown: ${notes.join(", ")}.</p>`;
  return `<section id="steps"><h2>Steps</h2>${note}${table(["step", ...columns.map(({ rank }) => `rank ${rank}`)], rows)}</section>`;
}
