// The self-contained HTML report: every point and number links to its measurements. All text is escaped here; the page loads
// nothing from the network.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { shortNumber } from "@weft/formats/text";
import type { Analysis } from "../diagnosis/index.js";
import { classMeaning } from "../metrics/index.js";
import type { Finding } from "../model/index.js";
import { narrowChart, type ReportChart } from "./charts.js";
import { pageScript, pageStyle } from "./page-style.js";
import { compileChart, renderSvg } from "./render.js";
import { anchor, type EpochTableRow, plural, type StudyRows } from "./rows.js";
import { classText, effectText, efficiencyText, readingText, verdictLine, whereText, workText } from "./words.js";

interface StudyPage {
  analysis: Analysis;
  rows: StudyRows;
  charts: ReportChart[];
}

const escape = (text: unknown): string =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

/** Data inside a script element: a `<` could end it. */
const scriptJson = (value: unknown): string => JSON.stringify(value).replaceAll("<", "\\u003c");

const runAnchor = (study: string, run: string): string => `run-${anchor(study)}-${anchor(run)}`;
const countAnchor = (study: string, devices: number): string => `count-${anchor(study)}-${devices}`;
const link = (to: string, text: string): string => `<a href="#${to}">${escape(text)}</a>`;

const verdictClass = {
  valid: "valid",
  undecided: "undecided",
  "not valid": "invalid",
  "nothing to compare": "",
} as const;

function verdict({ report }: Analysis): string {
  const last = report.scaling.at(-1);
  const detail = last === undefined ? "" : ` ${link(countAnchor(report.name, last.devices), "The rows behind it.")}`;
  return `<p class="verdict ${verdictClass[report.status]}"><strong>${escape(verdictLine(report))}.</strong>${detail}</p>`;
}

async function figure(chart: ReportChart, id: string): Promise<string> {
  const svg = await renderSvg(chart.spec);
  const specs = { wide: await compileChart(chart.spec), narrow: await compileChart(narrowChart(chart.spec)) };
  const named = svg.replace("<svg ", `<svg role="img" aria-label="${escape(chart.description)}" `);
  return `<figure data-chart="${id}">${named}<figcaption>${escape(chart.description)} Click a point for the row behind it.</figcaption></figure>
<script type="application/json" id="${id}">${scriptJson(specs)}</script>`;
}

function scalingTable({ report }: Analysis): string {
  if (report.scaling.length === 0) return "";
  const runsAt = (devices: number): string =>
    report.runs
      .filter((r) => r.devices === devices)
      .map((r) => link(runAnchor(report.name, r.id), r.id))
      .join(", ");
  const seconds = (devices: number): string => {
    const means = report.runs.flatMap((r) =>
      r.devices === devices && r.epochSeconds !== null ? [r.epochSeconds] : [],
    );
    return means.length === 0
      ? "-"
      : means.map((m) => `${shortNumber(m.mean)} &plusmn; ${shortNumber(m.std)} (n = ${m.n})`).join("<br>");
  };
  const measured = report.scaling.map(
    (p) =>
      `<tr id="${countAnchor(report.name, p.devices)}"><td>${p.devices}</td><td>${seconds(p.devices)}</td><td>${p.valid ? `${p.speedup.toFixed(3)}x` : `<s>${p.speedup.toFixed(3)}</s> ${p.status}`}</td><td>${workText(p)}</td><td>${efficiencyText(p)}</td><td>${shortNumber(p.workRatio)} (${p.workKnown})</td><td title="${escape(classMeaning[p.class])}">${classText(p)}</td><td class="text">${runsAt(p.devices)}</td></tr>`,
  );
  const predicted = report.predictions.map(
    (p) =>
      `<tr id="${countAnchor(report.name, p.devices)}"><td>${p.devices}</td><td>${p.value === null ? "-" : shortNumber(p.value)}${p.interval === null ? "" : ` (80%: ${shortNumber(p.interval[0])} to ${shortNumber(p.interval[1])})`}</td><td class="text" colspan="6">${escape(p.reason)}</td></tr>`,
  );
  return `<h3>Scaling</h3><div class="scroll"><table><thead><tr><th>devices</th><th>seconds (${report.basis ?? "none"})</th><th>ratio of times</th><th>work per second</th><th>efficiency</th><th>work ratio</th><th>class</th><th>runs</th></tr></thead><tbody>${[...measured, ...predicted].join("")}</tbody></table></div>`;
}

function findingBlock(finding: Finding, study: string, knownRows: ReadonlyMap<string, string>): string {
  const rowLinks = (rows: readonly string[] | undefined): string =>
    rows === undefined || rows.length === 0
      ? ""
      : ` [${rows.map((r) => (knownRows.has(r) ? link(knownRows.get(r)!, r.split("/").slice(-2).join("/")) : `<code>${escape(r)}</code>`)).join(", ")}]`;
  const effect = effectText(finding.predicted);
  const runs = finding.shownBy?.runs.length ? finding.shownBy.runs : finding.run === undefined ? [] : [finding.run];
  const links = runs.slice(0, 8).map((run) => link(runAnchor(study, run), run));
  const where = [...links, ...(finding.shownBy === undefined ? [] : [escape(whereText(finding).join(", "))])].join(" ");
  const part = (name: string, body: string | null): string =>
    body === null || body === "" ? "" : `<dt>${name}</dt><dd>${body}</dd>`;
  return `<article class="finding ${finding.severity}" id="finding-${anchor(study)}-${finding.id}-${finding.devices ?? ""}"><h3>${escape(finding.title)} <span class="tag">${finding.severity}</span> <span class="tag">${finding.id}</span> ${where}</h3><dl>
<dt>evidence</dt><dd><ul>${finding.evidence.map((e) => `<li><span class="tag ${e.rank}">${e.rank}</span> ${escape(e.text)}${rowLinks(e.rows)}</li>`).join("")}</ul></dd>
${part("readings", (finding.readings ?? []).map((r) => escape(readingText(r))).join("<br>"))}${part("cause", escape(finding.cause))}${part("also looked at", (finding.alternatives ?? []).map(escape).join("<br>"))}${part("fix", finding.fix === null ? null : escape(finding.fix))}${part("predicted effect", effect === null ? null : escape(effect))}${part("refuted by", escape(finding.refutedBy))}${part("rule from", escape(finding.source))}</dl></article>`;
}

function rowTables({ analysis, rows }: StudyPage): string {
  const { report } = analysis;
  return report.runs
    .map((run) => {
      const own = rows.epochs.filter((r) => r.run === run.id);
      const mixed = run.epochSecondsMixed;
      const mean =
        run.epochSeconds === null
          ? "no usable measurement"
          : `mean ${shortNumber(run.epochSeconds.mean)} s &plusmn; ${shortNumber(run.epochSeconds.std)}, n = ${run.epochSeconds.n}${mixed === undefined ? "" : ` separated; ${shortNumber(mixed.mean)} s mixed, n = ${mixed.n}`}`;
      const cells = (r: EpochTableRow): string =>
        `<tr id="${r.row}"><td>${r.epoch}</td><td>${shortNumber(r.seconds)}</td><td>${r.trainLoss === null ? "" : shortNumber(r.trainLoss)}</td><td>${r.valAccuracy === null ? "" : shortNumber(r.valAccuracy)}</td><td${r.use === "counted" ? "" : ' class="skipped"'}>${r.use}</td><td class="text"><code>${escape(r.source.split("/").slice(-2).join("/"))}</code></td></tr>`;
      const table =
        own.length === 0
          ? "<p>No epochs were recorded.</p>"
          : `<details><summary>${own.length} rows${rows.omittedEpochs > 0 ? " (thinned for display; the means use all)" : ""}</summary><div class="scroll"><table><thead><tr><th>epoch</th><th>seconds</th><th>train loss</th><th>val accuracy</th><th>used as</th><th>from</th></tr></thead><tbody>${own.map(cells).join("")}</tbody></table></div></details>`;
      return `<section id="${runAnchor(report.name, run.id)}"><h3>${escape(run.id)} (${plural(run.devices)})</h3><p>${mean}; <code>${escape(run.source)}</code>; status ${escape(run.status)}</p>${table}</section>`;
    })
    .join("\n");
}

async function studySection(page: StudyPage): Promise<string> {
  const { analysis, rows, charts } = page;
  const { report } = analysis;
  const id = anchor(report.name);
  const figures: string[] = [];
  for (const chart of charts) figures.push(await figure(chart, `chart-${id}-${chart.name}`));
  // Evidence names rows as `file:line` or `run:line`; both lead to the same table row.
  const known = new Map(
    rows.epochs.flatMap((r) => {
      const line = r.source.slice(r.source.lastIndexOf(":") + 1);
      return [[r.source, r.row] as const, [`${r.run}:${line}`, r.row] as const];
    }),
  );
  for (const run of report.runs) known.set(run.id, runAnchor(report.name, run.id));
  const findings =
    report.findings.length === 0
      ? "<p>None.</p>"
      : report.findings.map((f) => findingBlock(f, report.name, known)).join("\n");
  const notes = report.problems.map((p) => `<li>${escape(p.message)} <code>${escape(p.file)}</code></li>`).join("");
  return `<section id="study-${id}"><h2>${escape(report.name)}</h2>
${verdict(analysis)}
${figures.join("\n")}
${scalingTable(analysis)}
<h3>Findings</h3>${findings}
${notes === "" ? "" : `<h3>Notes on the input</h3><ul>${notes}</ul>`}
<h3>Runs and the rows behind the figures</h3>
${rowTables(page)}
</section>`;
}

/** The Vega runtime as one script, from the installed package. */
function vegaRuntime(): string {
  const entry = fileURLToPath(import.meta.resolve("vega"));
  return readFileSync(entry.replace(/vega\.module\.js$/, "vega.min.js"), "utf8").replaceAll("</script", "<\\/script");
}

export async function reportHtml(pages: readonly StudyPage[]): Promise<string> {
  const sections: string[] = [];
  for (const page of pages) sections.push(await studySection(page));
  const contents = pages
    .map(({ analysis }) => link(`study-${anchor(analysis.report.name)}`, analysis.report.name))
    .join(" ");
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Scaling report</title><style>${pageStyle}</style></head><body>
<h1>Scaling report</h1>
<p>Every number was measured, or says that it is a prediction. Click a point or a number for the rows behind it.</p>
<nav>${contents}</nav>
${sections.join("\n")}
<div id="vg-tooltip-element" role="status"></div>
<script>${vegaRuntime()}</script>
<script>${pageScript}</script>
</body></html>
`;
}
