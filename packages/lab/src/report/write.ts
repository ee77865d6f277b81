// Writes the files of a report into a directory, each atomically. Images and the page are optional because they take seconds.
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Analysis } from "../diagnosis/index.js";
import { studyCharts } from "./charts.js";
import { fixFiles } from "./fixes.js";
import { renderPng, renderSvg } from "./render.js";
import { studyRows } from "./rows.js";
import { performanceReport, summaryCsv, summaryTex } from "./tables.js";

/** Options of `writeReport`. */
interface WriteOptions {
  /** Write PNG, SVG and the page; default true. */
  pictures?: boolean;
  /** Called after each file, for a progress bar. */
  onFile?: (name: string, done: number, total: number) => void;
}

/** Writes a file atomically. */
function writeWhole(path: string, content: string | Uint8Array): void {
  const temporary = `${path}.part`;
  writeFileSync(temporary, content);
  renameSync(temporary, path);
}

const fileName = (study: string): string => study.replaceAll(/[^A-Za-z0-9.-]+/g, "_") || "study";

/** Writes a report; returns the names of the files, relative to the directory. */
export async function writeReport(
  analyses: readonly Analysis[],
  directory: string,
  options: WriteOptions = {},
): Promise<string[]> {
  mkdirSync(directory, { recursive: true });
  const written: string[] = [];
  const pages = analyses.map((analysis) => {
    const rows = studyRows(analysis);
    return { analysis, rows, charts: studyCharts(analysis, rows) };
  });
  const pictures = options.pictures ?? true;
  const total = 4 + analyses.length + (pictures ? 1 + 2 * pages.reduce((a, p) => a + p.charts.length, 0) : 0);
  const put = (name: string, content: string | Uint8Array): void => {
    writeWhole(join(directory, name), content);
    written.push(name);
    options.onFile?.(name, written.length, total);
  };
  const reports = analyses.map((a) => a.report);
  put("analysis.json", JSON.stringify({ studies: reports }, null, 2) + "\n");
  put("comprehensive_summary.csv", summaryCsv(reports));
  put("summary_table.tex", summaryTex(reports));
  put("performance_report.txt", performanceReport(reports));
  for (const analysis of analyses) for (const [name, text] of Object.entries(fixFiles(analysis))) put(name, text);
  if (!pictures) return written;
  for (const { analysis, charts } of pages)
    for (const chart of charts) {
      const svg = await renderSvg(chart.spec);
      const base = `${fileName(analysis.report.name)}_${chart.name}`;
      put(`${base}.svg`, svg);
      put(`${base}.png`, await renderPng(svg));
    }
  const { reportHtml } = await import("./html.js");
  put("report.html", await reportHtml(pages));
  return written;
}
